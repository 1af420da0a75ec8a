package policy

import (
	"context"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
)

// Reset evaluates everything on a snapshot: the first, or one that no batch leads to.
// Quarantined bindings get another chance.
func (e *Engine) Reset(ctx context.Context, s *aggregate.Snapshot) (*Changes, error) {
	if !e.calls.TryLock() {
		return nil, ErrBusy
	}
	defer e.calls.Unlock()
	r := e.begin(ctx, s)
	r.changes.flipped = true
	e.clear()
	e.classes.byKey = map[string]*class{}
	e.memberTerms = map[string]*ast.Term{}
	for m := range s.Members() {
		e.memberTerms[m.Name] = memberTerm(m)
	}
	for _, v := range e.views {
		v.clear()
		v.score.forgetAll()
	}
	for _, b := range e.bounds {
		r.changes.dropped += b.sum
		b.clear()
		b.score.forgetAll()
		b.look(s)
	}
	r.look()
	return r.finish(func() error { return r.build(e.bounds, e.views) })
}

// Configure exchanges policies and bindings at the engine's snapshot and evaluates
// those of which something changed; without any such, what quarantines have held back
// whose time is over. On an error nothing has changed, unless it is the context's.
func (e *Engine) Configure(ctx context.Context, set *Set, bindings []Binding) (*Changes, error) {
	if !e.calls.TryLock() {
		return nil, ErrBusy
	}
	defer e.calls.Unlock()
	if set == nil {
		return nil, fmt.Errorf("%w: no set of policies", ErrBinding)
	}
	bounds, views, renewed, err := e.plan(set, bindings)
	if err != nil {
		return nil, err
	}
	if e.broken && e.snapshot != nil {
		return nil, ErrReset
	}
	if e.snapshot == nil {
		e.install(set, bounds, views)
		return &Changes{}, nil
	}
	r := e.begin(ctx, e.snapshot)
	r.changes.flipped = true
	for _, b := range e.bounds {
		if !slices.Contains(bounds, b) {
			r.changes.dropped += b.sum
		}
	}
	for _, v := range e.views {
		if !slices.Contains(views, v) {
			r.changes.dropped += v.held
		}
	}
	e.install(set, bounds, views)
	gone := func(id uint32) bool { return e.byID[id] == nil }
	e.byObject.RemoveBindings(gone)
	e.bySubject.RemoveBindings(gone)
	e.recount()
	var newBounds []*bound
	var newViews []*view
	for _, b := range bounds {
		if renewed[b] {
			b.look(e.snapshot)
			newBounds = append(newBounds, b)
		}
	}
	for _, v := range views {
		if renewed[v] {
			newViews = append(newViews, v)
		}
	}
	r.look()
	return r.finish(func() error {
		if len(renewed) > 0 {
			return r.build(newBounds, newViews)
		}
		if err := r.release(); err != nil {
			return err
		}
		if err := r.recover(); err != nil {
			return err
		}
		if err := r.others(); err != nil {
			return err
		}
		return r.rest()
	})
}

// recount finds anew how many verdicts have a class: bindings have gone.
func (e *Engine) recount() {
	for _, c := range e.classes.byKey {
		c.refs = 0
	}
	for _, b := range e.bounds {
		for _, c := range b.defaults {
			c.refs++
		}
		b.tallies.Scan(func(t *tally) bool {
			for _, of := range t.classes {
				if of.class != nil {
					of.class.refs += of.good + of.failed
				}
			}
			return true
		})
	}
}

// install makes a plan the engine's.
func (e *Engine) install(set *Set, bounds []*bound, views []*view) {
	e.set, e.prints, e.bounds, e.views = set, set.Fingerprints(), bounds, views
	e.plans, e.byID = map[aggregate.Kind]*plan{}, map[uint32]*bound{}
	e.kinds = nil
	for _, b := range bounds {
		e.byID[b.id] = b
		b.frozen = nil
		if b.pkg.Subject == module.ViewSubject {
			b.view = e.viewOf(b.pkg.Name, b.pkg.SubjectView)
		}
		for _, kinds := range [][]module.KindRef{b.pkg.Kinds, b.pkg.Reads.ByName, b.pkg.Reads.Objects} {
			for _, k := range kinds {
				e.kinds = add(e.kinds, k.Kind)
			}
		}
	}
	for _, v := range views {
		for _, k := range v.pkg.Kinds {
			e.kinds = add(e.kinds, k.Kind)
		}
	}
}

// build fills views and judges all subjects of bindings that are new.
func (r *round) build(bounds []*bound, views []*view) error {
	for _, v := range views {
		for kind := range kindsOf(v.pkg, r.after) {
			if err := r.fillKind(v, kind); err != nil {
				return err
			}
		}
	}
	var kinds []aggregate.Kind
	for _, b := range bounds {
		if b.pkg.Subject == module.ObjectSubject {
			for kind := range kindsOf(b.pkg, r.after) {
				kinds = add(kinds, kind)
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
				if b.selected.has(m.Name) {
					tasks = append(tasks, task{subject: Subject{Ref: aggregate.Ref{Member: m.Name}}, runs: []run{one}})
				}
			}
		case module.ViewSubject:
			for k := range b.view.keys() {
				for e := range b.view.under(k) {
					if b.counts(e, r.after) {
						tasks = append(tasks, task{subject: Subject{Key: k}, runs: []run{one}})
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
	for o := range objects(r.after, kind, "") {
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
	found := make([]contribution, len(batch))
	err := r.e.each(r.ctx, len(batch), func(w *worker, i int) {
		var err error
		if w.body, err = batch[i].AppendBody(w.body[:0]); err != nil {
			found[i] = contribution{contrib: &contrib{ref: batch[i].Ref(), failed: err.Error()}}
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
	for o := range objects(r.after, kind, "") {
		t := task{subject: Subject{Ref: o.Ref()}, object: o}
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
	e.classes.sweep()
	e.synced = e.synced || e.gaps.settled()
	s := &State{Snapshot: r.after, Synced: e.synced, gaps: e.gaps, prints: e.prints, byID: make(map[uint32]*view, len(e.views))}
	wait := func(list []Quarantine) {
		for _, q := range list {
			if s.Retry.IsZero() || q.Until.Before(s.Retry) {
				s.Retry = q.Until
			}
		}
	}
	for _, v := range e.views {
		wait(v.score.quarantines())
		r.changes.dropped += v.dropped + v.entries.replaced() + v.contribs.replaced()
		v.dropped = 0
		f := v.freeze()
		s.views = append(s.views, f)
		s.byID[f.id] = f
	}
	for _, b := range e.bounds {
		r.changes.dropped += b.records.replaced()
		one := b.freeze()
		wait(one.health.Quarantines)
		s.bindings = append(s.bindings, one)
	}
	r.changes.After = s
	r.changes.flipped = r.changes.flipped || r.failures
	e.state.Store(s)
	e.broken = false
	return r.changes, nil
}

// settled reports whether it is known of every scope what becomes of it.
func (g *gaps) settled() bool {
	settled := len(g.members) > 0
	g.byKind.Scan(func(_ aggregate.Kind, found []Gap) bool {
		settled = settled && !slices.ContainsFunc(found, func(g Gap) bool { return g.State == aggregate.Unknown || g.State == aggregate.Syncing })
		return settled
	})
	return settled
}
