package zstdstream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"federator.dev/federator/pkg/clusterinformers/internal/stream"
)

// event returns a text that is like others.
func event(r *rand.Rand) []byte {
	b := bytes.Repeat([]byte(`{"type":"MODIFIED","object":{"kind":"Pod","metadata":{"name":"web-`), 1+r.IntN(30))
	for range r.IntN(1 << r.IntN(12)) {
		b = append(b, byte('a'+r.IntN(26)))
	}
	return append(b, '\n')
}

// TestStream_GivesWhatWasFlushed: whatever the pieces that it comes in, all of a flush is there once its last byte
// has come, and nothing is waited for.
func TestStream_GivesWhatWasFlushed(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 30 {
		var wire bytes.Buffer
		enc := encoder(t, &wire, zstd.WithEncoderCRC(r.IntN(2) == 0))
		charged := int64(0)
		b := &body{most: r.IntN(5) * 100}
		s := New(b, func(n int64) error { charged += n; return nil })
		var got, want bytes.Buffer
		for range 1 + r.IntN(60) {
			ev := event(r)
			if r.IntN(20) == 0 {
				ev = bytes.Repeat(ev, 1+r.IntN(300<<10/len(ev)))
			}
			want.Write(ev)
			_, _ = enc.Write(ev)
			ends := r.IntN(6) == 0
			if ends {
				enc.Close()
			} else {
				enc.Flush()
			}
			for raw := wire.Bytes(); len(raw) > 0; {
				n := 1 + r.IntN(len(raw))
				b.add(raw[:n], nil)
				raw = raw[n:]
				if err := drain(s, r, &got); err != nil {
					t.Fatal(err)
				}
			}
			wire.Reset()
			if !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Fatalf("%d bytes of %d", got.Len(), want.Len())
			}
			if ends {
				if s.d != nil || charged != 0 {
					t.Fatalf("between frames there is a decoder; %d bytes are charged", charged)
				}
				enc.Reset(&wire)
			} else if charged <= 0 {
				t.Fatal("nothing is charged for a decoder")
			}
		}
		between := s.d == nil
		b.add(nil, io.EOF)
		if err := drain(s, r, &got); between && err != io.EOF || !between && err != io.ErrUnexpectedEOF { //nolint:errorlint // as io.Reader has it
			t.Fatalf("the end is %v", err)
		}
		s.Close()
		if charged != 0 {
			t.Fatalf("%d bytes stay charged", charged)
		}
	}
}

// TestStream_ReadsWhole: as short requests are read.
func TestStream_ReadsWhole(t *testing.T) {
	want := bytes.Repeat([]byte("a list of objects, "), 100_000)
	enc := encoder(t, nil)
	for _, raw := range [][]byte{enc.EncodeAll(want, nil), enc.EncodeAll(nil, nil), nil} {
		s := New(&body{came: bytes.Clone(raw), end: io.EOF}, nil)
		got, err := io.ReadAll(s)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > 100 && !bytes.Equal(got, want) {
			t.Errorf("%d bytes", len(got))
		}
		s.Close()
		if _, err := s.Read(make([]byte, 1)); err == nil {
			t.Error("a closed stream is read")
		}
	}
}

// frame makes a frame of its header's descriptor, what follows it, and blocks.
func frame(descriptor byte, rest []byte, blocks ...[]byte) []byte {
	out := binary.LittleEndian.AppendUint32(nil, magic)
	out = append(append(out, descriptor), rest...)
	for _, b := range blocks {
		out = append(out, b...)
	}
	return out
}

// blockOf makes a block.
func blockOf(last bool, kind, size int, content ...byte) []byte {
	h := size<<3 | kind<<1
	if last {
		h |= 1
	}
	return append([]byte{byte(h), byte(h >> 8), byte(h >> 16)}, content...)
}

