package clusterinformers

import (
	"context"
	"io"
	"time"

	"federator.dev/federator/internal/sleep"
)

// coalescer reads a watch. While events come fast it delays reads so that they coalesce:
// a read costs a wake-up, and the WINDOW_UPDATE that net/http answers it with, however
// little it brings.
type coalescer struct {
	ctx    context.Context // of the one connection that it reads
	reader io.Reader
	fast   bool // events come fast
	more   bool // the last read filled its buffer: there is no need to wait

	since  time.Time // when counting began
	events int       // counted since
}

// Events come fast above fastRate a second, and no more below half of it, as counted
// over at least ratePeriod. A fast watch waits for coalesceDelay before each read.
const (
	fastRate      = 1000
	ratePeriod    = 50 * time.Millisecond
	coalesceDelay = 2 * time.Millisecond
)

// count takes note of an event.
func (g *coalescer) count(now time.Time) {
	g.events++
	took := now.Sub(g.since)
	if took < ratePeriod {
		return
	}
	rate := float64(g.events) / took.Seconds()
	g.fast = rate > fastRate || g.fast && rate > fastRate/2
	g.since, g.events = now, 0
}

// Read implements io.Reader.
func (g *coalescer) Read(b []byte) (int, error) {
	if g.fast && !g.more {
		if err := sleep.For(g.ctx, coalesceDelay); err != nil {
			return 0, err
		}
	}
	n, err := g.reader.Read(b)
	g.more = n == len(b)
	return n, err
}
