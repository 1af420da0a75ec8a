package hostile

import (
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"strings"
)

// Verb is what a request asks of an API server.
type Verb string

// The verbs that attacks distinguish.
const (
	Version   Verb = "version"
	Discovery Verb = "discovery"
	Get       Verb = "get"
	List      Verb = "list"
	Watch     Verb = "watch"     // from a resourceVersion
	WatchList Verb = "watchlist" // with what there is first
	Other     Verb = "other"
)

// A Call is one request on its way through a [Proxy].
type Call struct {
	Verb      Verb
	Path      string
	Group     string
	Version   string
	Resource  string // plural, as in the path
	Namespace string

	seed   uint64 // of the active attacks
	events int    // of the watch, so far
}

// Rand returns a source that is the same for the same attacks and words, whatever the order
// of requests.
func (c *Call) Rand(words ...string) *rand.Rand {
	h := fnv.New64a()
	for _, w := range words {
		_, _ = h.Write([]byte(w))
		_, _ = h.Write([]byte{0})
	}
	return rand.New(rand.NewPCG(c.seed, h.Sum64())) // a mix, not a secret
}

// Objects reports whether objects are requested, of these resources where any are given.
func (c *Call) Objects(resources ...string) bool {
	if c.Verb != List && c.Verb != Watch && c.Verb != WatchList {
		return false
	}
	for _, r := range resources {
		if r == c.Resource {
			return true
		}
	}
	return len(resources) == 0
}

// APIVersion is that of the objects that are requested.
func (c *Call) APIVersion() string {
	if c.Group == "" {
		return c.Version
	}
	return c.Group + "/" + c.Version
}

// parse returns what is requested.
func parse(r *http.Request) *Call {
	c := &Call{Path: r.URL.Path, Verb: Other}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/version":
		c.Verb = Version
		return c
	case parts[0] == "api" && len(parts) <= 2 || parts[0] == "apis" && len(parts) <= 3:
		c.Verb = Discovery
		return c
	case parts[0] == "api":
		c.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis":
		c.Group, c.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return c
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		c.Namespace, parts = parts[1], parts[2:]
	}
	c.Resource = parts[0]
	q := r.URL.Query()
	switch {
	case r.Method != http.MethodGet:
	case len(parts) > 1:
		c.Verb = Get
	case truth(q.Get("watch")) && truth(q.Get("sendInitialEvents")):
		c.Verb = WatchList
	case truth(q.Get("watch")):
		c.Verb = Watch
	default:
		c.Verb = List
	}
	return c
}

func truth(s string) bool { return s == "true" || s == "1" }
