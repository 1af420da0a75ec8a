// Package heaprelease gives memory back to the operating system once a burst is over.
//
// A first sync, a full evaluation or a mass relist leaves several times what stays of it as
// garbage, and the runtime keeps the room for as long as the next collection is not due: with
// GOGC=200 that is three times what lives. A process that has become quiet then takes as much
// of its node as it did at its peak.
package heaprelease

import (
	"context"
	"log/slog"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A process is quiet when it has allocated less than quietShare of what lives in each of
// quietTicks. It is worth a collection when what may be given back is more than leastShare of
// what lives, and leastBytes; at most one in pause is made.
const (
	interval   = 10 * time.Second
	quietTicks = 2
	quietShare = 0.1
	leastShare = 0.5
	leastBytes = 128 << 20
	pause      = 5 * time.Minute
)

// heap is the state of the heap in bytes.
type heap struct {
	live      uint64 // after the last collection
	held      uint64 // from the operating system, for objects
	allocated uint64 // since the process started
}

// Run gives memory back until ctx is done.
func Run(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	r := &releaser{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			before := read()
			if !r.due(now, before) {
				continue
			}
			debug.FreeOSMemory()
			log.Debug("memory given back", "before", before.held, "after", read().held)
		}
	}
}

// releaser decides when memory is given back.
type releaser struct {
	allocated uint64 // at the last look
	quiet     int    // looks since it was not
	last      time.Time
}

// due reports whether it is now.
func (r *releaser) due(now time.Time, h heap) bool {
	grown := h.allocated - r.allocated
	r.allocated = h.allocated
	if float64(grown) > quietShare*float64(h.live) {
		r.quiet = 0
		return false
	}
	r.quiet++
	spare := max(h.held, h.live) - h.live
	if r.quiet < quietTicks || spare < leastBytes || float64(spare) < leastShare*float64(h.live) {
		return false
	}
	if !r.last.IsZero() && now.Sub(r.last) < pause {
		return false
	}
	r.last = now
	return true
}

// read reads the heap's state without stopping the process.
func read() heap {
	s := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(s)
	return heap{live: s[0].Value.Uint64(), held: s[1].Value.Uint64() + s[2].Value.Uint64() + s[3].Value.Uint64(), allocated: s[4].Value.Uint64()}
}
