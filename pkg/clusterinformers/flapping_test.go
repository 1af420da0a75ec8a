package clusterinformers_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/sim"
)

// TestHeldVersion_OneMemberThatFlapsHasNoOtherListed again and again: what a member serves
// is one of the votes on the version that all are read at.
func TestHeldVersion_OneMemberThatFlapsHasNoOtherListed(t *testing.T) {
	widgets := sim.Kind{Group: "shop.example", Kind: "Widget", Resource: "widgets", Versions: []string{"v2", "v1"}, Namespaced: true}
	old := widgets
	old.Versions = []string{"v1"}
	kind := aggregate.MakeKind(widgets.Kind, widgets.Group)
	gr := schema.GroupResource{Group: widgets.Group, Resource: widgets.Resource}
	fleet := fewKinds()
	fleet.Members = 3
	fleet.Kinds = append(fleet.Kinds, widgets)
	r := follow(t, fleet, func(_ *rig, o *clusterinformers.Options) { o.DiscoveryInterval = 20 * time.Millisecond })
	evil, others := r.fleet.Members()[0], r.fleet.Members()[1:]
	before := 0
	for _, m := range others {
		before += r.lists(m, gr)
	}
	for i := range 40 {
		k := old
		if i%2 == 1 {
			k = widgets
		}
		ok(t, evil.AddKind(k))
		time.Sleep(50 * time.Millisecond)
	}
	lists := -before
	for _, m := range others {
		lists += r.lists(m, gr)
		r.untilState(m, kind, aggregate.Synced)
	}
	if most := 3 * len(others); lists > most { // there, and back once or twice
		t.Errorf("other members were listed %d times, want at most %d", lists, most)
	}
}

// TestDiscovery_OneMemberThatChangesWithoutEndWakesNobodyElse: all members and readers look
// at what one serves.
func TestDiscovery_OneMemberThatChangesWithoutEndWakesNobodyElse(t *testing.T) {
	fleet := fewKinds()
	fleet.Members = 2
	r := follow(t, fleet, func(_ *rig, o *clusterinformers.Options) { o.DiscoveryInterval = 20 * time.Millisecond })
	evil := r.fleet.Members()[0]
	kinds := invented(1)
	reported := 0
	_, changed := r.manager.Resources()
	for i := range 150 {
		if i%2 == 0 {
			ok(t, evil.AddKind(kinds[0]))
		} else {
			evil.RemoveKind(kinds[0].GroupResource())
		}
		time.Sleep(20 * time.Millisecond)
		select {
		case <-changed:
			reported++
			_, changed = r.manager.Resources()
		default:
		}
	}
	if reported > 45 {
		t.Errorf("%d changes of the served resources were reported to readers", reported)
	}
}
