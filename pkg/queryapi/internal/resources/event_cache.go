package resources

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
)

// eventCache keeps the most recently encoded events, for other watches that send the same.
// Beyond maxCachedEvents bytes the oldest are evicted.
type eventCache struct {
	mu     sync.Mutex
	events map[eventKey][]byte
	order  []eventKey // oldest first
	bytes  int
}

const maxCachedEvents = 16 << 20

// eventKey is everything that the bytes of an event depend on. No two changes share a
// revision, but a changed UID is a deletion and an addition of one.
type eventKey struct {
	revision aggregate.Revision
	kind     watch.EventType
	resource *catalog.Resource
	shape    shape
	protobuf bool
	cluster  bool
	flat     bool
	include  metav1.IncludeObjectPolicy
	digits   int // of a part; 0: none
}

func newEventCache() *eventCache { return &eventCache{events: map[eventKey][]byte{}} }

func (f *eventCache) get(k eventKey) ([]byte, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, ok := f.events[k]
	return b, ok
}

func (f *eventCache) put(k eventKey, b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.events[k]; ok || len(b) > maxCachedEvents/16 {
		return
	}
	f.events[k] = b
	f.order = append(f.order, k)
	for f.bytes += len(b); f.bytes > maxCachedEvents; {
		oldest := f.order[0]
		f.order = f.order[1:]
		f.bytes -= len(f.events[oldest])
		delete(f.events, oldest)
	}
}
