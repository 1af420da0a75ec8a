package fanout

import (
	"errors"
	"testing"

	"federator.dev/federator/pkg/aggregate"
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