// TestStream_Refuses is what no body of an agent may be.
func TestStream_Refuses(t *testing.T) {
	window := []byte{7 << 3} // of 128 KiB
	for name, raw := range map[string][]byte{
		"no frame":                         []byte("HTTP/1.1 400 Bad Request"),
		"skippable":                        append(binary.LittleEndian.AppendUint32(nil, magicSkip+3), 0, 0, 0, 0, 0),
		"dictionary":                       frame(1, []byte{7 << 3, 9}),
		"reserved bit":                     frame(bitReserved, window),
		"window":                           frame(0, []byte{10<<3 + 1}),
		"one segment":                      frame(bitSingleSegment|2<<6, []byte{1, 0, 16, 0}),
		"one segment that is huge":         frame(bitSingleSegment|3<<6, bytes.Repeat([]byte{255}, 8)),
		"reserved block":                   frame(0, window, blockOf(false, 3, 1, 0)),
		"large block":                      frame(0, window, blockOf(false, rawBlock, maxBlock+1)),
		"block larger than the window":     frame(0, []byte{0}, blockOf(false, repeatedBlock, 1025, 'x')),
		"compressed nothing":               frame(0, window, blockOf(false, compressedBlock, 2, 0, 0)),
		"garbage":                          frame(0, window, blockOf(false, compressedBlock, 4, 1, 2, 3, 4)),
		"more than the frame says":         frame(bitSingleSegment, []byte{1}, blockOf(true, rawBlock, 2, 'a', 'b')),
		"a checksum that is of other text": frame(bitChecksum, window, blockOf(true, rawBlock, 1, 'x'), []byte{1, 2, 3, 4}),
	} {
		charged := int64(0)
		s := New(&body{came: raw}, func(n int64) error { charged += n; return nil })
		_, err := s.ReadNow(make([]byte, 100))
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		if _, again := s.ReadNow(make([]byte, 100)); !errors.Is(again, ErrMalformed) {
			t.Errorf("%s, the second time: %v", name, again)
		}
		if charged != 0 {
			t.Errorf("%s: %d bytes stay charged", name, charged)
		}
		s.Close()
	}
}

