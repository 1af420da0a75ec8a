package pqueue

import (
	"cmp"
	"math/rand/v2"
	"testing"
)

func TestQueue_Model(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	q, want := New[int](cmp.Compare[int]), map[int]int{}
	for range 20_000 {
		key := r.IntN(50)
		if r.IntN(3) == 0 {
			_, had := want[key]
			if q.Remove(key) != had {
				t.Fatalf("removed %d, which was there: %v", key, had)
			}
			delete(want, key)
		} else {
			p := r.IntN(1000)
			q.Set(key, p)
			want[key] = p
		}
		least := 1000
		for _, p := range want {
			least = min(least, p)
		}
		k, p, ok := q.Min()
		if ok != (len(want) > 0) || ok && (p != least || want[k] != p) || q.Len() != len(want) || q.Has(key) != func() bool { _, has := want[key]; return has }() {
			t.Fatalf("first %d at %d, want %d of %v", k, p, least, want)
		}
	}
}
