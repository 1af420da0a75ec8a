package policyquery

import (
	"time"

	"federator.dev/federator/internal/series"
)

// Tick has the series sampled, as Run does.
func (q *Series) Tick(at time.Time) { q.tick(at) }

// Recorded returns how many steps are recorded of a metric.
func (q *Series) Recorded(metric string) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, v := range q.rings[metric].Values(series.Key{}, stepOf(q.clock())-300, 301) {
		if v != nil {
			n++
		}
	}
	return n
}

// RecodeContinue decodes a value of continue, and encodes it again.
func RecodeContinue(text string) (string, bool) {
	c, ok := decodeCursor(text)
	if !ok {
		return "", false
	}
	return c.encode(), true
}

// BeginLoading is for tests of how many candidates are loaded at a time: nothing shows how long that takes.
func (q *Preview) BeginLoading(user string) (end func(), err error) { return q.beginLoading(user) }
