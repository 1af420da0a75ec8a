package resources

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
)

// frames keeps the events that were encoded last, for watches that send the
// same. Beyond maxFrames bytes the oldest go.
type frames struct {
	mu    sync.Mutex
	held  map[frameKey][]byte
	order []frameKey // oldest first
	bytes int
}

const maxFrames = 16 << 20

// frameKey is all that an event's bytes depend on. No two changes share a
// revision, but a changed UID is a deletion and an addition of one.
type frameKey struct {
	revision aggregate.Revision
	kind     watch.EventType
	resource *catalog.Resource
	shape    shape
	protobuf bool
	cluster  bool
	flat     bool
	include  metav1.IncludeObjectPolicy
}

func newFrames() *frames { return &frames{held: map[frameKey][]byte{}} }

func (f *frames) get(k frameKey) ([]byte, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, ok := f.held[k]
	return b, ok
}

func (f *frames) put(k frameKey, b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.held[k]; ok || len(b) > maxFrames/16 {
		return
	}
	f.held[k] = b
	f.order = append(f.order, k)
	for f.bytes += len(b); f.bytes > maxFrames; {
		oldest := f.order[0]
		f.order = f.order[1:]
		f.bytes -= len(f.held[oldest])
		delete(f.held, oldest)
	}
}
