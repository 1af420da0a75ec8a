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

const (
	reserveTimeout = 10 * time.Second // of one attempt
	checkInterval  = 5 * time.Second  // between checks of the revisions left
	minBackoff     = time.Second      // after a failure, doubled with each one
	maxBackoff     = time.Minute
	startTimeout   = 30 * time.Second // for the first block
)

// errorBelow is how many revisions are left when failures are logged as errors.
const errorBelow = aggregate.BlockSize / 8

// Numbers are what uses revisions up: an aggregate.Index, for one.
type Numbers interface {
	Unused() uint64 // that are left
	Extend(aggregate.Range) error
	Exhausted() <-chan struct{} // closed once there were too few
}

// Keeper has reserved a first block, and supplies an index with further ones while it runs.
type Keeper struct {
	store Store
	log   *slog.Logger

	first        aggregate.Range
	last         uint64 // block reserved
	installation string

	next uint64 // the next block is reserved when this many revisions are left: half of the last one

	reserved, failed prometheus.Counter
}

// Reserve reserves a process's first block. Failed attempts are retried for half a minute.
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
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		err := k.reserve(ctx)
		if err == nil {
			k.first = rangeAt(k.last, time.Now())
			k.next = uint64(k.first.End-k.first.First) / 2
			if of, is := store.(Installed); is {
				k.installation = of.Installation()
			}
			return k, nil
		}
		if errors.Is(err, ErrPermanent) || ctx.Err() != nil || sleep.For(ctx, backoff) != nil {
			return nil, err
		}
		log.Warn("reserving revisions failed; retrying", "error", err)
	}
}

// Installation returns the ID of this installation of federator, that of its processes together; "" where the store
// has none.
func (k *Keeper) Installation() string { return k.installation }

// First returns the first revisions of the index.
func (k *Keeper) First() aggregate.Range { return k.first }

// reserve tries once.
func (k *Keeper) reserve(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reserveTimeout)
	defer cancel()
	floor, err := minBlock(time.Now(), k.last)
	block := uint64(0)
	if err == nil {
		block, err = k.store.Reserve(ctx, floor)
	}
	if err != nil {
		k.failed.Inc()
		return fmt.Errorf("revisions: %s: %w", k.store, err)
	}
	k.last = block
	k.reserved.Inc()
	k.log.Info("reserved revisions", "block", k.last, "store", k.store.String())
	return nil
}

// Run reserves the next block whenever half of the last one is used, until ctx ends or the
// index is exhausted, which is an error.
func (k *Keeper) Run(ctx context.Context, index Numbers) error {
	var failure error
	for backoff := minBackoff; ; {
		wait := checkInterval
		if left := index.Unused(); left <= k.next {
			if failure = k.reserve(ctx); failure == nil {
				failure = index.Extend(aggregate.Block(k.last))
			}
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case failure == nil:
				backoff, k.next = minBackoff, aggregate.BlockSize/2
			default:
				k.logFailure(ctx, left, failure)
				wait = backoff/2 + rand.N(backoff)
				backoff = min(2*backoff, maxBackoff)
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

// logFailure reports a failed reservation.
func (k *Keeper) logFailure(ctx context.Context, left uint64, err error) {
	level := slog.LevelWarn
	if left <= errorBelow {
		level = slog.LevelError
	}
	k.log.Log(ctx, level, "reserving revisions failed; retrying, and this process ends when those left are used up",
		"left", left, "error", err)
}

var descUnused = prometheus.NewDesc("federator_revisions_unused", "Revisions reserved and not used yet; at 0 the process ends.", nil, nil)

// Metrics returns the metrics of the Keeper, and of the revisions that an index has left.
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
