package resources

import (
	"context"
	"sync"
	"time"

	"federator.dev/federator/pkg/aggregate"
)

// broadcaster notifies watches of new snapshots: a commit wakes one goroutine, however many
// watches there are, and commits in quick succession are one notification.
type broadcaster struct {
	mu      sync.Mutex
	newest  *aggregate.Snapshot
	changed chan struct{} // closed when there is a newer one; nil while Run is not running
}

// minBroadcastInterval is the minimum time between two notifications.
const minBroadcastInterval = 2 * time.Millisecond

// Run notifies watches of new snapshots until ctx is done. Without it each watch waits for
// the index itself.
func (h *Handler) Run(ctx context.Context) {
	b := &h.broadcast
	defer b.publish(nil, nil)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		s := h.options.Index.Snapshot()
		h.roles.follow()
		b.publish(s, make(chan struct{}))
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		select {
		case <-h.options.Index.Newer(s):
		case <-ctx.Done():
			return
		}
		pause.Reset(minBroadcastInterval)
	}
}

// publish wakes the watches that wait, and sets what they wait for next.
func (b *broadcaster) publish(newest *aggregate.Snapshot, next chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed != nil {
		close(b.changed)
	}
	b.newest, b.changed = newest, next
}

// newer returns a channel that is closed once there is a newer snapshot than s.
func (h *Handler) newer(s *aggregate.Snapshot) <-chan struct{} {
	b := &h.broadcast
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed == nil || b.newest.Revision() > s.Revision() {
		return h.options.Index.Newer(s)
	}
	return b.changed
}
