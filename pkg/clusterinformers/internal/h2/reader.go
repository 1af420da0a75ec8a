package h2

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"time"

	"golang.org/x/net/http2"
)

const (
	unbounded   = -1
	headerBytes = maxHeaderBytes + maxFrameBytes // that a block of headers may have, its frames' own bytes included
	uselessNow  = 1000                           // frames that carry nothing, at once
	uselessRate = 100                            // and by second
	maxEarly    = 10                             // 1xx responses to a request
)

var errHeaderFlood = errors.New("h2: a block of headers without end")

// frameReader bounds what the Framer reads while it joins a block of headers.
type frameReader struct {
	r    *bufio.Reader
	left int
}

func (r *frameReader) Read(p []byte) (int, error) {
	if r.left != unbounded {
		if len(p) > r.left {
			return 0, errHeaderFlood
		}
		r.left -= len(p)
		return io.ReadFull(r.r, p)
	}
	return r.r.Read(p)
}

// read reads frames until the connection ends.
func (c *conn) read() {
	for first := true; ; first = false {
		if err := c.readFrame(first); err != nil {
			c.fail(err)
			return
		}
	}
}

// readFrame reads one frame, and acts on it.
func (c *conn) readFrame(first bool) error {
	h, err := c.framer.ReadFrameHeader()
	if err != nil {
		return c.broken(err)
	}
	c.hear()
	if first && (h.Type != http2.FrameSettings || h.Flags.Has(http2.FlagSettingsAck)) {
		return c.violated(violation(http2.ErrCodeProtocol, "the first frame is not SETTINGS"))
	}
	if h.Type == http2.FrameData {
		return c.broken(c.readData(h))
	}
	if h.Type == http2.FrameHeaders {
		c.in.left = headerBytes
	}
	f, err := c.framer.ReadFrameForHeader(h)
	c.in.left = unbounded
	if err == nil {
		err = c.handle(f)
	}
	return c.broken(err)
}

// broken makes the connection's error of one that reading a frame met; nil where it is of
// one stream only.
func (c *conn) broken(err error) error {
	var v *ProtocolError
	var s http2.StreamError
	var code http2.ConnectionError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &v):
		return c.violated(v)
	case errors.As(err, &s):
		if end := c.resetStream(s.StreamID, violation(s.Code, "a frame of a stream is malformed")); end != nil {
			return c.violated(end)
		}
		return nil
	case errors.As(err, &code):
		return c.violated(violation(http2.ErrCode(code), "a frame is malformed"))
	case errors.Is(err, http2.ErrFrameTooLarge):
		return c.violated(violation(http2.ErrCodeFrameSize, "a frame is larger than %d bytes", maxFrameBytes))
	case errors.Is(err, errHeaderFlood):
		return c.violated(violation(http2.ErrCodeEnhanceYourCalm, "a block of headers is larger than %d bytes", headerBytes))
	}
	return lost(err)
}

// violated counts a violation.
func (c *conn) violated(v *ProtocolError) error {
	if c.t.o.OnProtocolError != nil {
		c.t.o.OnProtocolError(v)
	}
	return v
}

// resetStream resets a stream for what the server did, and counts it before anybody reads
// of it.
func (c *conn) resetStream(id uint32, v *ProtocolError) *ProtocolError {
	c.mu.Lock()
	s := c.streams[id]
	c.mu.Unlock()
	if s == nil {
		return c.useless()
	}
	_ = c.violated(v) //nolint:errcheck // of the stream, not of the connection
	c.mu.Lock()
	after := s.endLocked(v, v.Code)
	c.mu.Unlock()
	after.run()
	return nil
}

// useless counts a frame that carries nothing, or what makes us answer. Too many are a
// violation.
func (c *conn) useless() *ProtocolError {
	now := time.Now()
	if n := int(now.Sub(c.noiseAt).Seconds() * uselessRate); n > 0 {
		c.noise, c.noiseAt = max(c.noise-n, 0), now
	}
	if c.noise++; c.noise > uselessNow {
		return violation(http2.ErrCodeEnhanceYourCalm, "too many frames that carry nothing")
	}
	return nil
}

var errNotOpened = violation(http2.ErrCodeProtocol, "a frame for a stream that was not opened")

