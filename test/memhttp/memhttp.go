// Package memhttp has HTTP between parts of one test, without a network: it works in bubbles of testing/synctest, and can be
// cut.
package memhttp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
)

// ErrCut is what requests end with that are cut.
var ErrCut = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// Transport is an http.RoundTripper to a handler.
type Transport struct {
	Handler http.Handler
	As      string // the common name of the client's certificate; "" for none

	mu      sync.Mutex
	isCut   bool
	cancels map[int]context.CancelCauseFunc
	next    int
	running sync.WaitGroup
}

// Cut ends all requests, and those to come, until it is mended.
func (t *Transport) Cut(cut bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isCut = cut
	if cut {
		for _, cancel := range t.cancels {
			cancel(ErrCut)
		}
	}
}

// Wait waits for all handlers that run.
func (t *Transport) Wait() { t.running.Wait() }

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	t.mu.Lock()
	if t.isCut {
		t.mu.Unlock()
		cancel(nil)
		return nil, errRefused
	}
	if t.cancels == nil {
		t.cancels = map[int]context.CancelCauseFunc{}
	}
	n := t.next
	t.next++
	t.cancels[n] = cancel
	t.mu.Unlock()
	in := request.Clone(ctx)
	in.RequestURI = request.URL.RequestURI()
	if in.Body == nil {
		in.Body = http.NoBody
	}
	if t.As != "" {
		in.TLS = &tls.ConnectionState{HandshakeComplete: true, PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: t.As}}}}
	}
	body, to := io.Pipe()
	w := &writer{header: http.Header{}, to: to, answered: make(chan struct{})}
	context.AfterFunc(ctx, func() { to.CloseWithError(context.Cause(ctx)) })
	t.running.Go(func() {
		defer func() {
			t.mu.Lock()
			delete(t.cancels, n)
			t.mu.Unlock()
			err := io.EOF
			if p := recover(); p != nil {
				err = ErrCut
			}
			w.WriteHeader(http.StatusOK)
			to.CloseWithError(err)
			cancel(nil)
		}()
		t.Handler.ServeHTTP(w, in)
	})
	select {
	case <-w.answered:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/2.0", ProtoMajor: 2, Header: w.header.Clone(), Request: request,
		Body: &closing{body, cancel}, ContentLength: -1,
	}, nil
}

type closing struct {
	io.Reader

	cancel context.CancelCauseFunc
}

// Close implements io.Closer.
func (c *closing) Close() error {
	c.cancel(errors.New("the response was closed"))
	return nil
}

type writer struct {
	header   http.Header
	status   int
	to       *io.PipeWriter
	answered chan struct{}
	once     sync.Once
}

func (w *writer) Header() http.Header { return w.header }

func (w *writer) WriteHeader(status int) {
	w.once.Do(func() {
		w.status = status
		close(w.answered)
	})
}

func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.to.Write(p)
}

// Flush implements http.Flusher.
func (w *writer) Flush() { w.WriteHeader(http.StatusOK) }
