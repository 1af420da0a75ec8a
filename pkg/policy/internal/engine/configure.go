package engine

import (
	"context"
	"fmt"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/module"
)

// Reset evaluates everything on a snapshot, the first one, or one that no batch leads to, and on one of what peers have
// told of their members, nil where there are no peers. It ends all quarantines.
func (e *Engine) Reset(ctx context.Context, own, peers *aggregate.Snapshot) (*Changes, error) {
	if !e.calls.TryLock() {
		return nil, ErrBusy
	}
	defer e.calls.Unlock()
	return e.reset(ctx, fleetview.Of(own, peers, e.knowledge()))
}

func (e *Engine) reset(ctx context.Context, s *fleetview.View) (*Changes, error) {
	r := e.startPass(ctx, s)
	r.changes.compareAll, r.changes.rebuilt, r.changes.reset = true, true, true
	r.exported.all()
	e.resetReads()
	e.readSets.Clear()
	e.setMemberInputs()
	r.takeAll()
	for _, v := range e.views {
		v.clear()
		v.scores.Reset()
	}
	for _, b := range e.bindings {
		r.changes.supersededBytes += b.heldBytes
		b.shown = e.shownOf(b.Name)
		b.clear()
		b.scores.Reset()
		b.updateMembers(s)
	}
	e.restoreQuarantines(e.bindings, e.views)
	e.gaps = completeness.FindGaps(e.gaps, r.after, e.kinds)
	return r.finish(func() error { return r.build(e.bindings, e.views) })
}

// Configure replaces policies and bindings at the current snapshot and evaluates those
// that changed; if none did, it evaluates what expired quarantines withheld. On an
// error nothing has changed, unless it is that of the context.
func (e *Engine) Configure(ctx context.Context, set *module.Set, bindings []binding.Binding) (*Changes, error) {
	if !e.calls.TryLock() {
		return nil, ErrBusy
	}
	defer e.calls.Unlock()
	if set == nil {
		return nil, fmt.Errorf("%w: no set of policies", binding.ErrInvalid)
	}
	bound, views, changed, err := e.plan(set, bindings)
	if err != nil {
		return nil, err
	}
	if e.needsReset && e.fleet != nil {
		return nil, ErrReset
	}
	if e.fleet == nil {
		e.install(set, bound, views)
		return &Changes{}, nil
	}
	r := e.startPass(ctx, e.fleet)
	r.changes.compareAll, r.changes.rebuilt = true, len(changed) > 0 || len(bound) != len(e.bindings)
	for _, b := range e.bindings {
		if !slices.Contains(bound, b) {
			r.changes.supersededBytes += b.heldBytes
		}
	}
	for _, v := range e.views {
		if !slices.Contains(views, v) {
			r.changes.supersededBytes += v.Held
		}
	}
	former, was := e.projections, e.fleet
	e.install(set, bound, views)
	e.fleet = e.fleet.With(e.knowledge())
	r.after = e.fleet
	r.exported.reprojected(former)
	e.setMemberInputs()
	gone := func(id uint32) bool { return e.byID[id] == nil }
	e.byObject.RemoveBindings(gone)
	e.bySubject.RemoveBindings(gone)
	e.recountReadSets()
	r.recountAsked = true
	r.invalidateRelearned(was)
	for _, b := range bound {
		b.updateRouting(e.fleet)
	}
	var newBindings []*boundBinding
	var newViews []*view
	for _, b := range bound {
		if changed[b] {
			b.updateMembers(e.fleet)
			newBindings = append(newBindings, b)
		}
	}
	for _, v := range views {
		if changed[v] {
			newViews = append(newViews, v)
		}
	}
	e.restoreQuarantines(newBindings, newViews)
	e.gaps = completeness.FindGaps(e.gaps, r.after, e.kinds)
	return r.finish(func() error {
		if len(changed) == 0 {
			r.markPassed()
			return firstError(r.endQuarantines, r.restoreViews, r.evaluateMembersAndKeys, r.evaluateReaders)
		}
		if err := r.evaluateUnchanged(changed); err != nil {
			return err
		}
		return r.build(newBindings, newViews)
	})
}

// evaluateUnchanged evaluates what read an instant that has passed since, or an object that is known now or not any more, of
// bindings that have not changed: what has changed is evaluated as of now anyway.
func (r *pass) evaluateUnchanged(changed map[any]bool) error {
	r.markPassed()
	for b := range r.dirtySubjects {
		if changed[b] {
			delete(r.dirtySubjects, b)
		}
	}
	for ref, list := range r.dirty {
		r.dirty[ref] = slices.DeleteFunc(list, func(b *boundBinding) bool { return changed[b] })
	}
	if err := firstError(r.evaluateMembersAndKeys, r.evaluateReaders); err != nil {
		return err
	}
	clear(r.dirty)
	clear(r.dirtySubjects)
	return nil
}

// recountReadSets counts the verdicts of each read set again, after bindings were
// removed.
func (e *Engine) recountReadSets() {
	e.readSets.ResetRefs()
	for _, b := range e.bindings {
		b.Recount()
	}
}

// install makes a plan current.
func (e *Engine) install(set *module.Set, bound []*boundBinding, views []*view) {
	e.set, e.fingerprints, e.bindings, e.views = set, set.Fingerprints(), bound, views
	e.kindPlans, e.byID = map[aggregate.Kind]*kindPlan{}, map[uint32]*boundBinding{}
	e.kinds = nil
	for _, b := range bound {
		e.byID[b.id] = b
		b.frozen = nil
		if b.pkg.Subject == module.ViewSubject {
			b.view = e.view(b.pkg.Name, b.pkg.SubjectView)
		}
		for _, kinds := range [][]module.KindRef{b.pkg.Kinds, b.pkg.Reads.ByName, b.pkg.Reads.Objects, b.pkg.Reads.Own, b.sel.ReadKinds()} {
			for _, k := range kinds {
				e.kinds = appendNew(e.kinds, k.Kind)
			}
		}
	}
	for _, v := range views {
		for _, k := range v.Pkg.Kinds {
			e.kinds = appendNew(e.kinds, k.Kind)
		}
	}
	e.planProjections()
	e.planKeys()
	e.dropPrograms()
}

func appendNew(kinds []aggregate.Kind, kind aggregate.Kind) []aggregate.Kind {
	if slices.Contains(kinds, kind) {
		return kinds
	}
	return append(kinds, kind)
}
