package interest_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/test/seed"
)

// model is a set as a plain map; all of a space is -1.
type model map[string]bool

func key(space interest.Space, bucket int) string { return fmt.Sprint(space, " ", bucket) }

var spaces = []interest.Space{interest.Names("Pod"), interest.Names("Deployment.apps"), interest.View("a")}

func random(rng *rand.Rand) (*interest.Set, model) {
	var b interest.Builder
	m := model{}
	for range rng.IntN(20) {
		space, bucket := spaces[rng.IntN(len(spaces))], rng.IntN(30)
		if rng.IntN(20) == 0 {
			b.AddAll(space)
			m[key(space, -1)] = true
			continue
		}
		b.Add(space, uint32(bucket))
		m[key(space, bucket)] = true
	}
	return b.Take(), m
}

func (m model) has(space interest.Space, bucket int) bool {
	return m[key(space, -1)] || m[key(space, bucket)]
}

// TestSet_IsAsAPlainMap, for all operations of two random sets.
func TestSet_IsAsAPlainMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	for range 2000 {
		a, ma := random(rng)
		b, mb := random(rng)
		covers := true
		for _, space := range spaces {
			covers = covers && (!mb[key(space, -1)] || ma[key(space, -1)])
			whole := ma[key(space, -1)] && !mb[key(space, -1)]
			for bucket := range 30 {
				inA, inB := ma.has(space, bucket), mb.has(space, bucket)
				covers = covers && (inA || !inB)
				for what, got := range map[string][2]bool{
					"a":       {a.Has(space, uint32(bucket)), inA},
					"with":    {a.With(b).Has(space, uint32(bucket)), inA || inB},
					"both":    {a.Both(b).Has(space, uint32(bucket)), inA && inB},
					"without": {a.Without(b).Has(space, uint32(bucket)), inA && (!inB || whole)},
				} {
					if got[0] != got[1] {
						t.Fatalf("%s: %s %d is %t, want %t", what, space, bucket, got[0], got[1])
					}
				}
			}
		}
		if got := a.Covers(b); got != covers {
			t.Fatalf("Covers is %t, want %t", got, covers)
		}
		if !a.With(b).Covers(b) || !a.Covers(a.Both(b)) || !a.With(b).Equal(b.With(a)) {
			t.Fatal("sets do not cover what they were made of")
		}
		bytes, err := a.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := interest.Decode(bytes); err != nil || !back.Equal(a) {
			t.Fatalf("decoded: %v, %v", back, err)
		}
	}
}

func TestSet_Everything(t *testing.T) {
	all := interest.Everything()
	some, _ := random(rand.New(rand.NewPCG(1, 1)))
	if !all.Has(spaces[0], 7) || !all.HasAll(spaces[0]) || !all.Covers(some) || some.Covers(all) || !some.With(all).IsEverything() || !some.Without(all).Empty() {
		t.Error("everything is not everything")
	}
	bytes, _ := all.Append(nil)
	if back, err := interest.Decode(bytes); err != nil || !back.IsEverything() {
		t.Errorf("decoded: %v, %v", back, err)
	}
}

// TestSet_ManyBucketsAreAll, so that a set is never larger than a bitmap of half of them.
func TestSet_ManyBucketsAreAll(t *testing.T) {
	var b interest.Builder
	for i := range uint32(interest.Buckets/2 + 1) {
		b.Add(spaces[0], i*2%interest.Buckets+i*2/interest.Buckets)
	}
	if s := b.Take(); !s.HasAll(spaces[0]) || s.Size() != 0 {
		t.Errorf("%d buckets are not all", s.Size())
	}
	if b.Take() != nil {
		t.Error("a builder has what was taken")
	}
}

func FuzzDecode(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		s, _ := random(rng)
		b, err := s.Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := interest.Decode(b)
		if err != nil {
			return
		}
		again, err := s.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := interest.Decode(again); err != nil || !back.Equal(s) {
			t.Fatalf("decoded, encoded and decoded it is another: %v", err)
		}
	})
}
