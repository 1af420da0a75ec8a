package memberclient

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"federator.dev/federator/pkg/clusterinformers/internal/kubeconfigtest"
)

const aggregatedV2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// discoverable answers aggregated discovery with versions of one group, v1 first.
type discoverable struct {
	mu       sync.Mutex
	versions int
	tag      string // as the ETag begins; "": there is none
	code     int    // of the answers of /apis, 0: 200
	plain    bool   // no aggregated discovery
	requests []string
}

func (d *discoverable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests = append(d.requests, r.URL.Path)
	if d.code != 0 && r.URL.Path == "/apis" {
		w.WriteHeader(d.code)
		return
	}
	tag := fmt.Sprintf("%q", d.tag+r.URL.Path+fmt.Sprint(d.versions))
	if d.tag != "" {
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag && r.Header.Get("Accept") != "" {
			d.requests[len(d.requests)-1] += " 304"
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	w.Header().Set("Content-Type", aggregatedV2)
	if d.plain {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api":
			io.WriteString(w, `{"kind":"APIVersions","versions":[]}`) //nolint:errcheck // the client will complain
		case "/apis":
			io.WriteString(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`) //nolint:errcheck // as above
		}
		return
	}
	items := ""
	if r.URL.Path == "/apis" {
		var versions []string
		for n := range d.versions {
			freshness := "Current"
			if n == 3 {
				freshness = "Stale"
			}
			versions = append(versions, fmt.Sprintf(`{"version":"v%d","freshness":%q,"resources":[{"resource":"widgets","responseKind":{"group":"shop.example","version":"v%d","kind":"Widget"},"scope":"Namespaced","singularResource":"widget","verbs":["list","watch"]}]}`, n+1, freshness, n+1))
		}
		items = `{"metadata":{"name":"shop.example"},"versions":[` + strings.Join(versions, ",") + `]}`
	}
	fmt.Fprintf(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[%s]}`, items)
}

// asked returns the requests since the last call.
func (d *discoverable) asked() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.Sort(d.requests)
	out := strings.Join(d.requests, ", ")
	d.requests = nil
	return out
}

func (d *discoverable) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func (d *discoverable) client(t *testing.T) *Client {
	t.Helper()
	s := newServer(t, d.ServeHTTP)
	cfg, refusal := ParseKubeconfig(kubeconfigtest.New(t, s.URL, nil), Allowed{})
	if refusal != nil {
		t.Fatal(refusal)
	}
	return New(cfg, clientOf(t, s.URL, TransportOptions{Trusted: true}, nil))
}

func TestServerResources_AreInTheServersOrder(t *testing.T) {
	d := &discoverable{versions: 12, tag: "a"}
	c := d.client(t)
	lists, failed, err := c.ServerResources(t.Context(), false)
	if err != nil || len(lists) != 11 || len(failed) != 1 { // v4 is stale
		t.Fatalf("%d lists, %v failed, %v", len(lists), failed, err)
	}
	for n, l := range lists {
		if n >= 3 {
			n++
		}
		if want := fmt.Sprintf("shop.example/v%d", n+1); l.GroupVersion != want {
			t.Errorf("list %d is of %s, want %s", n, l.GroupVersion, want)
		}
	}
}

func TestServerResources_UnchangedAnswersAreNotRead(t *testing.T) {
	d := &discoverable{versions: 2, tag: "a"}
	c := d.client(t)
	discover := func(ifChanged bool, versions int, want error, requests string) {
		t.Helper()
		lists, _, err := c.ServerResources(t.Context(), ifChanged)
		if !errors.Is(err, want) || len(lists) != versions {
			t.Errorf("%d versions and %v, want %d and %v", len(lists), err, versions, want)
		}
		if got := d.asked(); got != requests {
			t.Errorf("requests are %q, want %q", got, requests)
		}
	}
	const full = "/api, /apis"
	discover(true, 2, nil, full) // the first
	discover(true, 0, ErrUnchanged, "/api 304, /apis 304")
	discover(true, 0, ErrUnchanged, "/api 304, /apis 304")
	discover(false, 2, nil, full)
	d.set(func() { d.versions = 3 })
	if _, _, err := c.ServerResources(t.Context(), true); err != nil {
		t.Error(err)
	}
	d.asked()
	discover(true, 0, ErrUnchanged, "/api 304, /apis 304")

	// A group that fails is known by the answer that says so.
	d.set(func() { d.versions = 5 })
	if _, failed, err := c.ServerResources(t.Context(), true); err != nil || len(failed) != 1 {
		t.Errorf("%v failed, %v", failed, err)
	}
	d.asked()
	discover(true, 0, ErrUnchanged, "/api 304, /apis 304")

	// An error is that of a full discovery, and what is known outlives it.
	d.set(func() { d.code = http.StatusInternalServerError })
	if _, _, err := c.ServerResources(t.Context(), true); err == nil || !strings.Contains(err.Error(), "GET /apis") {
		t.Errorf("a failing server: %v", err)
	}
	d.set(func() { d.code = 0 })
	d.asked()
	discover(true, 0, ErrUnchanged, "/api 304, /apis 304")
}

func TestServerResources_IsFullWhereAnswersAreNotKnown(t *testing.T) {
	for name, d := range map[string]*discoverable{
		"no ETag":        {versions: 2},
		"a long ETag":    {versions: 2, tag: strings.Repeat("a", 300)},
		"not aggregated": {tag: "a", plain: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := d.client(t)
			for range 2 {
				if _, _, err := c.ServerResources(t.Context(), true); err != nil {
					t.Fatal(err)
				}
			}
			if got := d.asked(); strings.Contains(got, "304") {
				t.Errorf("requests are %q", got)
			}
		})
	}
}
