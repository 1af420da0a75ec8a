package quota

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Slots bounds the large first lists under way over all members; each member may
// take only some of them.
type Slots struct {
	mu      sync.Mutex
	free    int
	used    int
	waiting []*Slot // the first is the oldest
}

// A member takes at most this many slots, and a list that stalls or drags on
// gives its slot back, so that no member holds up the others.
const (
	SlotsPerMember  = 4
	slotIdleTimeout = 5 * time.Second
	maxSlotTime     = 30 * time.Second
)

// NewSlots returns n slots.
func NewSlots(n int) *Slots { return &Slots{free: n} }

// InUse returns how many slots are taken.
func (s *Slots) InUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// MemberSlots is how many slots a member has.
type MemberSlots struct{ used int } // the Slots' mu guards it

// Slot is the right to run a first list, or a place in the queue for one.
type Slot struct {
	slots   *Slots
	member  *MemberSlots
	granted func()
	held    bool // this and what follows: of the Slots' mu
	over    bool
	idle    *time.Timer
	most    *time.Timer
}

// Request asks for a slot. granted is called once it is there, if it is not at once; it must
// not block.
func (s *Slots) Request(member *MemberSlots, granted func()) *Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := &Slot{slots: s, member: member, granted: granted}
	if !s.grantLocked(sl) {
		s.waiting = append(s.waiting, sl)
	}
	return sl
}

// Acquire waits for a slot.
func (s *Slots) Acquire(ctx context.Context, member *MemberSlots) (*Slot, error) {
	granted := make(chan struct{})
	sl := s.Request(member, func() { close(granted) })
	if sl.Held() {
		return sl, nil
	}
	select {
	case <-granted:
		return sl, nil
	case <-ctx.Done():
		sl.Release()
		return nil, context.Cause(ctx)
	}
}

func (s *Slots) grantLocked(sl *Slot) bool {
	if s.free == 0 || sl.member.used == SlotsPerMember {
		return false
	}
	s.free--
	s.used++
	sl.member.used++
	sl.held = true
	sl.idle = time.AfterFunc(slotIdleTimeout, sl.Release)
	sl.most = time.AfterFunc(maxSlotTime, sl.Release)
	return true
}

// Held reports whether the slot is granted, and not released.
func (s *Slot) Held() bool {
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	return s.held
}

// Progress says that the list makes progress.
func (s *Slot) Progress() {
	if s == nil {
		return
	}
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	if s.held {
		s.idle.Reset(slotIdleTimeout)
	}
}

// Release gives the slot back, or the place in the queue. It may be called any number of
// times, and on nil.
func (s *Slot) Release() {
	if s == nil {
		return
	}
	for _, sl := range s.release() {
		sl.granted()
	}
}

// release returns the slots that are granted instead.
func (s *Slot) release() (next []*Slot) {
	all := s.slots
	all.mu.Lock()
	defer all.mu.Unlock()
	if s.over {
		return nil
	}
	s.over = true
	if !s.held {
		all.waiting = slices.DeleteFunc(all.waiting, func(w *Slot) bool { return w == s })
		return nil
	}
	s.held = false
	s.idle.Stop()
	s.most.Stop()
	all.free++
	all.used--
	s.member.used--
	all.waiting = slices.DeleteFunc(all.waiting, func(w *Slot) bool {
		granted := all.grantLocked(w)
		if granted {
			next = append(next, w)
		}
		return granted
	})
	return next
}
