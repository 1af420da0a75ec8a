package engine

import (
	"maps"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/fleetdoc"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// evaluateChangedObjects evaluates the objects that changed.
func (r *pass) evaluateChangedObjects(notes []deltaEffect) error {
	tasks := make([]task, 0, min(len(r.deltas), chunkSize))
	if len(r.changed)+len(r.rejudged) > 0 {
		r.hasDelta = map[aggregate.Ref]bool{}
	}
	for i, d := range r.deltas {
		p := r.e.kindPlans[d.Ref.Kind]
		judged, judges := r.judgedBefore(d.Ref.Member), r.after.Judges(d.Ref.Member)
		if r.changed[d.Ref.Member] != 0 || r.rejudged[d.Ref.Member] {
			r.hasDelta[d.Ref] = true
		}
		dirty := r.dirty[d.Ref]
		t := task{subject: verdict.Subject{Ref: d.Ref}, object: d.After}
		for j, b := range p.bindings {
			was := &b.selected
			if w, ok := r.previous[b]; ok {
				was = &w.selected
			}
			one := bindingTask{b: b, before: judged && b.isSubject(was, d.Before), after: judges && b.isSubject(&b.selected, d.After)}
			if !one.before && !one.after {
				continue
			}
			one.evaluate = one.after && (!one.before || notes[i].evaluate[j] || slices.Contains(dirty, b) || r.affects(b, d.Ref.Member))
			t.bindings = append(t.bindings, one)
		}
		if !d.After.IsZero() {
			delete(r.dirty, d.Ref)
		}
		if len(t.bindings) > 0 {
			tasks = append(tasks, t)
		}
		if len(tasks) == chunkSize {
			if err := r.evaluateChunk(tasks); err != nil {
				return err
			}
			tasks = tasks[:0]
		}
	}
	return r.evaluateChunk(tasks)
}

// evaluateObjectsOfChangedMembers evaluates unchanged objects of members that changed.
func (r *pass) evaluateObjectsOfChangedMembers() error {
	if len(r.changed)+len(r.rejudged) == 0 {
		return nil
	}
	members := maps.Clone(r.rejudged)
	for m := range r.changed {
		members[m] = true
	}
	var tasks []task
	for _, kind := range slices.Collect(r.after.Kinds()) {
		for _, b := range r.e.kindPlan(kind).bindings {
			for m := range members {
				was, is := r.judgedBefore(m) && r.previous[b].selected.Has(m), r.after.Judges(m) && b.selected.Has(m)
				if !was && !is || was == is && !r.affects(b, m) {
					continue
				}
				for o := range r.after.Objects(kind, m) {
					if r.hasDelta[o.Ref()] || !b.sel.Selects(o) {
						continue
					}
					one := bindingTask{b: b, before: was, after: is, evaluate: is}
					tasks = append(tasks, task{subject: verdict.Subject{Ref: o.Ref()}, object: o, bindings: []bindingTask{one}})
					if list := r.dirty[o.Ref()]; slices.Contains(list, b) {
						r.dirty[o.Ref()] = slices.DeleteFunc(slices.Clone(list), func(x *boundBinding) bool { return x == b })
					}
				}
			}
		}
	}
	return r.evaluateAll(tasks)
}

// evaluateMembersAndKeys evaluates subjects that are members or keys of views.
func (r *pass) evaluateMembersAndKeys() error {
	var tasks []task
	for _, b := range r.e.bindings {
		switch b.pkg.Subject {
		case module.ObjectSubject:
		case module.MemberSubject:
			tasks = append(tasks, r.memberTasks(b)...)
		case module.ViewSubject:
			tasks = append(tasks, r.keyTasks(b)...)
		}
	}
	return r.evaluateAll(tasks)
}

func (r *pass) memberTasks(b *boundBinding) []task {
	names := map[string]bool{}
	for _, of := range []map[string]bool{r.joined, r.left, r.rejudged} {
		for m := range of {
			names[m] = true
		}
	}
	for m, parts := range r.changed {
		if parts&fleetdoc.Labels != 0 || r.affects(b, m) {
			names[m] = true
		}
	}
	for s := range r.dirtySubjects[b] {
		names[s.Ref.Member] = true
	}
	was := &b.selected
	if w, ok := r.previous[b]; ok {
		was = &w.selected
	}
	var tasks []task
	for m := range names {
		_, there := r.was.Member(m)
		_, is := r.after.Member(m)
		one := bindingTask{b: b, before: there && was.Has(m) && r.judgedBefore(m), after: is && b.selected.Has(m) && r.after.Judges(m)}
		one.evaluate = one.after
		if one.before || one.after {
			tasks = append(tasks, task{subject: verdict.Subject{Ref: aggregate.Ref{Member: m}}, bindings: []bindingTask{one}})
		}
	}
	return tasks
}

func (r *pass) keyTasks(b *boundBinding) []task {
	keys := map[string]bool{}
	for k := range r.changedKeys[b.view] {
		keys[k] = true
	}
	for s := range r.dirtySubjects[b] {
		keys[s.Key] = true
	}
	old := publishedOf(r.before, b)
	if r.relabelled {
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
		one := bindingTask{b: b, before: old.KeyExists(r.before, k), after: b.hasKey(r.e, k)}
		one.evaluate = one.after
		if one.before || one.after {
			tasks = append(tasks, task{subject: verdict.Subject{Key: k}, bindings: []bindingTask{one}})
		}
	}
	return tasks
}

// evaluateReaders evaluates unchanged objects that read something that changed. There may be very many, where
// they all read one instant.
func (r *pass) evaluateReaders() error {
	tasks := make([]task, 0, min(len(r.dirty), chunkSize))
	for ref, bound := range r.dirty {
		o, ok := r.after.Get(ref)
		if !ok {
			continue
		}
		r.e.kindPlan(ref.Kind) // which workers look up
		t := task{subject: verdict.Subject{Ref: ref}, object: o}
		for _, b := range bound {
			if r.after.Judges(ref.Member) && b.isSubject(&b.selected, o) {
				t.bindings = append(t.bindings, bindingTask{b: b, before: true, after: true, evaluate: true})
			}
		}
		if len(t.bindings) > 0 {
			tasks = append(tasks, t)
		}
		if len(tasks) == chunkSize {
			if err := r.evaluateChunk(tasks); err != nil {
				return err
			}
			tasks = tasks[:0]
		}
	}
	return r.evaluateChunk(tasks)
}
