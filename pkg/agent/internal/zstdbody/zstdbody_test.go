package zstdbody

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
)

// response is an http.ResponseWriter whose reader is a test.
type response struct {
	mu      sync.Mutex
	written bytes.Buffer
	flushed int // bytes of written that have been sent
	stuck   chan struct{}
}

func (r *response) Header() http.Header { return http.Header{} }
func (r *response) WriteHeader(int)     {}
func (r *response) Write(p []byte) (int, error) {
	if r.stuck != nil {
		<-r.stuck
		return 0, errors.New("reset")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written.Write(p)
}

func (r *response) Flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushed = r.written.Len()
}

// sent returns what has been sent, decoded, and whether its last frame has ended.
func (r *response) sent(t testing.TB) (text string, ended bool) {
	t.Helper()
	r.mu.Lock()
	raw := bytes.Clone(r.written.Bytes()[:r.flushed])
	r.mu.Unlock()
	d, err := zstd.NewReader(struct{ io.Reader }{bytes.NewReader(raw)}, zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	all, err := io.ReadAll(d)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	return string(all), err == nil
}

func (r *response) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written.Len()
}

// watch is one that is copied.
type watch struct {
	response
	from *io.PipeWriter
	done chan error
}

func (p *Pool) watch(contentType string) *watch {
	r, from := io.Pipe()
	w := &watch{from: from, done: make(chan error, 1)}
	go func() {
		err := p.CopyWatch(w, waiting{r}, contentType)
		r.CloseWithError(err)
		w.done <- err
	}()
	return w
}

// waiting is a body whose read of nothing does not wait, as that of HTTP/1.1.
type waiting struct{ io.Reader }

func (w waiting) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return w.Reader.Read(p)
}

func (w *watch) write(t testing.TB, text string) {
	t.Helper()
	if _, err := io.WriteString(w.from, text); err != nil {
		t.Fatal(err)
	}
}

// end ends a watch, and waits until it has.
func (w *watch) end(t testing.TB) {
	t.Helper()
	w.from.Close()
	if err := <-w.done; err != nil {
		t.Error(err)
	}
	w.Flush()
	if _, ended := w.sent(t); !ended {
		t.Error("the last frame has not ended")
	}
}

// encoders returns how many are held, and how many are free.
func (p *Pool) encoders() (held, free int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held), len(p.free)
}

const anyType = "application/json"

func event(of string, n int) string {
	return fmt.Sprintf(`{"type":"MODIFIED","object":{"kind":"Pod","metadata":{"name":%q,"resourceVersion":"%d"},"spec":{"filler":"%s"}}}`+"\n", of, n, strings.Repeat("some words that are there in each of them ", 20))
}

func bookmark(rv int, more string) string {
	return fmt.Sprintf(`{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"%d"%s}}}`+"\n", rv, more)
}

// TestCopyWatch_AllIsSent: whatever encoders there are, all of each event is sent at once, while watches come, are quiet
// and go.
func TestCopyWatch_AllIsSent(t *testing.T) {
	for _, encoders := range []int{1, 3, 100} {
		t.Run(fmt.Sprint(encoders), func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 1))
			synctest.Test(t, func(t *testing.T) {
				p := New(Options{Encoders: encoders})
				watches, want := make([]*watch, 12), make([]string, 12)
				for i := range watches {
					watches[i] = p.watch(anyType)
				}
				for n := range 400 {
					i := r.IntN(1 + r.IntN(len(watches))) // the first are busier
					ev := event(fmt.Sprint(i), n)
					if r.IntN(30) == 0 {
						ev = strings.Repeat(ev, 200)
					}
					if r.IntN(5) == 0 {
						p.shared.Lock() // another uses it
					}
					watches[i].write(t, ev)
					synctest.Wait()
					if !p.shared.TryLock() {
						p.shared.Unlock()
						p.shared.Lock()
					}
					p.shared.Unlock()
					want[i] += ev
					if got, _ := watches[i].sent(t); got != want[i] {
						t.Fatalf("%d bytes of %d were sent", len(got), len(want[i]))
					}
					if r.IntN(3) == 0 {
						time.Sleep(time.Duration(r.IntN(int(2 * p.o.Quiet))))
					}
				}
				if held, free := p.encoders(); held+free > encoders {
					t.Errorf("%d encoders are held, %d are free", held, free)
				}
				time.Sleep(2 * p.o.Quiet)
				synctest.Wait()
				for i, w := range watches {
					if got, ended := w.sent(t); !ended || got != want[i] {
						t.Errorf("a quiet watch has not ended its frame, or has sent %d bytes of %d", len(got), len(want[i]))
					}
				}
				if held, _ := p.encoders(); held > 0 {
					t.Errorf("quiet watches have %d encoders", held)
				}
				for _, w := range watches {
					w.end(t)
				}
			})
		})
	}
}

