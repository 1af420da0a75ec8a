package instants

import (
	"slices"
	"testing"
)

func TestKey_NamesItsInstant(t *testing.T) {
	for _, at := range []int64{1, 2, 86400, 1_800_000_000, 253402300799, 1 << 40} {
		got, ok := Of(Key(at))
		if !ok || got != at {
			t.Errorf("the key of %d names %d, %v", at, got, ok)
		}
	}
	if _, ok := Of(1<<62 + 7); ok {
		t.Error("another key names an instant")
	}
}

// TestKey_SpreadsDays holds keys of days apart, which a table takes as hashes.
func TestKey_SpreadsDays(t *testing.T) {
	low := map[uint64]int{}
	for day := range int64(4096) {
		low[Key((20_000+day)*86400)&4095]++
	}
	if len(low) < 2000 {
		t.Errorf("4096 days share %d slots", len(low))
	}
}

func TestSet_AreInOrderAndOfTwoTables(t *testing.T) {
	s := NewSet()
	objects, others := s.Watch(0), s.Watch(1)
	for _, at := range []int64{30, 10, 20} {
		objects(Key(at), true)
	}
	others(Key(20), true)
	objects(Key(20), false)
	others(7, true)
	if got := slices.Collect(s.Until(20)); !slices.Equal(got, []int64{10, 20}) {
		t.Errorf("until 20: %v", got)
	}
	if at, ok := s.After(20); !ok || at != 30 {
		t.Errorf("after 20: %d, %v", at, ok)
	}
	if at, ok := s.After(30); ok {
		t.Errorf("after 30: %d", at)
	}
}

func TestClock_StepsBack(t *testing.T) {
	var c Clock
	for _, step := range []struct {
		now        int64
		back       bool
		asOf, then int64
	}{
		{100, false, 100, 100}, {96, false, 100, 100}, {95, false, 100, 100}, {94, true, 100, 94}, {98, false, 100, 98}, {101, false, 101, 101}, {50, true, 101, 50}, {44, true, 101, 44},
	} {
		if back := c.Set(step.now); back != step.back || c.AsOf != step.asOf || c.Now != step.then {
			t.Errorf("at %d: %v, %+v, want %+v", step.now, back, c, step)
		}
	}
}
