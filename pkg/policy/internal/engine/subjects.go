package engine

import (
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// objects judges the objects that changed.
func (r *round) objects(notes []note) error {
	tasks := make([]task, 0, min(len(r.deltas), chunk))
	if len(r.changed) > 0 {
		r.unaware = map[aggregate.Ref]bool{}
	}
	for i, d := range r.deltas {
		p := r.e.plans[d.Ref.Kind]
		if r.changed[d.Ref.Member] {
			r.unaware[d.Ref] = true
		}
		dirty := r.dirty[d.Ref]
		t := task{subject: verdict.Subject{Ref: d.Ref}, object: d.After}
		for j, b := range p.bounds {
			was := &b.selected
			if w, ok := r.was[b]; ok {
				was = &w.selected
			}
			one := run{b: b, before: b.matches(was, d.Before), after: b.matches(&b.selected, d.After)}
			if !one.before && !one.after {
				continue
			}
			one.evaluate = one.after && (!one.before || notes[i].evaluate[j] || slices.Contains(dirty, b) || r.changed[d.Ref.Member])
			t.runs = append(t.runs, one)
		}
		if !d.After.IsZero() {
			delete(r.dirty, d.Ref)
		}
		if len(t.runs) > 0 {
			tasks = append(tasks, t)
		}
		if len(tasks) == chunk {
			if err := r.judge(tasks); err != nil {
				return err
			}
			tasks = tasks[:0]
		}
	}
	return r.judge(tasks)
}

// stay judges objects of members that changed which have not changed themselves.
func (r *round) stay() error {
	if len(r.changed) == 0 {
		return nil
	}
	var tasks []task
	for _, kind := range slices.Collect(r.after.Kinds()) {
		for _, b := range r.e.planOf(kind).bounds {
			for m := range r.changed {
				was, is := r.was[b].selected.Has(m), b.selected.Has(m)
				if !was && !is || was == is && b.pkg.Reads.Member == nil && !b.sel.ByMembers() {
					continue
				}
				for o := range state.Objects(r.after, kind, m) {
					if r.unaware[o.Ref()] || !b.sel.Object(o) {
						continue
					}
					one := run{b: b, before: was, after: is, evaluate: is}
					tasks = append(tasks, task{subject: verdict.Subject{Ref: o.Ref()}, object: o, runs: []run{one}})
					if list := r.dirty[o.Ref()]; slices.Contains(list, b) {
						r.dirty[o.Ref()] = slices.DeleteFunc(slices.Clone(list), func(x *bound) bool { return x == b })
					}
				}
			}
		}
	}
	return r.judgeAll(tasks)
}

// others judges members and keys of views.
func (r *round) others() error {
	var tasks []task
	for _, b := range r.e.bounds {
		switch b.pkg.Subject {
		case module.ObjectSubject:
		case module.MemberSubject:
			tasks = append(tasks, r.memberTasks(b)...)
		case module.ViewSubject:
			tasks = append(tasks, r.keyTasks(b)...)
		}
	}
	return r.judgeAll(tasks)
}

func (r *round) memberTasks(b *bound) []task {
	names := map[string]bool{}
	for _, of := range []map[string]bool{r.joined, r.left, r.changed} {
		for m := range of {
			names[m] = true
		}
	}
	for s := range r.dirtySubjects[b] {
		names[s.Ref.Member] = true
	}
	was := &b.selected
	if w, ok := r.was[b]; ok {
		was = &w.selected
	}
	var tasks []task
	for m := range names {
		_, there := r.before.Snapshot.Member(m)
		_, is := r.after.Member(m)
		one := run{b: b, before: there && was.Has(m), after: is && b.selected.Has(m)}
		one.evaluate = one.after
		if one.before || one.after {
			tasks = append(tasks, task{subject: verdict.Subject{Ref: aggregate.Ref{Member: m}}, runs: []run{one}})
		}
	}
	return tasks
}

func (r *round) keyTasks(b *bound) []task {
	keys := map[string]bool{}
	for k := range r.keys[b.view] {
		keys[k] = true
	}
	for s := range r.dirtySubjects[b] {
		keys[s.Key] = true
	}
	old := state.PartsOf(r.before).Binding(b.Name)
	if len(r.changed) > 0 {
		for k := range b.view.Keys() {
			keys[k] = true
		}
		if v := state.PartsOf(r.before).ByID[old.View]; v != nil {
			for k := range v.Keys() {
				keys[k] = true
			}
		}
	}
	var tasks []task
	for k := range keys {
		one := run{b: b, before: old.KeyExists(r.before, k)}
		for e := range b.view.Under(k) {
			if b.counts(e, r.after) {
				one.after = true
				break
			}
		}
		one.evaluate = one.after
		if one.before || one.after {
			tasks = append(tasks, task{subject: verdict.Subject{Key: k}, runs: []run{one}})
		}
	}
	return tasks
}

// rest judges the objects that did not change but read something that did.
func (r *round) rest() error {
	var tasks []task
	for ref, bounds := range r.dirty {
		o, ok := r.after.Get(ref)
		if !ok {
			continue
		}
		t := task{subject: verdict.Subject{Ref: ref}, object: o}
		for _, b := range bounds {
			if b.matches(&b.selected, o) {
				t.runs = append(t.runs, run{b: b, before: true, after: true, evaluate: true})
			}
		}
		if len(t.runs) > 0 {
			tasks = append(tasks, t)
		}
	}
	return r.judgeAll(tasks)
}
