package revisions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/aggregate"
)

// Times of reserving.
const (
	attempt   = 10 * time.Second // that one reservation may take
	look      = 5 * time.Second  // how often the use is looked at
	firstTry  = time.Second      // after a failure, doubled with each one up to
	lastTry   = time.Minute
	firstWait = 30 * time.Second // for the first block
)

// alarmAt is how many revisions are left when failures are errors.
const alarmAt = aggregate.BlockSize / 8

// Keeper has reserved a block, and keeps an index in blocks while it runs.
type Keeper struct {
	store Store
	log   *slog.Logger

	first aggregate.Range
	last  uint64 // block reserved
	next  uint64 // revisions left when the next is reserved: half of what was reserved last

	reserved, failed prometheus.Counter
}

// Reserve reserves a process's first block. While the store does not answer, it tries for
// half a minute.
func Reserve(ctx context.Context, store Store, log *slog.Logger) (*Keeper, error) {
	k := &Keeper{
		store: store, log: log,
		reserved: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "federator_revisions_reserved_blocks_total", Help: "Blocks of revisions reserved.",
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "federator_revisions_reservation_failures_total", Help: "Reservations of blocks of revisions that failed; they are tried again.",
		}),
	}
	ctx, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	for pause := firstTry; ; pause = min(2*pause, lastTry) {
		err := k.reserve(ctx)
		if err == nil {
			k.first = from(k.last, time.Now())
			k.next = uint64(k.first.End-k.first.First) / 2
			return k, nil
		}
		if errors.Is(err, ErrForGood) || ctx.Err() != nil || sleep.For(ctx, pause) != nil {
			return nil, err
		}
		log.Warn("no revisions could be reserved; trying again", "error", err)
	}
}

// First is what the index begins with.
func (k *Keeper) First() aggregate.Range { return k.first }

// reserve tries once.
func (k *Keeper) reserve(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	least, err := floor(time.Now(), k.last)
	block := uint64(0)
	if err == nil {
		block, err = k.store.Reserve(ctx, least)
	}
	if err != nil {
		k.failed.Inc()
		return fmt.Errorf("revisions: %s: %w", k.store, err)
	}
	k.last = block
	k.reserved.Inc()
	k.log.Info("reserved revisions", "block", k.last, "of", k.store.String())
	return nil
}

// Run reserves the next block whenever half of the last is used, until ctx ends or the
// index is exhausted, which is an error.
func (k *Keeper) Run(ctx context.Context, index *aggregate.Index) error {
	var failure error
	for pause := firstTry; ; {
		wait := look
		if left := index.Unused(); left <= k.next {
			if failure = k.reserve(ctx); failure == nil {
				failure = index.Extend(aggregate.Block(k.last))
			}
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case failure == nil:
				pause, k.next = firstTry, aggregate.BlockSize/2
			default:
				k.tell(ctx, left, failure)
				wait = pause/2 + rand.N(pause)
				pause = min(2*pause, lastTry)
			}
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-index.Exhausted():
			t.Stop()
			return errors.Join(aggregate.ErrExhausted, failure)
		case <-t.C:
		}
	}
}

// tell says that a block could not be reserved.
func (k *Keeper) tell(ctx context.Context, left uint64, err error) {
	level := slog.LevelWarn
	if left <= alarmAt {
		level = slog.LevelError
	}
	k.log.Log(ctx, level, "no further revisions could be reserved; this process goes on with what it has, and ends when that is used up",
		"left", left, "error", err)
}

var descUnused = prometheus.NewDesc("federator_revisions_unused", "Revisions reserved and not used yet; at 0 the process ends.", nil, nil)

// Metrics are those of the Keeper and of what an index has left.
func (k *Keeper) Metrics(index *aggregate.Index) prometheus.Collector { return collector{k, index} }

type collector struct {
	*Keeper
	index *aggregate.Index
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- descUnused
	c.reserved.Describe(ch)
	c.failed.Describe(ch)
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(descUnused, prometheus.GaugeValue, float64(c.index.Unused()))
	c.reserved.Collect(ch)
	c.failed.Collect(ch)
}
