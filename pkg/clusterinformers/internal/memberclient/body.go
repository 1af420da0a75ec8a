package memberclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"federator.dev/federator/pkg/clusterinformers/internal/stream"
)

// Bodies are read whole by client-go, but for those of lists and watches, which
// count their bytes themselves.
const (
	maxBody      = 16 << 20
	maxErrorBody = 64 << 10
	unlimited    = -1
)

// errBodyTooLarge is the error of reading a body beyond its limit.
var errBodyTooLarge = errors.New("the response is too large")

// streamKey marks the requests whose bodies count for themselves. Its value, a *string,
// takes the Content-Type of the answer, which client-go does not return with a stream.
type streamKey struct{}

// WithStream returns a context for a request whose body the caller bounds. The answer's
// Content-Type goes to contentType.
func WithStream(ctx context.Context, contentType *string) context.Context {
	return context.WithValue(ctx, streamKey{}, contentType)
}

// scopeKey marks requests whose answer of a federator says in which state the scope is. Its value is a *string.
type scopeKey struct{}

// WithScope returns a context for a request to a federator. What its answer says of the scope goes to scope.
func WithScope(ctx context.Context, scope *string) context.Context {
	return context.WithValue(ctx, scopeKey{}, scope)
}

// bodyOf is the body of a response, which counts as under way until it is closed. Of a
// request whose body the caller bounds it is a stream, if it was one.
func (t *transport) bodyOf(r *http.Request, resp *http.Response) io.ReadCloser {
	limit := t.bodyLimit(r, resp)
	if s, is := resp.Body.(growing); is && limit == unlimited {
		return &streamBody{growing: s, transport: t}
	}
	return &limitedBody{ReadCloser: resp.Body, done: sync.OnceFunc(t.requestDone), left: limit}
}

// growing is what our own transport returns.
type growing interface {
	stream.Stream
	Grow(n int)
}

// streamBody is a stream that the caller bounds.
type streamBody struct {
	growing
	transport *transport
	closed    atomic.Bool
}

func (b *streamBody) Close() error {
	err := b.growing.Close()
	if !b.closed.Swap(true) {
		b.transport.requestDone()
	}
	return err
}

// bodyLimit is how much of a response may be read.
func (t *transport) bodyLimit(r *http.Request, resp *http.Response) int64 {
	switch {
	case t.hub:
		return unlimited
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return maxErrorBody
	case r.Context().Value(streamKey{}) != nil:
		return unlimited
	}
	return maxBody
}

// limitedBody is what is left of a response.
type limitedBody struct {
	io.ReadCloser
	done func()
	left int64 // that may be read; unlimited: all
}

// Read implements io.Reader. A body that goes on beyond its limit is an error
// after it.
func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left == unlimited || len(p) == 0 {
		return b.ReadCloser.Read(p)
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one more, to know whether there is more
	}
	n, err := b.ReadCloser.Read(p)
	if int64(n) <= b.left {
		b.left -= int64(n)
		return n, err
	}
	n, b.left = int(b.left), 0
	return n, errBodyTooLarge
}

func (b *limitedBody) Close() error {
	err := b.ReadCloser.Close()
	b.done()
	return err
}
