package lateness

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestMonitor_RemembersLatenessForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := &Monitor{}
		done := make(chan struct{})
		go func() { defer close(done); m.Run(ctx) }()
		time.Sleep(3*window + interval/2) // never at the same moment as the monitor
		if late := m.Late(); late != 0 {
			t.Fatalf("a process that is on time is %s late", late)
		}
		m.note(300 * time.Millisecond)
		m.note(100 * time.Millisecond)
		if got := m.Prolong(3 * time.Second); got != 6*time.Second {
			t.Errorf("3 s become %s, want 6", got)
		}
		time.Sleep(window)
		if late := m.Late(); late != 300*time.Millisecond {
			t.Errorf("a window later it was %s late", late)
		}
		time.Sleep(2 * window)
		if late := m.Late(); late != 0 {
			t.Errorf("three windows later it is %s late", late)
		}
		m.note(time.Hour)
		if got := m.Prolong(3 * time.Second); got != 30*time.Second {
			t.Errorf("3 s become %s, want no more than 30", got)
		}
		cancel()
		<-done
	})
}

func TestMonitor_NilIsNeverLate(t *testing.T) {
	var m *Monitor
	if m.Late() != 0 || m.Prolong(time.Second) != time.Second {
		t.Error("no monitor, and late")
	}
}
