package remediate

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestAMemberThatIsHeldIsNotWrittenTo: its corrections wait, those of others do not, and
// no wave goes on past it.
func TestAMemberThatIsHeldIsNotWrittenTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var paused atomic.Bool
		paused.Store(true)
		s := newSchedule(t, Options{Held: func(member string) error {
			if member == "m1" && paused.Load() {
				return errors.New("m1 is paused")
			}
			return nil
		}})
		c := Contract{Limits: Limits{Policy: Limit{Count: 100}}}
		s.want(t, c, 10, intents("1", "m1 a", "m2 a"))
		s.expect(t, "with m1 paused", "m2 a@0s")
		if st, _ := s.Status("b"); st.Pending != 1 || st.Waiting != "m1 is paused" {
			t.Errorf("%d pending, waiting: %q", st.Pending, st.Waiting)
		}
		time.Sleep(10 * time.Second)
		s.expect(t, "ten seconds later", "")
		paused.Store(false)
		time.Sleep(2 * time.Second)
		s.expect(t, "resumed", "m1 a@11s")
		if st, _ := s.Status("b"); st.Waiting != "" {
			t.Errorf("waiting: %q", st.Waiting)
		}

		paused.Store(true)
		c.Generation, c.Waves = "2", []Wave{{Name: "first", Members: map[string]bool{"m1": true}}, {Name: "second", Members: map[string]bool{"m2": true}}}
		s.want(t, c, 10, intents("2", "m1 b", "m2 b"))
		time.Sleep(time.Minute)
		s.expect(t, "the first wave is paused", "")
		paused.Store(false)
		time.Sleep(2 * time.Second)
		if got := s.written(); !strings.Contains(got, "m1 b@") || !strings.Contains(got, "m2 b@") {
			t.Errorf("after both waves: %q", got)
		}
	})
}

// TestAPauseBetweenPlanAndWriteHolds: it is asked right before the write, and what is
// held is not taken for failed.
func TestAPauseBetweenPlanAndWriteHolds(t *testing.T) {
	d, err := New(Options{Clients: noClients{}, Journal: noJournal{}, Held: func(string) error { return errors.New("m1 is paused") }})
	if err != nil {
		t.Fatal(err)
	}
	i := &intents("1", "m1 a")[0]
	if err := d.gate(i); !errors.Is(err, errNotNow) {
		t.Errorf("the gate of a correction: %v", err)
	}
	rollback := *i
	rollback.RollbackOf = "a-1"
	if err := d.gate(&rollback); !errors.Is(err, errNotNow) {
		t.Errorf("the gate of a rollback: %v", err)
	}
	if a, err := d.do(t.Context(), i); !errors.Is(err, errNotNow) || a.Attempts != 0 {
		t.Errorf("%v after %d attempts", err, a.Attempts)
	}
}
