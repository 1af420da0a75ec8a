package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
)

// API answers GET requests as the query API does, all of them as one caller. The path is one of the query API's. An error that
// the query API has answered is an *apierrors.StatusError; other errors say that there is no answer. Its methods may be called from any
// goroutine.
type API interface {
	Get(ctx context.Context, path string, query url.Values, accept string) ([]byte, error)
}

// Options configure a Server. Version and Logger are required.
type Options struct {
	Version string // of federator, which clients are told
	Logger  *slog.Logger
	Metrics prometheus.Registerer // nil: not exported
	// Timeout bounds one call of a tool; 0 means 30 s.
	Timeout time.Duration
}

// Bounds of a request.
const (
	maxRequest     = 64 << 10 // bytes of a message
	defaultTimeout = 30 * time.Second
)

// Server serves the tools. Its methods may be called from any goroutine.
type Server struct {
	options Options
	metrics *metrics
	server  *sdk.Server
	http    http.Handler // of server
}

// New returns a Server, which starts nothing.
func New(o Options) (*Server, error) {
	if o.Version == "" || o.Logger == nil {
		return nil, errors.New("mcp: Version and Logger are required")
	}
	if o.Timeout < 0 {
		return nil, errors.New("mcp: Timeout must not be negative")
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	s := &Server{options: o}
	var err error
	if s.metrics, err = newMetrics(o.Metrics); err != nil {
		return nil, fmt.Errorf("mcp: %w", err)
	}
	s.server = sdk.NewServer(&sdk.Implementation{Name: "federator", Title: "Federator", Version: o.Version}, &sdk.ServerOptions{
		Instructions: instructions,
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}, // the list does not change, and nothing is logged to clients
	})
	for _, t := range tools {
		t.add(s)
	}
	s.server.AddReceivingMiddleware(s.onlyTools, s.count)
	s.http = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.server }, &sdk.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: maxRequest, PropagateRequestCancellation: true,
	})
	return s, nil
}

// Run serves one caller, whose messages come from r and are answered to w, a line of JSON each, until r or the context ends, and
// closes both.
func (s *Server) Run(ctx context.Context, api API, r io.ReadCloser, w io.WriteCloser) error {
	with, c := withCaller(ctx, api)
	defer c.end()
	err := s.server.Run(with, &sdk.IOTransport{Reader: r, Writer: w, MaxLineLength: maxRequest})
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}
