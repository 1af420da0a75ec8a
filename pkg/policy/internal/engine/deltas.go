package engine

import (
	"context"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// note is what a delta means for views and for bindings.
type note struct {
	contributions []matview.Contribution // by the views of the plan
	fed           []bool                 // which of them were evaluated
	evaluate      []bool                 // by the bindings of the plan
	unread        bool                   // nothing that is read of it through data.fleet changed
}

// feed evaluates views for what changed, and marks what read it.
func (r *round) feed() ([]note, error) {
	e := r.e
	for _, d := range r.deltas {
		e.planOf(d.Ref.Kind)
	}
	notes := make([]note, len(r.deltas))
	err := e.each(r.ctx, len(r.deltas), func(w *worker, i int) { notes[i] = w.note(r.ctx, r.deltas[i]) })
	if err != nil {
		return nil, err
	}
	for i, d := range r.deltas {
		p := e.plans[d.Ref.Kind]
		if !notes[i].unread {
			r.touch(d)
		}
		for j, v := range p.views {
			if notes[i].fed[j] {
				r.exchange(v, d.Ref, notes[i].contributions[j])
			}
		}
		if len(p.keyed) > 0 && relabelled(d) {
			r.rematch(p.keyed, d.Ref)
		}
		notes[i].contributions = nil
	}
	return notes, nil
}

// feedAgain evaluates views for objects that overran their budget, once more.
func (r *round) feedAgain() error {
	for _, v := range r.e.views {
		var list []aggregate.Object
		for ref, tries := range v.overran {
			o, ok := r.after.Get(ref)
			switch {
			case !ok:
				delete(v.overran, ref)
			case v.score.Held(ref.Member) != "":
				v.overran[ref] = maxTries + 1 // it has been tried often enough
			case tries <= maxTries:
				list = append(list, o)
			}
		}
		if err := r.fill(v, list); err != nil {
			return err
		}
	}
	return nil
}

func relabelled(d aggregate.Delta) bool {
	return !d.Before.IsZero() && !d.After.IsZero() && !slices.Equal(d.Before.Labels(), d.After.Labels())
}

// exchange takes in what an object contributes now.
func (r *round) exchange(v *view, ref aggregate.Ref, c matview.Contribution) {
	v.overran = tried(v.overran, ref, c.Over)
	changed := r.keys[v]
	limit := r.e.opts.Limits.View
	failed := v.Apply(ref, c, limit, func(k string) {
		if changed == nil {
			changed = map[string]bool{}
			r.keys[v] = changed
		}
		if !changed[k] {
			changed[k] = true
			r.fire(viewKey(v, k))
		}
		if len(changed) == 1 {
			r.fire(wholeView(v))
		}
	})
	r.failures = r.failures || failed
	if v.Exceeded(limit) {
		r.failures = true
	}
}

// recover takes up views that were over and fit again: what they did not hold, and all
// that reads them.
func (r *round) recover() error {
	for _, v := range r.e.views {
		if !v.Fits(r.e.opts.Limits.View) {
			continue
		}
		if r.keys[v] == nil {
			r.keys[v] = map[string]bool{}
		}
		for k := range v.Keys() {
			r.keys[v][k] = true
		}
		v.Readmit()
		r.failures = true
		if v.Blind {
			v.clear()
			for kind := range state.KindsOf(v.Pkg, r.after) {
				if err := r.fillKind(v, kind); err != nil {
					return err
				}
			}
		} else {
			var list []aggregate.Object
			for ref := range v.CutRefs() {
				if o, ok := r.after.Get(ref); ok {
					list = append(list, o)
				}
			}
			if err := r.fill(v, list); err != nil {
				return err
			}
		}
		for _, b := range r.e.bounds {
			if state.Looks(b.pkg, &v.View) {
				r.seeAnew(b)
			}
		}
	}
	return nil
}

// rematch marks the keys of an object whose labels decide whether its entries count.
func (r *round) rematch(bounds []*bound, ref aggregate.Ref) {
	for _, b := range bounds {
		for _, k := range b.view.KeysOf(ref) {
			r.markSubject(b, verdict.Subject{Key: k})
		}
	}
}

// touch marks what read the object itself, or looked for it.
func (r *round) touch(d aggregate.Delta) {
	kind, ref := string(d.Ref.Kind), d.Ref
	r.fire(key(readObject, kind, ref.Member, ref.Namespace, ref.Name))
	r.fire(key(readObject, kind, ref.Member, ref.Namespace))
	r.fire(key(readObject, kind, ref.Member))
	r.fire(key(readObject, kind))
	r.fire(key(readNamed, kind, ref.Namespace, ref.Name))
	r.fire(key(readNamed, kind, ref.Namespace))
	r.fire(key(readNamed, kind))
}

// note finds what a delta means. It evaluates views for the object as it is now.
func (w *worker) note(ctx context.Context, d aggregate.Delta) note {
	p := w.e.plans[d.Ref.Kind]
	n := note{contributions: make([]matview.Contribution, len(p.views)), fed: make([]bool, len(p.views)), evaluate: make([]bool, len(p.bounds))}
	if d.After.IsZero() {
		for i := range n.fed {
			n.fed[i] = true
		}
		return n
	}
	if len(p.views) == 0 && len(p.bounds) == 0 && p.fleet == nil {
		return n
	}
	fresh := d.Before.IsZero() || d.Before.APIVersion() != d.After.APIVersion()
	before, after, err := w.both(d, fresh, p.read)
	for i, v := range p.views {
		if err != nil {
			n.fed[i], n.contributions[i] = true, matview.FailedContribution(d.Ref, err.Error())
			continue
		}
		if !fresh {
			if same, err := document.Equal(before, after, v.Def.Mask); err == nil && same {
				w.e.skipped.Add(1)
				continue
			}
		}
		n.fed[i], n.contributions[i] = true, w.contribute(ctx, v, d.After, after)
	}
	if err == nil && !fresh {
		n.unread, _ = document.Equal(before, after, p.fleet)
	}
	labels := !fresh && relabelled(d)
	known := err == nil && !fresh
	for i, b := range p.bounds {
		n.evaluate[i] = true
		if known && !(labels && b.sel.ByLabels()) {
			if same, err := document.Equal(before, after, b.mask); err == nil && same {
				n.evaluate[i] = false
				w.e.skipped.Add(1)
			}
		}
	}
	return n
}

// both returns an object's bodies before, unless it is fresh, and after a delta. Of two
// they are the parts that m reads: small ones, as each view and binding compares them
// under its own mask, and the same ones if none of them reads what changed. Bodies that
// are none stay whole, for what reads them to say so.
func (w *worker) both(d aggregate.Delta, fresh bool, m *mask.Mask) (before, after []byte, err error) {
	if w.body, err = d.After.AppendBody(w.body[:0]); err != nil || fresh {
		return nil, w.body, err
	}
	if w.other, err = d.Before.AppendBody(w.other[:0]); err != nil {
		return nil, w.body, err
	}
	var errs [2]error
	w.parts[0], errs[0] = document.Prune(w.parts[0][:0], w.other, m)
	w.parts[1], errs[1] = document.Prune(w.parts[1][:0], w.body, m)
	if errs[0] != nil || errs[1] != nil {
		return w.other, w.body, nil
	}
	return w.parts[0], w.parts[1], nil
}
