package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServeCaller serves one message of an authenticated caller. What tools ask is asked of api, which answers as this caller.
// It returns when all that the message has started has ended.
func (s *Server) ServeCaller(w http.ResponseWriter, r *http.Request, api http.Handler) {
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
		switch tooLarge := (*http.MaxBytesError)(nil); {
		case errors.As(err, &tooLarge):
			http.Error(w, fmt.Sprintf("a message has %d bytes at most", maxRequest), http.StatusRequestEntityTooLarge)
			return
		case err != nil:
			http.Error(w, "the message cannot be read", http.StatusBadRequest)
			return
		case bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")):
			// A batch would be one request to fairness and audit, and many calls. Newer versions of the protocol have none.
			http.Error(w, "batches are not served: send one message in each request", http.StatusBadRequest)
			return
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	ctx, c := withCaller(r.Context(), handlerAPI{api})
	defer c.end()
	s.http.ServeHTTP(w, r.WithContext(ctx))
}

// caller is who a message, or a connection, is from. It ends and joins the calls of tools: the SDK gives them the values of a
// request's context, but not its end.
type caller struct {
	api    API
	cancel context.CancelFunc
	onEnd  func(func()) (stop func() bool) // of the request

	mu    sync.Mutex
	ended bool
	calls sync.WaitGroup
}

type callerKey struct{}

// withCaller returns a context that lasts until the caller is ended.
func withCaller(ctx context.Context, api API) (context.Context, *caller) {
	ctx, cancel := context.WithCancel(ctx)
	c := &caller{api: api, cancel: cancel, onEnd: func(f func()) func() bool { return context.AfterFunc(ctx, f) }}
	return context.WithValue(ctx, callerKey{}, c), c
}

var errEnded = errors.New("the request has ended")

// begin starts a call, which ends with the request.
func (c *caller) begin(ctx context.Context, timeout time.Duration) (context.Context, func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, nil, errEnded
	}
	c.calls.Add(1)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	stop := c.onEnd(cancel)
	return ctx, func() { stop(); cancel(); c.calls.Done() }, nil
}

// end ends the calls, waits for them, and lets none begin.
func (c *caller) end() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.cancel()
	c.calls.Wait()
}

// served are the methods that there are. Others, such as subscriptions, would hold a request for nothing.
var served = map[string]bool{
	"initialize": true, "notifications/initialized": true, "notifications/cancelled": true, "ping": true, "server/discover": true, "tools/list": true, "tools/call": true,
}

// onlyTools refuses all other methods.
func (s *Server) onlyTools(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
		if !served[method] {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: there are tools only"}
		}
		return next(ctx, method, r)
	}
}

// handlerAPI asks a handler.
type handlerAPI struct{ handler http.Handler }

// Get implements API.
func (a handlerAPI) Get(ctx context.Context, path string, query url.Values, accept string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, (&url.URL{Path: path, RawQuery: query.Encode()}).String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	w := &response{header: http.Header{}}
	aborted := w.record(a.handler, r)
	switch {
	case w.tooLarge:
		return nil, errTooLarge
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case aborted:
		return nil, errors.New("the query API has broken off its answer")
	case w.code == http.StatusOK:
		return w.body, nil
	}
	var status metav1.Status
	if json.Unmarshal(w.body, &status) != nil || status.Kind != "Status" {
		return nil, fmt.Errorf("the query API answers %d", w.code)
	}
	return nil, &apierrors.StatusError{ErrStatus: status}
}

// maxResponse bounds the bytes of what the query API answers to a tool.
const maxResponse = 16 << 20

var errTooLarge = fmt.Errorf("the query API answers with more than %d MiB: ask for less", maxResponse>>20)

// response records a response.
type response struct {
	header   http.Header
	code     int
	body     []byte
	tooLarge bool
}

// record has a handler serve a request, and reports whether it broke off.
func (r *response) record(h http.Handler, request *http.Request) (aborted bool) {
	defer func() {
		switch cause := recover(); cause {
		case nil:
		case http.ErrAbortHandler: // as net/http closes the connection
			aborted = true
		default:
			panic(cause)
		}
	}()
	h.ServeHTTP(r, request)
	return false
}

// Header implements http.ResponseWriter.
func (r *response) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *response) WriteHeader(code int) {
	if r.code == 0 && code >= http.StatusOK {
		r.code = code
	}
}

// Write implements http.ResponseWriter. What is too large is not held, and the handler is told.
func (r *response) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if r.tooLarge = r.tooLarge || len(r.body)+len(b) > maxResponse; r.tooLarge {
		r.body = nil
		return 0, errTooLarge
	}
	r.body = append(r.body, b...)
	return len(b), nil
}

// Flush implements http.Flusher.
func (r *response) Flush() {}

// SetWriteDeadline is for http.ResponseController: the call has its own.
func (r *response) SetWriteDeadline(time.Time) error { return nil }
