package hubreader

import (
	"slices"
	"strings"
	"sync"

	"federator.dev/federator/pkg/policyquery"
)

// broadcast tells of changes of resources. All who wait for the same ones share a channel. The zero value is
// ready to use.
type broadcast struct {
	mu      sync.Mutex
	waiting map[string]waiting // by the resources
}

type waiting struct {
	resources []policyquery.HubResource
	changed   chan struct{}
}

// channel returns a channel that is closed when one of the resources changes next.
func (b *broadcast) channel(resources []policyquery.HubResource) <-chan struct{} {
	resources = slices.Sorted(slices.Values(resources))
	var key strings.Builder
	for _, r := range resources {
		key.WriteString(string(r) + " ")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	w, ok := b.waiting[key.String()]
	if !ok {
		if b.waiting == nil {
			b.waiting = map[string]waiting{}
		}
		w = waiting{resources, make(chan struct{})}
		b.waiting[key.String()] = w
	}
	return w.changed
}

// notify tells that a resource has changed.
func (b *broadcast) notify(resource policyquery.HubResource) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, w := range b.waiting {
		if slices.Contains(w.resources, resource) {
			close(w.changed)
			delete(b.waiting, key)
		}
	}
}
