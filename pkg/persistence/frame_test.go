package persistence

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

func frames(t testing.TB, key []byte) (all []byte, ends []int) {
	t.Helper()
	seal, err := newSealer(key, bytes.Repeat([]byte{7}, saltBytes), []byte("header"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		payload := bytes.Repeat([]byte{byte(n)}, n*n*100)
		all = appendFrame(all, seal, int64(len(all)), typeBatch, aggregate.Revision(n+1), payload)
		ends = append(ends, len(all))
	}
	return all, ends
}

// readAll returns how many frames are read, and why there are no more.
func readAll(t testing.TB, in, key []byte) (payloads [][]byte, err error) {
	t.Helper()
	r := newFrameReader(bytes.NewReader(in))
	r.seal, err = newSealer(key, bytes.Repeat([]byte{7}, saltBytes), []byte("header"))
	if err != nil {
		t.Fatal(err)
	}
	for {
		f, err := r.next()
		if err != nil {
			return payloads, err
		}
		payloads = append(payloads, slices.Clone(f.payload))
	}
}

// TestFrames_EveryBitCounts: whichever bit of a file is flipped, and wherever it is cut, the frames
// before are read as they were written, and none after.
func TestFrames_EveryBitCounts(t *testing.T) {
	for _, key := range [][]byte{nil, bytes.Repeat([]byte{1}, 32)} {
		all, ends := frames(t, key)
		want, err := readAll(t, all, key)
		if !errors.Is(err, io.EOF) || len(want) != len(ends) {
			t.Fatalf("%d frames, %v", len(want), err)
		}
		sound := func(at int) int { n, _ := slices.BinarySearch(ends, at+1); return n }
		for at := range all {
			bad := slices.Clone(all)
			bad[at] ^= 1 << (at % 8)
			got, err := readAll(t, bad, key)
			if errors.Is(err, io.EOF) || len(got) != sound(at) || !slices.EqualFunc(got, want[:len(got)], bytes.Equal) {
				t.Fatalf("byte %d flipped: %d frames, want %d, %v", at, len(got), sound(at), err)
			}
			_, err = readAll(t, all[:at], key)
			var torn *tornError
			if whole := slices.Contains(ends, at) || at == 0; whole != errors.Is(err, io.EOF) || !whole && !errors.As(err, &torn) {
				t.Fatalf("cut at %d: %v", at, err)
			}
		}
	}
}

// TestFrames_BelongToTheirPlace: a sealed frame is no frame elsewhere, in another file, or with
// another key.
func TestFrames_BelongToTheirPlace(t *testing.T) {
	key := bytes.Repeat([]byte{1}, 32)
	all, ends := frames(t, key)
	moved := slices.Concat(all[:ends[1]], all[ends[2]:ends[3]])
	if got, err := readAll(t, moved, key); !errors.Is(err, errDoubt) || len(got) != 2 {
		t.Errorf("moved: %d frames, %v", len(got), err)
	}
	if got, err := readAll(t, all, bytes.Repeat([]byte{2}, 32)); !errors.Is(err, errDoubt) || len(got) != 0 {
		t.Errorf("another key: %d frames, %v", len(got), err)
	}
	for what, of := range map[string]struct{ salt, header []byte }{
		"another file":        {bytes.Repeat([]byte{8}, saltBytes), []byte("header")},
		"with another header": {bytes.Repeat([]byte{7}, saltBytes), []byte("other")},
	} {
		other, err := newSealer(key, of.salt, of.header)
		if err != nil {
			t.Fatal(err)
		}
		r := newFrameReader(bytes.NewReader(all))
		r.seal = other
		if _, err := r.next(); !errors.Is(err, errDoubt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzFrames(f *testing.F) {
	all, ends := frames(f, nil)
	f.Add(all)
	f.Add(all[:ends[2]-3])
	f.Fuzz(func(t *testing.T, in []byte) {
		r := newFrameReader(bytes.NewReader(in))
		for {
			fr, err := r.next()
			if err != nil {
				return
			}
			if len(fr.payload) > len(in) {
				t.Fatalf("a frame of %d bytes in %d", len(fr.payload), len(in))
			}
		}
	})
}
