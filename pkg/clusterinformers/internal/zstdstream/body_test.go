package zstdstream

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"federator.dev/federator/pkg/clusterinformers/internal/stream"
)

// body is a Stream that comes as the test has it come.
type body struct {
	mu     sync.Mutex
	came   []byte
	end    error // once all has been read; nil: there is more to come
	ready  func()
	armed  bool
	closed bool
	most   int // bytes of a read; 0: any
}

func (b *body) add(p []byte, end error) {
	b.mu.Lock()
	b.came = append(b.came, p...)
	b.end = end
	ready := b.ready
	if !b.armed {
		ready = nil
	}
	b.armed = false
	b.mu.Unlock()
	if ready != nil {
		ready()
	}
}

func (b *body) ReadNow(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return 0, errors.New("closed")
	case len(b.came) > 0:
		if b.most > 0 {
			p = p[:min(len(p), b.most)]
		}
		n := copy(p, b.came)
		b.came = b.came[n:]
		return n, nil
	case b.end != nil:
		return 0, b.end
	}
	b.armed = true
	return 0, stream.ErrNothing
}

// Read implements io.Reader, for what has come.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadNow(p)
	if errors.Is(err, stream.ErrNothing) {
		err = io.ErrNoProgress
	}
	return n, err
}

func (b *body) Notify(ready func()) {
	b.mu.Lock()
	now := ready != nil && (len(b.came) > 0 || b.end != nil)
	b.ready, b.armed = ready, !now
	b.mu.Unlock()
	if now {
		ready()
	}
}

func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

// drain reads until nothing is there. It reports the error that is not that.
func drain(s *Stream, r *rand.Rand, out *bytes.Buffer) error {
	told := 0
	s.Notify(func() { told++ })
	defer s.Notify(nil)
	for {
		p := make([]byte, 1+r.IntN(64<<10))
		n, err := s.ReadNow(p)
		out.Write(p[:n])
		if errors.Is(err, stream.ErrNothing) {
			if s.turnWasOver() {
				continue
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// turnWasOver reports whether the last read said that there is nothing though there is.
func (s *Stream) turnWasOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waits
}

func encoder(t testing.TB, w io.Writer, o ...zstd.EOption) *zstd.Encoder {
	t.Helper()
	e, err := zstd.NewWriter(w, append([]zstd.EOption{zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(128 << 10), zstd.WithEncoderLevel(zstd.SpeedFastest)}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// whole is what klauspost's decoder makes of a body, within the same bounds.
func whole(raw []byte) ([]byte, error) {
	d, err := zstd.NewReader(struct{ io.Reader }{bytes.NewReader(raw)}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(MaxWindow))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return io.ReadAll(d)
}
