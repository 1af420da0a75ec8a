package engine

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
)

// chunk is how many subjects are evaluated before their results are taken in.
const chunk = 4096

// judgeAll judges tasks in chunks.
func (r *round) judgeAll(tasks []task) error {
	for part := range slices.Chunk(tasks, chunk) {
		if err := r.judge(part); err != nil {
			return err
		}
	}
	return nil
}

// judge evaluates tasks in parallel and takes the results in, in order.
func (r *round) judge(tasks []task) error {
	r.share = len(tasks) >= manyTasks
	if err := r.e.each(r.ctx, len(tasks), func(w *worker, i int) { r.evaluate(w, &tasks[i]) }); err != nil {
		return err
	}
	r.choose(tasks)
	for i := range tasks {
		for j := range tasks[i].runs {
			r.take(&tasks[i], &tasks[i].runs[j])
		}
	}
	return nil
}

// evaluate evaluates the runs of a task; those of an object share one document, and
// what was found for a twin of it.
func (r *round) evaluate(w *worker, t *task) {
	var m *mask.Mask
	n := 0
	for i := range t.runs {
		if one := &t.runs[i]; one.evaluate {
			n++
			m = one.b.mask
		}
	}
	if n == 0 {
		return
	}
	kind := t.subject.Ref.Kind
	if n > 1 && !t.object.IsZero() {
		m = r.e.plans[kind].mask
	}
	err := w.read(t.object, m)
	share := r.share && err == nil && !t.object.IsZero() && w.twins.begin(r.e.round, w.body, m)
	var object *ast.Term
	decoded := false
	for i := range t.runs {
		one := &t.runs[i]
		if !one.evaluate {
			continue
		}
		alike := share && one.b.alike && one.b.score.Held(t.subject.Ref.Member) == ""
		if alike {
			if f, ok := w.twins.look(one.b, kind); ok {
				one.b.evaluations.Add(1)
				r.e.shared.Add(1)
				one.result = result{found: f, class: w.own(kind)}
				continue
			}
		}
		if !decoded && err == nil {
			object, err = w.decode(t.object, m, share)
			decoded = true
		}
		if err != nil {
			one.result = result{found: &state.Outcome{Err: err.Error()}, class: w.own(kind)}
			continue
		}
		one.result = w.judge(r.ctx, one.b, t, object)
		if alike && one.result.class != nil { // it was evaluated
			w.twins.keep(one.result.found)
		}
	}
}

// own is the class of what reads its own object only.
func (w *worker) own(kind aggregate.Kind) *completeness.ReadSet {
	w.begin(nil, "")
	w.eval.reading.AddOwn(kind)
	return w.e.classes.Intern(&w.eval.reading)
}

// choose gives bindings the default classes of kinds that are new to them: the most
// frequent of the tasks.
func (r *round) choose(tasks []task) {
	type place struct {
		b    *bound
		kind aggregate.Kind
	}
	var seen map[place]map[*completeness.ReadSet]int
	for i := range tasks {
		kind := tasks[i].subject.Ref.Kind
		for j := range tasks[i].runs {
			one := &tasks[i].runs[j]
			if one.result.class == nil || one.b.Defaults[kind] != nil {
				continue
			}
			if seen == nil {
				seen = map[place]map[*completeness.ReadSet]int{}
			}
			at := place{one.b, kind}
			if seen[at] == nil {
				seen[at] = map[*completeness.ReadSet]int{}
			}
			seen[at][one.result.class]++
		}
	}
	for at, counts := range seen {
		var best *completeness.ReadSet
		for c, n := range counts {
			if best == nil || n > counts[best] || n == counts[best] && c.Key < best.Key {
				best = c
			}
		}
		best.Refs++ // as long as the binding is there
		at.b.Defaults[at.kind] = best
	}
}

// take takes in one result.
func (r *round) take(t *task, one *run) {
	b, s := one.b, t.subject
	if one.after && !one.evaluate { // most of what changes is nothing that a policy reads
		if b.pkg.Subject == module.ObjectSubject {
			r.e.byObject.Touch(b.id, t.object)
		}
		return
	}
	var oldClass *completeness.ReadSet
	var old *state.Outcome
	if one.before {
		oldClass, old = b.Get(s)
	}
	if !one.after {
		delete(b.overran, s)
		b.count(s.Ref.Member, oldClass, old, -1)
		b.Drop(s)
		b.hold(s, r.depend(b, t, nil)-old.Size())
		delete(b.refused, s)
		r.changes.add(b, s, old)
		r.changes.dropped += old.Size()
		return
	}
	b.overran = tried(b.overran, s, one.result.over)
	next, c := one.result.found, one.result.class
	if c == nil {
		c = b.Defaults[s.Ref.Kind] // it was not evaluated
	}
	keys := one.result.keys
	delete(b.refused, s)
	if cost := next.Size() + int64(len(keys))*edgeBytes; cost > 0 && b.refuses(s, cost, r.e.opts.Limits.Binding) {
		next, c, keys = &state.Outcome{Err: errFull(r.e.opts.Limits.Binding)}, b.Defaults[s.Ref.Kind], nil
	}
	more := r.depend(b, t, keys)
	if one.before {
		more -= old.Size()
	}
	b.hold(s, more+next.Size())
	switch {
	case one.before && state.SameFound(old, next):
		if next = old; c == oldClass {
			return
		}
	case next != nil:
		next.Revision = r.after.Revision()
	}
	if one.before {
		b.count(s.Ref.Member, oldClass, old, -1)
	}
	b.count(s.Ref.Member, c, next, 1)
	b.Put(s, c, next)
	if !one.before {
		old = nil
	}
	r.changes.add(b, s, old, next)
	if next != old {
		r.changes.dropped += old.Size()
	}
}

// depend takes note of what an evaluation read, and returns how many bytes more that is.
func (r *round) depend(b *bound, t *task, keys []uint64) int64 {
	if b.pkg.Subject != module.ObjectSubject {
		return edgeBytes * int64(r.e.bySubject.Set(b.id, t.subject, keys))
	}
	if o := t.object; !o.IsZero() {
		return edgeBytes * int64(r.e.byObject.Set(b.id, o, keys))
	}
	if o, ok := r.before.Snapshot.Get(t.subject.Ref); ok {
		return edgeBytes * int64(r.e.byObject.Set(b.id, o, keys))
	}
	return 0
}
