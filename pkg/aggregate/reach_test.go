package aggregate_test

import (
	"slices"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// TestScope_ReachedComesWithItsData: what was reached is never ahead of the objects beside it.
func TestScope_ReachedComesWithItsData(t *testing.T) {
	x := newIndex(t, aggregate.Options{})
	s := openScope(t, x, "prod/eu-1", "Pod")
	reached := func(snap *aggregate.Snapshot, want ...aggregate.Part) {
		t.Helper()
		if got := snap.Reached("prod/eu-1", "Pod"); !slices.Equal(got, want) {
			t.Errorf("reached %v, want %v", got, want)
		}
	}
	synced := aggregate.Status{State: aggregate.Synced}
	s.Reached(aggregate.Part{ResourceVersion: "10"})
	reached(x.Snapshot())
	if _, err := s.Replace([]aggregate.Item{pod(s, "a", "one", 1)}, synced); err != nil {
		t.Fatal(err)
	}
	first := x.Snapshot()
	reached(first, aggregate.Part{ResourceVersion: "10"})

	s.Upsert(pod(s, "a", "two", 11))
	s.Reached(aggregate.Part{ResourceVersion: "11"})
	reached(x.Snapshot(), aggregate.Part{ResourceVersion: "10"})
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	reached(x.Snapshot(), aggregate.Part{ResourceVersion: "11"})
	reached(first, aggregate.Part{ResourceVersion: "10"})

	before := x.Snapshot()
	s.Reached(aggregate.Part{ResourceVersion: "12"}) // a bookmark
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	if x.Snapshot() != before {
		t.Error("a bookmark has made a commit")
	}
	reached(before, aggregate.Part{ResourceVersion: "12"})
	reached(first, aggregate.Part{ResourceVersion: "10"})
}

// TestScope_ReachedIsOfItsPart: namespaces are read apart, and known apart.
func TestScope_ReachedIsOfItsPart(t *testing.T) {
	x := newIndex(t, aggregate.Options{})
	s := openScope(t, x, "prod/eu-1", "Pod")
	for _, p := range []aggregate.Part{{Namespace: "b", ResourceVersion: "7"}, {Namespace: "a", ResourceVersion: "5"}, {Namespace: "b", ResourceVersion: "9"}, {Namespace: "c", ResourceVersion: "1"}, {Namespace: "c", ResourceVersion: ""}, {Namespace: "d", ResourceVersion: ""}} {
		s.Reached(p)
	}
	s.SetStatus(aggregate.Status{State: aggregate.Synced})
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	want := []aggregate.Part{{Namespace: "a", ResourceVersion: "5"}, {Namespace: "b", ResourceVersion: "9"}}
	if got := x.Snapshot().Reached("prod/eu-1", "Pod"); !slices.Equal(got, want) {
		t.Errorf("reached %v, want %v", got, want)
	}
	if got := x.Snapshot().Reached("prod/eu-1", "Service"); got != nil {
		t.Errorf("a scope that is not there has reached %v", got)
	}

	// The next writer knows, unless it reads the kind as something else.
	s.Close()
	same, err := x.OpenScope("prod/eu-1", "Pod", "v1")
	if err != nil {
		t.Fatal(err)
	}
	same.Reached(aggregate.Part{Namespace: "a", ResourceVersion: "6"})
	if _, err := same.Commit(); err != nil {
		t.Fatal(err)
	}
	want[0].ResourceVersion = "6"
	if got := x.Snapshot().Reached("prod/eu-1", "Pod"); !slices.Equal(got, want) {
		t.Errorf("reached %v, want %v", got, want)
	}
	same.Close()
	other, err := x.OpenScope("prod/eu-1", "Pod", "v2")
	if err != nil {
		t.Fatal(err)
	}
	other.Reached(aggregate.Part{ResourceVersion: "20"})
	if _, err := other.Replace(nil, aggregate.Status{State: aggregate.Synced}); err != nil {
		t.Fatal(err)
	}
	if got, want := x.Snapshot().Reached("prod/eu-1", "Pod"), []aggregate.Part{{ResourceVersion: "20"}}; !slices.Equal(got, want) {
		t.Errorf("reached %v, want %v", got, want)
	}
}
