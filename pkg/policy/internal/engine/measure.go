package engine

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"federator.dev/federator/pkg/policy/internal/state"
)

// Cost is the total cost of evaluations, including what other goroutines allocate
// in the meantime.
type Cost struct {
	Evaluations int   `json:"evaluations"`
	Nanoseconds int64 `json:"nanoseconds"`
	Reads       int64 `json:"reads"` // distinct ones per evaluation, its own object aside
	Allocations int64 `json:"allocations"`
	Bytes       int64 `json:"bytes"` // allocated
}

// Measure evaluates all subjects of a binding of a state again, several times, on the
// caller's goroutine, and returns what that cost. opts are as Explain's. An evaluation
// that fails counts like others, until the binding is quarantined, which is an error.
func Measure(ctx context.Context, opts Options, s *state.State, binding string, times int) (Cost, error) {
	e, err := engineAt(opts, s, binding)
	if err != nil {
		return Cost{}, err
	}
	b := e.bindings[0]
	b.profile = nil // samples are not what is measured
	var tasks []*task
	for subject := range state.PartsOf(s).Binding(binding).Subjects(s, "") {
		tasks = append(tasks, taskOf(s, b, subject))
	}
	var c Cost
	var before, after runtime.MemStats
	for range times {
		e.passID++ // do not reuse the documents of the last run
		runtime.ReadMemStats(&before)
		start := time.Now()
		for part := range slices.Chunk(tasks, chunkSize) {
			if ctx.Err() != nil {
				return c, context.Cause(ctx)
			}
			for _, t := range part {
				if _, why := b.quarantined(t.subject); why != "" {
					return c, fmt.Errorf("binding %q: %s", binding, why)
				}
				c.Reads += int64(len(e.callerWorker.evaluateOne(ctx, b, t).keys))
			}
		}
		c.Nanoseconds += int64(time.Since(start))
		runtime.ReadMemStats(&after)
		c.Evaluations += len(tasks)
		c.Allocations += int64(after.Mallocs - before.Mallocs) // It has not allocated so much.
		c.Bytes += int64(after.TotalAlloc - before.TotalAlloc) // As above.
	}
	return c, nil
}
