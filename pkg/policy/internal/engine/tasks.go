package engine

import (
	"cmp"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/value"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// chunkSize is how many subjects are evaluated before their results are accepted.
const chunkSize = 4096

// previewChunk is how many are before a preview looks at what it holds: somebody's candidate may say as much
// of each as limits allow.
const previewChunk = 64

// chunk is how many subjects a pass evaluates before it accepts results.
func (r *pass) chunk() int {
	if r.preview != nil {
		return previewChunk
	}
	return chunkSize
}

// evaluateAll evaluates tasks in chunks.
func (r *pass) evaluateAll(tasks []task) error {
	for part := range slices.Chunk(tasks, r.chunk()) {
		if err := r.evaluateChunk(part); err != nil {
			return err
		}
	}
	return nil
}

// evaluateChunk evaluates tasks in parallel and accepts the results in order.
func (r *pass) evaluateChunk(tasks []task) error {
	r.useMemo = len(tasks) >= minMemoTasks
	if err := r.e.parallel(r.ctx, len(tasks), func(w *worker, i int) { r.evaluateTask(w, &tasks[i]) }); err != nil {
		return err
	}
	if r.preview != nil {
		return r.preview.compare(r, tasks)
	}
	r.chooseDefaults(tasks)
	for i := range tasks {
		for j := range tasks[i].bindings {
			r.accept(&tasks[i], &tasks[i].bindings[j])
		}
	}
	return nil
}

// evaluateTask evaluates the bindings of a task; those of an object share one document,
// and the memo.
func (r *pass) evaluateTask(w *worker, t *task) {
	var m *mask.Mask
	n := 0
	for i := range t.bindings {
		if one := &t.bindings[i]; one.evaluate {
			n++
			m = one.b.mask
		}
	}
	if n == 0 {
		return
	}
	kind := t.subject.Ref.Kind
	if n > 1 && !t.object.IsZero() {
		m = r.e.kindPlans[kind].objectMask
	}
	loadErr := w.loadBody(t.object, m)
	share := r.useMemo && loadErr == nil && !t.object.IsZero()
	if share {
		w.memo.start(r.e.passID, r.e.kindPlans[kind], t, w.body)
	}
	var object value.Value
	var decodeErr error
	decoded := false
	for i := range t.bindings {
		one := &t.bindings[i]
		if !one.evaluate {
			continue
		}
		alike := false
		if share {
			var f memoized
			var known bool
			if f, known, alike = w.memo.get(one.b); known {
				one.b.evaluations.Add(1)
				r.e.memoized.Add(1)
				one.b.memoized.Add(1)
				one.result = w.sharedResult(f, kind)
				continue
			}
		}
		if !decoded && loadErr == nil {
			object, decodeErr = w.decode(t.object, m)
			decoded = true
		}
		err := loadErr
		if err == nil && decodeErr != nil { // of what any binding reads: others are no worse for it
			object, err = w.decode(t.object, one.b.mask)
		}
		if err != nil {
			one.result = result{outcome: state.Failed(err.Error()), readSet: w.ownReadSet(kind)}
			continue
		}
		one.result = w.evaluate(r.ctx, one.b, t, object)
		if alike && one.result.readSet != nil { // it was evaluated
			w.memo.put(&one.result)
		}
	}
}

// sharedResult is the result of a subject whose twin has been evaluated.
func (w *worker) sharedResult(f memoized, kind aggregate.Kind) result {
	if f.times == nil {
		return result{outcome: f.outcome, readSet: w.ownReadSet(kind)}
	}
	w.reset(nil, "")
	w.evaluation.reads.AddOwn(kind)
	if f.times.inDoubt {
		w.evaluation.reads.AddDoubt()
	}
	return result{outcome: f.outcome, readSet: w.e.readSets.Intern(&w.evaluation.reads), keys: f.times.keys}
}

// ownReadSet is the read set of an evaluation that reads its own object only.
func (w *worker) ownReadSet(kind aggregate.Kind) *completeness.ReadSet {
	w.reset(nil, "")
	w.evaluation.reads.AddOwn(kind)
	return w.e.readSets.Intern(&w.evaluation.reads)
}

// chooseDefaults gives bindings a default read set for each kind that is new to them:
// the most frequent one of the tasks. One that is in doubt is for as long as the clock is back only, and one of what is not
// held for as long as that is asked for.
func (r *pass) chooseDefaults(tasks []task) {
	type place struct {
		b    *boundBinding
		kind aggregate.Kind
	}
	var seen map[place]map[*completeness.ReadSet]int
	for i := range tasks {
		kind := tasks[i].subject.Ref.Kind
		for j := range tasks[i].bindings {
			one := &tasks[i].bindings[j]
			if one.result.readSet == nil || one.result.readSet.InDoubt || one.result.readSet.Unheld.Any() || one.b.Defaults[kind] != nil {
				continue
			}
			if seen == nil {
				seen = map[place]map[*completeness.ReadSet]int{}
			}
			at := place{one.b, kind}
			if seen[at] == nil {
				seen[at] = map[*completeness.ReadSet]int{}
			}
			seen[at][one.result.readSet]++
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

// accept stores one result.
func (r *pass) accept(t *task, one *bindingTask) {
	b, s := one.b, t.subject
	if one.after && !one.evaluate { // most changes are to nothing that a policy reads
		if b.pkg.Subject == module.ObjectSubject {
			r.e.byObject.ReplaceSubject(b.id, t.object)
		}
		return
	}
	var oldClass *completeness.ReadSet
	var old *state.Outcome
	if one.before {
		oldClass, old = b.Get(s)
	}
	if !one.after {
		delete(b.retries, s)
		b.count(s.Ref.Member, oldClass, old, -1)
		b.Delete(s)
		b.addHeld(s, r.recordReads(b, t, nil)-old.Size())
		delete(b.refused, s)
		r.changes.add(b, s, old)
		r.changes.supersededBytes += old.Size()
		return
	}
	b.retries = countRetry(b.retries, s, one.result.overBudget)
	next, c := one.result.outcome, one.result.readSet
	if c == nil {
		c = b.Defaults[s.Ref.Kind] // it was not evaluated
	}
	keys := one.result.keys
	same := one.before && state.SameOutcome(old, next)
	if same {
		next = old
	} else {
		next = r.dated(b, s, !one.before, old, next)
	}
	delete(b.refused, s)
	if cost := next.Size() + int64(len(keys))*readBytes; cost > 0 && b.refuse(s, cost, r.e.opts.Limits.Binding) {
		next, c, keys = r.dated(b, s, !one.before, old, state.Failed(bindingFull(r.e.opts.Limits.Binding))), cmp.Or(b.Defaults[s.Ref.Kind], c), nil
		one.result.asks = nil
		if same = one.before && state.SameOutcome(old, next); same {
			next = old
		}
	}
	for _, a := range one.result.asks {
		r.e.subs.Add(a.key, a.place)
	}
	more := r.recordReads(b, t, keys)
	if one.before {
		more -= old.Size()
	}
	b.addHeld(s, more+next.Size())
	switch {
	case same:
		if c == oldClass {
			return
		}
	case next != nil:
		next.Revision = r.after.Revision()
	}
	if one.before {
		b.count(s.Ref.Member, oldClass, old, -1)
	}
	b.count(s.Ref.Member, c, next, 1)
	if r.changes.rebuilt && !one.before { // subjects come in order
		b.Append(s, c, next)
	} else {
		b.Put(s, c, next)
	}
	if !one.before {
		old = nil
	}
	r.changes.add(b, s, old, next)
	if next != old {
		r.changes.supersededBytes += old.Size()
	}
}

// dated returns an outcome of a subject with the times at which its violations were first seen: before this
// pass or, where the binding evaluates the subject for the first time, before the binding or its policy
// changed; and what was not there then, as others know it.
func (r *pass) dated(b *boundBinding, s verdict.Subject, first bool, old, next *state.Outcome) *state.Outcome {
	if first && b.shown != nil {
		if _, old = b.shown.On(s).Get(s); old.FindsMore(s, next) && b.inEffect(s.Ref.Member) {
			r.changes.touch(b.Name, s, old) // also after a reset: what is not found may be in doubt
		}
	}
	var earlier []state.Seen
	if memory := r.e.opts.Memory; memory != nil && (old == nil || next.FindsMore(s, old)) {
		earlier = memory.Recall(b.Name, s)
	}
	if next == nil {
		return nil
	}
	return next.Dated(s, old, earlier, r.now)
}

// recordReads stores what an evaluation read, and returns how many more bytes that
// takes.
func (r *pass) recordReads(b *boundBinding, t *task, keys []uint64) int64 {
	if b.pkg.Subject != module.ObjectSubject {
		return readBytes * int64(r.e.bySubject.Set(b.id, t.subject, keys))
	}
	if o := t.object; !o.IsZero() {
		return readBytes * int64(r.e.byObject.Set(b.id, o, keys))
	}
	if o, ok := r.was.Get(t.subject.Ref); ok {
		return readBytes * int64(r.e.byObject.Set(b.id, o, keys))
	}
	return 0
}
