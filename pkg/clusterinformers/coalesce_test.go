package clusterinformers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// ticking has a byte for every event that there has been, one in each period.
type ticking struct {
	period time.Duration
	next   time.Time
}

func (r *ticking) Read(b []byte) (n int, err error) {
	time.Sleep(time.Until(r.next))
	for ; n < len(b) && !r.next.After(time.Now()); n++ {
		r.next = r.next.Add(r.period)
	}
	return n, nil
}

func TestCoalescer_DelaysFastEventsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &ticking{next: time.Now()}
		g := &coalescer{ctx: t.Context(), reader: source}
		buf := make([]byte, 64)
		// during reads events for a while, and returns how many came in how many reads,
		// and how long the last of a read had been there at most.
		during := func(period, length time.Duration) (events, reads int, late time.Duration) {
			source.period, source.next = period, time.Now()
			for end := time.Now().Add(length); time.Now().Before(end); reads++ {
				from := source.next
				n, err := g.Read(buf)
				if err != nil {
					t.Fatal(err)
				}
				late = max(late, time.Since(from))
				for range n {
					g.count(time.Now())
				}
				events += n
			}
			return events, reads, late
		}
		for _, slow := range []time.Duration{10 * time.Millisecond, 2 * time.Millisecond, time.Second} {
			if events, reads, late := during(slow, 2*time.Second); events != reads || late != 0 {
				t.Errorf("an event in %v: %d came in %d reads, up to %v late", slow, events, reads, late)
			}
			events, reads, late := during(100*time.Microsecond, 2*time.Second)
			if most := int(2*time.Second/coalesceDelay + ratePeriod/(100*time.Microsecond)); reads > most || events < 19_000 || late > coalesceDelay {
				t.Errorf("an event in 100 us: %d came in %d reads, at most %d wanted, up to %v late", events, reads, most, late)
			}
			during(slow, 2*ratePeriod) // what slows down is seen to with the first events
		}
	})
}

func TestCoalescer_ReadsOnWhileTheBufferFills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &coalescer{ctx: t.Context(), reader: &ticking{period: time.Microsecond, next: time.Now()}, fast: true, more: true}
		began := time.Now()
		for range 1000 {
			if _, err := g.Read(make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("8,000 events of 8 ms were read in %v", took)
		}
	})
}

func TestCoalescer_EndsWithTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := errors.New("the member left")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(end)
		g := &coalescer{ctx: ctx, reader: &ticking{period: time.Second, next: time.Now()}, fast: true}
		if _, err := g.Read(make([]byte, 8)); !errors.Is(err, end) {
			t.Errorf("a read of a watch that is over: %v", err)
		}
	})
}
