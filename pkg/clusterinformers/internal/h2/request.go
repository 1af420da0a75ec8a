package h2

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"
)

// headerBlock is where headers are encoded to.
type headerBlock []byte

func (b *headerBlock) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

// requestHead is the checked head of a request.
type requestHead struct {
	fields []hpack.HeaderField
	size   uint32
	length int64 // of the body; -1: unknown
}

func newRequestHead(req *http.Request) (*requestHead, error) {
	host := req.Host
	if host == "" {
		host = req.URL.Host
	}
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	path := req.URL.RequestURI()
	switch {
	case method == http.MethodConnect || !httpguts.ValidHeaderFieldName(method):
		return nil, fmt.Errorf("h2: method %q is not supported", method)
	case !httpguts.ValidHostHeader(host):
		return nil, fmt.Errorf("h2: host %q is not valid", host)
	case !strings.HasPrefix(path, "/") || !httpguts.ValidHeaderFieldValue(path) || strings.Contains(path, " "):
		return nil, fmt.Errorf("h2: path %q is not valid", path)
	case len(req.Trailer) > 0:
		return nil, fmt.Errorf("h2: request trailers are not supported")
	}
	h := &requestHead{length: req.ContentLength}
	if req.Body == nil || req.Body == http.NoBody {
		h.length = 0
	} else if h.length == 0 {
		h.length = -1
	}
	h.add(":authority", host)
	h.add(":method", method)
	h.add(":path", path)
	h.add(":scheme", "https")
	for k, values := range req.Header {
		name := strings.ToLower(k)
		switch name {
		case "host", "content-length", "connection", "proxy-connection", "transfer-encoding", "upgrade", "keep-alive", "expect":
			continue // this transport's own, or those of HTTP/1
		}
		if !httpguts.ValidHeaderFieldName(k) {
			return nil, fmt.Errorf("h2: header name %q is not valid", k)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return nil, fmt.Errorf("h2: the value of header %q is not valid", k)
			}
			h.add(name, v)
		}
	}
	if h.length > 0 || h.length == 0 && (method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch) {
		h.add("content-length", strconv.FormatInt(h.length, 10))
	}
	return h, nil
}

func (h *requestHead) add(name, value string) {
	f := hpack.HeaderField{Name: name, Value: value}
	h.fields = append(h.fields, f)
	h.size += f.Size()
}

// roundTrip sends a request on a stream that is reserved, and waits for the headers of its
// response.
func (c *conn) roundTrip(req *http.Request, head *requestHead, body io.Reader, o RequestOptions) (*http.Response, error) {
	p := &pending{head: req.Method == http.MethodHead, encoding: req.Header.Get("Accept-Encoding") != ""}
	s := &clientStream{
		c: c, charge: o.Charge, left: -1, window: int32(o.Window), recv: int32(o.Window),
		wake: make(chan struct{}, 1), pending: p,
	}
	s.watchContext(req.Context())
	if err := s.open(head); err != nil {
		return nil, err
	}
	if head.length != 0 {
		if err := s.sendBody(body, head.length); err != nil {
			s.abort(err)
		}
	}
	c.mu.Lock()
	for p.resp == nil && s.err == nil {
		s.waitLocked()
	}
	resp, err := p.resp, s.err
	s.wake = nil
	stop := s.stop
	if o.Detached {
		s.stop = nil
	}
	c.mu.Unlock()
	if o.Detached && stop != nil {
		stop()
	}
	if resp == nil {
		s.Close()
		return nil, err
	}
	resp.Request, resp.TLS = req, c.tls
	return resp, nil
}

// open opens a stream that is reserved.
func (s *clientStream) open(head *requestHead) error {
	c := s.c
	c.mu.Lock()
	for len(c.queue) >= fullQueue && s.err == nil && c.err == nil {
		s.blockLocked()
	}
	c.reserved--
	err := s.err
	switch {
	case err != nil:
	case c.err != nil:
		err = &unprocessedError{c.err}
	case c.gone:
		err = &unprocessedError{errGoneAway}
	case head.size > min(c.peerHeaders, maxHeaderBytes):
		err = errHeaderExcess
	}
	if err != nil {
		c.mu.Unlock()
		s.Close()
		c.freed()
		return err
	}
	for _, f := range head.fields {
		_ = c.encoder.WriteField(f) //nolint:errcheck // a headerBlock fails not
	}
	s.id, s.send, s.sentAll = c.nextID, c.initialSend, head.length == 0
	c.nextID += 2
	c.queue = appendHeaders(c.queue, s.id, c.block, s.sentAll)
	if s.window > minWindow {
		c.queue = appendWindowUpdate(c.queue, s.id, uint32(s.window-minWindow))
	}
	if c.block = c.block[:0]; cap(c.block) > readBuffer {
		c.block = nil
	}
	if len(c.streams)+len(c.resets) == 0 { // nor was it armed for one that is only reserved
		c.armLocked(c.t.o.PingInterval)
	}
	c.streams[s.id] = s
	c.flushLocked()
	c.mu.Unlock()
	return nil
}

// blockLocked waits until the connection may take more.
func (s *clientStream) blockLocked() {
	c := s.c
	c.blocked = append(c.blocked, s)
	s.waitLocked()
	for i, b := range c.blocked {
		if b == s {
			c.blocked = append(c.blocked[:i], c.blocked[i+1:]...)
			break
		}
	}
}

// bodies are buffers to read requests' bodies into.
var bodies = sync.Pool{New: func() any { return new([maxFrameBytes]byte) }}

// sendBody sends a request's body. It stops without an error when the stream ends or its
// headers come.
func (s *clientStream) sendBody(body io.Reader, length int64) error {
	buf := bodies.Get().(*[maxFrameBytes]byte)
	defer bodies.Put(buf)
	for sent := int64(0); ; {
		n, err := body.Read(buf[:])
		sent += int64(n)
		switch {
		case err != nil && err != io.EOF: //nolint:errorlint // as io.Reader has it
			return fmt.Errorf("h2: request body: %w", err)
		case length >= 0 && sent > length, length >= 0 && err != nil && sent < length:
			return fmt.Errorf("h2: the request's body has not the length that was announced")
		}
		last := err != nil || sent == length
		if !s.sendData(buf[:n], last) || last {
			return nil
		}
	}
}

// sendData sends a part of the body, as windows and the queue allow. It reports whether
// the server still wants more.
func (s *clientStream) sendData(data []byte, last bool) bool {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if s.err != nil || s.pending == nil {
			return false
		}
		n := max(0, min(int64(len(data)), int64(s.send), c.send)) // a window may be below zero
		if len(c.queue) >= fullQueue || n == 0 && len(data) > 0 {
			s.blockLocked()
			continue
		}
		end := last && int(n) == len(data)
		if n > 0 || end {
			c.queue = appendData(c.queue, s.id, data[:n], end)
			c.updates += 4
			c.flushLocked()
		}
		s.send -= int32(n)
		c.send -= n
		s.sentAll = end
		if data = data[n:]; len(data) == 0 {
			return true
		}
	}
}
