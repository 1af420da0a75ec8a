package clusterinformers

import (
	"context"
	"sync"
	"time"
)

// account is what one member costs, against its budget.
type account struct {
	limit Budget
	fleet *fleetAccount

	mu             sync.Mutex
	objects, bytes int64
	stakes         int64 // scopes that have one
}

// stake is what one scope has in its member's account. account.mu guards it.
type stake struct{ objects, bytes int64 }

// What an informer costs beside its objects, in bytes: goroutines, a request under way and
// its buffers. So many of a member's are not charged: all kinds of Kubernetes, and some.
const (
	informerBytes = 96 << 10
	freeInformers = 200
)

// open counts a scope in: budgets are shared equally while they are short. free reports
// whether its informer is not charged.
func (a *account) open() (free bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stakes++; a.stakes == 1 {
		a.fleet.join(1)
	}
	return a.stakes <= freeInformers
}

// close takes a scope out, with all that it has in the account.
func (a *account) close(s *stake) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fleet.charge(a.bytes, -s.bytes)
	if a.stakes--; a.stakes == 0 {
		a.fleet.join(-1)
	}
	a.objects, a.bytes = a.objects-s.objects, a.bytes-s.bytes
	*s = stake{}
}

// charge adds to a scope's stake, or takes from it. It reports false, and
// charges nothing, when the budget has no more and the scope has its equal
// share: a small scope never pays for a huge one that is under way. So an
// account may hold up to twice its budget while shares are short.
func (a *account) charge(s *stake, objects, bytes int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	shares := max(a.stakes, 1)
	over := func(more, total, own, limit int64) bool {
		return more > 0 && total+more > limit && own+more > limit/shares
	}
	if over(objects, a.objects, s.objects, int64(a.limit.Objects)) || over(bytes, a.bytes, s.bytes, a.limit.Bytes) {
		return false
	}
	if !a.fleet.charge(a.bytes, bytes) {
		return false
	}
	a.objects, a.bytes = a.objects+objects, a.bytes+bytes
	s.objects, s.bytes = s.objects+objects, s.bytes+bytes
	return true
}

// charged returns what is in the account.
func (a *account) charged() (objects, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.objects, a.bytes
}

// fleetAccount is what all members cost together, against Budget.FleetBytes. Its lock
// comes after an account's. nil is one without a limit.
type fleetAccount struct {
	limit int64

	mu      sync.Mutex
	bytes   int64
	members int64 // that have scopes
}

func newFleetAccount(limit int64) *fleetAccount {
	if limit == 0 {
		return nil
	}
	return &fleetAccount{limit: limit}
}

// join counts members in, or out.
func (f *fleetAccount) join(n int64) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members += n
}

// charge adds to what a member has, or takes from it. It reports false, and charges
// nothing, when there is no more and the member has its equal share: a small one never
// pays for a huge one.
func (f *fleetAccount) charge(own, more int64) bool {
	if f == nil {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if more > 0 && f.bytes+more > f.limit && own+more > f.limit/max(f.members, 1) {
		return false
	}
	f.bytes += more
	return true
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
