package clusterinformers_test

import (
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
)

// TestManager_KnowsItsMembersOnceSourcesHaveSpoken: until then an empty index says nothing of the fleet.
func TestManager_KnowsItsMembersOnceSourcesHaveSpoken(t *testing.T) {
	var view []clusterinformers.Spec
	r := newRig(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) {
		view, r.source.view = r.source.view, nil
		view = append(view, clusterinformers.Spec{Name: "fleet/refused", UID: "u", Kubeconfig: []byte("not one")})
	}).start()
	if r.manager.Known() {
		t.Error("the members are known before the source has spoken")
	}
	r.source.set(view...)
	r.until("the members are known", r.manager.Known)
	for _, m := range view {
		if _, ok := r.index.Snapshot().Member(m.Name); !ok {
			t.Errorf("%s is not in the index", m.Name)
		}
	}
}

// TestManager_IsReadyOnceReadersSeeIt: commits are held until they are on disk, and a query that is asked once the manager
// is ready must find the members that it is ready with.
func TestManager_IsReadyOnceReadersSeeIt(t *testing.T) {
	r := newRig(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		held, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1), Hold: true})
		if err != nil {
			t.Fatal(err)
		}
		r.index, o.Index = held, held
		fill(t, r.fleet.Members()[0], 3)
	}).start()
	r.until("all members have synced", func() bool {
		for _, m := range r.manager.Members() {
			if !m.Synced {
				return false
			}
		}
		return len(r.manager.Members()) == len(r.fleet.Members())
	})
	if ready, waiting := r.manager.Ready(); ready || len(waiting) != 1 {
		t.Errorf("ready %t, waiting for %q, while readers see revision %d of %d", ready, waiting, r.index.Snapshot().Revision(), r.index.Newest().Revision())
	}
	if r.manager.Known() {
		t.Error("the members are known while readers see none of them")
	}
	shown, _ := r.index.Pending(r.index.Snapshot())
	shown.Release()
	if ready, waiting := r.manager.Ready(); !ready {
		t.Errorf("waiting for %q although readers see what was read", waiting)
	}
	if !r.manager.Known() {
		t.Error("readers see the members, but they are not known")
	}
}
