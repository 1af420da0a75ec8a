package aggregate_test

import (
	"errors"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// TestIndex_HoldsCommitsUntilTheyAreReleased: no reader sees a revision before its release, by
// any door of the index.
func TestIndex_HoldsCommitsUntilTheyAreReleased(t *testing.T) {
	x := newIndex(t, aggregate.Options{Hold: true})
	s := openScope(t, x, "prod/eu-1", "Pod")
	pending, _ := x.Pending(x.Snapshot())
	pending.Release()

	before := x.Snapshot()
	cursor := x.Cursor(before)
	newer := x.Newer(before)
	_, more := x.Pending(before)
	s.Upsert(pod(s, "a", "one", 1))
	at := mustCommit(t, s)

	if got := x.Snapshot(); got != before {
		t.Errorf("readers see revision %d, which is held", got.Revision())
	}
	if b, ok := cursor.Poll(); ok {
		t.Errorf("a cursor sees revision %d", b.After.Revision())
	}
	if _, err := x.Changes(at); !errors.Is(err, aggregate.ErrFuture) {
		t.Errorf("changes after a held revision: %v, want ErrFuture", err)
	}
	if isClosed(newer) {
		t.Error("readers are woken for what is held")
	}
	if !isClosed(more) {
		t.Error("who releases is not woken")
	}
	if got := x.Newest(); got.Revision() != at {
		t.Errorf("the newest is %d, want %d", got.Revision(), at)
	}

	pending, more = x.Pending(before)
	s.Upsert(pod(s, "b", "two", 2))
	second := mustCommit(t, s)
	pending.Release()
	if got := x.Snapshot().Revision(); got != at || !isClosed(newer) {
		t.Errorf("readers see revision %d, want %d", got, at)
	}
	if b, ok := cursor.Poll(); !ok || b.After.Revision() != at {
		t.Errorf("the cursor does not see revision %d", at)
	}
	if !isClosed(more) {
		t.Error("who releases is not told that there is more")
	}
	last, _ := x.Pending(pending.Snapshot())
	last.Release()
	pending.Release() // once more: readers do not go back
	if got := x.Snapshot().Revision(); got != second {
		t.Errorf("readers see revision %d, want %d", got, second)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestPending_HasEveryCommit: what is pending are the commits since a state, each with its
// revisions and changes.
func TestPending_HasEveryCommit(t *testing.T) {
	x := newIndex(t, aggregate.Options{Hold: true})
	s := openScope(t, x, "prod/eu-1", "Pod")
	from := x.Newest()
	s.Upsert(pod(s, "a", "one", 1))
	s.Upsert(pod(s, "b", "one", 2))
	first := mustCommit(t, s)
	s.SetStatus(aggregate.Status{State: aggregate.Synced})
	second := mustCommit(t, s)
	third, err := s.Replace([]aggregate.Item{pod(s, "b", "two", 3), pod(s, "c", "two", 4)}, aggregate.Status{State: aggregate.Synced})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.PutMember(aggregate.Member{Name: "prod/us-1"}); err != nil {
		t.Fatal(err)
	}
	pending, _ := x.Pending(from)
	commits, ok := pending.Commits()
	if !ok {
		t.Fatal("the log is cut")
	}
	var got []aggregate.Revision
	changes := map[aggregate.Revision]string{}
	for c := range commits {
		got = append(got, c.To)
		for ch := range c.Changes() {
			text := ""
			if !ch.Before.IsZero() {
				text += "-" + ch.Before.Name()
			}
			if !ch.After.IsZero() {
				text += "+" + ch.After.Name()
			}
			changes[ch.Revision] = text
		}
	}
	if want := []aggregate.Revision{first, second, third, third + 1}; len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] || got[3] != want[3] {
		t.Errorf("commits %v, want %v", got, want)
	}
	for at, want := range map[aggregate.Revision]string{first - 1: "+a", first: "+b", second + 1: "-a", second + 2: "-b+b", second + 3: "+c"} {
		if changes[at] != want {
			t.Errorf("revision %d is %q, want %q", at, changes[at], want)
		}
	}
	if len(changes) != 5 {
		t.Errorf("%d changes, want 5: %v", len(changes), changes)
	}
}

// A commit about a member has it before and after, so that two members of one name are told apart.
func TestCommit_HasItsMember(t *testing.T) {
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1), Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []aggregate.Member{{Name: "m", UID: "a"}, {Name: "m", UID: "a", Version: "v1"}, {}, {Name: "m", UID: "b"}} {
		if m.Name == "" {
			x.RemoveMember("m")
		} else if err := x.PutMember(m); err != nil {
			t.Fatal(err)
		}
	}
	p, _ := x.Pending(x.Snapshot())
	commits, ok := p.Commits()
	if !ok {
		t.Fatal("the change log does not have the commits")
	}
	text := func(m *aggregate.Member) string {
		if m == nil {
			return "-"
		}
		return m.UID + m.Version
	}
	got := ""
	for c := range commits {
		before, after := c.Members()
		got += text(before) + ">" + text(after) + " "
	}
	if want := "->a a>av1 av1>- ->b "; got != want {
		t.Errorf("members are %q, want %q", got, want)
	}
}
