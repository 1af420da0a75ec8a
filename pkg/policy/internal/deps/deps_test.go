package deps

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"federator.dev/federator/test/seed"
)

type subject struct{ id, payload int }

// newTable hashes badly on purpose: keys of equal hash must still be distinguished.
func newTable(spread uint64) *Table[subject] {
	return New(func(b uint32, s subject) uint64 { return (uint64(b)*31 + uint64(s.id)) % spread },
		func(a, b subject) bool { return a.id == b.id }, unwatched)
}

func unwatched(uint64, bool) {}

// TestTable_EqualsAMap drives a table and a plain map with the same random calls.
func TestTable_EqualsAMap(t *testing.T) {
	start := seed.Of(t)
	type name struct {
		binding uint32
		id      int
	}
	for _, spread := range []uint64{7, 1 << 40} {
		rnd := rand.New(rand.NewPCG(start, spread))
		table, model := newTable(spread), map[name][]uint64{}
		watched := map[uint64]bool{} // the keys that are read, by what the table tells
		table.watch = func(key uint64, read bool) {
			if delete(watched, key); read {
				watched[key] = true
			}
		}
		payload := map[name]int{}
		for step := range 20_000 {
			at := name{rnd.Uint32N(3), rnd.IntN(60)}
			s := subject{at.id, step}
			switch rnd.IntN(50) {
			case 0:
				table.RemoveBindings(func(b uint32) bool { return b == at.binding })
				maps.DeleteFunc(model, func(n name, _ []uint64) bool { return n.binding == at.binding })
			case 1, 2, 3:
				table.ReplaceSubject(at.binding, s)
				if model[at] != nil {
					payload[at] = step
				}
			default:
				var keys []uint64
				for k := range uint64(40) {
					if rnd.IntN(12) == 0 {
						keys = append(keys, k*spread/3)
					}
				}
				keys = slices.Compact(keys)
				table.Set(at.binding, s, keys)
				payload[at] = step
				if model[at] = keys; len(keys) == 0 {
					delete(model, at)
				}
			}
			if step%97 == 0 {
				read := map[uint64]bool{}
				for _, keys := range model {
					for _, k := range keys {
						read[k] = true
					}
				}
				if !maps.Equal(watched, read) {
					t.Fatalf("keys that are read: %v, want %v", watched, read)
				}
				checkTable(t, table, model, spread, func(b uint32, s subject) bool { return payload[name{b, s.id}] == s.payload },
					func(b uint32, id int) name { return name{b, id} })
			}
		}
	}
}

func checkTable[N comparable](t *testing.T, table *Table[subject], model map[N][]uint64, spread uint64, fresh func(uint32, subject) bool, named func(uint32, int) N) {
	t.Helper()
	edges := 0
	for _, keys := range model {
		edges += len(keys)
	}
	if p, e, _ := table.Size(); p != len(model) || e != edges {
		t.Fatalf("%d pairs and %d edges, want %d and %d", p, e, len(model), edges)
	}
	for k := range uint64(40) {
		key := k * spread / 3
		got, want := map[N]int{}, map[N]int{}
		for b, s := range table.Readers(key) {
			got[named(b, s.id)]++
			if !fresh(b, s) {
				t.Fatalf("binding %d: subject %v is not the last one", b, s)
			}
		}
		for n, keys := range model {
			if slices.Contains(keys, key) {
				want[n] = 1
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("readers of %d: %v, want %v", key, got, want)
		}
	}
	all := map[N]int{}
	for b := range uint32(3) {
		for s := range table.Pairs(b) {
			n := named(b, s.id)
			all[n]++
			got := slices.Sorted(table.Reads(b, s))
			if !slices.Equal(got, slices.Sorted(slices.Values(model[n]))) {
				t.Fatalf("reads of %v: %v, want %v", n, got, model[n])
			}
		}
	}
	if len(all) != len(model) {
		t.Fatalf("%d pairs, want %d", len(all), len(model))
	}
}

// TestTable_EdgesAreCompact holds the cost of what an evaluation read: at most 48 bytes
// an edge, the pair that it hangs on included, from two edges a pair on.
func TestTable_EdgesAreCompact(t *testing.T) {
	type small struct{ _, entry *int } // as an aggregate.Object
	const pairs = 300_000
	for _, each := range []int{1, 2, 4} {
		x := make([]int, pairs)
		table := New(func(b uint32, s small) uint64 {
			return (uint64(b) + 1) * uint64(*s.entry+1) * 0x9E3779B97F4A7C15 >> 7
		}, func(a, b small) bool { return a == b }, unwatched)
		for i := range pairs {
			x[i] = i
			keys := make([]uint64, each)
			for j := range keys {
				keys[j] = uint64(i*each+j+1) * 0x9E3779B97F4A7C15
			}
			table.Set(0, small{entry: &x[i]}, keys)
		}
		_, edges, bytes := table.Size()
		perEdge, limit := float64(bytes)/float64(edges), 48.0
		t.Logf("%d keys a pair: %.1f bytes an edge", each, perEdge)
		if each == 1 {
			limit = 72 // one edge carries all of its pair
		}
		if perEdge > limit {
			t.Errorf("%d keys a pair: %.1f bytes an edge, want at most %.0f", each, perEdge, limit)
		}
	}
}

func TestTable_Empty(t *testing.T) {
	table := newTable(5)
	for range table.Readers(1) {
		t.Error("a reader")
	}
	table.Set(0, subject{}, nil)
	table.ReplaceSubject(0, subject{})
	table.RemoveBindings(func(uint32) bool { return true })
	if p, e, b := table.Size(); p != 0 || e != 0 || b != 0 {
		t.Errorf("%d pairs, %d edges, %d bytes", p, e, b)
	}
}

// TestTable_ReleasesMemoryOfRemovedBindings removes one large binding beside a small
// one, which keeps its reads.
func TestTable_ReleasesMemoryOfRemovedBindings(t *testing.T) {
	const mix = 0x9E3779B97F4A7C15
	table := New(func(b uint32, s subject) uint64 { return (uint64(b)<<32 + uint64(s.id) + 1) * mix >> 7 },
		func(a, b subject) bool { return a.id == b.id }, unwatched)
	for i := range 50_000 {
		table.Set(1, subject{id: i}, []uint64{uint64(2*i+1) * mix, uint64(2*i+2) * mix, 7})
	}
	small := []uint64{3, 5, 7}
	table.Set(2, subject{id: 4, payload: 9}, small)
	_, _, before := table.Size()
	table.RemoveBindings(func(b uint32) bool { return b == 1 })
	pairs, edges, after := table.Size()
	t.Logf("%d bytes before, %d after", before, after)
	if pairs != 1 || edges != 3 || after > before/8 {
		t.Errorf("%d pairs, %d edges, %d of %d bytes", pairs, edges, after, before)
	}
	if got := slices.Sorted(table.Reads(2, subject{id: 4})); !slices.Equal(got, small) {
		t.Errorf("the other binding reads %v", got)
	}
	for b, s := range table.Readers(7) {
		if b != 2 || s.payload != 9 {
			t.Errorf("a reader %d %v", b, s)
		}
	}
}
