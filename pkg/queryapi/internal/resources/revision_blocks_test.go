package resources_test

import (
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
)

// TestWatch_ReadersGoOnInTheNextBlock: watches, open or resumed, pages and snapshots that are
// requested by their revision do not notice that the process has begun another block of
// revisions. The block between is another process's.
func TestWatch_ReadersGoOnInTheNextBlock(t *testing.T) {
	f := newFleet(t, settings{revisions: 20})
	for _, m := range memberNames[:2] {
		f.join(m)
		f.put(pod(m, "blue", "p0"))
	}
	start := f.commit()
	began := (&podSelection{}).expected(f)
	open := f.watch(all, fleetPods, values("resourceVersion", text(start)), "")
	page := f.mustAsk(all, "/fleet/api/v1/pods", values("limit", "1"), "")
	next := aggregate.Block(9)
	if err := f.index.Extend(next); err != nil {
		t.Fatal(err)
	}
	var events []string
	at := []aggregate.Revision{start}
	for i := 1; len(events) < 5 || at[len(at)-4] < next.First; i++ {
		name := fmt.Sprintf("p%02d", i)
		f.put(pod("a/east", "blue", name))
		events = append(events, "ADDED a/east blue "+name)
		at = append(at, f.commit())
		if i > 30 {
			t.Fatalf("still at %d", at[i])
		}
	}
	for i, from := range at {
		wantEvents(t, fmt.Sprint("resumed from ", from), f.watch(all, fleetPods, values("resourceVersion", text(from)), "").end(), events[i:]...)
	}
	open.wait(len(events))
	wantEvents(t, "open", open.end(), events...)

	rest := f.mustAsk(all, "/fleet/api/v1/pods", values("continue", page.list.Metadata.Continue), "")
	same(t, "the second page", rest.list.Items, began[1:])
	exactly := f.mustAsk(all, "/fleet/api/v1/pods", values("resourceVersion", text(start), "resourceVersionMatch", "Exact"), "")
	same(t, "exactly the first", exactly.list.Items, began)
	for _, other := range []aggregate.Revision{aggregate.Block(8).First, next.First - 1, next.End} {
		f.watch(all, fleetPods, values("resourceVersion", text(other)), "").wantExpired("another process's")
		a := f.ask(all, "/fleet/api/v1/pods", values("resourceVersion", text(other)), "")
		wantRefusal(t, "another process's", a, http.StatusGone, metav1.StatusReasonExpired)
	}
}
