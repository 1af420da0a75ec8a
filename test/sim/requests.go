package sim

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Request is what requests are counted by.
type Request struct {
	// Verb is get, list, watch, create, update, patch or delete; watchlist for a watch
	// with sendInitialEvents; listone for a list of the objects of one name; discovery, version or healthz outside of kinds; other.
	Verb string
	Kind schema.GroupResource
}

// Requests counts the requests that a member has read, refused ones included.
type Requests struct {
	mu     sync.Mutex
	counts map[Request]int
	read   int
}

// add counts a request, and whether it begins to read all that there is of a kind.
func (r *Requests) add(req Request, reads bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reads {
		r.read++
	}
	if r.counts == nil {
		r.counts = map[Request]int{}
	}
	r.counts[req]++
}

// Count is the number of requests with a verb for a kind.
func (r *Requests) Count(verb string, kind schema.GroupResource) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[Request{verb, kind}]
}

// Verb is the number of requests with a verb, whatever the kind.
func (r *Requests) Verb(verb string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for req, c := range r.counts {
		if req.Verb == verb {
			n += c
		}
	}
	return n
}

// Total is the number of all requests.
func (r *Requests) Total() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, c := range r.counts {
		n += c
	}
	return n
}

// Read is how often all that there was of a kind was read: by a list, whatever its number of pages,
// or a watch with initial events. Lists at an exact resourceVersion, by which audits compare what
// is held, are not among them.
func (r *Requests) Read() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read
}

// All is a copy of the counts.
func (r *Requests) All() map[Request]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}

// Reset starts counting from zero.
func (r *Requests) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts, r.read = nil, 0
}
