package quota

import (
	"errors"
	"fmt"
	"maps"
	"sync"
)

// MinBytes is how many bytes at least a quota bounds, if it bounds them: many times those of
// the largest Action.
const MinBytes = 64 << 20

// Usage is how many Actions there are or may be, and how many bytes they have together.
type Usage struct {
	Actions int
	Bytes   int64
}

func (u Usage) plus(o Usage) Usage  { return Usage{u.Actions + o.Actions, u.Bytes + o.Bytes} }
func (u Usage) minus(o Usage) Usage { return Usage{u.Actions - o.Actions, u.Bytes - o.Bytes} }

// Validate returns what is wrong with bounds of which 0 bounds nothing.
func (u Usage) Validate() error {
	switch {
	case u.Actions < 0 || u.Bytes < 0:
		return errors.New("a bound of Actions is negative")
	case u.Bytes > 0 && u.Bytes < MinBytes:
		return fmt.Errorf("a bound of %d bytes of Actions is below %d", u.Bytes, MinBytes)
	}
	return nil
}

// Quota keeps the Actions within bounds. Its methods are safe for concurrent use.
type Quota struct {
	max Usage

	mu        sync.Mutex
	known     bool // a Count has ended
	used      Usage
	exhausted bool
	// recording is what is reserved, and perhaps not on the hub yet, by name: more than one
	// Action where the answer to an earlier attempt was lost.
	recording map[string]Usage
	counts    map[*Count]struct{} // those under way
}

// New returns a Quota that knows of no Action yet; bounds of 0 bound nothing.
func New(most Usage) *Quota {
	return &Quota{max: most, recording: map[string]Usage{}, counts: map[*Count]struct{}{}}
}

// Reserve makes room for an Action that is about to be recorded, and reports whether there is
// any: not before a Count has ended, unless nothing is bounded. One that is urgent goes beyond
// the bounds. Recorded or Release follows.
func (q *Quota) Reserve(name string, bytes int64, urgent bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := Usage{1, bytes}
	after := q.used.plus(u)
	if !urgent && q.bounded() && (!q.known || q.exhausted || q.exceeds(after)) {
		q.exhausted = q.exhausted || q.known
		return false
	}
	q.used = after
	q.recording[name] = q.recording[name].plus(u)
	for c := range q.counts {
		c.own[name] = c.own[name].plus(u)
	}
	return true
}

// Recorded ends a reservation: the Action is on the hub, or may be.
func (q *Quota) Recorded(name string, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended(name, bytes)
}

// Release ends a reservation: no Action has come of it.
func (q *Quota) Release(name string, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended(name, bytes)
	u := Usage{1, bytes}
	q.used = q.used.minus(u)
	for c := range q.counts {
		c.release(name, u)
	}
}

func (q *Quota) ended(name string, bytes int64) {
	left := q.recording[name].minus(Usage{1, bytes})
	if left.Actions == 0 {
		delete(q.recording, name)
		return
	}
	q.recording[name] = left
}

// Remove counts an Action that has been deleted.
func (q *Quota) Remove(bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := Usage{1, bytes}
	q.used = q.used.minus(u)
	for c := range q.counts {
		c.removed = c.removed.plus(u)
	}
	q.reopen()
}

func (q *Quota) bounded() bool { return q.max != Usage{} }

func (q *Quota) exceeds(u Usage) bool {
	return q.max.Actions > 0 && u.Actions > q.max.Actions || q.max.Bytes > 0 && u.Bytes > q.max.Bytes
}

// reopen ends the exhaustion once a tenth of the room is free: corrections do not wait for each
// other's deletion one by one.
func (q *Quota) reopen() {
	after := q.used.plus(Usage{max(1, q.max.Actions/10), q.max.Bytes / 10})
	if !q.exceeds(after) {
		q.exhausted = false
	}
}

// Exhausted reports whether no Action may be recorded: the bounds are reached, and not enough
// has been deleted since.
func (q *Quota) Exhausted() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	one := q.used
	one.Actions++
	if q.known && q.exceeds(one) {
		q.exhausted = true
	}
	return q.exhausted
}

// Used returns what there is, if that is known, and the bounds, of which 0 bounds nothing.
func (q *Quota) Used() (used, most Usage, known bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used, q.max, q.known
}

// Count counts all Actions that the hub lists, while others are recorded.
type Count struct {
	q       *Quota
	listed  Usage            // without own
	own     map[string]Usage // being recorded when the count began, or reserved since
	seen    map[string]Usage // those of own that the hub has listed
	removed Usage            // since the count began
}

// Begin begins a count, before the list is read. Close follows.
func (q *Quota) Begin() *Count {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := &Count{q: q, own: maps.Clone(q.recording), seen: map[string]Usage{}}
	q.counts[c] = struct{}{}
	return c
}

// Add counts an Action. One that is reserved counts once, whether or not the hub has listed it.
func (c *Count) Add(name string, bytes int64) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if _, is := c.own[name]; is {
		c.seen[name] = Usage{1, bytes}
		return
	}
	c.listed = c.listed.plus(Usage{1, bytes})
}

// release ends a reservation of which no Action has come: what is listed under its name is
// another's.
func (c *Count) release(name string, u Usage) {
	if _, is := c.own[name]; !is {
		return
	}
	left := c.own[name].minus(u)
	if left.Actions > 0 {
		c.own[name] = left
		return
	}
	delete(c.own, name)
	c.listed = c.listed.plus(c.seen[name])
	delete(c.seen, name)
}

// Close gives a count up, unless it has ended.
func (c *Count) Close() {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	delete(c.q.counts, c)
}

// End makes the count known. Nothing is left out but Actions that were deleted before they were
// listed.
func (c *Count) End() {
	q := c.q
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.counts, c)
	used := c.listed
	for _, r := range c.own {
		used = used.plus(r)
	}
	used = used.minus(c.removed)
	q.used, q.known = used, true
	q.reopen()
}
