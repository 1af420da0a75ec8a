package resources

import (
	"context"
	"sync"
	"time"

	"federator.dev/federator/pkg/aggregate"
)

// beacon tells watches of news, in the commits' stead: a commit wakes one
// goroutine, however many watches there are, and news that come within a
// moment are told together.
type beacon struct {
	mu     sync.Mutex
	newest *aggregate.Snapshot
	news   chan struct{} // closed when there is a newer one; nil while nobody runs
}

// moment is the least time between two tellings.
const moment = 2 * time.Millisecond

// Run tells watches of news until ctx is done. Without it each watch waits at
// the index by itself.
func (h *Handler) Run(ctx context.Context) {
	b := &h.beacon
	defer b.tell(nil, nil)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		s := h.o.Index.Snapshot()
		b.tell(s, make(chan struct{}))
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		select {
		case <-h.o.Index.Newer(s):
		case <-ctx.Done():
			return
		}
		pause.Reset(moment)
	}
}

// tell wakes who waits, and says what they will wait for next.
func (b *beacon) tell(newest *aggregate.Snapshot, next chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.news != nil {
		close(b.news)
	}
	b.newest, b.news = newest, next
}

// newer returns a channel that is closed once a state newer than s is there.
func (h *Handler) newer(s *aggregate.Snapshot) <-chan struct{} {
	b := &h.beacon
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.news == nil || b.newest.Revision() > s.Revision() {
		return h.o.Index.Newer(s)
	}
	return b.news
}
