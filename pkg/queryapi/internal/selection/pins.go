package selection

import (
	"container/list"
	"fmt"
	"sync"
	"time"

	"federator.dev/federator/pkg/aggregate"
)

// PinOptions bound what Pins keep. Fields that are 0 have a default.
type PinOptions struct {
	MaxSnapshots int           // 256
	MaxBytes     int64         // that they keep alive besides the newest; 256 MiB
	MaxAge       time.Duration // since a snapshot was first pinned; 5 minutes
}

func (o PinOptions) validated() (PinOptions, error) {
	if o.MaxSnapshots < 0 || o.MaxBytes < 0 || o.MaxAge < 0 {
		return o, fmt.Errorf("selection: bounds of pinned snapshots must not be negative")
	}
	if o.MaxSnapshots == 0 {
		o.MaxSnapshots = 256
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 256 << 20
	}
	if o.MaxAge == 0 {
		o.MaxAge = 5 * time.Minute
	}
	return o, nil
}

// Pins keep the snapshots that continue tokens name. Above a bound the oldest snapshot of
// the user with the most is evicted first, so that no user evicts what others read. Pins
// start no goroutine: expired snapshots are dropped by the next call, so Sweep must be
// called from time to time. Safe for concurrent use.
type Pins struct {
	options PinOptions

	mu         sync.Mutex
	order      *list.List // of *pin, oldest first
	byRevision map[aggregate.Revision]*list.Element
	perUser    map[string]int // pins by their user, none of them 0
}

type pin struct {
	snapshot       *aggregate.Snapshot
	user           string // to whose share it counts; of several, the one with the fewest
	since          time.Time
	totalBytes     int64 // bytes of the entire snapshot
	bytesPerChange int64 // bytes that one change since may keep alive
}

// commitBytes estimates the tree nodes that one commit copies and that a pinned
// snapshot keeps in their former state.
const commitBytes = 2 << 10

// NewPins returns an empty registry.
func NewPins(o PinOptions) (*Pins, error) {
	o, err := o.validated()
	if err != nil {
		return nil, err
	}
	return &Pins{options: o, order: list.New(), byRevision: map[aggregate.Revision]*list.Element{}, perUser: map[string]int{}}, nil
}

// Pin keeps a snapshot for a user. The age of one that is already kept does not change.
func (p *Pins) Pin(s *aggregate.Snapshot, user string, newest *aggregate.Snapshot, now time.Time) {
	p.mu.Lock()
	kept := p.shareLocked(s.Revision(), user)
	p.mu.Unlock()
	if kept {
		return
	}
	objects, total := s.Size()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shareLocked(s.Revision(), user) {
		return
	}
	p.byRevision[s.Revision()] = p.order.PushBack(&pin{
		snapshot: s, user: user, since: now, totalBytes: total, bytesPerChange: total/int64(max(1, objects)) + commitBytes,
	})
	p.perUser[user]++
	p.sweepLocked(max(newest.Changes(), s.Changes()), now)
}

// shareLocked moves an existing pin to the user's share if they have fewer than its present
// user. p.mu must be held.
func (p *Pins) shareLocked(revision aggregate.Revision, user string) (kept bool) {
	e, kept := p.byRevision[revision]
	if !kept {
		return false
	}
	if was := e.Value.(*pin); p.perUser[user] < p.perUser[was.user] {
		p.removeLocked(was.user)
		was.user = user
		p.perUser[user]++
	}
	return true
}

func (p *Pins) removeLocked(user string) {
	if p.perUser[user]--; p.perUser[user] == 0 {
		delete(p.perUser, user)
	}
}

// Snapshot returns the snapshot of a revision, if it is kept.
func (p *Pins) Snapshot(revision aggregate.Revision, newest *aggregate.Snapshot, now time.Time) (*aggregate.Snapshot, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweepLocked(newest.Changes(), now)
	e, ok := p.byRevision[revision]
	if !ok {
		return nil, false
	}
	return e.Value.(*pin).snapshot, true
}

// Sweep drops what exceeds a bound, and returns the number of snapshots left and an estimate
// of the bytes that they keep alive besides the newest one.
func (p *Pins) Sweep(newest *aggregate.Snapshot, now time.Time) (snapshots int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	bytes = p.sweepLocked(newest.Changes(), now)
	return p.order.Len(), bytes
}

// sweepLocked drops what exceeds a bound, given the number of changes of the index. p.mu
// must be held.
func (p *Pins) sweepLocked(newest uint64, now time.Time) int64 {
	bytes := int64(0)
	for e := p.order.Front(); e != nil; e = e.Next() {
		bytes += e.Value.(*pin).retained(newest)
	}
	for e := p.order.Front(); e != nil; e = p.order.Front() {
		if now.Sub(e.Value.(*pin).since) < p.options.MaxAge {
			if p.order.Len() <= p.options.MaxSnapshots && bytes <= p.options.MaxBytes {
				break
			}
			e = p.fairestLocked()
		}
		gone := e.Value.(*pin)
		bytes -= gone.retained(newest)
		p.order.Remove(e)
		p.removeLocked(gone.user)
		delete(p.byRevision, gone.snapshot.Revision())
	}
	return bytes
}

// fairestLocked returns the oldest pin of a user with the most pins. p.mu must be held, and
// there must be a pin.
func (p *Pins) fairestLocked() *list.Element {
	most := 0
	for _, n := range p.perUser {
		most = max(most, n)
	}
	e := p.order.Front()
	for p.perUser[e.Value.(*pin).user] < most {
		e = e.Next()
	}
	return e
}

// retained estimates the bytes that a snapshot keeps alive and a newer one does not: a
// former version for each change since, and at most all that it holds with the tree nodes.
func (p *pin) retained(newest uint64) int64 {
	if newest <= p.snapshot.Changes() {
		return 0
	}
	changes := int64(min(newest-p.snapshot.Changes(), 1<<31))
	return min(changes*p.bytesPerChange, 2*p.totalBytes)
}
