package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
)

// Reset evaluates everything on a snapshot: the first one, or one that no batch leads
// to. It ends all quarantines.
func (e *Engine) Reset(ctx context.Context, s *aggregate.Snapshot) (*Changes, error) {
	if !e.calls.TryLock() {
		return nil, ErrBusy
	}
	defer e.calls.Unlock()
	r := e.startPass(ctx, s)
	r.changes.compareAll, r.changes.rebuilt = true, true
	e.resetReads()
	e.readSets.Clear()
	e.memberTerms = map[string]*ast.Term{}
	for m := range s.Members() {
		e.memberTerms[m.Name] = memberTerm(m)
	}
	for _, v := range e.views {
		v.clear()
		v.scores.Reset()
	}
	for _, b := range e.bindings {
		r.changes.supersededBytes += b.heldBytes
		b.keepFormer(b)
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
	if e.needsReset && e.snapshot != nil {
		return nil, ErrReset
	}
	if e.snapshot == nil {
		e.install(set, bound, views)
		return &Changes{}, nil
	}
	r := e.startPass(ctx, e.snapshot)
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
	e.install(set, bound, views)
	gone := func(id uint32) bool { return e.byID[id] == nil }
	e.byObject.RemoveBindings(gone)
	e.bySubject.RemoveBindings(gone)
	e.recountReadSets()
	var newBindings []*boundBinding
	var newViews []*view
	for _, b := range bound {
		if changed[b] {
			b.updateMembers(e.snapshot)
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
		if len(changed) > 0 {
			return r.build(newBindings, newViews)
		}
		if err := r.endQuarantines(); err != nil {
			return err
		}
		if err := r.restoreViews(); err != nil {
			return err
		}
		if err := r.evaluateMembersAndKeys(); err != nil {
			return err
		}
		return r.evaluateReaders()
	})
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
}

func appendNew(kinds []aggregate.Kind, kind aggregate.Kind) []aggregate.Kind {
	if slices.Contains(kinds, kind) {
		return kinds
	}
	return append(kinds, kind)
}

// Compare returns how other policies and bindings would change the verdicts of a state,
// on its snapshot. It evaluates the bindings that differ, at the cost of Configure.
// Changes.After has only these; Changes.Before has these and those that opts.Bindings
// no longer has.
func Compare(ctx context.Context, s *state.State, opts Options) (*Changes, error) {
	bindings, err := binding.Validate(opts.Set, opts.Bindings)
	if err != nil {
		return nil, err
	}
	prints := opts.Set.Fingerprints()
	changed := map[module.ViewRef]bool{}
	for _, pkg := range opts.Set.Packages {
		for _, def := range pkg.Views {
			ref := module.ViewRef{Package: pkg.Name, View: def.Name}
			old := state.PartsOf(s).View(ref)
			changed[ref] = old == nil || state.PartsOf(s).Fingerprints[pkg.Name] != prints[pkg.Name] || !sameSubjects(old.Pkg, pkg)
		}
	}
	same := map[string]bool{}
	bindings = slices.DeleteFunc(bindings, func(b binding.Binding) bool {
		old, pkg := state.PartsOf(s).Binding(b.Name), opts.Set.Package(b.Package)
		same[b.Name] = old != nil && state.PartsOf(s).Fingerprints[b.Package] == prints[b.Package] && samePackage(old.Pkg, pkg) && old.Pkg.Severity == pkg.Severity &&
			sameBinding(old.Binding, b) && !readsAny(pkg, changed)
		return same[b.Name]
	})
	before := state.Without(s, same)
	opts.Bindings = bindings
	after, err := Evaluate(ctx, opts, s.Snapshot)
	if err != nil {
		return nil, err
	}
	return &Changes{Before: before, After: after, compareAll: true}, nil
}
