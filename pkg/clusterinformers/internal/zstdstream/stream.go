package zstdstream

import (
	"errors"
	"io"
	"net/http"
	"sync"

	"federator.dev/federator/pkg/clusterinformers/internal/stream"
)

// A reader's turn is over after maxTurn bytes, those of the body and those that have come of them, and has to be told
// that there is more: a few bytes may be gigabytes of nothing. A frame counts as openCost.
const (
	maxTurn  = 256 << 10
	openCost = 4 << 10
)

// errTurn ends a reader's turn.
var errTurn = errors.New("there is more")

// Stream is a compressed body, decoded.
type Stream struct {
	body   stream.Stream
	charge func(bytes int64) error // nil: nobody is charged

	mu      sync.Mutex
	ready   func()
	reading bool // body, and what follows, are its that reads
	waits   bool // there is something to read, which body does not know of
	closed  bool

	err   error    // that ended it
	d     *decoder // nil between frames
	cost  int64    // of d
	turn  int      // bytes since the last ErrNothing
	heads [maxFrameHead]byte
	got   int // bytes of a frame's header
}

var _ stream.Stream = (*Stream)(nil)

// New returns a Stream over a body. charge is called with what is held to decode it, negative when released, and its
// error ends the stream; nil charges nobody.
func New(body stream.Stream, charge func(bytes int64) error) *Stream {
	return &Stream{body: body, charge: charge}
}

// Notify implements stream.Stream.
func (s *Stream) Notify(ready func()) {
	s.mu.Lock()
	if s.closed {
		ready = nil
	}
	s.ready = ready
	now := ready != nil && s.waits
	s.mu.Unlock()
	s.body.Notify(ready)
	if now {
		ready()
	}
}

// ReadNow implements stream.Stream.
func (s *Stream) ReadNow(p []byte) (int, error) {
	if !s.begin() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := s.read(p, s.readNow)
	if s.turn += n; err == nil {
		s.finish(false)
		return n, nil
	}
	s.turn = 0
	over := err == errTurn //nolint:errorlint // it is made here
	ready := s.finish(over)
	if !over {
		return n, err
	}
	if ready != nil {
		ready()
	}
	return 0, stream.ErrNothing
}

// readNow reads of the body, unless the turn is over.
func (s *Stream) readNow(p []byte) (int, error) {
	if s.turn >= maxTurn {
		return 0, errTurn
	}
	n, err := s.body.ReadNow(p)
	s.turn += n
	return n, err
}

// Read implements io.Reader.
func (s *Stream) Read(p []byte) (int, error) {
	if !s.begin() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := s.read(p, s.body.Read)
	s.finish(false)
	return n, err
}

// begin begins to read. It reports false once the stream is closed.
func (s *Stream) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading = !s.closed
	return s.reading
}

// finish is what begin began. It returns what is to be told of what waits.
func (s *Stream) finish(gaveUp bool) (ready func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading = false
	if s.closed {
		s.release()
		return nil
	}
	s.waits = gaveUp || s.err != nil || s.d != nil && len(s.d.unread()) > 0
	return s.ready
}

// read reads what is decoded, or decodes the next block, as soon as all of it can be read from the body.
func (s *Stream) read(p []byte, body func([]byte) (int, error)) (int, error) {
	for len(p) > 0 && s.err == nil && (s.d == nil || len(s.d.unread()) == 0) {
		err := s.advance(body)
		if err == stream.ErrNothing || err == errTurn { //nolint:errorlint // a Stream's
			return 0, err
		}
		if err != nil {
			s.err = err
			s.release()
		}
	}
	if s.err != nil || len(p) == 0 {
		return 0, s.err
	}
	n := copy(p, s.d.unread())
	if s.d.read(n); s.d.last && len(s.d.unread()) == 0 {
		s.release()
	}
	return n, nil
}

// advance reads a frame's header, or a block.
func (s *Stream) advance(body func([]byte) (int, error)) error {
	if s.d == nil {
		return s.open(body)
	}
	err := s.d.next(body)
	if err == nil && s.d.last && len(s.d.unread()) == 0 {
		s.release()
	}
	return err
}

// open reads the header of a frame, and gets a decoder for it.
func (s *Stream) open(body func([]byte) (int, error)) error {
	for {
		size := frameHeadSize(s.heads[:s.got])
		if s.got == size {
			break
		}
		n, err := body(s.heads[s.got:size])
		s.got += n
		switch {
		case n > 0:
			if err := checkFrameHead(s.heads[:s.got]); err != nil {
				return err
			}
		case err == io.EOF && s.got > 0: //nolint:errorlint // as io.Reader has it
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
	raw := s.heads[:s.got]
	s.got = 0
	head, err := parseFrameHead(raw)
	if err != nil {
		return err
	}
	s.turn += openCost
	cost := footprint(head.window)
	if s.charge != nil {
		if err := s.charge(cost); err != nil {
			return err
		}
	}
	s.cost = cost
	s.d, err = newDecoder(head, raw)
	return err
}

// release frees the decoder.
func (s *Stream) release() {
	if s.d == nil {
		return
	}
	s.d.free()
	s.d = nil
	if s.charge != nil {
		_ = s.charge(-s.cost) //nolint:errcheck // less is never refused
	}
}

// Grow lets more of the body come before it is read.
func (s *Stream) Grow(n int) {
	if g, can := s.body.(interface{ Grow(n int) }); can {
		g.Grow(n)
	}
}

// Close implements io.Closer.
func (s *Stream) Close() error {
	s.mu.Lock()
	s.closed, s.ready, s.waits = true, nil, false
	if !s.reading {
		s.release()
	}
	s.mu.Unlock()
	return s.body.Close()
}
