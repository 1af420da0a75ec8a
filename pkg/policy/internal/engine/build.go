package engine

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/value"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// build fills new views and evaluates all subjects of new bindings.
func (r *pass) build(bound []*boundBinding, views []*view) error {
	if err := r.fillViews(views); err != nil {
		return err
	}
	return r.evaluateBindings(bound)
}

// fillViews fills new views.
func (r *pass) fillViews(views []*view) error {
	for _, v := range views {
		for kind := range state.KindsOf(v.Pkg, r.after) {
			if err := r.fillKind(v, kind); err != nil {
				return err
			}
		}
	}
	return nil
}

// evaluateBindings evaluates all subjects of new bindings.
func (r *pass) evaluateBindings(bound []*boundBinding) error {
	var kinds []aggregate.Kind
	for _, b := range bound {
		if b.pkg.Subject == module.ObjectSubject {
			for kind := range state.KindsOf(b.pkg, r.after) {
				kinds = appendNew(kinds, kind)
			}
		}
	}
	for _, kind := range kinds {
		if err := r.evaluateKind(kind, bound); err != nil {
			return err
		}
	}
	var tasks []task
	for _, b := range bound {
		one := bindingTask{b: b, after: true, evaluate: true}
		switch b.pkg.Subject {
		case module.ObjectSubject:
		case module.MemberSubject:
			for m := range r.after.Members() {
				if b.selected.Has(m.Name) && r.after.Judges(m.Name) && r.preview.mayRead(aggregate.Ref{Member: m.Name}) {
					tasks = append(tasks, task{subject: verdict.Subject{Ref: aggregate.Ref{Member: m.Name}}, bindings: []bindingTask{one}})
				}
			}
		case module.ViewSubject:
			for k := range b.view.Keys() {
				if b.hasKey(r.e, k) {
					tasks = append(tasks, task{subject: verdict.Subject{Key: k}, bindings: []bindingTask{one}})
				}
			}
		}
	}
	return r.evaluateAll(tasks)
}

// fillKind adds the contributions of all objects of a kind to a view.
func (r *pass) fillKind(v *view, kind aggregate.Kind) error {
	batch := make([]aggregate.Object, 0, r.chunk())
	for o := range r.after.Objects(kind, "") {
		if !r.preview.mayRead(o.Ref()) {
			continue
		}
		if batch = append(batch, o); len(batch) == r.chunk() {
			if err := r.fill(v, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return r.fill(v, batch)
}

// fill evaluates a view for objects in parallel, and stores their contributions.
func (r *pass) fill(v *view, batch []aggregate.Object) error {
	found := make([]matview.Contribution, len(batch))
	err := r.e.parallel(r.ctx, len(batch), func(w *worker, i int) {
		found[i] = w.contribute(r.ctx, v, batch[i], value.Value{})
	})
	if err != nil {
		return err
	}
	for i, o := range batch {
		r.setContribution(v, o.Ref(), found[i])
	}
	return r.preview.checkViews(r.e)
}

// evaluateKind evaluates the objects of a kind for those of the bindings whose subjects
// they are.
func (r *pass) evaluateKind(kind aggregate.Kind, bound []*boundBinding) error {
	p := r.e.kindPlan(kind)
	tasks := make([]task, 0, r.chunk())
	for o := range r.after.Judged(kind, "") {
		if !r.preview.mayRead(o.Ref()) {
			continue
		}
		t := task{subject: verdict.Subject{Ref: o.Ref()}, object: o}
		for _, b := range p.bindings {
			if slices.Contains(bound, b) && b.isSubject(&b.selected, o) {
				t.bindings = append(t.bindings, bindingTask{b: b, after: true, evaluate: true})
			}
		}
		if len(t.bindings) == 0 {
			continue
		}
		if tasks = append(tasks, t); len(tasks) == r.chunk() {
			if err := r.evaluateChunk(tasks); err != nil {
				return err
			}
			tasks = tasks[:0]
		}
	}
	return r.evaluateChunk(tasks)
}

// finish does the work and publishes the state.
func (r *pass) finish(work func() error) (*Changes, error) {
	e := r.e
	defer e.rest()
	if err := work(); err != nil {
		return nil, err
	}
	e.readSets.Sweep()
	if e.subs != nil {
		if e.subs.Sweep(); r.recountAsked {
			e.subs.Recount()
		}
	}
	parts := e.parts()
	parts.Exports = e.opts.Exports
	var retry time.Time
	wait := func(list []verdict.Quarantine) {
		for _, q := range list {
			if retry.IsZero() || q.Until.Before(retry) {
				retry = q.Until
			}
		}
	}
	for _, v := range e.views {
		wait(v.scores.List())
		r.changes.supersededBytes += v.TakeSuperseded()
		parts.Views = append(parts.Views, v.Freeze())
	}
	r.switchVersions()
	for _, b := range e.bindings {
		b.shown = nil
		r.changes.supersededBytes += b.Replaced()
		wait(b.scores.List())
	}
	parts.Bindings = publish(e.bindings)
	parts.Takeovers = r.settleTakeovers(&parts)
	e.synced = e.synced || e.gaps.Synced(parts.Unawaited()) && (e.subs == nil || e.subs.Settled()) && !parts.AwaitsExternal()
	s := state.New(e.synced, retry, parts)
	s.AsOf = time.Unix(e.clock.AsOf, 0).UTC()
	if at, ok := e.instants.After(e.clock.Now); ok {
		s.Wake = time.Unix(at, 0).UTC()
	}
	r.changes.After = s
	r.changes.exported = r.exported.list()
	r.changes.compareAll = r.changes.compareAll || r.viewFailuresChanged
	e.state.Store(s)
	e.needsReset = false
	return r.changes, nil
}

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
	e, of, err := engineAt(opts, s, binding, verdict.Subject{})
	if err != nil {
		return Cost{}, err
	}
	b := e.bindings[0]
	b.profile = nil // samples are not what is measured
	var tasks []*task
	for subject := range of.Subjects(s, "") {
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
