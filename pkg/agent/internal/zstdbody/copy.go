package zstdbody

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// chunk is how much of a body is read at a time.
type chunk [64 << 10]byte

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// fill reads until a chunk is full, or the body ends.
func (c *chunk) fill(body io.Reader) (n int, err error) {
	for n < len(c) && err == nil {
		var got int
		got, err = body.Read(c[n:])
		n += got
	}
	return n, err
}

// Copy sends a body, compressed. After an error the response is not whole.
func (p *Pool) Copy(to http.ResponseWriter, body io.Reader) error {
	w := p.writer(to)
	for {
		c := chunks.Get().(*chunk)
		n, err := c.fill(body)
		var failed error
		if err == nil {
			failed = w.pass(c, n, false)
		} else {
			failed = w.finish(c[:n], false)
			chunks.Put(c)
		}
		if failed != nil || err != nil {
			return w.over(failed, err)
		}
	}
}

// CopyWatch sends the body of a watch, compressed: what has come of it is sent at once. Its Content-Type says how its
// bookmarks are found. After an error the response is not whole.
func (p *Pool) CopyWatch(to http.ResponseWriter, body io.Reader, contentType string) error {
	w := p.writer(to)
	w.marks.format = formatOf(contentType)
	for {
		// There are many watches of which nothing comes. A read of nothing waits, with HTTP/2, until there is something;
		// where it does not, the next one does.
		_, err := body.Read(nil)
		var failed error
		if err == nil {
			failed, err = w.copyChunk(body)
		}
		if failed == nil && err != nil {
			failed = w.finish(nil, true)
		}
		if failed != nil || err != nil {
			return w.over(failed, err)
		}
	}
}

// copyChunk sends what there is of a watch. It returns what failed and why reading ended, if they have.
func (w *writer) copyChunk(body io.Reader) (failed, ended error) {
	c := chunks.Get().(*chunk)
	n, err := body.Read(c[:])
	if n == 0 {
		chunks.Put(c)
		return nil, err
	}
	return w.pass(c, n, true), err
}

// finish sends what was kept back, and p.
func (w *writer) finish(p []byte, flush bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p = append(w.marks.rest(), p...); len(p) == 0 {
		return nil
	}
	return w.last(p, flush)
}

// over closes the response, and returns why it is not as the body was, if it is not.
func (w *writer) over(failed, ended error) error {
	if failed == nil && !errors.Is(ended, io.EOF) {
		failed = ended
	}
	return errors.Join(failed, w.close(failed != nil))
}
