package resources

import (
	"strconv"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
)

// TestHistoriesAreBoundedAndFair: who has many forgets first, and is told to list; what a
// watch uses is kept, or taken in again.
func TestHistoriesAreBoundedAndFair(t *testing.T) {
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	const most = 100
	h := newHistories(x.Snapshot, most)
	grants := authz.Some(map[string]authz.Reach{"a/a": {Namespaces: []string{"blue"}}}, time.Time{})
	bob, carol := historyKey{name: "bob"}, historyKey{name: "carol"}
	h.look(bob, grants)
	watched, _ := h.look(historyKey{name: "mallory", namespace: "watched"}, grants)
	if !h.hold(watched) {
		t.Error("a history that is kept cannot be held")
	}
	first, _ := h.look(historyKey{name: "mallory", namespace: "first"}, grants)
	told := x.Snapshot().Revision()
	if err := x.PutMember(aggregate.Member{Name: "a/a", UID: "1"}); err != nil {
		t.Fatal(err)
	}
	for i := range 10 * most {
		h.look(historyKey{name: "mallory", namespace: strconv.Itoa(i)}, grants)
	}
	if h.weight > most || len(h.by) > most {
		t.Errorf("%d histories weigh %d, at most %d", len(h.by), h.weight, most)
	}
	if h.have(bob) == nil || h.have(watched.key) == nil || h.have(first.key) != nil {
		t.Error("others than the oldest of who has most are forgotten")
	}
	if _, known := h.recall(first.key, told); known {
		t.Error("of a history that is forgotten it is said that there was none")
	}
	for _, key := range []historyKey{{name: "mallory", namespace: "never"}, {name: "carol"}} {
		if _, known := h.recall(key, x.Snapshot().Revision()+1); !known {
			t.Error("what was told after anything was forgotten is not known")
		}
	}
	again, _ := h.look(first.key, grants)
	if _, ok := again.resume(told, x.Snapshot().Revision()); ok {
		t.Error("a watch is resumed from before what is forgotten")
	}
	if _, ok := h.have(bob).resume(told, x.Snapshot().Revision()); !ok {
		t.Error("one that is remembered is not")
	}
	if h.hold(first) || !h.hold(again) {
		t.Error("another history than the one that is kept is held")
	}
	for _, of := range []*history{watched, first, again} {
		h.release(of, grants)
	}
	h.look(carol, authz.Some(nil, time.Time{}))
	if n := len(h.idle["mallory"].order.Front().Value.(*history).key.name); n == 0 || h.weight > most {
		t.Errorf("%d after all are released", h.weight)
	}
}

// TestWhoHasManyHistoriesHasNobodyElseList: another reader, of whom nothing is known yet,
// lists and goes on from there.
func TestWhoHasManyHistoriesHasNobodyElseList(t *testing.T) {
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	const most = 100
	h := newHistories(x.Snapshot, most)
	grants := authz.Some(map[string]authz.Reach{"a/a": {Namespaces: []string{"blue"}}}, time.Time{})
	many := func() {
		for i := range 2 * most {
			h.look(historyKey{name: "mallory", namespace: strconv.Itoa(i)}, grants)
		}
	}
	many()
	h.look(historyKey{name: "bob", verb: "list"}, grants)
	listed := x.Snapshot().Revision()
	if err := x.PutMember(aggregate.Member{Name: "a/a", UID: "1"}); err != nil {
		t.Fatal(err)
	}
	many()
	watch, _ := h.look(historyKey{name: "bob", verb: "watch"}, grants)
	if _, ok := watch.resume(listed, x.Snapshot().Revision()); !ok {
		t.Error("a watch from a list of a moment ago is told to list again, because of what another user has asked")
	}
	for i := range 10 * most {
		h.look(historyKey{name: strconv.Itoa(i)}, grants)
	}
	if len(h.floors) > most {
		t.Errorf("something is remembered of %d users, at most of %d", len(h.floors), most)
	}
	if again, _ := h.look(historyKey{name: "mallory", namespace: "0"}, grants); again.since <= listed {
		t.Error("what is forgotten of a user is forgotten itself")
	}
}
