package memberclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
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
	answers    map[string]etag // by URL; of answers without one, the zero etag
}

// RoundTrip notes a request that is answered with an error, and what other answers are
// known by.
func (f *discoveryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.remaining.Load() <= 0 {
		return nil, errBodyTooLarge
	}
	resp, err := f.base.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if resp.StatusCode >= http.StatusBadRequest { // in any format, and small
		f.failedPath = r.URL.Path
		f.answers[r.URL.String()] = etag{}
		return resp, nil
	}
	f.answers[r.URL.String()] = etagOf(r, resp)
	resp.Body = &sharedBody{ReadCloser: resp.Body, remaining: &f.remaining}
	return resp, nil
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
	failed := &discoveryTransport{base: ContextTransport{Context: ctx, Base: client.Transport}, answers: map[string]etag{}}
	failed.remaining.Store(maxDiscovery)
	client.Transport = failed
	d, err := discovery.NewDiscoveryClientForConfigAndClient(a.config, &client)
	return d, failed, err
}

// ErrUnchanged is the error of a discovery whose answers would be the same as those before.
var ErrUnchanged = errors.New("what is served has not changed")

// ServerResources returns what is served, the versions of a group in the server's order. failed are the
// groups and versions whose discovery fails at the moment, such as those of an aggregated API
// server that is down. With ifChanged, the error is ErrUnchanged where the answers would be those of
// the last call that succeeded.
func (a *Client) ServerResources(ctx context.Context, ifChanged bool) (lists []*metav1.APIResourceList, failed map[schema.GroupVersion]bool, err error) {
	if ifChanged {
		if unchanged, err := a.unchanged(ctx); err != nil {
			return nil, nil, fmt.Errorf("discovery: %w", err)
		} else if unchanged {
			return nil, nil, ErrUnchanged
		}
	}
	d, requests, err := a.discovery(ctx)
	if err != nil {
		return nil, nil, err
	}
	groups, lists, err := d.ServerGroupsAndResources()
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
	a.etags.Store(requests.etags())
	sortByPreference(lists, groups)
	return lists, failed, nil
}

// sortByPreference sorts lists as their groups and versions are: client-go returns those of an
// aggregated discovery in any order.
func sortByPreference(lists []*metav1.APIResourceList, groups []*metav1.APIGroup) {
	order := map[string]int{}
	for _, g := range groups {
		for _, v := range g.Versions {
			order[v.GroupVersion] = len(order)
		}
	}
	slices.SortStableFunc(lists, func(a, b *metav1.APIResourceList) int {
		return cmp.Or(cmp.Compare(order[a.GroupVersion], order[b.GroupVersion]), cmp.Compare(a.GroupVersion, b.GroupVersion))
	})
}
