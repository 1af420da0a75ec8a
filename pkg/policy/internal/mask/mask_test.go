package mask_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/test/seed"
)

func random(r *rand.Rand, depth int) *mask.Mask {
	switch n := r.IntN(8); {
	case n == 0:
		return nil
	case n == 1:
		return mask.Whole()
	case n == 2 || depth == 0:
		return &mask.Mask{}
	}
	m := &mask.Mask{Fields: map[string]*mask.Mask{}}
	for range r.IntN(3) {
		m.Fields[string(rune('a'+r.IntN(3)))] = random(r, depth-1)
	}
	if r.IntN(2) == 0 {
		m.Elem = random(r, depth-1)
	}
	return m
}

// reads is what a mask means, path by path: 0 nothing, 1 that it is there, 2 all.
func reads(m *mask.Mask, path string) int {
	for _, step := range path {
		if step == '*' {
			m = m.Element()
		} else {
			m = m.Child(string(step))
		}
	}
	switch {
	case m == nil:
		return 0
	case m.All:
		return 2
	}
	return 1
}

// paths are all of up to four steps; d is a key that no mask names.
func paths() []string {
	all := []string{""}
	for i := 0; i < len(all); i++ {
		if len(all[i]) < 4 {
			for _, step := range "abcd*" {
				all = append(all, all[i]+string(step))
			}
		}
	}
	return all
}

func TestUnion_ReadsExactlyWhatEitherReads(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	every := paths()
	for range 500 {
		a, b := random(r, 3), random(r, 3)
		u := mask.Union(a, b)
		covers := true
		for _, p := range every {
			if got, want := reads(u, p), max(reads(a, p), reads(b, p)); got != want {
				t.Fatalf("Union(%v, %v) = %v reads %d at %q, want %d", a, b, u, got, p, want)
			}
			covers = covers && reads(a, p) >= reads(b, p)
		}
		if a.Covers(b) != covers {
			t.Fatalf("(%v).Covers(%v) = %v, want %v", a, b, a.Covers(b), covers)
		}
		if !u.Covers(a) || !u.Covers(b) || !mask.Union(b, a).Covers(u) {
			t.Fatalf("Union(%v, %v) = %v does not cover both", a, b, u)
		}
	}
}

func TestMask_PathAndAt(t *testing.T) {
	m := mask.Path(mask.Whole(), "spec", "containers", "*", "image")
	for path, want := range map[string]int{"spec": 1, "status": 0} {
		if got := reads(m.At(path), ""); got != want {
			t.Errorf("At(%s) reads %d, want %d", path, got, want)
		}
	}
	if got := m.At("spec", "containers", "*", "image", "anything"); !got.Covers(mask.Whole()) {
		t.Errorf("below a whole field: %v", got)
	}
}

func ExampleMask_String() {
	m := mask.Union(
		mask.Path(mask.Whole(), "metadata", "annotations", "federator.dev/owner"),
		mask.Path(mask.Whole(), "spec", "containers", "*", "image"),
		mask.Path(&mask.Mask{}, "spec", "hostNetwork"),
	)
	fmt.Println(m)
	fmt.Println(mask.Whole())
	fmt.Println(mask.Union())
	// Output:
	// metadata.annotations["federator.dev/owner"].**, spec.containers[].image.**, spec.hostNetwork
	// **
	// nothing
}
