package resources_test

import (
	"fmt"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// TestWatch_OutlivesBulkChangesOfOneMember: a member that is listed again, or leaves, with more
// than the log of changes holds ends no open watch, and clients that reconnect
// need not list another kind again.
func TestWatch_OutlivesBulkChangesOfOneMember(t *testing.T) {
	const fleetHPAs = "/fleet/apis/autoscaling/v2/horizontalpodautoscalers"
	f := newFleet(t, settings{logBytes: 128 << 10})
	f.join("a/east")
	f.join("a/west")
	const many = 600
	var held []testObject
	for i := range many {
		held = append(held, pod("a/west", "blue", fmt.Sprintf("p%04d", i)))
	}
	f.put(pod("a/east", "blue", "p0"), testObject{kind: hpas, member: "a/east", namespace: "blue", name: "h0"})
	f.put(held...)
	f.commit()
	start := f.index.Snapshot().Revision()
	f.put(testObject{kind: hpas, member: "a/east", namespace: "blue", name: "h1"})
	f.commit()
	ofPods := f.watch(all, fleetPods, values("resourceVersion", text(start)), "")
	ofOthers := f.watch(all, fleetHPAs, values("resourceVersion", text(start)), "")
	for round := range 3 {
		items := make([]aggregate.Item, 0, many)
		for i := range held {
			items = append(items, f.item(&held[i]))
		}
		_, err := f.scope("a/west", pods).Replace(items, aggregate.Status{State: aggregate.Synced})
		ok(t, err)
		ofPods.wait((round + 1) * many)
	}
	f.leave("a/west")
	ofPods.wait(4 * many)
	f.put(testObject{kind: hpas, member: "a/east", namespace: "blue", name: "h2"}, pod("a/east", "blue", "p1"))
	f.commit()
	events := ofPods.end()
	if last := events[len(events)-1].summary(); last != "ADDED a/east blue p1" {
		t.Errorf("the watch of pods ends with %s", last)
	}
	wantEvents(t, "another kind", ofOthers.end(), "ADDED a/east blue h1", "ADDED a/east blue h2")
	wantEvents(t, "another kind, resumed", f.watch(all, fleetHPAs, values("resourceVersion", text(start)), "").end(),
		"ADDED a/east blue h1", "ADDED a/east blue h2")
	f.watch(all, fleetPods, values("resourceVersion", text(start)), "").wantExpired("what is not known any more")
}
