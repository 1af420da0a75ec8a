package multiplex

import (
	"bytes"
	"net/http"
	"time"
)

// maxAnswer bounds the bytes of the answer to a question.
const maxAnswer = 8 << 20

// response records the response to a request of a subscription.
type response struct {
	header   http.Header
	code     int
	body     []byte
	tooLarge bool
}

func newResponse() *response { return &response{header: http.Header{}} }

// Header implements http.ResponseWriter.
func (r *response) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *response) WriteHeader(code int) {
	if r.code == 0 && code >= http.StatusOK {
		r.code = code
	}
}

// Write implements http.ResponseWriter.
func (r *response) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if len(r.body)+len(b) > maxAnswer {
		r.tooLarge = true
		return len(b), nil
	}
	r.body = append(r.body, b...)
	return len(b), nil
}

// Flush implements http.Flusher: lines are written by the stream.
func (r *response) Flush() {}

// SetWriteDeadline is for http.ResponseController: the stream has its own.
func (r *response) SetWriteDeadline(time.Time) error { return nil }

// temporary reports whether the same request may succeed later.
func (r *response) temporary() bool {
	switch r.code {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusInternalServerError:
		return true
	}
	return false
}

// eventWriter passes on the lines of a watch.
type eventWriter struct {
	*response
	event func(line []byte) error
	part  []byte // of a line
}

// Write implements http.ResponseWriter.
func (w *eventWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.code >= http.StatusBadRequest {
		return w.response.Write(b)
	}
	n := len(b)
	for {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			w.part = append(w.part, b...)
			return n, nil
		}
		line := b[:end]
		if len(w.part) > 0 {
			line = append(w.part, line...)
			w.part = w.part[:0]
		}
		b = b[end+1:]
		if len(line) == 0 {
			continue
		}
		if err := w.event(line); err != nil {
			return 0, err
		}
	}
}
