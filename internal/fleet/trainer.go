package fleet

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/pkg/aggregate"
)

// trainer trains compression dictionaries for the index as its kinds need them.
type trainer struct {
	index  *aggregate.Index
	log    *slog.Logger
	total  *prometheus.CounterVec
	failed prometheus.Counter
}

func newTrainer(index *aggregate.Index, log *slog.Logger) *trainer {
	return &trainer{
		index: index,
		log:   log,
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "federator_index_dictionary_trainings_total",
			Help: "Dictionaries trained for the bodies of a kind.",
		}, []string{"kind"}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "federator_index_dictionary_training_failures_total",
			Help: "Dictionary trainings that failed; the older dictionary stays in use.",
		}),
	}
}

// How often the index is checked for kinds that need a dictionary, and how often bodies
// that were compressed fast and have not changed since are recompressed.
const (
	trainEvery      = time.Second
	recompressEvery = time.Minute
)

// run trains until ctx is done.
func (t *trainer) run(ctx context.Context) {
	tick, recompress := time.NewTicker(trainEvery), time.NewTicker(recompressEvery)
	defer tick.Stop()
	defer recompress.Stop()
	// A pass reads every kind: none is made until something has changed since the last,
	// which had nothing left to do.
	done, idle := uint64(0), false
	for {
		select {
		case <-ctx.Done():
			return
		case <-recompress.C:
			if n := t.index.Recompress(ctx.Done()); n > 0 {
				t.log.Debug("recompressed bodies", "objects", n)
				idle = false
			}
			continue
		case <-tick.C:
		}
		changes := t.index.Snapshot().Changes()
		if idle && changes == done {
			continue
		}
		idle = false
		for ctx.Err() == nil {
			trained, more, err := t.index.Train(ctx.Done())
			if err != nil {
				t.failed.Inc()
				t.log.Warn("dictionary training failed", "kind", trained.Kind, "error", err)
				break
			}
			if !more {
				done, idle = changes, true
				break
			}
			t.total.WithLabelValues(string(trained.Kind)).Inc()
			t.log.Debug("dictionary trained", "kind", trained.Kind, "objects", trained.Objects,
				"bytesBefore", trained.Before, "bytesAfter", trained.After)
		}
	}
}
