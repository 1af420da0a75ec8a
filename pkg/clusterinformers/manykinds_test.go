package clusterinformers_test

import (
	"fmt"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/test/sim"
)

// invented are kinds that no other member has.
func invented(n int) []sim.Kind {
	var out []sim.Kind
	for i := range n {
		out = append(out, sim.Kind{Group: "evil.example", Kind: fmt.Sprint("Evil", i), Resource: fmt.Sprintf("evil%ds", i), Versions: []string{"v1"}, Namespaced: true})
	}
	return out
}

func TestAbsence_KindsOfOneMemberMakeScopesInNoOther(t *testing.T) {
	fleet := fewKinds()
	fleet.Members = 3
	r := follow(t, fleet, func(_ *rig, o *clusterinformers.Options) { o.DiscoveryInterval = 50 * time.Millisecond })
	members := r.fleet.Members()
	evil, good := members[0], members[1]
	scopes := func(m *sim.Member) (n int) {
		for range r.index.Snapshot().Scopes(nameOf(m)) {
			n++
		}
		return n
	}
	before := scopes(good)
	kinds := invented(100)
	for _, k := range kinds {
		ok(t, evil.AddKind(k))
	}
	r.until("the kinds of one member are held there", func() bool { return scopes(evil) == before+len(kinds) && r.all(evil, aggregate.Synced) })
	if got := scopes(good); got != before {
		t.Errorf("%d scopes are in another member, want %d", got, before)
	}
	last := aggregate.MakeKind(kinds[99].Kind, kinds[99].Group)
	if info, there := r.index.Snapshot().Scope(nameOf(good), last); there || info.Status.State != aggregate.NotServed {
		t.Errorf("another member has a scope: %v, %s; it is known to be empty", there, info.Status.State)
	}
	// A kind that somebody reads has a scope everywhere.
	r.manager.RequireKinds([]aggregate.Kind{last})
	r.until("a kind that is read has a scope in every member", func() bool {
		info, there := r.index.Snapshot().Scope(nameOf(good), last)
		return there && info.Status.State == aggregate.NotServed
	})
	r.manager.RequireKinds(nil)
	for _, k := range kinds {
		evil.RemoveKind(k.GroupResource())
	}
	r.until("scopes of kinds that nobody serves have gone", func() bool { return scopes(evil) == before && scopes(good) == before })
	// What a member that is out of reach serves is not known.
	r.source.set(specOf(t, evil), clusterinformers.Spec{Name: nameOf(good), UID: "uid-" + good.Name(), Refused: &connection.Refusal{Reason: connection.Deleting}}, specOf(t, members[2]))
	r.until("absence is not known while the member is out of reach", func() bool {
		info, _ := r.index.Snapshot().Scope(nameOf(good), last)
		return info.Status.State == aggregate.Unknown
	})
}

// TestAbsence_KindsOfTheHubAddNoRowsToMembers: what is shown of a member is as many rows
// as it has kinds, whatever CRDs the hub has.
func TestAbsence_KindsOfTheHubAddNoRowsToMembers(t *testing.T) {
	fleet := fewKinds()
	fleet.Members = 2
	r := newRig(t, fleet, func(r *rig, o *clusterinformers.Options) {
		o.DiscoveryInterval = 50 * time.Millisecond
		r.source.view[0].Name, r.source.view[0].ReadOnly = "hub/local", true
	}).start()
	hub, other := r.fleet.Members()[0], r.fleet.Members()[1]
	r.synced(other)
	rows := func(name string) (synced, all int) {
		for _, st := range r.manager.Members() {
			for _, d := range st.Details {
				if _, group := d.Kind.Split(); st.Name == name && group == "evil.example" {
					all++
					if d.State == aggregate.Synced {
						synced++
					}
				}
			}
		}
		return synced, all
	}
	kinds := invented(20)
	for _, k := range kinds {
		ok(t, hub.AddKind(k))
	}
	r.until("the hub's kinds are followed", func() bool { synced, _ := rows("hub/local"); return synced == len(kinds) })
	// A kind of its own tells that the other has looked since.
	ok(t, other.AddKind(kinds[0]))
	r.until("the other has looked", func() bool { synced, _ := rows(nameOf(other)); return synced == 1 })
	if _, all := rows(nameOf(other)); all != 1 {
		t.Errorf("%d rows of such kinds are shown of another member, want 1", all)
	}
}

// TestBudget_KindsWithoutEndCost: a member that serves kinds without end has those followed
// that its budget is good for, empty as they are, and says so of the rest.
func TestBudget_KindsWithoutEndCost(t *testing.T) {
	const kinds = 500
	fleet := fewKinds()
	fleet.Members = 2
	r := follow(t, fleet, func(_ *rig, o *clusterinformers.Options) {
		o.DiscoveryInterval, o.Budget.Bytes = 50*time.Millisecond, 2<<20
	})
	evil, good := r.fleet.Members()[0], r.fleet.Members()[1]
	for _, k := range invented(kinds) {
		ok(t, evil.AddKind(k))
	}
	r.until("what the budget is not good for is given up", func() bool {
		states := map[aggregate.State]int{}
		for info := range r.index.Snapshot().Scopes(nameOf(evil)) {
			if kind, group := info.Kind.Split(); group == "evil.example" && kind != "" {
				states[info.Status.State]++
			}
		}
		return states[aggregate.OverBudget] > kinds/4 && states[aggregate.Synced] > kinds/4 && states[aggregate.OverBudget]+states[aggregate.Synced] == kinds
	})
	for _, m := range r.manager.Members() {
		if m.Name == nameOf(evil) && (m.Bytes < 3<<19 || m.Bytes > 5<<19) {
			t.Errorf("%d bytes are accounted to %s", m.Bytes, m.Name)
		}
	}
	if !r.all(good, aggregate.Synced) {
		t.Error("another member is not Synced")
	}
}
