package clusterinformers_test

import (
	"testing"

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
