package engine

import (
	"context"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/value"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// deltaEffect is what a delta means for views and bindings.
type deltaEffect struct {
	contributions  []matview.Contribution // to the views of the plan
	evaluated      []bool                 // which of these views were evaluated
	evaluate       []bool                 // which bindings of the plan to evaluate
	fleetUnchanged bool                   // data.fleet reads nothing that changed
}

// applyDeltas evaluates views for what changed, and marks the subjects that read it.
func (r *pass) applyDeltas() ([]deltaEffect, error) {
	e := r.e
	for _, d := range r.deltas {
		e.kindPlan(d.Ref.Kind)
	}
	notes := make([]deltaEffect, len(r.deltas))
	err := e.parallel(r.ctx, len(r.deltas), func(w *worker, i int) { notes[i] = w.effectOf(r.ctx, r.deltas[i]) })
	if err != nil {
		return nil, err
	}
	for i, d := range r.deltas {
		p := e.kindPlans[d.Ref.Kind]
		if e.opts.Causes {
			r.causing = causeOf(&r.deltas[i])
		}
		if !notes[i].fleetUnchanged {
			r.invalidateObject(d)
		}
		r.exported.delta(d, notes[i].fleetUnchanged)
		for j, v := range p.views {
			if notes[i].evaluated[j] {
				r.setContribution(v, d.Ref, notes[i].contributions[j])
			}
		}
		if len(p.matchedByLabels) > 0 && labelsChanged(d) {
			r.markKeysOf(p.matchedByLabels, d.Ref)
		}
		notes[i].contributions = nil
	}
	r.causing = nil
	return notes, nil
}

// retryContributions evaluates views once more for objects that exceeded their budget.
func (r *pass) retryContributions() error {
	for _, v := range r.e.views {
		var list []aggregate.Object
		for ref, tries := range v.retries {
			o, ok := r.after.Get(ref)
			switch {
			case !ok:
				delete(v.retries, ref)
			case v.scores.Reason(ref.Member) != "":
				v.retries[ref] = maxRetries + 1 // no more retries
			case tries <= maxRetries:
				list = append(list, o)
			}
		}
		if err := r.fill(v, list); err != nil {
			return err
		}
	}
	return nil
}

func labelsChanged(d aggregate.Delta) bool {
	return !d.Before.IsZero() && !d.After.IsZero() && !slices.Equal(d.Before.Labels(), d.After.Labels())
}

// setContribution replaces an object's contribution to a view.
func (r *pass) setContribution(v *view, ref aggregate.Ref, c matview.Contribution) {
	told := false
	defer func() {
		if told {
			r.exported.contribution(v, ref)
		}
	}()
	v.retries = countRetry(v.retries, ref, c.OverBudget)
	changed := r.changedKeys[v]
	limit := r.e.opts.Limits.View
	failed := v.Apply(ref, c, limit, func(k string) {
		told = true
		if changed == nil {
			changed = map[string]bool{}
			r.changedKeys[v] = changed
		}
		if !changed[k] {
			changed[k] = true
			r.changes.causedBy(r.causing, verdict.Subject{Key: k})
			r.invalidate(viewKey(v, k))
		}
		if v.index != nil {
			r.invalidateIndex(v, ref.Member, k)
		}
		if len(changed) == 1 {
			r.invalidate(wholeViewKey(v))
		}
	})
	told = told || failed
	r.viewFailuresChanged = r.viewFailuresChanged || failed
	if v.CheckLimit(limit) {
		r.viewFailuresChanged = true
		if v.index != nil {
			r.markReadersOf(v)
		}
	}
}

// restoreViews restores views that exceeded their limit and fit again: it evaluates
// what they did not hold, and marks their readers.
func (r *pass) restoreViews() error {
	for _, v := range r.e.views {
		if !v.FitsAgain(r.e.opts.Limits.View) {
			continue
		}
		if r.changedKeys[v] == nil {
			r.changedKeys[v] = map[string]bool{}
		}
		for k := range v.Keys() {
			r.changedKeys[v][k] = true
		}
		v.Restore()
		r.viewFailuresChanged = true
		if v.KeysDropped {
			v.clear()
			for kind := range state.KindsOf(v.Pkg, r.after) {
				if err := r.fillKind(v, kind); err != nil {
					return err
				}
			}
		} else {
			var list []aggregate.Object
			for ref := range v.Truncated() {
				if o, ok := r.after.Get(ref); ok {
					list = append(list, o)
				}
			}
			if err := r.fill(v, list); err != nil {
				return err
			}
		}
		for _, b := range r.e.bindings {
			if state.ReadsView(b.pkg, &v.View) {
				r.markReaders(b)
			}
		}
	}
	return nil
}

// markKeysOf marks the keys of an object whose labels decide whether its entries count.
func (r *pass) markKeysOf(bound []*boundBinding, ref aggregate.Ref) {
	for _, b := range bound {
		for _, k := range b.view.KeysOf(ref) {
			r.markSubject(b, verdict.Subject{Key: k})
		}
	}
}

// invalidateObject marks the subjects that read the object, or looked for it.
func (r *pass) invalidateObject(d aggregate.Delta) {
	kind, ref := string(d.Ref.Kind), d.Ref
	r.invalidate(readKey(readObject, kind, ref.Member, ref.Namespace, ref.Name))
	r.invalidate(readKey(readObject, kind, ref.Member, ref.Namespace))
	r.invalidate(readKey(readObject, kind, ref.Member))
	r.invalidate(readKey(readObject, kind))
	r.invalidateExistence(d)
	r.invalidate(readKey(readNamed, kind, ref.Namespace, ref.Name))
	r.invalidate(readKey(readNamed, kind, ref.Namespace))
	r.invalidate(readKey(readNamed, kind))
}

// effectOf returns what a delta means. It evaluates views for the object as it is now.
func (w *worker) effectOf(ctx context.Context, d aggregate.Delta) deltaEffect {
	p := w.e.kindPlans[d.Ref.Kind]
	n := deltaEffect{contributions: make([]matview.Contribution, len(p.views)), evaluated: make([]bool, len(p.views)), evaluate: make([]bool, len(p.bindings))}
	if d.After.IsZero() {
		for i := range n.evaluated {
			n.evaluated[i] = true
		}
		return n
	}
	if len(p.views) == 0 && len(p.bindings) == 0 && p.fleetMask == nil {
		return n
	}
	fresh := d.Before.IsZero() || d.Before.APIVersion() != d.After.APIVersion() || d.Before.Resource() != d.After.Resource()
	if w.e.fleet.Away(d.Ref.Member) {
		return w.effectOfAway(d, p, n)
	}
	known := w.digestBoth(d, fresh, p.reading)
	same := func(at int) bool { return known && (at < 0 || w.before[at] == w.after[at]) }
	var object value.Value
	for i, v := range p.views {
		if same(p.reading.views[i]) {
			w.e.unchanged.Add(1)
			continue
		}
		if !object.Defined() { // which is malformed where it stays undefined: the view reports it
			object, _ = w.decode(d.After, p.readMask)
		}
		n.evaluated[i], n.contributions[i] = true, w.contribute(ctx, v, d.After, object)
	}
	n.fleetUnchanged = same(p.reading.fleet)
	labels := !fresh && labelsChanged(d)
	for i, b := range p.bindings {
		unchanged := same(p.reading.bindings[i])
		if unchanged {
			w.e.unchanged.Add(1)
		}
		n.evaluate[i] = labels && b.sel.ByLabels() || !unchanged
	}
	return n
}

// digestBoth digests what is read of an object before a delta and after it, and loads the body
// that it has after it. known is false if there is nothing before, or one of both is malformed:
// the readers of an object that is report it.
func (w *worker) digestBoth(d aggregate.Delta, fresh bool, r *reading) (known bool) {
	w.lastRequest = requestOf{}
	var err error
	if w.body, err = d.After.AppendBody(w.body[:0]); err != nil {
		w.body = w.body[:0] // no part of it is its value
	}
	if err != nil || fresh {
		return false
	}
	if w.otherBody, err = d.Before.AppendBody(w.otherBody[:0]); err != nil {
		return false
	}
	if w.before, err = r.digests(w.before, w.otherBody, r.all); err != nil {
		return false
	}
	w.after, err = r.digests(w.after, w.body, r.all)
	return err == nil
}
