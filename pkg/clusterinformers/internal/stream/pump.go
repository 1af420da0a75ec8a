package stream

import (
	"io"
	"net/http"
	"sync"
)

const (
	maxAhead   = 64 << 10 // bytes that are read and not taken yet
	smallRead  = 512      // what an idle pump holds to read into
	largeRead  = 16 << 10 // while more comes than fits the small one
	maxIdleBuf = 4 << 10  // capacity that is kept while there is nothing to take
)

// large holds what busy pumps read into.
var large = sync.Pool{New: func() any { return new([largeRead]byte) }}

// pump reads a body with a goroutine of its own.
type pump struct {
	body io.ReadCloser
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	changed sync.Cond // broadcast when buf, err or closed change
	buf     []byte    // read and not taken
	off     int       // what of buf is taken
	err     error     // that ended reading
	closed  bool
	ready   func()
	armed   bool // ready is called when something comes
}

// Pump returns a Stream of a body: the body itself if it is one, else one whose
// goroutine reads up to 64 KiB ahead, and which Close joins. Closing the body must end
// a read of it, as it does with bodies of net/http.
func Pump(body io.ReadCloser) Stream {
	if s, ok := body.(Stream); ok {
		return s
	}
	p := &pump{body: body, done: make(chan struct{})}
	p.changed.L = &p.mu
	go p.run()
	return p
}

// run reads until the body ends or the pump is closed.
func (p *pump) run() {
	defer close(p.done)
	var small [smallRead]byte
	for busy := false; ; {
		var n int
		var err error
		if busy {
			b := large.Get().(*[largeRead]byte)
			n, err = p.body.Read(b[:])
			p.add(b[:n], err)
			large.Put(b)
		} else {
			n, err = p.body.Read(small[:])
			p.add(small[:n], err)
		}
		if err != nil || !p.room() {
			return
		}
		busy = n >= smallRead
	}
}

// add appends what was read.
func (p *pump) add(b []byte, err error) {
	if len(b) == 0 && err == nil {
		return
	}
	p.mu.Lock()
	if !p.closed {
		if p.off > 0 && len(p.buf)+len(b) > cap(p.buf) {
			p.buf, p.off = append(p.buf[:0], p.buf[p.off:]...), 0
		}
		p.buf = append(p.buf, b...)
	}
	p.err = err
	var ready func()
	if p.armed {
		ready, p.armed = p.ready, false
	}
	p.changed.Broadcast()
	p.mu.Unlock()
	if ready != nil {
		ready()
	}
}

// room waits until more may be read. It reports false once the pump is closed.
func (p *pump) room() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.buf)-p.off >= maxAhead && !p.closed {
		p.changed.Wait()
	}
	return !p.closed
}

// Notify implements Stream.
func (p *pump) Notify(ready func()) {
	p.mu.Lock()
	now := ready != nil && !p.closed && (p.off < len(p.buf) || p.err != nil)
	p.ready, p.armed = ready, !now && !p.closed
	p.mu.Unlock()
	if now {
		ready()
	}
}

// ReadNow implements Stream.
func (p *pump) ReadNow(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := p.takeLocked(b)
	if err == ErrNothing { //nolint:errorlint // it is made here
		p.armed = true
	}
	return n, err
}

// Read implements io.Reader.
func (p *pump) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		n, err := p.takeLocked(b)
		if err != ErrNothing { //nolint:errorlint // it is made here
			return n, err
		}
		p.changed.Wait()
	}
}

func (p *pump) takeLocked(b []byte) (int, error) {
	switch {
	case p.closed:
		return 0, http.ErrBodyReadAfterClose
	case len(b) == 0:
		return 0, nil
	case p.off < len(p.buf):
		n := copy(b, p.buf[p.off:])
		if p.off += n; p.off == len(p.buf) {
			p.off, p.buf = 0, p.buf[:0]
			if cap(p.buf) > maxIdleBuf {
				p.buf = nil
			}
		}
		p.changed.Broadcast()
		return n, nil
	case p.err != nil:
		return 0, p.err
	}
	return 0, ErrNothing
}

// Close closes the body and joins the goroutine.
func (p *pump) Close() error {
	p.mu.Lock()
	p.closed, p.ready, p.armed, p.buf = true, nil, false, nil
	p.off = 0
	p.changed.Broadcast()
	p.mu.Unlock()
	err := p.body.Close()
	<-p.done
	return err
}
