package zstdbody

import (
	"bytes"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Options are those of a Pool. Zero values mean the defaults.
type Options struct {
	Encoders  int           // the most; 16 by default
	Quiet     time.Duration // after which a watch ends its frame; 2 s by default
	Bookmarks time.Duration // how long a bookmark that says nothing else may wait; 20 min by default
}

const (
	defaultEncoders  = 16
	defaultQuiet     = 2 * time.Second
	defaultBookmarks = 20 * time.Minute
)

// window is that of a frame. A larger one makes up for little: what an object is like was sent just before.
const window = 64 << 10

// Pool has the encoders of an agent.
type Pool struct {
	o     Options
	phase time.Duration // of the times at which bookmarks are passed: agents do not have theirs together

	shared sync.Mutex // of spare; never waited for
	spare  *encoder

	mu   sync.Mutex // never held while anything is encoded or written
	free []*encoder
	made int
	held map[*writer]*encoder
}

// New returns a pool.
func New(o Options) *Pool {
	if o.Encoders == 0 {
		o.Encoders = defaultEncoders
	}
	if o.Quiet == 0 {
		o.Quiet = defaultQuiet
	}
	if o.Bookmarks == 0 {
		o.Bookmarks = defaultBookmarks
	}
	return &Pool{o: o, phase: rand.N(o.Bookmarks), spare: newEncoder(), held: map[*writer]*encoder{}}
}

// nextBookmarks is when bookmarks are passed next.
func (p *Pool) nextBookmarks(now time.Time) time.Time {
	return now.Add(-p.phase).Truncate(p.o.Bookmarks).Add(p.o.Bookmarks + p.phase)
}

// encoder makes frames.
type encoder struct {
	zstd *zstd.Encoder
	out  *bytes.Buffer // what it writes to
}

func newEncoder() *encoder {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(window),
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false)) // TLS is below
	if err != nil {
		panic(err) // the options are ours
	}
	return &encoder{zstd: z}
}

// Write implements io.Writer for zstd.
func (e *encoder) Write(p []byte) (int, error) { return e.out.Write(p) }

// encode appends p to the frame under way, or to a new one, and all that it becomes to out.
func (e *encoder) encode(out *bytes.Buffer, p []byte, begin, end bool) {
	e.out = out
	if begin {
		e.zstd.Reset(e)
	}
	_, err := e.zstd.Write(p)
	if err == nil && end {
		err = e.zstd.Close()
	} else if err == nil {
		err = e.zstd.Flush()
	}
	if e.out = nil; err != nil {
		panic(err) // there is nothing that could fail
	}
}

// take returns the encoder of a writer for n more bytes, nil if it is to have none. begins says that the writer did not
// have it before. It is in use until done is called.
func (p *Pool) take(w *writer, n int, now time.Time) (e *encoder, begins bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.load = w.loadAt(now) + float64(n)
	w.loaded = now
	e, has := p.held[w]
	if !has {
		if e = p.spareLocked(w, now); e == nil {
			return nil, false
		}
		p.held[w] = e
	}
	w.busy = true
	return e, !has
}

// spareLocked returns an encoder that is free, new, or that of a writer that makes less of it.
func (p *Pool) spareLocked(w *writer, now time.Time) *encoder {
	if n := len(p.free); n > 0 {
		e := p.free[n-1]
		p.free = p.free[:n-1]
		return e
	}
	if p.made < p.o.Encoders {
		p.made++
		return newEncoder()
	}
	var least *writer
	for h := range p.held {
		if !h.busy && (least == nil || h.loadAt(now) < least.loadAt(now)) {
			least = h
		}
	}
	if least == nil || 2*least.loadAt(now) > w.load && now.Sub(least.loaded) < p.o.Quiet/2 {
		return nil
	}
	e := p.held[least]
	delete(p.held, least)
	least.timer.Reset(0) // it ends its frame
	return e
}

// done says that the encoder of a writer is not in use.
func (p *Pool) done(w *writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.busy = false
}

// release takes the encoder of a writer back, if it has one.
func (p *Pool) release(w *writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, has := p.held[w]; has {
		delete(p.held, w)
		p.free = append(p.free, e)
	}
}

// has reports whether a writer has an encoder.
func (p *Pool) has(w *writer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, has := p.held[w]
	return has
}

// halfLife is after which what was written counts half when it is asked who is busy.
const halfLife = 5 * time.Second

// loadAt is how much has been written lately. The pool's mu is held.
func (w *writer) loadAt(now time.Time) float64 {
	return w.load * math.Exp2(-float64(now.Sub(w.loaded))/float64(halfLife))
}
