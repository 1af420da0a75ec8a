package quota

import (
	"context"
	"sync"
	"time"
)

// Slots bounds the first lists under way over all members; each member may
// take only some of them.
type Slots struct {
	fleet chan struct{}
}

// A member takes at most this many slots, and a list that stalls or drags on
// gives its slot back, so that no member holds up the others.
const (
	SlotsPerMember  = 4
	slotIdleTimeout = 5 * time.Second
	maxSlotTime     = 30 * time.Second
)

// NewSlots returns n slots.
func NewSlots(n int) *Slots { return &Slots{fleet: make(chan struct{}, n)} }

// InUse returns how many slots are taken.
func (s *Slots) InUse() int { return len(s.fleet) }

// Slot is the right to run a first list.
type Slot struct {
	once sync.Once
	free func()
	idle *time.Timer
}

// Acquire waits for a slot of the member, then for one of the fleet.
func (s *Slots) Acquire(ctx context.Context, member chan struct{}) (*Slot, error) {
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
	sl := &Slot{free: func() { <-s.fleet; <-member }}
	sl.idle = time.AfterFunc(slotIdleTimeout, sl.Release)
	time.AfterFunc(maxSlotTime, sl.Release)
	return sl, nil
}

// Progress says that the list makes progress.
func (s *Slot) Progress() {
	if s != nil {
		s.idle.Reset(slotIdleTimeout)
	}
}

// Release gives the slot back. It may be called any number of times, and on
// nil.
func (s *Slot) Release() {
	if s == nil {
		return
	}
	s.once.Do(s.free)
}
