// Package otlp is a receiver of OpenTelemetry traces for tests: a real server of OTLP over gRPC, which
// keeps what it gets.
package otlp

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // which exporters compress with
	"google.golang.org/grpc/metadata"
)

// Receiver is a server that keeps what it receives.
type Receiver struct {
	collector.UnimplementedTraceServiceServer

	Endpoint string // host:port

	mu      sync.Mutex
	spans   []Span
	headers metadata.MD // of the last request
	block   chan struct{}
}

// Span is a span that was received.
type Span struct {
	Trace, ID, Parent string // in hexadecimal
	Name              string
	Service           string // of the resource
	Start, End        time.Time
	Failed            bool
	Attributes        map[string]string
	Links             []string // trace IDs
}

// Listen starts a receiver: with TLS where config is not nil.
func Listen(t testing.TB, config *tls.Config) *Receiver {
	t.Helper()
	r, stop, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return r
}

// Start starts a receiver until stop is called: with TLS where config is not nil.
func Start(ctx context.Context, config *tls.Config) (r *Receiver, stop func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	var options []grpc.ServerOption
	if config != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	s := grpc.NewServer(options...)
	r = &Receiver{Endpoint: l.Addr().String()}
	collector.RegisterTraceServiceServer(s, r)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) }) // which Stop ends
	return r, func() {
		r.Unblock()
		s.Stop()
		wg.Wait()
	}, nil
}

// Block makes the receiver answer nothing until Unblock.
func (r *Receiver) Block() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.block = make(chan struct{})
}

// Unblock ends Block.
func (r *Receiver) Unblock() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.block != nil {
		close(r.block)
		r.block = nil
	}
}

// Export implements collector.TraceServiceServer.
func (r *Receiver) Export(ctx context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	block := r.block
	r.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	headers, _ := metadata.FromIncomingContext(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.headers = headers
	for _, of := range req.GetResourceSpans() {
		service := ""
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.spans = append(r.spans, decode(service, s))
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func decode(service string, s *trace.Span) Span {
	out := Span{
		Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		Name: s.GetName(), Service: service, Start: time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())),
		Failed: s.GetStatus().GetCode() == trace.Status_STATUS_CODE_ERROR, Attributes: map[string]string{},
	}
	for _, a := range s.GetAttributes() {
		out.Attributes[a.GetKey()] = a.GetValue().GetStringValue()
	}
	for _, l := range s.GetLinks() {
		out.Links = append(out.Links, hex.EncodeToString(l.GetTraceId()))
	}
	return out
}

// Spans returns what was received.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// Trace returns the spans of a trace.
func (r *Receiver) Trace(id string) []Span {
	return slices.DeleteFunc(r.Spans(), func(s Span) bool { return s.Trace != id })
}

// Header returns a header of the last request, "" for none.
func (r *Receiver) Header(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v := r.headers.Get(name); len(v) > 0 {
		return v[0]
	}
	return ""
}
