package history

import (
	"sync"
	"time"
)

// maxSetBack is from which on a clock that is set back is followed: it was wrong by far before.
const maxSetBack = time.Hour

// clock returns times that do not go back when the system's clock is set back a little, so that records are in order of time. It may be used from
// any goroutine.
type clock struct {
	system func() time.Time

	mu   sync.Mutex
	last time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.system()
	if now.Before(c.last) && c.last.Sub(now) < maxSetBack {
		return c.last
	}
	c.last = now
	return now
}
