package resources

import (
	"strconv"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
)

// TestGrantHistories_AreBoundedAndFair: the histories of the user with most are
// dropped first, whose watches expire; what a watch uses is kept, or recorded again.
func TestGrantHistories_AreBoundedAndFair(t *testing.T) {
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	const most = 100
	h := newGrantHistories(x, nil, most)
	grants := authz.NewGrants(map[string]authz.MemberGrant{"a/a": {Namespaces: []string{"blue"}}}, time.Time{})
	bob, carol := historyKey{name: "bob"}, historyKey{name: "carol"}
	h.record(bob, grants)
	watched, _ := h.record(historyKey{name: "mallory", namespace: "watched"}, grants)
	if !h.retain(watched) {
		t.Error("a history that is kept cannot be held")
	}
	first, _ := h.record(historyKey{name: "mallory", namespace: "first"}, grants)
	sent := x.Snapshot().Revision()
	if err := x.PutMember(aggregate.Member{Name: "a/a", UID: "1"}); err != nil {
		t.Fatal(err)
	}
	for i := range 10 * most {
		h.record(historyKey{name: "mallory", namespace: strconv.Itoa(i)}, grants)
	}
	if h.weight > most || len(h.byKey) > most {
		t.Errorf("%d histories weigh %d, at most %d", len(h.byKey), h.weight, most)
	}
	if h.get(bob) == nil || h.get(watched.key) == nil || h.get(first.key) != nil {
		t.Error("others than the oldest of who has most are forgotten")
	}
	if _, known := h.getSince(first.key, sent); known {
		t.Error("of a history that is forgotten it is said that there was none")
	}
	for _, key := range []historyKey{{name: "mallory", namespace: "never"}, {name: "carol"}} {
		if _, known := h.getSince(key, x.Snapshot().Revision()+1); !known {
			t.Error("what was sent after anything was forgotten is not known")
		}
	}
	again, _ := h.record(first.key, grants)
	if _, ok := h.resume(again, sent, x.Snapshot().Revision()); ok {
		t.Error("a watch is resumed from before what is forgotten")
	}
	if _, ok := h.resume(h.get(bob), sent, x.Snapshot().Revision()); !ok {
		t.Error("one that is remembered is not")
	}
	if h.retain(first) || !h.retain(again) {
		t.Error("another history than the one that is kept is held")
	}
	for _, of := range []*grantHistory{watched, first, again} {
		h.release(of, grants)
	}
	h.record(carol, authz.NewGrants(nil, time.Time{}))
	if n := len(h.idle["mallory"].order.Front().Value.(*grantHistory).key.name); n == 0 || h.weight > most {
		t.Errorf("%d after all are released", h.weight)
	}
}

// TestGrantHistories_OneCallerEvictsNoOthers: another reader, of whom nothing is known yet,
// lists and goes on from there.
func TestGrantHistories_OneCallerEvictsNoOthers(t *testing.T) {
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	const most = 100
	h := newGrantHistories(x, nil, most)
	grants := authz.NewGrants(map[string]authz.MemberGrant{"a/a": {Namespaces: []string{"blue"}}}, time.Time{})
	many := func() {
		for i := range 2 * most {
			h.record(historyKey{name: "mallory", namespace: strconv.Itoa(i)}, grants)
		}
	}
	many()
	h.record(historyKey{name: "bob", verb: "list"}, grants)
	listed := x.Snapshot().Revision()
	if err := x.PutMember(aggregate.Member{Name: "a/a", UID: "1"}); err != nil {
		t.Fatal(err)
	}
	many()
	watch, _ := h.record(historyKey{name: "bob", verb: "watch"}, grants)
	if _, ok := h.resume(watch, listed, x.Snapshot().Revision()); !ok {
		t.Error("a watch from a list of a moment ago expires because of requests of another user")
	}
	for i := range 10 * most {
		h.record(historyKey{name: strconv.Itoa(i)}, grants)
	}
	if len(h.floors) > most {
		t.Errorf("something is remembered of %d users, at most of %d", len(h.floors), most)
	}
	if again, _ := h.record(historyKey{name: "mallory", namespace: "0"}, grants); again.since <= listed {
		t.Error("what is forgotten of a user is forgotten itself")
	}
}
