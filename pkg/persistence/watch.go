package persistence

import (
	"errors"
	"time"

	"federator.dev/federator/pkg/aggregate"
)

const (
	watchInterval = 250 * time.Millisecond
	stalledAfter  = 2 * time.Second
)

var errStalled = errors.New("the disk does not take what is written")

// watch shows readers what has waited for the disk for patience, until stop is closed, whatever the
// writer waits for. After a restart they list again: nothing on disk says that they have seen it.
func (s *Store) watch(x *aggregate.Index, stop <-chan struct{}) {
	const ticks = int(patience / watchInterval)
	var newest [ticks]aggregate.Revision // as of the last ticks
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-stop:
			return
		}
		at := n % ticks
		if was := newest[at]; was > x.Snapshot().Revision() {
			pending, _ := x.Pending(x.Snapshot())
			pending.Release()
			s.health.slow()
		}
		newest[at] = x.Newest().Revision()
	}
}
