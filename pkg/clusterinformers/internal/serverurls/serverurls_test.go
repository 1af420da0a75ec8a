package serverurls

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"federator.dev/federator/test/seed"
)

// TestSet_Model: over random histories a URL is that of its only member, whatever order
// members come, change and go in, and nothing is kept of those that have gone.
func TestSet_Model(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(seed.Of(t), 1)) // A test's.
	for range 200 {
		var s Set[int]
		model := map[int]string{}
		const members = 6
		for step := range 100 {
			m := random.IntN(members)
			_, added := model[m]
			switch url := []string{"", "https://a", "https://b", "https://c"}[random.IntN(4)]; random.IntN(4) {
			case 0:
				if s.Add(m); !added {
					model[m] = ""
				}
			case 1:
				s.Remove(m)
				delete(model, m)
			default:
				if s.Put(m, url); added {
					model[m] = url
				}
			}
			for m := range members {
				want := model[m]
				for other, url := range model {
					if other != m && url == want {
						want = ""
					}
				}
				if got := s.Unique(m); got != want {
					t.Fatalf("step %d: %d has %q, want %q, of %v", step, m, got, want, model)
				}
			}
		}
		for m := range members {
			s.Remove(m)
		}
		if len(s.urls)+len(s.members) != 0 {
			t.Fatalf("kept: %v, %v", s.urls, s.members)
		}
	}
}

// BenchmarkSet_Unique: it is asked for every target, before each write.
func BenchmarkSet_Unique(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var s Set[int]
			for m := range n {
				s.Add(m)
				s.Put(m, fmt.Sprint("https://", m))
			}
			for b.Loop() {
				if s.Unique(7) != "https://7" {
					b.Fatal("another server")
				}
			}
		})
	}
}
