package wire

import (
	"maps"
	"math/rand/v2"
	"runtime"
	"testing"
)

// TestSum_IsAsAPlainMap, whatever is put and deleted.
func TestSum_IsAsAPlainMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var s Sum
	want := map[uint64]uint64{}
	for round := range 20 {
		for range 5000 {
			key, hash := rng.Uint64N(8000), rng.Uint64()
			if rng.IntN(20) < round%20 {
				hash = 0
			}
			s.Put(key, hash)
			if want[key] = hash; hash == 0 {
				delete(want, key)
			}
		}
		total := uint64(0)
		for _, hash := range want {
			total += hash
		}
		if !maps.Equal(s.Records, want) || s.Total != total {
			t.Fatalf("%d records, %d; want %d, %d", len(s.Records), s.Total, len(want), total)
		}
	}
}

// TestSum_ForgetsWhatIsGone: of many records that were deleted nothing is kept.
func TestSum_ForgetsWhatIsGone(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	var s Sum
	const records = 1 << 18
	for i := range uint64(records) {
		s.Put(i, 1)
	}
	full := heap() - before
	for i := range uint64(records - 10) {
		s.Put(i, 0)
	}
	left := heap() - before
	if t.Logf("%d bytes with all, %d with ten", full, left); left > full/50 {
		t.Errorf("%d of %d bytes are kept for ten records", left, full)
	}
	runtime.KeepAlive(&s)
}
