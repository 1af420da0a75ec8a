package completeness_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/test/seed"
)

func newIndex(t testing.TB) *aggregate.Index {
	t.Helper()
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func memberName(i int) string { return fmt.Sprintf("fleet/m%05d", i) }

func kindName(i int) aggregate.Kind { return aggregate.Kind(fmt.Sprintf("Kind%03d.example", i)) }

// setState gives a scope a state; it is opened where it is not yet.
func setState(t testing.TB, x *aggregate.Index, member string, kind aggregate.Kind, state aggregate.State) {
	t.Helper()
	s, err := x.OpenScope(member, kind, "example/v1")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.SetStatus(aggregate.Status{State: state})
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
}

// update returns the gaps after a batch, as the engine does.
func update(g *completeness.Gaps, batch *aggregate.Batch, kinds []aggregate.Kind) (*completeness.Gaps, bool) {
	var members []string
	for d := range batch.Members() {
		if d.After != nil {
			members = append(members, d.After.Name)
		} else {
			members = append(members, d.Before.Name)
		}
	}
	var scopes []completeness.Scope
	for d := range batch.Scopes() {
		member, kind := d.After.Member, d.After.Kind
		scopes = append(scopes, completeness.Scope{Member: member, Kind: kind})
	}
	return g.Update(fleetview.Of(batch.After, nil, nil), kinds, scopes, members)
}

// TestGaps_UpdatesEqualAFullSearch, whatever has happened in a batch: members that join,
// leave, come back and serve other kinds, scopes that are opened, removed and change.
func TestGaps_UpdatesEqualAFullSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	const members, kinds = 5, 4
	x := newIndex(t)
	named := []aggregate.Kind{kindName(0), "Nobody.example"} // that policies read
	snapshot := x.Snapshot()
	cursor := x.Cursor(snapshot)
	gaps := completeness.FindGaps(nil, fleetview.Of(snapshot, nil, nil), named)
	gone := map[string]int{}
	differed, same := 0, 0
	for range 3000 {
		for range 1 + rng.IntN(3) {
			member, kind := memberName(rng.IntN(members)), kindName(rng.IntN(kinds))
			_, known := x.Snapshot().Member(member)
			switch n := rng.IntN(12); {
			case n == 0 && known:
				x.RemoveMember(member)
				gone[member]++
			case n < 3 || !known:
				m := aggregate.Member{Name: member, UID: fmt.Sprint(member, gone[member])}
				if rng.IntN(2) == 0 {
					m.Serves = []aggregate.Kind{kindName(rng.IntN(kinds))}
				}
				if err := x.PutMember(m); err != nil {
					t.Fatal(err)
				}
			case n == 3:
				if s, err := x.OpenScope(member, kind, "example/v1"); err == nil {
					s.Remove()
				}
			default:
				setState(t, x, member, kind, []aggregate.State{aggregate.Synced, aggregate.Stale, aggregate.Syncing, aggregate.NotServed}[rng.IntN(4)])
			}
		}
		batch, ok := cursor.Poll()
		if !ok {
			continue
		}
		if rng.IntN(50) == 0 { // other policies
			named = []aggregate.Kind{kindName(rng.IntN(kinds)), "Nobody.example"}
		}
		before := gaps
		var changed bool
		gaps, changed = update(before, batch, named)
		want := completeness.FindGaps(nil, fleetview.Of(batch.After, nil, nil), named)
		differs := !slices.Equal(before.Kinds, gaps.Kinds)
		for _, kind := range append(slices.Collect(batch.After.Kinds()), named...) {
			if !slices.Equal(gaps.Of(kind), want.Of(kind)) {
				t.Fatalf("%s: %v, want %v", kind, gaps.Of(kind), want.Of(kind))
			}
			differs = differs || !slices.Equal(before.Of(kind), gaps.Of(kind))
		}
		if !slices.Equal(gaps.Kinds, want.Kinds) || gaps.Synced(nil) != want.Synced(nil) {
			t.Fatalf("kinds %v, synced %t, want %v, %t", gaps.Kinds, gaps.Synced(nil), want.Kinds, want.Synced(nil))
		}
		if differs && !changed {
			t.Fatal("the gaps differ, and Update says that they do not")
		}
		if changed {
			differed++
		} else {
			same++
		}
	}
	if differed < 100 || same < 100 {
		t.Errorf("%d batches changed gaps, %d did not: too few to say anything", differed, same)
	}
}

// BenchmarkGaps_OneScopeChanges compares finding what is incomplete after one scope has
// changed its state with finding it in the whole fleet, as every such batch once did.
func BenchmarkGaps_OneScopeChanges(b *testing.B) {
	for _, members := range []int{100, 1000} {
		x := newIndex(b)
		const kinds = 100
		for m := range members {
			if err := x.PutMember(aggregate.Member{Name: memberName(m), UID: memberName(m)}); err != nil {
				b.Fatal(err)
			}
			for k := range kinds {
				setState(b, x, memberName(m), kindName(k), aggregate.Synced)
			}
		}
		cursor := x.Cursor(x.Snapshot())
		gaps := completeness.FindGaps(nil, fleetview.Of(x.Snapshot(), nil, nil), nil)
		setState(b, x, memberName(members/2), kindName(kinds/2), aggregate.Stale)
		batch, _ := cursor.Poll()
		b.Run(fmt.Sprintf("members=%d/update", members), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, changed := update(gaps, batch, nil); !changed {
					b.Fatal("nothing has changed")
				}
			}
		})
		b.Run(fmt.Sprintf("members=%d/search", members), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				completeness.FindGaps(gaps, fleetview.Of(batch.After, nil, nil), nil)
			}
		})
	}
}

// projected is what the policies of this process need of others' objects.
type projected string

func (projected) Reads(aggregate.Kind) bool { return true }

func (p projected) Knows(_ aggregate.Kind, version string) bool {
	return fleetview.Projection(version) == string(p)
}

// TestGaps_SayWhyWhatAnotherProcessReadsIsUnknown: it has told of nothing yet, or for other policies.
func TestGaps_SayWhyWhatAnotherProcessReadsIsUnknown(t *testing.T) {
	own, peers := newIndex(t), newIndex(t)
	if err := peers.PutMember(aggregate.Member{Name: "fleet/other", UID: "u"}); err != nil {
		t.Fatal(err)
	}
	reason := func() string {
		gaps := completeness.FindGaps(nil, fleetview.Of(own.Snapshot(), peers.Snapshot(), projected("now")), []aggregate.Kind{"Pod"})
		gap, has := gaps.At("Pod", "fleet/other")
		if has && gap.State != aggregate.Unknown {
			t.Errorf("%+v", gap)
		}
		return gap.Reason
	}
	if got := reason(); got != completeness.NotTold {
		t.Errorf("nobody has told of it: %q", got)
	}
	tell := func(version string) {
		s, err := peers.OpenScope("fleet/other", "Pod", version)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.SetStatus(aggregate.Status{State: aggregate.Synced})
		if _, err := s.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	tell("former v1")
	if got := reason(); got != completeness.OtherPolicies {
		t.Errorf("told for other policies: %q", got)
	}
	peers.RemoveMember("fleet/other")
	if err := peers.PutMember(aggregate.Member{Name: "fleet/other", UID: "u"}); err != nil {
		t.Fatal(err)
	}
	tell("now v1")
	if got := reason(); got != "" {
		t.Errorf("told for these: %q", got)
	}
}
