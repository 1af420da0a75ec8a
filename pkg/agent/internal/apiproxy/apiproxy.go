// Package apiproxy is what an agent serves: its API server, with the agent's own credentials, to the requests that
// federator has a reason to send, and no others.
package apiproxy

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/agent/internal/budget"
	"federator.dev/federator/pkg/agent/internal/zstdbody"
)

const (
	bufferBytes = 64 << 10 // of a response that are copied at a time
	// maxRunning bounds the requests, watches among them, of all connections: each holds some 20 KiB. Federator's processes have about a
	// hundred each.
	maxRunning = 4096
)

// Proxy is an http.Handler.
type Proxy struct {
	proxy     httputil.ReverseProxy
	transport http.RoundTripper
	target    *url.URL
	zstd      *zstdbody.Pool
	budget    *budget.Budget
	hidden    hidden
	buffers   *buffers
	running   atomic.Int64 // requests
}

// New returns a proxy to the API server that a configuration leads to, with its credentials and within a budget, which
// hides some Secrets.
func New(config *rest.Config, within *budget.Budget, secrets []types.NamespacedName, log *slog.Logger) (*Proxy, error) {
	config = rest.CopyConfig(config)
	config.DisableCompression = true // the API server is near
	config.UserAgent = ""            // federator's own is passed
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	if target.Scheme != "https" {
		return nil, fmt.Errorf("API server: %s is not https", target.Redacted())
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	p := &Proxy{budget: within, hidden: secrets, buffers: &buffers{}, transport: transport, target: target, zstd: zstdbody.New(zstdbody.Options{})}
	p.proxy = httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { rewrite(r, target) },
		Transport:     transport,
		FlushInterval: -1, // what a watch sends is not to wait
		BufferPool:    p.buffers,
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				panic(http.ErrAbortHandler) // federator has given the request up
			}
			log.Warn("the API server did not answer", "error", err)
			answer(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the agent does not reach its API server")
		},
	}
	return p, nil
}

// Close lets go of the connections to the API server that are idle.
func (p *Proxy) Close() { utilnet.CloseIdleConnectionsFor(p.transport) }

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	why := check(r)
	if why == "" {
		r, why = p.hidden.apply(r)
	}
	if why != "" {
		answer(w, http.StatusForbidden, metav1.StatusReasonForbidden, "federator's agent refuses: "+why)
		return
	}
	defer p.running.Add(-1)
	if p.running.Add(1) > maxRunning {
		tooMany(w, "it has too many requests")
		return
	}
	if err := p.budget.Enter(r.Context(), weight(r)); err != nil {
		if r.Context().Err() != nil {
			panic(http.ErrAbortHandler) // federator has given the request up
		}
		tooMany(w, err.Error())
		return
	}
	if r.Method == http.MethodGet {
		p.get(w, r)
		return
	}
	p.proxy.ServeHTTP(w, r)
}

// tooMany refuses what may succeed later.
func tooMany(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "1")
	answer(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "federator's agent protects its API server: "+why)
}

// rewrite leaves of a request what is passed.
func rewrite(r *httputil.ProxyRequest, target *url.URL) {
	r.Out.Header, r.Out.Trailer = passedHeader(r.In.Header), nil
	r.SetURL(target)
	r.Out.Host = target.Host
}

func passedHeader(in http.Header) http.Header {
	out := make(http.Header, len(passed))
	for _, name := range passed {
		if v := in[name]; len(v) > 0 {
			out[name] = v
		}
	}
	if out["User-Agent"] == nil {
		out["User-Agent"] = []string{""} // else net/http's own
	}
	return out
}

// answer sends a Status, as an API server does.
func answer(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// Only a client that has gone away can make this fail.
	_ = json.NewEncoder(w).Encode(&metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

// buffers are an httputil.BufferPool.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, is := b.pool.Get().(*[bufferBytes]byte); is {
		return p[:]
	}
	return make([]byte, bufferBytes)
}

func (b *buffers) Put(p []byte) {
	if len(p) == bufferBytes {
		b.pool.Put((*[bufferBytes]byte)(p))
	}
}
