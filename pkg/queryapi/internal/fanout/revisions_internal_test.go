package fanout

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/seed"
)

// TestRevisions_StandForVectorsUntilTheyAreForgotten, never repeat, and are used up.
func TestRevisions_StandForVectorsUntilTheyAreForgotten(t *testing.T) {
	m, err := NewRevisions(aggregate.Range{First: 100, End: 100 + maxLog + 50})
	if err != nil {
		t.Fatal(err)
	}
	places := []place{{id: "a", epoch: 1}}
	of := func(r int) *vector {
		return &vector{places: places, revisions: []aggregate.Revision{aggregate.Revision(r)}}
	}
	for i := range maxLog + 50 {
		r, err := m.mint(of(i), false)
		if err != nil || r != aggregate.Revision(100+i) {
			t.Fatalf("%d: %d, %v", i, r, err)
		}
		if again, err := m.mint(of(i), true); err != nil || again != r {
			t.Fatalf("%d again: %d, %v", i, again, err)
		}
	}
	if _, err := m.mint(of(-1), false); !errors.Is(err, ErrExhausted) {
		t.Errorf("the last was used: %v", err)
	}
	for r, want := range map[aggregate.Revision]int{99: -1, 100: -1, 149: -1, 150: 50, 5000: 4900, 100 + maxLog + 49: maxLog + 49, 100 + maxLog + 50: -1} {
		v := m.vector(r)
		if (v == nil) != (want < 0) || v != nil && v.revisions[0] != aggregate.Revision(want) {
			t.Errorf("%d stands for %+v, want %d", r, v, want)
		}
	}
	if m.Unused() != 0 || m.Extend(aggregate.Range{First: 100 + maxLog, End: 1 << 20}) == nil {
		t.Error("revisions are used again")
	}
	if err := m.Extend(aggregate.Range{First: 1 << 30, End: 1<<30 + 5}); err != nil {
		t.Fatal(err)
	}
	if r, err := m.mint(nil, false); err != nil || r != 1<<30 || m.vector(r) != nil || m.Unused() != 4 {
		t.Errorf("%d, %v", r, err)
	}
	if v := m.vector(100 + maxLog + 49); v == nil {
		t.Error("the one before is forgotten")
	}
}

// TestRevisions_NeverGoBack: what a client is told of parts that only go on has revisions that do, whatever others are told of the same
// parts meanwhile, and that is the same where nothing has changed and nobody was told of anything else.
func TestRevisions_NeverGoBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	for range 300 {
		m, err := NewRevisions(aggregate.Range{First: 100_000, End: 1 << 40})
		if err != nil {
			t.Fatal(err)
		}
		places := []place{{id: "a", epoch: 1}, {id: "b", epoch: 2}}
		now := []aggregate.Revision{1, 1}
		type client struct {
			at   []aggregate.Revision
			last aggregate.Revision
		}
		clients := make([]client, 4)
		for i := range clients {
			clients[i].at = slices.Clone(now)
		}
		for range 200 {
			if rng.IntN(2) == 0 {
				now[rng.IntN(2)]++
			}
			c := &clients[rng.IntN(len(clients))]
			for i := range c.at { // it hears of a part in its own time
				c.at[i] += aggregate.Revision(rng.Uint64N(uint64(now[i]-c.at[i]) + 1))
			}
			v := &vector{places: places, revisions: slices.Clone(c.at)}
			again := rng.IntN(3) > 0
			if rng.IntN(20) == 0 {
				v, again = nil, false // an initial event
			}
			r, err := m.mint(v, again)
			if err != nil {
				t.Fatal(err)
			}
			if r < c.last {
				t.Fatalf("%v is %d, after %d", c.at, r, c.last)
			}
			if of := m.vector(r); of != v && (of == nil || v == nil || !of.equal(v)) {
				t.Fatalf("%d stands for %v, not %v", r, of, v)
			}
			c.last = r
		}
	}
	m, err := NewRevisions(aggregate.Range{First: 1, End: 100})
	if err != nil {
		t.Fatal(err)
	}
	pods := &vector{places: []place{{id: "a"}}, revisions: []aggregate.Revision{5}}
	widgets := &vector{places: []place{{id: "a"}}, revisions: []aggregate.Revision{0}} // which nobody serves
	first, _ := m.mint(pods, true)
	if _, err := m.mint(widgets, true); err != nil {
		t.Fatal(err)
	}
	if again, err := m.mint(pods, true); err != nil || again != first {
		t.Errorf("nothing has changed, and %d is %d: %v", first, again, err)
	}
	found := &vector{places: pods.places, revisions: pods.revisions, positions: []string{"5.a"}}
	first, _ = m.mint(found, true)
	others := &vector{places: pods.places, revisions: pods.revisions, positions: []string{"5.b"}} // of another query
	if _, err := m.mint(others, true); err != nil {
		t.Fatal(err)
	}
	if again, err := m.mint(found, true); err != nil || again != first {
		t.Errorf("nothing has changed of a query, and %d is %d: %v", first, again, err)
	}
}
