package engine

import (
	"slices"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// build fills views and judges all subjects of bindings that are new.
func (r *round) build(bounds []*bound, views []*view) error {
	for _, v := range views {
		for kind := range state.KindsOf(v.Pkg, r.after) {
			if err := r.fillKind(v, kind); err != nil {
				return err
			}
		}
	}
	var kinds []aggregate.Kind
	for _, b := range bounds {
		if b.pkg.Subject == module.ObjectSubject {
			for kind := range state.KindsOf(b.pkg, r.after) {
				kinds = appendNew(kinds, kind)
			}
		}
	}
	for _, kind := range kinds {
		if err := r.judgeKind(kind, bounds); err != nil {
			return err
		}
	}
	var tasks []task
	for _, b := range bounds {
		one := run{b: b, after: true, evaluate: true}
		switch b.pkg.Subject {
		case module.ObjectSubject:
		case module.MemberSubject:
			for m := range r.after.Members() {
				if b.selected.Has(m.Name) {
					tasks = append(tasks, task{subject: verdict.Subject{Ref: aggregate.Ref{Member: m.Name}}, runs: []run{one}})
				}
			}
		case module.ViewSubject:
			for k := range b.view.Keys() {
				for e := range b.view.Under(k) {
					if b.counts(e, r.after) {
						tasks = append(tasks, task{subject: verdict.Subject{Key: k}, runs: []run{one}})
						break
					}
				}
			}
		}
	}
	return r.judgeAll(tasks)
}

// fillKind puts what the objects of a kind contribute into a view.
func (r *round) fillKind(v *view, kind aggregate.Kind) error {
	batch := make([]aggregate.Object, 0, chunk)
	for o := range state.Objects(r.after, kind, "") {
		if batch = append(batch, o); len(batch) == chunk {
			if err := r.fill(v, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return r.fill(v, batch)
}

// fill evaluates a view for objects in parallel, and takes in what they contribute.
func (r *round) fill(v *view, batch []aggregate.Object) error {
	found := make([]matview.Contribution, len(batch))
	err := r.e.each(r.ctx, len(batch), func(w *worker, i int) {
		var err error
		if w.body, err = batch[i].AppendBody(w.body[:0]); err != nil {
			found[i] = matview.FailedContribution(batch[i].Ref(), err.Error())
			return
		}
		found[i] = w.contribute(r.ctx, v, batch[i], w.body)
	})
	if err != nil {
		return err
	}
	for i, o := range batch {
		r.exchange(v, o.Ref(), found[i])
	}
	return nil
}

// judgeKind judges the objects of a kind by those of the bindings that judge it.
func (r *round) judgeKind(kind aggregate.Kind, bounds []*bound) error {
	p := r.e.planOf(kind)
	tasks := make([]task, 0, chunk)
	for o := range state.Objects(r.after, kind, "") {
		t := task{subject: verdict.Subject{Ref: o.Ref()}, object: o}
		for _, b := range p.bounds {
			if slices.Contains(bounds, b) && b.matches(&b.selected, o) {
				t.runs = append(t.runs, run{b: b, after: true, evaluate: true})
			}
		}
		if len(t.runs) == 0 {
			continue
		}
		if tasks = append(tasks, t); len(tasks) == chunk {
			if err := r.judge(tasks); err != nil {
				return err
			}
			tasks = tasks[:0]
		}
	}
	return r.judge(tasks)
}

// finish does the work and publishes the state.
func (r *round) finish(work func() error) (*Changes, error) {
	e := r.e
	if err := work(); err != nil {
		return nil, err
	}
	e.classes.Sweep()
	e.synced = e.synced || e.gaps.Settled()
	parts := state.Parts{Gaps: e.gaps, Fingerprints: e.prints}
	var retry time.Time
	wait := func(list []verdict.Quarantine) {
		for _, q := range list {
			if retry.IsZero() || q.Until.Before(retry) {
				retry = q.Until
			}
		}
	}
	for _, v := range e.views {
		wait(v.score.Quarantines())
		r.changes.dropped += v.TakeDropped()
		parts.Views = append(parts.Views, v.Freeze())
	}
	for _, b := range e.bounds {
		r.changes.dropped += b.Replaced()
		one := b.freeze()
		wait(one.Health.Quarantines)
		parts.Bindings = append(parts.Bindings, one)
	}
	s := state.New(r.after, e.synced, retry, parts)
	r.changes.After = s
	r.changes.flipped = r.changes.flipped || r.failures
	e.state.Store(s)
	e.broken = false
	return r.changes, nil
}
