package h2

import (
	"context"
	"io"
	"net/http"

	"golang.org/x/net/http2"

	"federator.dev/federator/pkg/clusterinformers/internal/stream"
)

// maxWindow is the largest window of HTTP/2.
const maxWindow = 1<<31 - 1

// clientStream is a request under way, and the body of its response. The lock of its
// connection guards it.
type clientStream struct {
	c  *conn
	id uint32 // 0 until it is open

	pending *pending      // until the headers have come
	wake    chan struct{} // takes a token when something changes; nil while nobody waits
	ready   func()
	armed   bool // ready is called when there is something to read
	closed  bool // by who reads the body
	sentAll bool // the request's body ended
	err     error
	stop    func() bool // takes the request's context back
	charge  func(bytes int64) error

	head, tail *chunk // what has come and is not read
	left       int64  // how much more may come; -1: unknown
	window     int32  // bytes that may come before they are read
	recv       int32  // bytes that the server may send now
	credit     int32  // bytes that were read and not returned to the server
	send       int32  // bytes that we may send
}

var _ stream.Stream = (*clientStream)(nil)

// pending is what a stream needs until the headers of its response have come.
type pending struct {
	head     bool // the method is HEAD
	encoding bool // the request accepts encodings
	early    int  // 1xx responses
	resp     *http.Response
}

// signalLocked wakes who waits for the stream.
func (s *clientStream) signalLocked() {
	if s.wake != nil {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// changedLocked wakes who waits, and returns what is to be called; may be nil.
func (s *clientStream) changedLocked() (ready func()) {
	s.signalLocked()
	if !s.armed {
		return nil
	}
	s.armed = false
	return s.ready
}

// waitLocked waits until something may have changed.
func (s *clientStream) waitLocked() {
	if s.wake == nil {
		s.wake = make(chan struct{}, 1)
	}
	wake := s.wake
	s.c.mu.Unlock()
	<-wake
	s.c.mu.Lock()
}

// Notify implements stream.Stream.
func (s *clientStream) Notify(ready func()) {
	s.c.mu.Lock()
	now := ready != nil && !s.closed && (s.head != nil || s.err != nil)
	s.ready, s.armed = ready, !now && !s.closed
	s.c.mu.Unlock()
	if now {
		ready()
	}
}

// ReadNow implements stream.Stream.
func (s *clientStream) ReadNow(p []byte) (int, error) {
	s.c.mu.Lock()
	n, used, err := s.takeLocked(p)
	if err == stream.ErrNothing { //nolint:errorlint // it is made here
		s.armed = true
	}
	s.c.mu.Unlock()
	s.release(used)
	return n, err
}

// Read implements io.Reader.
func (s *clientStream) Read(p []byte) (int, error) {
	s.c.mu.Lock()
	n, used, err := s.takeLocked(p)
	for err == stream.ErrNothing { //nolint:errorlint // it is made here
		s.waitLocked()
		n, used, err = s.takeLocked(p)
	}
	s.c.mu.Unlock()
	s.release(used)
	return n, err
}

// takeLocked reads what there is. It returns the chunks that were read to their end.
func (s *clientStream) takeLocked(p []byte) (n int, used *chunk, err error) {
	switch {
	case s.closed:
		return 0, nil, http.ErrBodyReadAfterClose
	case len(p) == 0:
		return 0, nil, nil
	case s.head == nil && s.err != nil:
		return 0, nil, s.err
	case s.head == nil:
		return 0, nil, stream.ErrNothing
	}
	for n < len(p) && s.head != nil {
		k := s.head
		m := copy(p[n:], k.data[k.r:k.w])
		n += m
		if k.r += m; k.r < k.w {
			break
		}
		s.head, k.next, used = k.next, used, k
	}
	if s.head == nil {
		s.tail = nil
	}
	s.addCreditLocked(n)
	return n, used, nil
}

// addCreditLocked returns n bytes to the server, once it is worth a frame.
func (s *clientStream) addCreditLocked(n int) {
	if s.credit += int32(n); s.credit < s.window/2 {
		return
	}
	if s.err == nil {
		s.c.queue = appendWindowUpdate(s.c.queue, s.id, uint32(s.credit))
		s.c.flushLocked()
		s.recv += s.credit
	}
	s.credit = 0
}

// release recycles chunks.
func (s *clientStream) release(list *chunk) {
	if bytes := recycle(list); bytes > 0 && s.charge != nil {
		_ = s.charge(-bytes) //nolint:errcheck // there is nothing to do about it
	}
}

// Grow lets n more bytes come before they are read.
func (s *clientStream) Grow(n int) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	n = min(n, maxWindow-int(s.window))
	if s.err != nil || s.id == 0 || n <= 0 {
		return
	}
	s.window += int32(n)
	s.recv += int32(n)
	s.c.queue = appendWindowUpdate(s.c.queue, s.id, uint32(n))
	s.c.flushLocked()
}

// Close ends the stream, and resets it if it has not ended.
func (s *clientStream) Close() error {
	s.c.mu.Lock()
	s.closed, s.ready, s.armed = true, nil, false
	after := s.endLocked(http.ErrBodyReadAfterClose, http2.ErrCodeCancel)
	s.signalLocked()
	list := s.dropLocked()
	s.c.mu.Unlock()
	s.release(list)
	after.run()
	return nil
}

// abort ends a stream that has not ended with an error; what has come is dropped.
func (s *clientStream) abort(err error) {
	s.c.mu.Lock()
	if s.err != nil {
		s.c.mu.Unlock()
		return
	}
	list := s.dropLocked()
	after := s.endLocked(err, http2.ErrCodeCancel)
	s.c.mu.Unlock()
	s.release(list)
	after.run()
}

func (s *clientStream) dropLocked() *chunk {
	list := s.head
	s.head, s.tail = nil, nil
	return list
}

// noCode is of streams that need no reset.
const noCode = http2.ErrCode(1<<32 - 1)

// endLocked ends a stream with an error, which is read after what has come, and resets it
// with code unless that is noCode. It does nothing the second time.
func (s *clientStream) endLocked(err error, code http2.ErrCode) (after later) {
	c := s.c
	if s.err != nil {
		return nil
	}
	s.err = err
	after = after.add(s.changedLocked())
	if stop := s.stop; stop != nil {
		s.stop = nil
		after = after.add(func() { stop() })
	}
	if c.streams[s.id] != s {
		return after
	}
	delete(c.streams, s.id)
	if code != noCode && c.err == nil {
		c.resetLocked(s.id, code)
	}
	if len(c.streams) == 0 {
		c.idleSince = c.now()
	}
	return after.add(c.freed)
}

// remoteEndLocked ends a stream whose response is complete.
func (s *clientStream) remoteEndLocked() later {
	code := noCode
	if !s.sentAll {
		code = http2.ErrCodeNo // the rest of the request is of no use
	}
	if s.left > 0 {
		return s.endLocked(io.ErrUnexpectedEOF, code)
	}
	return s.endLocked(io.EOF, code)
}

// later is what is to be called once a lock is released.
type later []func()

func (l later) add(f func()) later {
	if f == nil {
		return l
	}
	return append(l, f)
}

func (l later) run() {
	for _, f := range l {
		f()
	}
}

// watchContext has the stream end with its request's context.
func (s *clientStream) watchContext(ctx context.Context) {
	if ctx.Done() == nil {
		return
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.stop = context.AfterFunc(ctx, func() { s.abort(ctx.Err()) })
}
