package zstdbody

import (
	"bytes"
	"net/http"
	"sync"
	"time"
)

// Parts of a frame: RFC 8878, 3.1.1.
var (
	rawFrameHead = []byte{0x28, 0xB5, 0x2F, 0xFD, 0, 6 << 3} // of a window of 64 KiB, with neither size nor checksum
	endOfFrame   = []byte{1, 0, 0}                           // an empty block that is the last
)

// outputs are buffers for what is sent next.
var outputs = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// keptOutput is the capacity of those that are kept.
const keptOutput = 128 << 10

// writer is a response.
type writer struct {
	pool  *Pool
	to    http.ResponseWriter
	flush func() error
	timer *time.Timer // of what is to be done while nothing comes

	mu    sync.Mutex // held while it is written, which may last
	open  bool       // the frame has not ended
	sent  time.Time  // when anything was
	done  bool       // nothing is written any more
	marks bookmarks

	// The pool's mu guards these.
	busy   bool // the encoder is in use
	load   float64
	loaded time.Time
}

func (p *Pool) writer(to http.ResponseWriter) *writer {
	w := &writer{pool: p, to: to, flush: http.NewResponseController(to).Flush}
	w.mu.Lock() // the timer is there before it fires
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(p.o.Quiet, w.tick)
	w.timer.Stop()
	return w
}

// pass sends what of a chunk is passed, and gives it back before anything is written.
func (w *writer) pass(c *chunk, n int, flush bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.marks.filter(c[:n], w.pool.nextBookmarks(time.Now()))
	if len(p) == 0 {
		chunks.Put(c)
		w.rest()
		return nil
	}
	out := outputs.Get().(*bytes.Buffer)
	w.compress(out, p)
	chunks.Put(c)
	return w.send(out, flush)
}

// last sends what nothing is to follow for long: where no frame is open it is one, for which no encoder is kept.
func (w *writer) last(p []byte, flush bool) error {
	out := outputs.Get().(*bytes.Buffer)
	if !w.open && w.pool.shared.TryLock() {
		w.pool.spare.encode(out, p, true, true)
		w.pool.shared.Unlock()
	} else {
		w.compress(out, p)
	}
	return w.send(out, flush)
}

// send sends what was compressed. mu is held.
func (w *writer) send(out *bytes.Buffer, flush bool) error {
	_, err := w.to.Write(out.Bytes())
	if err == nil && flush {
		err = w.flush()
	}
	if out.Reset(); out.Cap() <= keptOutput {
		outputs.Put(out)
	}
	w.sent = time.Now()
	w.rest()
	return err
}

// compress appends to out what becomes of p, by whatever encoder there is.
func (w *writer) compress(out *bytes.Buffer, p []byte) {
	e, begins := w.pool.take(w, len(p), time.Now())
	if e != nil {
		defer w.pool.done(w)
		if begins {
			w.end(out)
		}
		e.encode(out, p, begins, false)
		w.open = true
		return
	}
	if w.pool.shared.TryLock() {
		defer w.pool.shared.Unlock()
		w.end(out)
		w.pool.spare.encode(out, p, true, true)
		return
	}
	if !w.open {
		out.Write(rawFrameHead)
		w.open = true
	}
	for len(p) > 0 {
		n := min(len(p), window)
		out.Write([]byte{byte(n << 3), byte(n >> 5), byte(n >> 13)})
		out.Write(p[:n])
		p = p[n:]
	}
}

// end ends the frame that is open.
func (w *writer) end(out *bytes.Buffer) {
	if w.open {
		out.Write(endOfFrame)
		w.open = false
	}
}

// rest has tick called when there will be something to do. mu is held.
func (w *writer) rest() {
	var next time.Time
	if w.open {
		next = w.sent.Add(w.pool.o.Quiet)
	}
	if due := w.marks.due; !due.IsZero() && (next.IsZero() || due.Before(next)) {
		next = due
	}
	if next.IsZero() {
		w.timer.Stop()
		return
	}
	w.timer.Reset(time.Until(next))
}

// tick does what is due while nothing comes. While something is sent there is nothing to do, and it says itself what is
// to be done then.
func (w *writer) tick() {
	if !w.mu.TryLock() {
		return
	}
	defer w.mu.Unlock()
	now := time.Now()
	switch {
	case w.done:
	case !w.marks.due.IsZero() && !now.Before(w.marks.due):
		_ = w.last(w.marks.take(), true) //nolint:errcheck // who writes next is told
	case w.open && (!now.Before(w.sent.Add(w.pool.o.Quiet)) || !w.pool.has(w)):
		w.pool.release(w)
		out := outputs.Get().(*bytes.Buffer)
		w.end(out)
		_ = w.send(out, true) //nolint:errcheck // as above
	default:
		w.rest()
	}
}

// close ends the last frame, unless what is written fails anyway. Afterwards nothing is written.
func (w *writer) close(failed bool) (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !failed && w.open {
		_, err = w.to.Write(endOfFrame)
	}
	w.done = true
	w.pool.release(w)
	w.timer.Stop()
	return err
}
