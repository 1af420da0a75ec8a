package bulkrollback

import (
	"fmt"
	"sync"
	"time"

	"federator.dev/federator/pkg/remediate"
)

// maxGateAge is how old the answer may be that a write rests on: hubs that are slow have writes
// wait, and nothing is written for a job that hangs.
const maxGateAge = 15 * time.Second

// gate is asked right before each write of a Rollback. Of a target several Actions may be rolled
// back, each with its retries: what holds the Rollback meanwhile holds them, too.
type gate struct {
	mu    sync.Mutex
	until time.Time
	why   string
}

// open lets writes begin until a time.
func (g *gate) open(until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until, g.why = until, "it has not been looked at for too long whether it may go on"
}

// close lets no write begin.
func (g *gate) close(why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until, g.why = time.Time{}, why
}

// admit returns why no write may begin now, as remediate.ErrNotNow.
func (g *gate) admit() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Now().Before(g.until) {
		return nil
	}
	return fmt.Errorf("%w: %s", remediate.ErrNotNow, g.why)
}
