package aggregate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

func TestRevision_IsAStringInJSON(t *testing.T) {
	const r = aggregate.Revision(1<<53 - 1) // the last one, and the last number that a float64 has every number up to
	text, err := json.Marshal(map[string]aggregate.Revision{"revision": r})
	if err != nil || string(text) != `{"revision":"9007199254740991"}` {
		t.Errorf("%s, %v", text, err)
	}
	var back map[string]aggregate.Revision
	if err := json.Unmarshal(text, &back); err != nil || back["revision"] != r {
		t.Errorf("read back %v, %v", back, err)
	}
	for _, bad := range []string{`""`, `"-1"`, `"1.5"`, `"18446744073709551616"`, `7`} {
		var r aggregate.Revision
		if err := json.Unmarshal([]byte(bad), &r); err == nil || r != 0 {
			t.Errorf("%s is read as %d, %v", bad, r, err)
		}
	}
}

func TestBlock_IsDisjointAndFitsAFloat(t *testing.T) {
	for _, n := range []uint64{1, 2, 470_000, aggregate.MaxBlock - 1, aggregate.MaxBlock} {
		b := aggregate.Block(n)
		if b.End-b.First != aggregate.BlockSize || b.First != aggregate.Block(n-1).End || b.End > 1<<53 {
			t.Errorf("block %d is %d to %d", n, b.First, b.End)
		}
		if last := b.End - 1; aggregate.Revision(float64(last)) != last {
			t.Errorf("%d is no float64", last)
		}
		if _, err := aggregate.New(aggregate.Options{Revisions: b}); err != nil {
			t.Errorf("block %d: %v", n, err)
		}
	}
	for _, bad := range []aggregate.Range{{}, {0, 5}, {5, 5}, {7, 5}, {1, 1<<53 + 1}, aggregate.Block(0), aggregate.Block(aggregate.MaxBlock + 1)} {
		if _, err := aggregate.New(aggregate.Options{Revisions: bad}); err == nil {
			t.Errorf("%v is taken", bad)
		}
		x := newIndex(t, aggregate.Options{})
		if err := x.Extend(bad); err == nil {
			t.Errorf("extended by %v", bad)
		}
	}
}

// TestIndex_WithoutRevisionsTakesNoChange: a commit that finds too few revisions left is
// an error and changes nothing, and so is every one after it.
func TestIndex_WithoutRevisionsTakesNoChange(t *testing.T) {
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Range{First: 100, End: 110}}) // 9 beside the empty index
	if err != nil {
		t.Fatal(err)
	}
	s := openScope(t, x, "a", "Pod") // takes 2
	other := openScope(t, x, "b", "Pod")
	put := func(n int) error {
		for i := range n {
			s.Upsert(pod(s, fmt.Sprint("p", i), "v", n*10+i))
		}
		_, err := s.Commit()
		return err
	}
	if err := put(3); err != nil {
		t.Fatal(err)
	}
	before := x.Snapshot()
	if before.Revision() != 107 || before.Changes() != 7 || x.Unused() != 2 {
		t.Fatalf("at %d after %d changes, %d left", before.Revision(), before.Changes(), x.Unused())
	}
	if err := x.Extend(aggregate.Range{First: 109, End: 200}); err == nil {
		t.Error("extended by what it has")
	}
	select {
	case <-x.Exhausted():
		t.Fatal("exhausted with revisions left")
	default:
	}
	if err := put(4); !errors.Is(err, aggregate.ErrExhausted) {
		t.Errorf("more changes than revisions: %v", err)
	}
	<-x.Exhausted()
	if x.RemoveMember("b") {
		t.Error("a member has left")
	}
	other.SetStatus(aggregate.Status{State: aggregate.Synced})
	_, commit := other.Commit()
	_, replace := other.Replace(nil, aggregate.Status{})
	_, open := x.OpenScope("b", "Node", "v1")
	for _, err := range []error{commit, replace, open, x.PutMember(aggregate.Member{Name: "c", UID: "c"})} {
		if !errors.Is(err, aggregate.ErrExhausted) {
			t.Errorf("after it: %v", err)
		}
	}
	other.Remove()
	if x.Snapshot() != before {
		t.Errorf("the index is at %d", x.Snapshot().Revision())
	}
}

// TestIndex_ExtendTakesTheNextRange: what does not fit into the rest of a range takes all of
// its revisions from the next one.
func TestIndex_ExtendTakesTheNextRange(t *testing.T) {
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Range{First: 100, End: 106}})
	if err != nil {
		t.Fatal(err)
	}
	s := openScope(t, x, "a", "Pod")
	if err := x.Extend(aggregate.Range{First: 1000, End: 1003}); err != nil {
		t.Fatal(err)
	}
	at := x.Snapshot().Revision()
	for i := range 4 {
		s.Upsert(pod(s, fmt.Sprint("p", i), "v", i+1))
	}
	if _, err := s.Commit(); !errors.Is(err, aggregate.ErrExhausted) {
		t.Fatalf("four changes in ranges of 3 and 3: %v, at %d", err, at)
	}

	x, err = aggregate.New(aggregate.Options{Revisions: aggregate.Range{First: 100, End: 106}})
	if err != nil {
		t.Fatal(err)
	}
	s = openScope(t, x, "a", "Pod")
	if err := x.Extend(aggregate.Range{First: 1000, End: 1010}); err != nil {
		t.Fatal(err)
	}
	at = x.Snapshot().Revision()
	cursor := x.Cursor(x.Snapshot())
	for i := range 4 {
		s.Upsert(pod(s, fmt.Sprint("p", i), "v", i+1))
	}
	if rev, err := s.Commit(); err != nil || rev != 1003 || x.Unused() != 6 || x.Snapshot().Changes() != 6 {
		t.Fatalf("committed at %d, %v, %d left after %d changes", rev, err, x.Unused(), x.Snapshot().Changes())
	}
	for _, since := range []aggregate.Revision{at, 105} { // 105 was never given, and is the range's
		changes, err := x.Changes(since)
		if err != nil {
			t.Fatalf("changes after %d: %v", since, err)
		}
		want := aggregate.Revision(1000)
		for c := range changes {
			if c.Revision != want {
				t.Errorf("a change has revision %d, want %d", c.Revision, want)
			}
			want++
		}
	}
	if b, ok := cursor.Poll(); !ok || b.Before.Revision() != at {
		t.Error("the cursor has lost its place")
	}
	for _, rev := range []aggregate.Revision{99, 106, 999, 1010} {
		if _, err := x.Changes(rev); !errors.Is(err, aggregate.ErrExpired) {
			t.Errorf("changes after another's %d: %v", rev, err)
		}
	}
	if _, err := x.Changes(1004); !errors.Is(err, aggregate.ErrFuture) {
		t.Errorf("changes after one to come: %v", err)
	}
}
