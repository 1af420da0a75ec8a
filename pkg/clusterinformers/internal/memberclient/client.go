// Package memberclient reaches a member's API server: it checks kubeconfigs, which are
// hostile input, makes HTTP clients whose connections and response bodies are bounded,
// and asks a server who it is and what it serves.
package memberclient

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Client is one way to reach a member: its credentials and its transport.
type Client struct {
	config *rest.Config
	http   *http.Client

	etags atomic.Pointer[[]etag] // of the last discovery; nil: none

	mu      sync.Mutex
	cancels map[*context.CancelFunc]struct{} // nil once ended
	ended   atomic.Bool
}

// New returns a client for a checked configuration.
func New(config *rest.Config, client *http.Client) *Client {
	return &Client{config: config, http: client, cancels: map[*context.CancelFunc]struct{}{}}
}

// Track registers a request that Cancel cancels. It returns what to call when the
// request is over.
func (a *Client) Track(cancel context.CancelFunc) (over func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cancels == nil {
		cancel()
		return cancel
	}
	a.cancels[&cancel] = struct{}{}
	return func() {
		cancel()
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.cancels, &cancel)
	}
}

// Cancel cancels what still uses an access that is not to be used any more. A
// rotated one is not ended: its streams go on until they end by themselves.
func (a *Client) Cancel() {
	a.ended.Store(true)
	a.mu.Lock()
	defer a.mu.Unlock()
	for cancel := range a.cancels {
		(*cancel)()
	}
	a.cancels = nil
}

// Ended reports whether Cancel was called.
func (a *Client) Ended() bool { return a.ended.Load() }

// CloseIdleConnections closes the connections that are idle, and those in use when they
// fall idle.
func (a *Client) CloseIdleConnections() { a.http.CloseIdleConnections() }

// Close closes the connections below TLS, whatever the server does. Requests fail.
func (a *Client) Close() {
	if t, ok := a.http.Transport.(*transport); ok {
		t.closeAll()
	}
}

// REST returns a client for one group and version.
func (a *Client) REST(gv schema.GroupVersion) (rest.Interface, error) {
	cfg := rest.CopyConfig(a.config)
	cfg.GroupVersion = &gv
	cfg.APIPath = "/apis"
	if gv.Group == "" {
		cfg.APIPath = "/api"
	}
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return rest.RESTClientForConfigAndClient(cfg, a.http)
}
