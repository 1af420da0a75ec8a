package sharing

import (
	"context"
	"sync"
	"time"

	"federator.dev/federator/pkg/shards"
)

const (
	meterEvery = 10 * time.Second
	// meterKeep is how much of a rate is of before: a minute or so counts.
	meterKeep = 0.85
)

// meter knows how often objects of members change.
type meter struct {
	mu    sync.Mutex
	rates map[string]float64 // a second
}

// measureLoad keeps the rates until the context ends.
func (s *Sharing) measureLoad(ctx context.Context) error {
	cursor := s.own.Cursor(s.own.Snapshot())
	tick := time.NewTicker(meterEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		batch, some := cursor.Poll()
		counts := map[string]int{}
		if some {
			for d := range batch.Deltas() {
				if !d.Before.IsZero() && !d.After.IsZero() { // what joins is no rate
					counts[d.Ref.Member]++
				}
			}
		}
		took := time.Since(last).Seconds()
		last = time.Now()
		s.meter.mu.Lock()
		next := map[string]float64{}
		for m := range s.own.Snapshot().Members() {
			rate, known := s.meter.rates[m.Name]
			now := float64(counts[m.Name]) / took
			if !known {
				rate = now
			}
			next[m.Name] = meterKeep*rate + (1-meterKeep)*now
		}
		s.meter.rates = next
		s.meter.mu.Unlock()
	}
}

// measure returns what a member costs here.
func (s *Sharing) measure(member string) (shards.Load, bool) {
	m, ok := s.manager.Member(member)
	if !ok || !m.Synced {
		return shards.Load{}, false
	}
	s.meter.mu.Lock()
	defer s.meter.mu.Unlock()
	return shards.Load{Bytes: float64(m.Bytes), Deltas: s.meter.rates[member]}, true
}
