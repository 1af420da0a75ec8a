package selection

import (
	"container/list"
	"fmt"
	"sync"
	"time"

	"federator.dev/federator/pkg/aggregate"
)

// PinOptions bound what Pins keep. A field that is 0 takes its default.
type PinOptions struct {
	Snapshots int           // 256
	Bytes     int64         // of what they keep alive beside the newest; 256 MiB
	Age       time.Duration // since a snapshot was first pinned; 5 minutes
}

func (o PinOptions) validated() (PinOptions, error) {
	if o.Snapshots < 0 || o.Bytes < 0 || o.Age < 0 {
		return o, fmt.Errorf("selection: bounds of pinned snapshots may not be negative")
	}
	if o.Snapshots == 0 {
		o.Snapshots = 256
	}
	if o.Bytes == 0 {
		o.Bytes = 256 << 20
	}
	if o.Age == 0 {
		o.Age = 5 * time.Minute
	}
	return o, nil
}

// Pins keep the snapshots that continue tokens name. Beyond a bound the oldest
// goes first of the user who has most, so that nobody pushes out what others
// read. It starts no goroutine: what has expired goes at the next call, so
// whoever calls nothing else calls Sweep now and then. Safe for concurrent use.
type Pins struct {
	options PinOptions

	mu    sync.Mutex
	order *list.List // of *pin, oldest first
	by    map[aggregate.Revision]*list.Element
	of    map[string]int // pins by their user, none of them 0
}

type pin struct {
	snapshot *aggregate.Snapshot
	user     string // whose share it is of; of many, the one who has fewest
	since    time.Time
	total    int64 // bytes of all that the snapshot holds
	each     int64 // bytes that one change since may keep alive
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
	return &Pins{options: o, order: list.New(), by: map[aggregate.Revision]*list.Element{}, of: map[string]int{}}, nil
}

// Pin keeps a snapshot for a user. One that is kept already keeps its age.
func (p *Pins) Pin(s *aggregate.Snapshot, user string, newest *aggregate.Snapshot, now time.Time) {
	p.mu.Lock()
	kept := p.share(s.Revision(), user)
	p.mu.Unlock()
	if kept {
		return
	}
	var objects, total int64
	for scope := range s.Scopes("") { // outside the lock: some thousands
		objects += int64(scope.Objects)
		total += scope.Bytes
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.share(s.Revision(), user) {
		return
	}
	p.by[s.Revision()] = p.order.PushBack(&pin{
		snapshot: s, user: user, since: now, total: total, each: total/max(1, objects) + commitBytes,
	})
	p.of[user]++
	p.sweep(max(newest.Changes(), s.Changes()), now)
}

// share makes a pin that is kept the user's if he has fewer than whose it was. p.mu
// must be held.
func (p *Pins) share(revision aggregate.Revision, user string) (kept bool) {
	e, kept := p.by[revision]
	if !kept {
		return false
	}
	if was := e.Value.(*pin); p.of[user] < p.of[was.user] {
		p.less(was.user)
		was.user = user
		p.of[user]++
	}
	return true
}

func (p *Pins) less(user string) {
	if p.of[user]--; p.of[user] == 0 {
		delete(p.of, user)
	}
}

// Snapshot returns the snapshot of a revision, if it is kept.
func (p *Pins) Snapshot(revision aggregate.Revision, newest *aggregate.Snapshot, now time.Time) (*aggregate.Snapshot, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(newest.Changes(), now)
	e, ok := p.by[revision]
	if !ok {
		return nil, false
	}
	return e.Value.(*pin).snapshot, true
}

// Sweep drops what is beyond a bound, and returns how many snapshots are left
// and the bytes that they keep alive beside the newest one, estimated.
func (p *Pins) Sweep(newest *aggregate.Snapshot, now time.Time) (snapshots int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	bytes = p.sweep(newest.Changes(), now)
	return p.order.Len(), bytes
}

// sweep drops what is beyond a bound, at so many changes of the index. p.mu must be held.
func (p *Pins) sweep(newest uint64, now time.Time) int64 {
	bytes := int64(0)
	for e := p.order.Front(); e != nil; e = e.Next() {
		bytes += e.Value.(*pin).keeps(newest)
	}
	for e := p.order.Front(); e != nil; e = p.order.Front() {
		if now.Sub(e.Value.(*pin).since) < p.options.Age {
			if p.order.Len() <= p.options.Snapshots && bytes <= p.options.Bytes {
				break
			}
			e = p.fair()
		}
		gone := e.Value.(*pin)
		bytes -= gone.keeps(newest)
		p.order.Remove(e)
		p.less(gone.user)
		delete(p.by, gone.snapshot.Revision())
	}
	return bytes
}

// fair returns the oldest pin of a user who has as many as any other. p.mu must be held,
// and there must be one.
func (p *Pins) fair() *list.Element {
	most := 0
	for _, n := range p.of {
		most = max(most, n)
	}
	e := p.order.Front()
	for p.of[e.Value.(*pin).user] < most {
		e = e.Next()
	}
	return e
}

// keeps estimates the bytes that a snapshot keeps alive and a newer one does
// not: a former version for each change since, and no more than all it holds
// with the nodes that hold it.
func (p *pin) keeps(newest uint64) int64 {
	if newest <= p.snapshot.Changes() {
		return 0
	}
	changes := int64(min(newest-p.snapshot.Changes(), 1<<31))
	return min(changes*p.each, 2*p.total)
}