// TestStream_TurnsEnd: what comes of few bytes does not keep its reader.
func TestStream_TurnsEnd(t *testing.T) {
	bomb := frame(0, []byte{7 << 3})
	for range 200 {
		bomb = append(bomb, blockOf(false, repeatedBlock, maxBlock, '\n')...)
	}
	var nothing []byte
	for range 2000 {
		nothing = append(nothing, frame(0, []byte{0}, blockOf(false, rawBlock, 0), blockOf(true, rawBlock, 0))...)
	}
	for name, raw := range map[string][]byte{"bomb": bomb, "nothing": nothing} {
		s := New(&body{came: raw}, nil)
		told := 0
		s.Notify(func() { told++ })
		p := make([]byte, 64<<10)
		for turns := 1; ; turns++ {
			read, before := 0, told
			for {
				n, err := s.ReadNow(p)
				if read += n; errors.Is(err, stream.ErrNothing) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if read > maxTurn+maxBlock {
				t.Fatalf("%s: %d bytes in a turn", name, read)
			}
			if told == before {
				if turns < 20 {
					t.Errorf("%s: all was read in %d turns", name, turns)
				}
				break
			}
		}
		s.Close()
	}
}

// TestStream_ChargeRefused: a member that is over its budget gets no decoder.
func TestStream_ChargeRefused(t *testing.T) {
	over := errors.New("over budget")
	s := New(&body{came: frame(0, []byte{10 << 3})}, func(n int64) error {
		if n < MaxWindow {
			t.Errorf("a window of 1 MiB is charged as %d bytes", n)
		}
		return over
	})
	defer s.Close()
	if _, err := s.ReadNow(make([]byte, 1)); !errors.Is(err, over) {
		t.Errorf("%v", err)
	}
}

// TestFootprint: a decoder holds no more than is charged for it.
func TestFootprint(t *testing.T) {
	const many = 8
	r := rand.New(rand.NewPCG(1, 2))
	decoders = sync.Pool{}
	for _, window := range []int{64 << 10, 128 << 10, 256 << 10, 1 << 20} {
		var raw bytes.Buffer
		enc := encoder(t, &raw, zstd.WithWindowSize(window))
		for range 1000 {
			_, _ = enc.Write(event(r))
		}
		enc.Flush()
		var streams [many]*Stream
		before := heap()
		for i := range streams {
			streams[i] = New(&body{came: bytes.Clone(raw.Bytes())}, nil)
			if err := drain(streams[i], r, &bytes.Buffer{}); err != nil {
				t.Fatal(err)
			}
		}
		held := (heap() - before) / many
		t.Logf("window %d KiB: a decoder holds %d KB, %d KB are charged", window>>10, held>>10, footprint(window)>>10)
		if held > footprint(window) {
			t.Errorf("%d bytes are charged", footprint(window))
		}
		runtime.KeepAlive(streams)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestStream_CloseWhileReading: the last of them frees the decoder.
func TestStream_CloseWhileReading(t *testing.T) {
	raw := encoder(t, nil).EncodeAll([]byte(strings.Repeat("text that goes on and on ", 100_000)), nil)
	for range 100 {
		var mu sync.Mutex
		charged := int64(0)
		s := New(&body{came: bytes.Clone(raw), end: io.EOF}, func(n int64) error {
			mu.Lock()
			defer mu.Unlock()
			charged += n
			return nil
		})
		var both sync.WaitGroup
		both.Go(func() { _, _ = io.Copy(io.Discard, s) }) //nolint:errcheck // it is closed
		both.Go(func() { s.Notify(func() {}) })
		both.Go(func() { s.Close() })
		both.Wait()
		if charged != 0 {
			t.Fatalf("%d bytes stay charged", charged)
		}
	}
}

// FuzzStream: whatever comes, in whatever pieces, is what the whole decodes to, or an error.
func FuzzStream(f *testing.F) {
	enc := encoder(f, nil)
	f.Add(enc.EncodeAll([]byte(strings.Repeat("some text ", 100)), nil), uint64(1))
	var flushed bytes.Buffer
	e := encoder(f, &flushed, zstd.WithEncoderCRC(false))
	for range 3 {
		_, _ = e.Write([]byte(`{"type":"ADDED","object":{}}`))
		e.Flush()
	}
	f.Add(flushed.Bytes(), uint64(2))
	f.Add(frame(0, []byte{7 << 3}, blockOf(false, rawBlock, 0), blockOf(false, repeatedBlock, 1000, 'x'), blockOf(true, rawBlock, 1, 'y')), uint64(3))
	f.Add(frame(bitChecksum, []byte{7 << 3}, blockOf(true, rawBlock, 1, 'x'), []byte{1, 2, 3, 4}), uint64(4))
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 5))
		b := &body{most: r.IntN(4) * 10}
		charged := int64(0)
		s := New(b, func(n int64) error { charged += n; return nil })
		defer s.Close()
		var got bytes.Buffer
		var err error
		for rest := raw; err == nil; {
			n := r.IntN(len(rest) + 1)
			var end error
			if n == len(rest) {
				end = io.EOF
			}
			b.add(rest[:n], end)
			rest = rest[n:]
			if err = drain(s, r, &got); got.Len() > 8<<20 {
				return
			}
		}
		if charged != 0 {
			t.Errorf("%d bytes stay charged", charged)
		}
		want, wrong := whole(raw)
		if err == io.EOF && (wrong != nil || !bytes.Equal(got.Bytes(), want)) { //nolint:errorlint // as io.Reader has it
			t.Errorf("%d bytes, not %d (%v)", got.Len(), len(want), wrong)
		}
		if !bytes.HasPrefix(want, got.Bytes()) {
			t.Errorf("%d bytes that are not the first of %d", got.Len(), len(want))
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, ErrMalformed) {
			t.Errorf("%v", err)
		}
	})
}
