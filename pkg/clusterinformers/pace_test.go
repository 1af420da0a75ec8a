package clusterinformers

import (
	"testing"
	"time"
)

func TestPace_IsFastOnlyWhileEventsComeFast(t *testing.T) {
	var p pace
	now := time.Unix(1_700_000_000, 0)
	// during counts an event in each period for a second, and reports whether all of its
	// second half was fast, and whether any was.
	during := func(period time.Duration) (all, some bool) {
		all = true
		for d := time.Duration(0); d < time.Second; d += period {
			now = now.Add(period)
			if p.count(1, now); d >= time.Second/2 {
				all, some = all && p.fast.Load(), some || p.fast.Load()
			}
		}
		return all, some
	}
	for _, tt := range []struct {
		period time.Duration
		fast   bool
	}{
		{10 * time.Millisecond, false},
		{1100 * time.Microsecond, false},
		{100 * time.Microsecond, true},
		{1500 * time.Microsecond, true}, // not below half of it yet
		{2100 * time.Microsecond, false},
		{100 * time.Microsecond, true},
		{100 * time.Millisecond, false},
	} {
		if all, some := during(tt.period); all != tt.fast || some != tt.fast {
			t.Errorf("an event in %v: fast always %t, ever %t; want %t", tt.period, all, some, tt.fast)
		}
	}
}
