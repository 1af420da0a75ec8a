package clusterinformers

import (
	"context"
	"io"
	"time"

	"federator.dev/federator/pkg/clusterinformers/internal/backoff"
)

// gatherer reads a watch. While events come fast it lets them gather before it reads:
// a read costs a wake-up, and the WINDOW_UPDATE that net/http answers it with, however
// little it brings.
type gatherer struct {
	ctx  context.Context //nolint:containedctx // of the one connection that it reads
	r    io.Reader
	busy bool // events come fast
	more bool // the last read filled its buffer: there is no need to wait

	since  time.Time // when counting began
	events int       // counted since
}

// Events come fast above fastEvents a second, and no more below half of it, as counted
// over at least countFor. What is fast waits for gatherFor before each read.
const (
	fastEvents = 1000
	countFor   = 50 * time.Millisecond
	gatherFor  = 2 * time.Millisecond
)

// count takes note of an event.
func (g *gatherer) count(now time.Time) {
	g.events++
	took := now.Sub(g.since)
	if took < countFor {
		return
	}
	rate := float64(g.events) / took.Seconds()
	g.busy = rate > fastEvents || g.busy && rate > fastEvents/2
	g.since, g.events = now, 0
}

// Read implements io.Reader.
func (g *gatherer) Read(b []byte) (int, error) {
	if g.busy && !g.more {
		if err := backoff.Sleep(g.ctx, gatherFor); err != nil {
			return 0, err
		}
	}
	n, err := g.r.Read(b)
	g.more = n == len(b)
	return n, err
}