// TestCopyWatch_BusyWatchTakesOver: an encoder is where it is of use, and whose was taken has its frame ended.
func TestCopyWatch_BusyWatchTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Options{Encoders: 1, Quiet: time.Hour})
		slow, busy := p.watch(anyType), p.watch(anyType)
		slow.write(t, event("slow", 1))
		synctest.Wait()
		if _, ended := slow.sent(t); ended {
			t.Fatal("the first watch has no encoder")
		}
		for n := range 20 {
			busy.write(t, event("busy", n))
		}
		synctest.Wait()
		if _, ended := busy.sent(t); ended {
			t.Error("the busy watch has no encoder")
		}
		if _, ended := slow.sent(t); !ended {
			t.Error("the frame of the other has not ended")
		}
		size := busy.size()
		busy.write(t, event("busy", 100))
		synctest.Wait()
		if n := busy.size() - size; n > 100 {
			t.Errorf("an event like those before is %d bytes", n)
		}
		slow.end(t)
		busy.end(t)
	})
}

// TestCopyWatch_StuckWatchHarmsNone: what is not read holds no encoder, and ends with its request.
func TestCopyWatch_StuckWatchHarmsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Options{Encoders: 1})
		r, from := io.Pipe()
		stuck := &watch{response: response{stuck: make(chan struct{})}, from: from, done: make(chan error, 1)}
		go func() { stuck.done <- p.CopyWatch(stuck, waiting{r}, anyType) }()
		stuck.write(t, event("stuck", 1))
		other := p.watch(anyType)
		want := ""
		for n := range 20 {
			other.write(t, event("other", n))
			want += event("other", n)
			time.Sleep(p.o.Quiet / 4)
		}
		synctest.Wait()
		if got, ended := other.sent(t); got != want || ended {
			t.Errorf("the other watch has sent %d bytes of %d; it has no encoder: %t", len(got), len(want), ended)
		}
		close(stuck.stuck)
		if err := <-stuck.done; err == nil {
			t.Error("the watch that failed did not")
		}
		other.end(t)
	})
}

// TestCopyWatch_FailsAsItsBodyDoes: federator is not told that a watch has ended that was cut off.
func TestCopyWatch_FailsAsItsBodyDoes(t *testing.T) {
	p, cut := New(Options{}), errors.New("cut off")
	w := p.watch(anyType)
	w.write(t, event("a", 1))
	w.from.CloseWithError(cut)
	if err := <-w.done; !errors.Is(err, cut) {
		t.Errorf("%v", err)
	}
	if err := p.Copy(&response{}, io.MultiReader(strings.NewReader("half a list"), failing{io.ErrUnexpectedEOF})); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }

// TestCopy: a list is one frame, and takes no encoder from a watch if it is small.
func TestCopy(t *testing.T) {
	p := New(Options{Encoders: 1})
	for _, size := range []int{0, 1, 10_000, 64 << 10, 1 << 20} {
		want := strings.Repeat("x1", size/2+1)[:size]
		var to response
		if err := p.Copy(&to, strings.NewReader(want)); err != nil {
			t.Fatal(err)
		}
		to.Flush()
		if got, ended := to.sent(t); got != want || !ended {
			t.Errorf("%d bytes of %d", len(got), size)
		}
		if n := bytes.Count(to.written.Bytes(), rawFrameHead[:4]); n > 1 {
			t.Errorf("%d bytes are %d frames", size, n)
		}
		if held, _ := p.encoders(); held > 0 {
			t.Error("an encoder was not given back")
		}
	}
}

// framed makes an event in protobuf, as far as it is looked at.
func framed(typ, object string) string {
	body := "\x0a" + string(byte(len(typ))) + typ + "\x12" + string(byte(len(object))) + object
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body
}

