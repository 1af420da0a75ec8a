package frames_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"federator.dev/federator/internal/frames"
)

const (
	typeSome = 'B'
	info     = "federator test v1"
)

func sample(t testing.TB, key []byte) (all []byte, ends []int) {
	t.Helper()
	seal, err := frames.NewSealer(key, bytes.Repeat([]byte{7}, frames.SaltBytes), []byte("header"), info)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		payload := bytes.Repeat([]byte{byte(n)}, n*n*100)
		all = frames.Append(all, seal, int64(len(all)), typeSome, uint64(n+1), payload)
		ends = append(ends, len(all))
	}
	return all, ends
}

// readAll returns how many frames are read, and why there are no more.
func readAll(t testing.TB, in, key []byte) (payloads [][]byte, err error) {
	t.Helper()
	r := frames.NewReader(bytes.NewReader(in))
	r.Seal, err = frames.NewSealer(key, bytes.Repeat([]byte{7}, frames.SaltBytes), []byte("header"), info)
	if err != nil {
		t.Fatal(err)
	}
	for {
		f, err := r.Next()
		if err != nil {
			return payloads, err
		}
		payloads = append(payloads, slices.Clone(f.Payload))
	}
}

// TestFrames_EveryBitCounts: whichever bit of a file is flipped, and wherever it is cut, the frames
// before are read as they were written, and none after.
func TestFrames_EveryBitCounts(t *testing.T) {
	for _, key := range [][]byte{nil, bytes.Repeat([]byte{1}, 32)} {
		all, ends := sample(t, key)
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
			var torn *frames.TornError
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
	all, ends := sample(t, key)
	moved := slices.Concat(all[:ends[1]], all[ends[2]:ends[3]])
	if got, err := readAll(t, moved, key); !errors.Is(err, frames.ErrDoubt) || len(got) != 2 {
		t.Errorf("moved: %d frames, %v", len(got), err)
	}
	if got, err := readAll(t, all, bytes.Repeat([]byte{2}, 32)); !errors.Is(err, frames.ErrDoubt) || len(got) != 0 {
		t.Errorf("another key: %d frames, %v", len(got), err)
	}
	for what, of := range map[string]struct{ salt, header []byte }{
		"another file":        {bytes.Repeat([]byte{8}, frames.SaltBytes), []byte("header")},
		"with another header": {bytes.Repeat([]byte{7}, frames.SaltBytes), []byte("other")},
	} {
		other, err := frames.NewSealer(key, of.salt, of.header, info)
		if err != nil {
			t.Fatal(err)
		}
		r := frames.NewReader(bytes.NewReader(all))
		r.Seal = other
		if _, err := r.Next(); !errors.Is(err, frames.ErrDoubt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzFrames(f *testing.F) {
	all, ends := sample(f, nil)
	f.Add(all)
	f.Add(all[:ends[2]-3])
	f.Fuzz(func(t *testing.T, in []byte) {
		r := frames.NewReader(bytes.NewReader(in))
		for {
			fr, err := r.Next()
			if err != nil {
				return
			}
			if len(fr.Payload) > len(in) {
				t.Fatalf("a frame of %d bytes in %d", len(fr.Payload), len(in))
			}
		}
	})
}

// TestDecode_EqualsReader: what a reader reads in order is read at its place, and nothing else.
func TestDecode_EqualsReader(t *testing.T) {
	for _, key := range [][]byte{nil, bytes.Repeat([]byte{1}, 32)} {
		all, ends := sample(t, key)
		want, _ := readAll(t, all, key)
		seal, err := frames.NewSealer(key, bytes.Repeat([]byte{7}, frames.SaltBytes), []byte("header"), info)
		if err != nil {
			t.Fatal(err)
		}
		from := 0
		var buf []byte
		for n, end := range ends {
			var f frames.Frame
			f, buf, err = frames.ReadAt(bytes.NewReader(all), seal, int64(from), end-from, buf)
			if err != nil || f.Revision != uint64(n+1) || f.Kind != typeSome || !bytes.Equal(f.Payload, want[n]) {
				t.Fatalf("frame %d: %+v, %v", n, f, err)
			}
			if _, _, err := frames.ReadAt(bytes.NewReader(all), seal, int64(from), end-from-1, nil); err == nil {
				t.Fatalf("frame %d is read without its last byte", n)
			}
			for at := from; at < end; at++ {
				bad := slices.Clone(all[from:end])
				bad[at-from] ^= 1 << (at % 8)
				if _, _, err := frames.Decode(bad, seal, int64(from)); err == nil {
					t.Fatalf("frame %d with byte %d flipped is read", n, at)
				}
			}
			from = end
		}
	}
}

// TestFile_IsContinued: what is appended to a file that was closed is read with the rest.
func TestFile_IsContinued(t *testing.T) {
	for _, key := range [][]byte{nil, bytes.Repeat([]byte{1}, 32)} {
		path, salt := filepath.Join(t.TempDir(), "f"), frames.NewSalt()
		w, err := frames.Create(path, key, []byte("header"), salt, info)
		if err != nil {
			t.Fatal(err)
		}
		w.Add(typeSome, 1, []byte("one"))
		if err := w.Flush(); err != nil || w.Buffered() != 0 {
			t.Fatal(err)
		}
		w.Add(typeSome, 1, []byte("not written"))
		w.Discard()
		w.Close()
		f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		w = frames.Continue(f, w.Sealer(), w.Written())
		w.Add(typeSome, 2, []byte("two"))
		if err := w.Flush(); err != nil || w.Written() != w.Size() {
			t.Fatal(err)
		}
		w.Close()
		in, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r := frames.NewReader(bytes.NewReader(in))
		r.Seal = w.Sealer()
		var got []string
		for {
			fr, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(fr.Payload))
		}
		if got = slices.DeleteFunc(got, func(s string) bool { return s == "" }); !slices.Equal(got, []string{"header", "one", "two"}) {
			t.Errorf("%q", got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	all, ends := sample(f, nil)
	f.Add(all[:ends[2]])
	f.Add(all[ends[2]:])
	f.Fuzz(func(t *testing.T, in []byte) {
		fr, size, err := frames.Decode(slices.Clone(in), nil, 0)
		if err != nil {
			return
		}
		if again := frames.Append(nil, nil, 0, fr.Kind, fr.Revision, fr.Payload); !bytes.Equal(again, in[:size]) {
			t.Fatalf("%x was read as %x", in[:size], again)
		}
	})
}
