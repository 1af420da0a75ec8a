package quota

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestMember_RefusesWhatExceedsTheLimits(t *testing.T) {
	a := Member{Limits: Limits{Objects: 10, Bytes: 100}}
	var s Usage
	a.AddScope()
	for _, step := range []struct {
		objects, bytes int64
		want           bool
	}{
		{10, 50, true}, {1, 0, false}, {0, 51, false}, {-1, 0, true}, {1, 50, true}, {1, 1, false}, {-10, -100, true},
	} {
		if got := a.Charge(&s, step.objects, step.bytes); got != step.want {
			t.Errorf("charge(%d, %d) = %t, want %t", step.objects, step.bytes, got, step.want)
		}
	}
	if o, b := a.Used(); o != 0 || b != 0 {
		t.Errorf("%d objects, %d bytes are left", o, b)
	}
}

func TestMember_KeepsAShareForEveryScope(t *testing.T) {
	a := Member{Limits: Limits{Objects: 10, Bytes: 100}}
	var huge, small Usage
	a.AddScope()
	a.AddScope()
	for _, step := range []struct {
		of             *Usage
		objects, bytes int64
		want           bool
	}{
		{&huge, 10, 100, true},
		{&huge, 1, 0, false},
		{&small, 5, 50, true}, // its half, though nothing is left
		{&small, 1, 0, false},
		{&small, 0, 1, false},
		{&huge, -6, -60, true},
		{&small, 1, 10, true}, // more than its half, which is there now
	} {
		if got := a.Charge(step.of, step.objects, step.bytes); got != step.want {
			t.Errorf("charge(%d, %d) = %t, want %t", step.objects, step.bytes, got, step.want)
		}
	}
	a.RemoveScope(&huge)
	a.RemoveScope(&small)
	if o, b := a.Used(); o != 0 || b != 0 {
		t.Errorf("%d objects, %d bytes are left", o, b)
	}
}

// TestMember_ChargesNothingToAScopeThatIsRemoved: a chunk that is on its way from a connection
// while its scope ends is charged before, and given back after.
func TestMember_ChargesNothingToAScopeThatIsRemoved(t *testing.T) {
	fleet := NewFleet(1000)
	a := Member{Limits: Limits{Objects: 10, Bytes: 100}, Fleet: fleet}
	var ends, stays Usage
	a.AddScope()
	a.AddScope()
	a.Charge(&stays, 1, 10)
	a.Charge(&ends, 0, 40)
	a.RemoveScope(&ends)
	a.RemoveScope(&ends)
	if !a.Charge(&ends, 0, -40) {
		t.Error("what is given back is refused")
	}
	if a.Charge(&ends, 0, 5) {
		t.Error("a scope that is removed is charged")
	}
	if o, b := a.Used(); o != 1 || b != 10 || fleet.bytes != 10 || fleet.members != 1 {
		t.Errorf("%d objects, %d bytes, %d of the fleet's %d members are left; want those of the scope that stays", o, b, fleet.bytes, fleet.members)
	}
	a.RemoveScope(&stays)
	if o, b := a.Used(); o != 0 || b != 0 || fleet.bytes != 0 || fleet.members != 0 {
		t.Errorf("%d objects, %d bytes, %d of the fleet's %d members are left", o, b, fleet.bytes, fleet.members)
	}
}

func TestSlots_StalledOnesAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(2)
		take := func(member *MemberSlots) (*Slot, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return s.Acquire(ctx, member)
		}
		a, b := new(MemberSlots), new(MemberSlots)
		first, err := take(a)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := take(a); err != nil {
			t.Fatal(err)
		}
		if _, err := take(b); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a third of two slots: %v", err)
		}
		if held(s, b) != 0 {
			t.Error("who got no slot holds one of its member's")
		}
		first.Release()
		first.Release()
		third, err := take(b)
		if err != nil {
			t.Fatal(err)
		}
		for range 6 { // it moves for longer than it may be idle
			time.Sleep(slotIdleTimeout - time.Millisecond)
			third.Progress()
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if held(s, b) != 1 || held(s, a) != 0 {
			t.Errorf("held: %d by who moves, %d by who stalls; want 1 and 0", held(s, b), held(s, a))
		}
		time.Sleep(maxSlotTime)
		synctest.Wait()
		if s.InUse() != 0 || held(s, b) != 0 || len(s.waiting) != 0 {
			t.Errorf("%d slots are held for longer than any may be", s.InUse())
		}
	})
}

func TestFleet_SharesOneBudget(t *testing.T) {
	fleet := NewFleet(1000)
	limit := Limits{Bytes: 900, Objects: 100}
	var members [4]*Member
	var stakes [4]Usage
	for i := range members {
		members[i] = &Member{Limits: limit, Fleet: fleet}
		members[i].AddScope()
	}
	hog, small := members[0], members[1:]
	if !hog.Charge(&stakes[0], 1, 850) || hog.Charge(&stakes[0], 1, 100) {
		t.Error("a member alone has its own budget, and no more")
	}
	for i, m := range small {
		if !m.Charge(&stakes[i+1], 1, 250) {
			t.Errorf("member %d has not its share while another has most", i+1)
		}
		if m.Charge(&stakes[i+1], 1, 1) {
			t.Errorf("member %d has more than its share while there is none", i+1)
		}
	}
	if hog.Charge(&stakes[0], 0, 1) || !hog.Charge(&stakes[0], 0, -850) {
		t.Error("a member above its share cannot grow, but can shrink")
	}
	if !small[0].Charge(&stakes[1], 0, 200) {
		t.Error("what one has given back another may have")
	}
	for i, m := range members {
		m.RemoveScope(&stakes[i])
	}
	if fleet.bytes != 0 || fleet.members != 0 {
		t.Errorf("%d bytes of %d members are left", fleet.bytes, fleet.members)
	}
}

// held returns how many slots a member has.
func held(s *Slots, m *MemberSlots) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.used
}
