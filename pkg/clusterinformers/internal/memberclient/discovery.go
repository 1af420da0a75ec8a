package memberclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// maxDiscovery bounds all answers to one discovery together: servers that do not
// aggregate are queried for each group and version, and all is kept until the last has come.
const maxDiscovery = maxBody

// discoveryTransport remembers which path a call of the discovery client failed at, as its
// errors do not say, and bounds what it reads.
type discoveryTransport struct {
	base      http.RoundTripper
	remaining atomic.Int64 // bytes that may be read

	mu         sync.Mutex
	failedPath string
}

// RoundTrip notes a request that is answered with an error.
func (f *discoveryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.remaining.Load() <= 0 {
		return nil, errBodyTooLarge
	}
	resp, err := f.base.RoundTrip(r)
	switch {
	case err != nil:
	case resp.StatusCode >= http.StatusBadRequest: // in any format, and small
		f.mu.Lock()
		f.failedPath = r.URL.Path
		f.mu.Unlock()
	default:
		resp.Body = &sharedBody{ReadCloser: resp.Body, remaining: &f.remaining}
	}
	return resp, err
}

// sharedBody is one of several JSON bodies that have a limit in sum, which is of what they
// become in memory: a struct is made of each object and null, however little it says.
type sharedBody struct {
	io.ReadCloser
	remaining *atomic.Int64

	started, quoted, escaped bool
}

// decodedObjectBytes is about the memory of a decoded object or null in addition to its text.
const decodedObjectBytes = 128

// errNotJSON is the error of a discovery in a format that was not requested: the client decodes
// what comes by how it looks.
var errNotJSON = errors.New("the answer is not JSON")

// Read implements io.Reader.
func (s *sharedBody) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	cost := int64(n)
	for _, c := range p[:n] {
		switch {
		case !s.started && c != ' ' && c != '\n' && c != '\r' && c != '\t':
			if c != '{' {
				return 0, errNotJSON
			}
			s.started = true
		case s.escaped:
			s.escaped = false
		case s.quoted:
			s.quoted, s.escaped = c != '"', c == '\\'
		case c == '"':
			s.quoted = true
		case c == '{' || c == 'n': // only null has an n
			cost += decodedObjectBytes
		}
	}
	if s.remaining.Add(-cost) < 0 {
		return n, errBodyTooLarge
	}
	return n, err
}

func (f *discoveryTransport) wrap(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failedPath == "" {
		return err
	}
	return WrapRequest(f.failedPath, err)
}

// ContextTransport carries a context into the discovery client, which takes none.
type ContextTransport struct {
	Context context.Context // lives for one call of the discovery client
	Base    http.RoundTripper
}

// RoundTrip sends a request under the bound context.
func (b ContextTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return b.Base.RoundTrip(r.WithContext(b.Context))
}

func (a *Client) discovery(ctx context.Context) (*discovery.DiscoveryClient, *discoveryTransport, error) {
	client := *a.http
	failed := &discoveryTransport{base: ContextTransport{Context: ctx, Base: client.Transport}}
	failed.remaining.Store(maxDiscovery)
	client.Transport = failed
	d, err := discovery.NewDiscoveryClientForConfigAndClient(a.config, &client)
	return d, failed, err
}

// ServerResources returns what is served. failed are the groups and versions whose discovery
// fails at the moment, such as those of an aggregated API server that is down.
func (a *Client) ServerResources(ctx context.Context) (lists []*metav1.APIResourceList, failed map[schema.GroupVersion]bool, err error) {
	d, requests, err := a.discovery(ctx)
	if err != nil {
		return nil, nil, err
	}
	_, lists, err = d.ServerGroupsAndResources()
	failed = map[schema.GroupVersion]bool{}
	var partial *discovery.ErrGroupDiscoveryFailed
	switch {
	case errors.As(err, &partial):
		for gv := range partial.Groups {
			failed[gv] = true
		}
	case err != nil:
		return nil, nil, fmt.Errorf("discovery: %w", requests.wrap(err))
	}
	return lists, failed, nil
}
