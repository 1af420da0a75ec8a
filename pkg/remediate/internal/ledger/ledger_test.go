package ledger

import (
	"testing"
	"time"
)

func TestLedger_NextStartSpacesOutWrites(t *testing.T) {
	t.Parallel()
	l := New(time.Hour)
	start := time.Unix(1000, 0)
	for i := range 3 {
		at := start.Add(time.Duration(i) * 10 * time.Second)
		if next := l.NextStart("b", "m", 3, at); !next.Equal(at) {
			t.Errorf("write %d must wait until %v", i, next)
		}
		l.RecordStart("b", "m", at)
	}
	if next := l.NextStart("b", "m", 3, start.Add(30*time.Second)); !next.Equal(start.Add(time.Minute)) {
		t.Errorf("the fourth may write at %v, want a minute after the first", next)
	}
	if now := start.Add(30 * time.Second); !l.NextStart("b", "other", 3, now).Equal(now) || !l.NextStart("c", "m", 3, now).Equal(now) {
		t.Error("another member or policy waits as well")
	}
}
