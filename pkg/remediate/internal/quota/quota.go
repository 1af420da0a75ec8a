package quota

import (
	"errors"
	"fmt"
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

func (u *Usage) add(o Usage) {
	u.Actions += o.Actions
	u.Bytes += o.Bytes
}

func (u *Usage) subtract(o Usage) {
	u.Actions -= o.Actions
	u.Bytes -= o.Bytes
}

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
	recording Usage // reserved, and perhaps not on the hub yet
	made      Usage // all that was ever reserved and not released
	removed   Usage // all that was ever removed
}

// New returns a Quota that knows of no Action yet; bounds of 0 bound nothing.
func New(most Usage) *Quota { return &Quota{max: most} }

// Reserve makes room for an Action that is about to be recorded, and reports whether there is
// any: not before a Count has ended, unless nothing is bounded. One that is urgent goes beyond
// the bounds. Recorded or Release follows.
func (q *Quota) Reserve(bytes int64, urgent bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := Usage{1, bytes}
	after := q.used
	after.add(u)
	if !urgent && q.bounded() && (!q.known || q.exhausted || q.exceeds(after)) {
		q.exhausted = q.exhausted || q.known
		return false
	}
	q.used = after
	q.recording.add(u)
	q.made.add(u)
	return true
}

// Recorded ends a reservation: the Action is on the hub, or may be.
func (q *Quota) Recorded(bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.recording.subtract(Usage{1, bytes})
}

// Release ends a reservation: the Action is not on the hub.
func (q *Quota) Release(bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := Usage{1, bytes}
	q.recording.subtract(u)
	q.made.subtract(u)
	q.used.subtract(u)
}

// Remove counts an Action that has been deleted.
func (q *Quota) Remove(bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := Usage{1, bytes}
	q.removed.add(u)
	q.used.subtract(u)
	q.reopen()
}

func (q *Quota) bounded() bool { return q.max != Usage{} }

func (q *Quota) exceeds(u Usage) bool {
	return q.max.Actions > 0 && u.Actions > q.max.Actions || q.max.Bytes > 0 && u.Bytes > q.max.Bytes
}

// reopen ends the exhaustion once a tenth of the room is free: corrections do not wait for each
// other's deletion one by one.
func (q *Quota) reopen() {
	after := q.used
	after.add(Usage{max(1, q.max.Actions/10), q.max.Bytes / 10})
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
	q                  *Quota
	listed             Usage
	recording          Usage
	madeThen, goneThen Usage
}

// Begin begins a count, before the list is read.
func (q *Quota) Begin() *Count {
	q.mu.Lock()
	defer q.mu.Unlock()
	return &Count{q: q, recording: q.recording, madeThen: q.made, goneThen: q.removed}
}

// Add counts an Action.
func (c *Count) Add(bytes int64) { c.listed.add(Usage{1, bytes}) }

// End makes the count known. What was being recorded when it began, and since, may be counted
// twice until the next count, and nothing is left out.
func (c *Count) End() {
	q := c.q
	q.mu.Lock()
	defer q.mu.Unlock()
	used := c.listed
	used.add(c.recording)
	used.add(q.made)
	used.subtract(c.madeThen)
	used.subtract(q.removed)
	used.add(c.goneThen)
	q.used, q.known = used, true
	q.reopen()
}