// TestCopyWatch_Bookmarks: of those that follow one another the last is passed, in its time, and never behind an event.
func TestCopyWatch_Bookmarks(t *testing.T) {
	const end = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	for contentType, f := range map[string]struct {
		event    func(int) string
		bookmark func(int, string) string
	}{
		"application/json;stream=watch": {func(n int) string { return event("e", n) }, bookmark},
		"application/vnd.kubernetes.protobuf;stream=watch": {
			func(n int) string { return framed("MODIFIED", fmt.Sprint("event ", n)) },
			func(n int, more string) string { return framed("BOOKMARK", fmt.Sprint("bookmark ", n, more)) },
		},
	} {
		for _, pieces := range []int{1, 7, 1 << 20} {
			synctest.Test(t, func(t *testing.T) {
				p := New(Options{})
				w := p.watch(contentType)
				want := ""
				come := func(text string, passed string) {
					t.Helper()
					for rest := text; len(rest) > 0; {
						n := min(pieces, len(rest))
						w.write(t, rest[:n])
						rest = rest[n:]
					}
					synctest.Wait()
					want += passed
					if got, _ := w.sent(t); got != want {
						t.Fatalf("%s: got %q, not %q", contentType, got, want)
					}
				}
				at := func(text string) { t.Helper(); come(text, text) }
				at(f.event(1))
				at(f.bookmark(2, end))
				come(f.bookmark(3, ""), "")
				at(f.bookmark(3, end)) // whatever is kept back
				come(f.bookmark(4, ""), "")
				come(f.bookmark(5, ""), "")
				come(f.event(6)+f.bookmark(7, ""), f.event(6)+f.bookmark(7, "")) // 5 is of no use any more
				come(f.bookmark(8, ""), "")
				come(f.bookmark(9, ""), "")
				time.Sleep(p.o.Bookmarks)
				come("", f.bookmark(9, ""))
				time.Sleep(2 * p.o.Bookmarks)
				come("", "")
				if _, ended := w.sent(t); !ended {
					t.Error("after a bookmark alone a frame is open")
				}
				come(f.bookmark(10, ""), "")
				w.end(t)
				come("", f.bookmark(10, ""))
			})
		}
	}
}

// FuzzBookmarks: whatever comes, all is passed that is no bookmark, in its order, and nothing that did not come.
func FuzzBookmarks(f *testing.F) {
	f.Add([]byte(event("a", 1)+bookmark(1, "")+bookmark(2, "")+event("b", 2)), true, uint64(1))
	f.Add([]byte(framed("ADDED", "x")+framed("BOOKMARK", "y")+framed("BOOKMARK", "z")), false, uint64(2))
	f.Fuzz(func(t *testing.T, all []byte, json bool, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 2))
		b := bookmarks{format: prefixed}
		if json {
			b.format = lines
		}
		var got []byte
		for rest := all; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			got = append(got, b.filter(bytes.Clone(rest[:n]), time.Unix(1, 0))...)
			rest = rest[n:]
			if len(b.part) > maxBookmark+lengthBytes || len(b.held) > maxBookmark+lengthBytes || b.due.IsZero() != (len(b.held) == 0) {
				t.Fatalf("%d bytes are kept back, %d of a bookmark", len(b.part), len(b.held))
			}
		}
		got = append(got, b.rest()...)
		if !bytes.Contains(all, []byte("BOOKMARK")) && !bytes.Equal(got, all) {
			t.Fatalf("%q is passed as %q", all, got)
		}
		for len(got) > 0 { // what is passed is what came, without whole bookmarks
			same := 0
			for same < min(len(got), len(all)) && got[same] == all[same] {
				same++
			}
			got, all = got[same:], all[same:]
			if len(got) == 0 {
				return
			}
			i := bytes.IndexByte(all, got[0])
			if i < 0 {
				t.Fatalf("%q did not come", got)
			}
			all = all[max(i, 1):]
		}
	})
}

// TestCopyWatch_RequestsEnd: over HTTP/2 a watch that is not read ends with its request, and leaves nothing.
func TestCopyWatch_RequestsEnd(t *testing.T) {
	p, ended := New(Options{Quiet: time.Millisecond}), make(chan error, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ended <- p.CopyWatch(w, endless{rand.New(rand.NewPCG(1, 1))}, anyType)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.CopyN(io.Discard, resp.Body, 1<<20); err != nil {
		t.Fatal(err)
	}
	cancel() // it may be stuck by now, or not
	if err := <-ended; err == nil {
		t.Error("the watch has ended by itself")
	}
	if held, _ := p.encoders(); held > 0 {
		t.Error("an encoder was not given back")
	}
}

// endless is a body that says something new all the time.
type endless struct{ r *rand.Rand }

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e.r.Uint32())
	}
	return len(p), nil
}
