package enforce

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// ErrExpired is returned for a version of the verdicts that is no longer known, or belongs
// to another process.
var ErrExpired = errors.New("the version of the verdicts is no longer known")

// maxPoints bounds how many points are kept. The objects that they keep alive are bounded
// like the index's change log, and dropped violations, which may be much larger than the
// objects, by a share of the memory of one binding.
const (
	maxPoints    = 512
	shareDropped = 8
	maxDropped   = 64 << 20
)

// Point is one version of the verdicts: each leads to the next. It is safe for
// concurrent use.
type Point struct {
	number       uint64
	version      string
	revision     aggregate.Revision
	droppedBytes int64                          // as Changes.Dropped
	changes      atomic.Pointer[policy.Changes] // nil once the point before is not kept
	state        atomic.Pointer[policy.State]
	newer        chan struct{} // closed once next is there
	next         atomic.Pointer[Point]
}

// Version identifies the point. It is valid in this process only and never reused.
func (p *Point) Version() string { return p.version }

// State returns the newest state that has the point's verdicts.
func (p *Point) State() *policy.State { return p.state.Load() }

// Changes returns how the verdicts differ from those of the point before, nil once that one
// is no longer kept: changes keep both states alive.
func (p *Point) Changes() *policy.Changes { return p.changes.Load() }

// Newer returns a channel that is closed once there is a Next.
func (p *Point) Newer() <-chan struct{} { return p.newer }

// Next returns the point after this one, nil while there is none.
func (p *Point) Next() *Point { return p.next.Load() }

// history keeps points, so that clients can continue from one.
type history struct {
	index    *aggregate.Index
	maxBytes int64 // of dropped violations
	newest   atomic.Pointer[Point]
	first    chan struct{} // closed once there is a point

	mu           sync.Mutex
	points       []*Point // the oldest first
	droppedBytes int64    // of all but the first
}

func newHistory(opts Options) history {
	maxBytes := int64(maxDropped)
	if limit := opts.Limits.Binding; limit > 0 {
		maxBytes = min(maxBytes, limit/shareDropped)
	}
	return history{index: opts.Index, maxBytes: maxBytes, first: make(chan struct{})}
}

// record records the changes of the verdicts by a batch.
func (h *history) record(changes *policy.Changes) {
	if changes.After == nil {
		return
	}
	last := h.newest.Load()
	if last != nil && changes.Before == last.state.Load() && changes.Empty() {
		last.state.Store(changes.After)
		h.trim(nil)
		return
	}
	revision := changes.After.Snapshot.Revision()
	p := &Point{revision: revision, droppedBytes: changes.SupersededBytes(), version: fmt.Sprint(revision), newer: make(chan struct{})}
	p.changes.Store(changes)
	p.state.Store(changes.After)
	if last != nil {
		p.number = last.number + 1
		if revision == last.revision { // policies were replaced
			p.version = fmt.Sprintf("%d-%d", revision, p.number)
		}
	}
	h.trim(p)
	h.newest.Store(p)
	if last == nil {
		close(h.first)
		return
	}
	last.next.Store(p)
	close(last.newer)
}

// trim adds a point and drops those that are too old.
func (h *history) trim(p *Point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p != nil {
		h.points = append(h.points, p)
		if len(h.points) > 1 {
			h.droppedBytes += p.droppedBytes
		}
	}
	old := 0
	for old < len(h.points)-1 {
		if len(h.points)-old <= maxPoints && h.droppedBytes <= h.maxBytes {
			if _, err := h.index.Changes(h.points[old].State().Snapshot.Revision()); err == nil {
				break
			}
		}
		old++
		h.droppedBytes -= h.points[old].droppedBytes
	}
	h.points = slices.Delete(h.points, 0, old)
	h.points[0].changes.Store(nil)
}

// Point returns the newest version of the verdicts, nil before the first.
func (l *Loop) Point() *Point { return l.history.newest.Load() }

// Newer returns a channel that is closed once there is a point after one; after nil, any.
func (l *Loop) Newer(p *Point) <-chan struct{} {
	if p == nil {
		return l.history.first
	}
	return p.Newer()
}

// At returns the point of a version, or ErrExpired.
func (l *Loop) At(version string) (*Point, error) {
	h := &l.history
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.points, func(p *Point) bool { return p.version == version })
	if i < 0 {
		return nil, fmt.Errorf("%q: %w", version, ErrExpired)
	}
	return h.points[i], nil
}

// Kept reports whether a point is still kept. A caller that uses an older one keeps memory
// alive that nothing else needs.
func (l *Loop) Kept(p *Point) bool {
	h := &l.history
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.points) > 0 && p.number >= h.points[0].number
}
