package segments

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"federator.dev/federator/internal/frames"
)

// lookup finds the blocks of a hash as a sealed segment does.
func lookup(t testing.TB, pages [][]byte, first []uint32, hash uint32, blocks int) []uint32 {
	t.Helper()
	i, found := slices.BinarySearch(first, hash)
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	got, err := find(pages[i], first[i], hash, blocks)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestIndex_EqualsMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, blocks := range []int{0, 1, 30, 500} {
		var w indexWriter
		want := map[uint32][]uint32{}
		for b := range blocks {
			for range 1 + rng.IntN(60) {
				s := subject{"member", fmt.Sprint("kind-", rng.IntN(3)), "", fmt.Sprint("name-", rng.IntN(5000))}
				w.add(b, &s)
				for f, v := range s {
					if h := hashOf(f, v); v != "" && (len(want[h]) == 0 || want[h][len(want[h])-1] != uint32(b)) {
						want[h] = append(want[h], uint32(b))
					}
				}
			}
		}
		var pages [][]byte
		var first []uint32
		w.pages(func(hash uint32, page []byte) {
			first, pages = append(first, hash), append(pages, slices.Clone(page))
		})
		if blocks == 500 && len(pages) < 3 {
			t.Errorf("only %d pages", len(pages))
		}
		for h, list := range want {
			if got := lookup(t, pages, first, h, blocks); !slices.Equal(got, list) {
				t.Fatalf("%d blocks: %x has %v, want %v", blocks, h, got, list)
			}
		}
		for range 1000 {
			if h := rng.Uint32(); want[h] == nil && lookup(t, pages, first, h, blocks) != nil {
				t.Fatalf("%x has blocks", h)
			}
		}
	}
}

func TestIntersect(t *testing.T) {
	if got := intersect([]uint32{1, 3, 5, 7}, []uint32{0, 3, 4, 7, 9}); !slices.Equal(got, []uint32{3, 7}) {
		t.Error(got)
	}
}

// randomDirectory returns one, with how many positions and bytes it fits into.
func randomDirectory(rng *rand.Rand, n int) (d *directory, positions uint64, bytes int64) {
	d = &directory{blocks: []blockInfo{}, pages: []pageInfo{}}
	bytes = 100
	for range n {
		b := blockInfo{offset: bytes, size: 100 + rng.Uint32N(1000), plain: rng.Uint32N(blockBytes), entries: 1 + rng.Uint32N(200), first: rng.Uint32N(1000), since: rng.Int64N(1000), until: 1000}
		b.last = b.first + b.entries + rng.Uint32N(1000)
		d.blocks = append(d.blocks, b)
		d.entries += int(b.entries)
		bytes += int64(b.size)
	}
	for i := range n {
		p := pageInfo{offset: bytes, size: 50 + rng.Uint32N(5000), first: uint32(i) << 20}
		d.pages = append(d.pages, p)
		bytes += int64(p.size)
	}
	return d, 1 << 20, bytes
}

func TestDirectory_IsReadAsItWasWritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for n := range 50 {
		d, positions, bytes := randomDirectory(rng, n)
		in := d.append(nil)
		got, err := decodeDirectory(in, positions, bytes)
		if err != nil || !reflect.DeepEqual(got, d) {
			t.Fatalf("%+v, %v, want %+v", got, err, d)
		}
		if n > 0 {
			if _, err := decodeDirectory(in, positions, bytes-1); !errors.Is(err, frames.ErrDoubt) {
				t.Fatalf("more than the file has: %v", err)
			}
		}
	}
}

func FuzzDirectory(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{0, 1, 5} {
		d, _, _ := randomDirectory(rng, n)
		f.Add(d.append(nil))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		d, err := decodeDirectory(in, 1<<20, 1<<30)
		if err != nil {
			if !errors.Is(err, frames.ErrDoubt) {
				t.Fatal(err)
			}
			return
		}
		again, err := decodeDirectory(d.append(nil), 1<<20, 1<<30)
		if err != nil || !reflect.DeepEqual(again, d) {
			t.Fatalf("%+v is read as %+v, %v", d, again, err)
		}
	})
}

// FuzzIndexPage: whatever a page has, the blocks that it names are of the segment.
func FuzzIndexPage(f *testing.F) {
	var w indexWriter
	for b := range 100 {
		w.add(b, &subject{"m", fmt.Sprint(b % 7), "", fmt.Sprint(b)})
	}
	w.pages(func(first uint32, page []byte) { f.Add(slices.Clone(page), first, hashOf(0, "m")) })
	f.Fuzz(func(t *testing.T, in []byte, first, hash uint32) {
		got, err := find(in, first, hash, 100)
		if err != nil && !errors.Is(err, frames.ErrDoubt) {
			t.Fatal(err)
		}
		if !slices.IsSorted(got) || len(got) > 0 && got[len(got)-1] >= 100 {
			t.Fatalf("blocks %v", got)
		}
	})
}