// openedLocked reports whether a stream has ever been open.
func (c *conn) openedLocked(id uint32) bool { return id%2 == 1 && id < c.nextID }

// strayLocked is of a frame for a stream that is not open. It is only for one that we
// reset not to be a violation.
func (c *conn) strayLocked(id uint32) *ProtocolError {
	if !c.openedLocked(id) {
		return errNotOpened
	}
	if _, ours := c.resets[id]; !ours && !slices.Contains(c.reset, id) {
		return violation(http2.ErrCodeStreamClosed, "a frame for a stream that has ended")
	}
	return nil
}

// readData reads a DATA frame into chunks.
func (c *conn) readData(h http2.FrameHeader) error {
	length, padding := int(h.Length), 0
	if h.StreamID == 0 {
		return violation(http2.ErrCodeProtocol, "DATA without a stream")
	}
	if h.Flags.Has(http2.FlagDataPadded) {
		if length == 0 {
			return violation(http2.ErrCodeFrameSize, "padding is announced and missing")
		}
		b, err := c.in.r.ReadByte()
		if err != nil {
			return err
		}
		if padding = int(b) + 1; padding > length {
			return violation(http2.ErrCodeProtocol, "padding is longer than its frame")
		}
	}
	end := h.Flags.Has(http2.FlagDataEndStream)
	size := length - padding
	if size == 0 && !end {
		if v := c.useless(); v != nil {
			return v
		}
	}
	s, v := c.admit(h.StreamID, length, size)
	if v != nil {
		return v
	}
	if s != nil && s.charge != nil && size > 0 {
		if err := s.charge(costOf(size)); err != nil {
			s.abort(err)
			s = nil
		}
	}
	rest := max(padding-1, 0)
	if s == nil {
		_, err := c.in.r.Discard(size + rest)
		return err
	}
	first, last := newChunks(size)
	for k := first; k != nil; k = k.next {
		if _, err := io.ReadFull(c.in.r, k.data[:k.w]); err != nil {
			s.release(first)
			return err
		}
	}
	if _, err := c.in.r.Discard(rest); err != nil {
		s.release(first)
		return err
	}
	if c.deliver(s, first, last, size, length-size, end) {
		return http2.StreamError{StreamID: h.StreamID, Code: http2.ErrCodeProtocol}
	}
	return nil
}

// admit counts a DATA frame against its stream's window; the connection's is returned. It returns the stream that it is for;
// nil if nobody wants it any more.
func (c *conn) admit(id uint32, length, size int) (*clientStream, *ProtocolError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.credit += length; c.credit >= connWindow/2 {
		c.queue = appendWindowUpdate(c.queue, 0, uint32(c.credit))
		c.flushLocked()
		c.credit = 0
	}
	s := c.streams[id]
	if s == nil {
		return nil, c.strayLocked(id)
	}
	if s.recv -= int32(length); s.recv < 0 {
		return nil, violation(http2.ErrCodeFlowControl, "more came than a stream's window")
	}
	if s.pending != nil {
		return nil, violation(http2.ErrCodeProtocol, "DATA before HEADERS")
	}
	return s, nil
}

// deliver gives a stream what has come for it. It reports whether the body is longer than
// was announced.
func (c *conn) deliver(s *clientStream, list, last *chunk, size, overhead int, end bool) (tooLong bool) {
	var after later
	c.mu.Lock()
	tooLong = s.err == nil && s.left >= 0 && int64(size) > s.left
	if s.err == nil && !tooLong {
		if s.left >= 0 {
			s.left -= int64(size)
		}
		s.addCreditLocked(overhead) // padding is read already
		switch {
		case list == nil:
		case s.tail != nil && len(s.tail.data)-s.tail.w >= size:
			s.tail.w += copy(s.tail.data[s.tail.w:], list.data[:size])
		case s.tail != nil:
			s.tail.next, s.tail, list = list, last, nil
		default:
			s.head, s.tail, list = list, last, nil
		}
		switch {
		case end:
			after = s.remoteEndLocked()
		case size > 0:
			if ready := s.changedLocked(); ready != nil {
				after = later{ready}
			}
		}
	}
	c.mu.Unlock()
	s.release(list)
	after.run()
	return tooLong
}
