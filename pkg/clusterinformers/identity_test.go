package clusterinformers_test

import (
	"slices"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/test/sim"
)

func refusedSpec(name string, reason connection.Reason) clusterinformers.Spec {
	return clusterinformers.Spec{Name: name, Refused: &connection.Refusal{Reason: reason, Message: "for a test"}}
}

// joined are the members in the index, by name.
func (r *rig) joined() []string {
	var names []string
	for m := range r.index.Snapshot().Members() {
		names = append(names, m.Name)
	}
	return names
}

func TestMember_NeverReachedIsInTheIndex(t *testing.T) {
	opts := fewKinds()
	opts.Members = 2
	var unborn, deleted clusterinformers.Spec
	r := newRig(t, opts, func(r *rig, _ *clusterinformers.Options) {
		first, cut := r.source.view[0], r.source.view[1]
		r.fleet.Members()[1].Cut()
		noConfig := refusedSpec("fleet/no-kubeconfig", connection.NoKubeconfig)
		noConfig.UID = "1"
		garbage := clusterinformers.Spec{Name: "fleet/garbage", UID: "2", Kubeconfig: []byte("clusters: }")}
		unborn = refusedSpec("fleet/unborn", connection.NotInitialized)
		deleted = refusedSpec("fleet/deleted", connection.Deleting)
		unborn.UID, unborn.Uninitialized = "3", true
		deleted.UID, deleted.Uninitialized = "4", true
		r.source.view = []clusterinformers.Spec{
			first, cut, noConfig, garbage, unborn, deleted, refusedSpec("context/unidentified", connection.Unreachable),
		}
	}).start()
	up, cut := r.fleet.Members()[0], r.fleet.Members()[1]
	r.synced(up)
	want := []string{"context/unidentified", "fleet/garbage", nameOf(up), nameOf(cut), "fleet/no-kubeconfig"}
	r.until("all that belong to the fleet have joined", func() bool {
		return slices.Equal(r.joined(), want)
	})
	for _, name := range want {
		scopes := slices.Collect(r.index.Snapshot().Scopes(name))
		if (name == nameOf(up)) != (len(scopes) > 0) {
			t.Errorf("%s has %d scopes", name, len(scopes))
		}
	}
	if n := len(r.manager.Members()); n != 7 {
		t.Errorf("%d members are known, want 7", n)
	}

	// What was never up joins once it is.
	unborn = refusedSpec(unborn.Name, connection.NoKubeconfig)
	unborn.UID = "3"
	r.source.set(specOf(t, up), unborn)
	r.until("it has joined, and who is not known any more has left", func() bool {
		return slices.Equal(r.joined(), []string{nameOf(up), unborn.Name})
	})
}

func TestMember_IdentifiedLaterIsNeverRemoved(t *testing.T) {
	r := newRig(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) {
		m := r.fleet.Members()[0]
		fill(t, m, 3)
		r.source.view = []clusterinformers.Spec{refusedSpec(nameOf(m), connection.Unreachable)}
	}).start()
	m := r.fleet.Members()[0]
	r.until("it has joined", func() bool { _, there := r.index.Snapshot().Member(nameOf(m)); return there })
	joined := r.index.Snapshot()
	cursor := r.index.Cursor(joined)
	r.source.set(specOf(t, m))
	for synced := false; !synced; {
		batch, err := cursor.Next(t.Context())
		ok(t, err)
		for d := range batch.Members() {
			if d.Before == nil || d.After == nil || d.Before.UID != d.After.UID {
				t.Fatalf("it has left or rejoined: %+v", d)
			}
		}
		info, _ := batch.After.Scope(nameOf(m), "Pod")
		synced = info.Status.State == aggregate.Synced
	}
	r.synced(m)
	r.exact(m, fewKinds().Kinds)
	if st := r.status(m); st.UID != "uid-"+m.Name() {
		t.Errorf("UID %q", st.UID)
	}

	// A source that has forgotten who it is says nothing about who it is.
	lists := r.allLists(m)
	again := specOf(t, m)
	again.UID = ""
	r.source.set(again)
	r.during(200*time.Millisecond, "it stays who it was", func() bool {
		return r.status(m).UID == "uid-"+m.Name() && len(r.held(m, "Pod")) == 3
	})
	if n := r.allLists(m); n != lists {
		t.Errorf("%d more lists", n-lists)
	}

	// Another cluster is another member.
	another := specOf(t, m)
	another.UID = "another"
	r.source.set(another)
	r.until("it has joined as another", func() bool {
		is, _ := r.index.Snapshot().Member(nameOf(m))
		return is.UID == "another" && r.status(m).Synced
	})
}

func TestManager_ReadyWaitsForTransientRefusals(t *testing.T) {
	for _, tt := range []struct {
		reason connection.Reason
		waits  bool
	}{
		{connection.Unreachable, true},
		{connection.Unauthorized, true},
		{connection.Deleting, false},
		{connection.NotInitialized, false},
		{connection.NoKubeconfig, false},
		{connection.ExecPlugin, false},
		{connection.InvalidKubeconfig, false},
	} {
		r := newRig(t, sim.Options{Members: 1}, func(r *rig, o *clusterinformers.Options) {
			o.GiveUpAfter = time.Hour
			r.source.view = []clusterinformers.Spec{refusedSpec("context/a", tt.reason)}
		}).start()
		r.until("it is refused", func() bool {
			members := r.manager.Members()
			return len(members) == 1 && members[0].Reason == tt.reason
		})
		if ready, waiting := r.manager.Ready(); ready == tt.waits || tt.waits && !slices.Equal(waiting, []string{"context/a"}) {
			t.Errorf("%s: ready %t, waiting for %v", tt.reason, ready, waiting)
		}
		r.end()
	}
}

func TestManager_ReadyWaitsForABrokenFirstConnection(t *testing.T) {
	r := newRig(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		o.GiveUpAfter = time.Hour
		r.fleet.Members()[0].Faults().Add(sim.Fault{Verb: "version", Reset: true, Times: 1})
		fill(t, r.fleet.Members()[0], 3)
	}).start()
	m := r.fleet.Members()[0]
	r.until("ready", func() bool { ready, _ := r.manager.Ready(); return ready })
	if !r.status(m).Synced || len(r.held(m, "Pod")) != 3 {
		t.Error("ready before the member has synced")
	}
}
