package engine

import (
	"slices"
	"testing"
)

func TestInstantKey_NamesItsInstant(t *testing.T) {
	for _, at := range []int64{1, 2, 86400, 1_800_000_000, 253402300799, 1 << 40} {
		got, ok := instantOf(instantKey(at))
		if !ok || got != at {
			t.Errorf("the key of %d names %d, %v", at, got, ok)
		}
	}
	for range 1000 {
		if _, ok := instantOf(readKey(readNames)); ok {
			t.Fatal("another key names an instant")
		}
	}
}

// TestInstantKey_SpreadsDays holds keys of days apart, which a table takes as hashes.
func TestInstantKey_SpreadsDays(t *testing.T) {
	low := map[uint64]int{}
	for day := range int64(4096) {
		low[instantKey((20_000+day)*86400)&4095]++
	}
	if len(low) < 2000 {
		t.Errorf("4096 days share %d slots", len(low))
	}
}

func TestInstants_AreInOrderAndOfTwoTables(t *testing.T) {
	s := newInstants()
	objects, others := s.watch(0), s.watch(1)
	for _, at := range []int64{30, 10, 20} {
		objects(instantKey(at), true)
	}
	others(instantKey(20), true)
	objects(instantKey(20), false)
	others(readKey(readNames), true)
	if got := slices.Collect(s.until(20)); !slices.Equal(got, []int64{10, 20}) {
		t.Errorf("until 20: %v", got)
	}
	if at, ok := s.after(20); !ok || at != 30 {
		t.Errorf("after 20: %d, %v", at, ok)
	}
	if at, ok := s.after(30); ok {
		t.Errorf("after 30: %d", at)
	}
}

func TestClock_StepsBack(t *testing.T) {
	var c clock
	for _, step := range []struct {
		now        int64
		back       bool
		asOf, then int64
	}{
		{100, false, 100, 100}, {96, false, 100, 100}, {95, false, 100, 100}, {94, true, 100, 94}, {98, false, 100, 98}, {101, false, 101, 101}, {50, true, 101, 50}, {44, true, 101, 44},
	} {
		if back := c.set(step.now); back != step.back || c.asOf != step.asOf || c.now != step.then {
			t.Errorf("at %d: %v, %+v, want %+v", step.now, back, c, step)
		}
	}
}
