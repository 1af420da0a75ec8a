package stream

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// chunks are what a body gives, one a read; its end is err.
type chunks struct {
	in     chan []byte
	err    error
	rest   []byte
	closed chan struct{}
	read   atomic.Int64 // bytes given
}

func newChunks(err error) *chunks {
	return &chunks{in: make(chan []byte, 1000), err: err, closed: make(chan struct{})}
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		select {
		case b, ok := <-c.in:
			if !ok {
				return 0, c.err
			}
			c.rest = b
		case <-c.closed:
			return 0, errors.New("closed")
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	c.read.Add(int64(n))
	return n, nil
}

func (c *chunks) Close() error {
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return nil
}

func TestPump_GivesAllByReadNowAndByRead(t *testing.T) {
	fault := errors.New("cut")
	for _, end := range []error{io.EOF, fault} {
		body := newChunks(end)
		var want []byte
		r := rand.New(rand.NewPCG(1, 2))
		for range 500 {
			b := bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(3000)+1)
			want = append(want, b...)
			body.in <- b
		}
		close(body.in)
		s := Pump(body)
		wake := make(chan struct{}, 1)
		s.Notify(func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		})
		var got []byte
		var err error
		for i := 0; err == nil; i++ {
			b := make([]byte, r.IntN(5000)+1)
			var n int
			if n, err = s.ReadNow(b); errors.Is(err, ErrNothing) {
				if i%2 == 0 {
					n, err = s.Read(b)
				} else {
					<-wake
					err = nil
				}
			}
			got = append(got, b[:n]...)
		}
		if err != end || !bytes.Equal(got, want) { //nolint:errorlint // the very same
			t.Errorf("got %d bytes and %v, want %d and %v", len(got), err, len(want), end)
		}
		if _, err := s.ReadNow(make([]byte, 1)); err != end { //nolint:errorlint // the very same
			t.Errorf("the end is %v the second time", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestPump_NotifiesOnceForEachReadThatFoundNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := newChunks(io.EOF)
		s := Pump(body)
		defer s.Close()
		var calls atomic.Int32
		want := func(n int32, when string) {
			t.Helper()
			synctest.Wait()
			if got := calls.Load(); got != n {
				t.Fatalf("%s: %d calls, want %d", when, got, n)
			}
		}
		s.Notify(func() { calls.Add(1) })
		want(0, "nothing has come")
		body.in <- []byte("a")
		want(1, "the first byte")
		body.in <- []byte("b")
		want(1, "nothing was read")
		b := make([]byte, 8)
		if n, err := s.ReadNow(b); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		body.in <- []byte("c")
		want(1, "what was read was something")
		if n, err := s.ReadNow(b); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if _, err := s.ReadNow(b); !errors.Is(err, ErrNothing) {
			t.Fatal(err)
		}
		body.in <- []byte("d")
		want(2, "after a read that found nothing")
		s.Notify(func() { calls.Add(10) })
		want(12, "set while there is something")
		if n, err := s.ReadNow(b); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if _, err := s.ReadNow(b); !errors.Is(err, ErrNothing) {
			t.Fatal(err)
		}
		s.Notify(nil)
		body.in <- []byte("e")
		want(12, "taken back")
		s.Notify(func() { calls.Add(1) })
		want(13, "set again")
		if n, err := s.ReadNow(b); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if _, err := s.ReadNow(b); !errors.Is(err, ErrNothing) {
			t.Fatal(err)
		}
		close(body.in)
		want(14, "the end")
		if _, err := s.ReadNow(b); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	})
}

func TestPump_ReadsAheadOnlySoFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := newChunks(io.EOF)
		for range 200 {
			body.in <- make([]byte, 1000)
		}
		s := Pump(body)
		defer s.Close()
		synctest.Wait()
		if n := body.read.Load(); n < maxAhead || n >= maxAhead+largeRead {
			t.Errorf("read %d bytes ahead", n)
		}
		if n, err := io.ReadFull(s, make([]byte, 150_000)); err != nil {
			t.Error(n, err)
		}
	})
}

func TestPump_CloseEndsReadsAndCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Pump(newChunks(io.EOF))
		s.Notify(func() { t.Error("called") })
		ended := make(chan error)
		go func() {
			_, err := s.Read(make([]byte, 1))
			ended <- err
		}()
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("a read that waited: %v", err)
		}
		if _, err := s.ReadNow(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("a read after: %v", err)
		}
		s.Notify(func() { t.Error("called after Close") })
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestPump_ClosesWhileItReadsAhead(t *testing.T) {
	body := newChunks(io.EOF)
	for range 200 {
		body.in <- make([]byte, 1000)
	}
	s := Pump(body)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestPump_IsTheBodyWhereThatIsAStream(t *testing.T) {
	s := Pump(newChunks(io.EOF))
	defer s.Close()
	if Pump(s) != s {
		t.Error("a stream was wrapped again")
	}
}

// BenchmarkPump_Idle reports what a body costs that nothing comes from.
func BenchmarkPump_Idle(b *testing.B) {
	for b.Loop() {
		const n = 1000
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		all := make([]Stream, n)
		for i := range all {
			r, _ := io.Pipe()
			all[i] = Pump(r)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc+after.StackInuse-before.HeapAlloc-before.StackInuse)/n, "B/body")
		for _, s := range all {
			s.Close()
		}
	}
}
