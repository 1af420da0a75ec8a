package multiplex

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/test/seed"
)

// TestMeter_DividesWhatTheProcessUses: over random histories all questions together are charged what the
// process has used while any was answered, none more than the time it took, and alone none less.
func TestMeter_DividesWhatTheProcessUses(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			var used, busy, charged time.Duration
			m := &meter{cpu: func() time.Duration { return used }}
			var ends []func() time.Duration
			for range 200 {
				step := time.Duration(rng.IntN(1000))
				time.Sleep(step * 4) // no question uses more than its time: at most four cores are busy
				used += step
				if len(ends) > 0 {
					busy += step
				}
				if len(ends) < 4 && rng.IntN(2) == 0 {
					ends = append(ends, m.start())
				} else if i := len(ends); i > 0 {
					i = rng.IntN(i)
					charged += ends[i]()
					ends = append(ends[:i], ends[i+1:]...)
				}
			}
			for _, end := range ends {
				charged += end()
			}
			if lost := busy - charged; lost < 0 || lost > 200*4 { // what division leaves
				t.Errorf("%v were used, and %v charged", busy, charged)
			}
			began, end := used, m.start()
			time.Sleep(time.Second)
			used += 300 * time.Millisecond
			if got := end(); got != used-began {
				t.Errorf("alone: %v of %v", got, used-began)
			}
			end = m.start()
			used += time.Hour // others'
			time.Sleep(time.Second)
			if got := end(); got != time.Second {
				t.Errorf("charged %v for a second", got)
			}
		})
	}
}
