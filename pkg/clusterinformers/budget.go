package clusterinformers

import (
	"context"
	"sync"
	"time"
)

// account is what one member costs, against its budget.
type account struct {
	limit Budget

	mu             sync.Mutex
	objects, bytes int64
}

// charge adds to the account, or takes from it. It reports false, and charges
// nothing, when more is asked for than the budget has: then only who asked is
// over it.
func (a *account) charge(objects, bytes int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, b := a.objects+objects, a.bytes+bytes
	if objects > 0 && o > int64(a.limit.Objects) || bytes > 0 && b > a.limit.Bytes {
		return false
	}
	a.objects, a.bytes = o, b
	return true
}

// charged returns what is in the account.
func (a *account) charged() (objects, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.objects, a.bytes
}

// slots bounds the first lists under way over all members; each member may
// take only some of them.
type slots struct {
	fleet chan struct{}
}

// A member takes at most this many slots, and a list that stalls or drags on
// gives its slot back, so that no member holds up the others.
const (
	slotsPerMember = 4
	slotIdle       = 5 * time.Second
	slotMost       = 30 * time.Second
)

func newSlots(n int) *slots { return &slots{fleet: make(chan struct{}, n)} }

// slot is the right to run a first list.
type slot struct {
	once sync.Once
	free func()
	idle *time.Timer
}

// take waits for a slot of the member, then for one of the fleet.
func (s *slots) take(ctx context.Context, member chan struct{}) (*slot, error) {
	for _, sem := range []chan struct{}{member, s.fleet} {
		select {
		case sem <- struct{}{}:
		case <-ctx.Done():
			if sem == s.fleet {
				<-member
			}
			return nil, context.Cause(ctx)
		}
	}
	sl := &slot{free: func() { <-s.fleet; <-member }}
	sl.idle = time.AfterFunc(slotIdle, sl.release)
	time.AfterFunc(slotMost, sl.release)
	return sl, nil
}

// progress tells that the list still moves.
func (s *slot) progress() {
	if s != nil {
		s.idle.Reset(slotIdle)
	}
}

// release gives the slot back. It may be called any number of times, and on
// nil.
func (s *slot) release() {
	if s == nil {
		return
	}
	s.once.Do(s.free)
}
