package policy

import (
	"context"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
)

// task is a subject and the bindings that it concerns.
type task struct {
	subject Subject
	object  aggregate.Object // of an object that is there
	runs    []run
}

// run is one binding of a task: whether its subject had a verdict and has one now,
// and whether to evaluate it.
type run struct {
	b                       *bound
	before, after, evaluate bool
	result                  result
}

// round is one call's way from a state to the next.
type round struct {
	e       *Engine
	ctx     context.Context //nolint:containedctx // The round lives as long as the call.
	before  *State
	after   *aggregate.Snapshot
	deltas  []aggregate.Delta
	changes *Changes

	joined, left, changed map[string]bool // members; changed ones are of both snapshots
	was                   map[*bound]*sight
	dirty                 map[aggregate.Ref][]*bound  // objects to evaluate
	dirtySubjects         map[*bound]map[Subject]bool // members and keys to evaluate
	keys                  map[*view]map[string]bool   // that changed
	unaware               map[aggregate.Ref]bool      // of changed members: objects that have a delta
	failures, gapsChanged bool
	share                 bool // evaluations take over what was found for twins
}

// sight is what a binding selected and saw before the round.
type sight struct{ selected, visible members }

// Apply takes the engine to the snapshot after a batch, which begins where the engine
// is: views, then the verdicts that depend on what changed, and no others. It
// publishes one State and returns what became of the verdicts.
func (e *Engine) Apply(ctx context.Context, batch *aggregate.Batch) (*Changes, error) {
	if !e.calls.TryLock() {
		return nil, ErrBusy
	}
	defer e.calls.Unlock()
	if e.broken || e.snapshot == nil {
		return nil, ErrReset
	}
	if batch.Before.Revision() != e.snapshot.Revision() {
		return nil, fmt.Errorf("%w: the batch begins at revision %d, the engine is at %d", ErrReset, batch.Before.Revision(), e.snapshot.Revision())
	}
	r := e.begin(ctx, batch.After)
	r.deltas = slices.Collect(batch.Deltas())
	r.members(batch)
	r.scopes(batch)
	r.again()
	if r.gapsChanged {
		r.look()
	}
	return r.finish(func() error {
		notes, err := r.feed()
		if err == nil {
			err = r.release()
		}
		if err != nil {
			return err
		}
		for _, step := range []func() error{r.feedAgain, r.recover, func() error { return r.objects(notes) }, r.stay, r.others, r.rest} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
}

func (e *Engine) begin(ctx context.Context, after *aggregate.Snapshot) *round {
	e.broken = true // until the round is finished
	e.snapshot = after
	e.round++
	state := e.State()
	return &round{
		e: e, ctx: ctx, before: state, after: after, changes: &Changes{Before: state},
		joined: map[string]bool{}, left: map[string]bool{}, changed: map[string]bool{},
		was:   map[*bound]*sight{},
		dirty: map[aggregate.Ref][]*bound{}, dirtySubjects: map[*bound]map[Subject]bool{}, keys: map[*view]map[string]bool{},
	}
}

// fire marks what read a key.
func (r *round) fire(key uint64) {
	for id, o := range r.e.byObject.Readers(key) {
		if b := r.e.byID[id]; b != nil {
			r.mark(b, o.Ref())
		}
	}
	for id, s := range r.e.bySubject.Readers(key) {
		if b := r.e.byID[id]; b != nil {
			r.markSubject(b, s)
		}
	}
}

func (r *round) mark(b *bound, ref aggregate.Ref) {
	if list := r.dirty[ref]; !slices.Contains(list, b) {
		r.dirty[ref] = append(list, b)
	}
}

func (r *round) markSubject(b *bound, s Subject) {
	if r.dirtySubjects[b] == nil {
		r.dirtySubjects[b] = map[Subject]bool{}
	}
	r.dirtySubjects[b][s] = true
}

// members takes in members that joined, left or changed.
func (r *round) members(batch *aggregate.Batch) {
	some := false
	for d := range batch.Members() {
		some = true
		var name string
		switch {
		case d.Before == nil:
			name = d.After.Name
			r.joined[name] = true
			r.changes.members = true
			// One that left and is there again, all in one batch, is told of twice: its
			// objects may be what they were.
			if was, ok := r.before.Snapshot.Member(name); ok && !slices.Equal(was.Labels, d.After.Labels) {
				r.changed[name] = true
			}
			r.fire(key(readNames))
		case d.After == nil:
			name = d.Before.Name
			r.left[name] = true
			for _, v := range r.e.views {
				v.score.forget(name)
			}
			for _, b := range r.e.bounds {
				b.score.forget(name)
			}
			r.changes.members = true
			r.fire(key(readNames))
		default:
			name = d.After.Name
			if !slices.Equal(d.Before.Labels, d.After.Labels) {
				r.changed[name] = true
			}
		}
		r.fire(key(readMembers))
		r.fire(key(readMember, name))
		if d.Before == nil || d.After == nil || !slices.Equal(d.Before.Labels, d.After.Labels) {
			r.fire(key(readPartLabels, name))
		}
		if d.Before == nil || d.After == nil || d.Before.Version != d.After.Version {
			r.fire(key(readPartVersion, name))
		}
		if d.Before == nil || d.After == nil || !slices.Equal(d.Before.APIs, d.After.APIs) {
			r.fire(key(readPartAPIs, name))
		}
		if d.After == nil {
			delete(r.e.memberTerms, name)
		} else {
			r.e.memberTerms[name] = memberTerm(*d.After)
		}
	}
	if !some {
		return
	}
	r.gapsChanged = true
	r.changes.flipped = r.changes.flipped || len(r.changed) > 0 // who sees and tolerates whom
	for _, b := range r.e.bounds {
		was := &sight{b.selected, b.visible}
		r.was[b] = was
		b.look(r.after)
		for m := range r.changed {
			if was.visible.has(m) != b.visible.has(m) {
				r.seeAnew(b)
				break
			}
		}
	}
}

// seeAnew marks all of a binding that read something beside its own object.
func (r *round) seeAnew(b *bound) {
	for o := range r.e.byObject.Pairs(b.id) {
		r.mark(b, o.Ref())
	}
	for s := range r.e.bySubject.Pairs(b.id) {
		r.markSubject(b, s)
	}
}

// again marks what overran its budget a little while ago: a busy machine is no
// reason for an Error that stays. And it marks what there was no room for and now is.
func (r *round) again() {
	for _, b := range r.e.bounds {
		r.readmit(b)
		for s, tries := range b.overran {
			switch {
			case tries > maxTries:
			case heldBack(b, s):
				b.overran[s] = maxTries + 1 // it has been tried often enough
			case b.pkg.Subject == module.ObjectSubject:
				r.mark(b, s.Ref)
			default:
				r.markSubject(b, s)
			}
		}
	}
}

func heldBack(b *bound, s Subject) bool {
	_, why := b.held(s)
	return why != ""
}

func memberTerm(m aggregate.Member) *ast.Term {
	return ast.ObjectTerm(ast.Item(inputKeys.labels, labelsTerm(m)), ast.Item(inputKeys.name, ast.StringTerm(m.Name)))
}

// member returns a member of the snapshot; without a name when it is not there.
func (e *Engine) member(name string) aggregate.Member {
	m, _ := e.snapshot.Member(name)
	return m
}

// scopes takes in scopes whose state changed, or that came or went.
func (r *round) scopes(batch *aggregate.Batch) {
	for d := range batch.Scopes() {
		member, kind := d.After.Member, d.After.Kind
		if kind == "" {
			member, kind = d.Before.Member, d.Before.Kind
		}
		r.gapsChanged = true
		r.fire(key(readScope, member, string(kind)))
		r.fire(key(readScopes, member))
		r.fire(key(readAllScopes))
	}
}

// look finds the gaps of the snapshot.
func (r *round) look() {
	e := r.e
	found := findGaps(e.gaps, r.after, e.kinds)
	if e.gaps == nil || !e.gaps.same(found) {
		r.changes.flipped = true
	}
	e.gaps = found
}

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
		t := task{subject: Subject{Ref: d.Ref}, object: d.After}
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
				was, is := r.was[b].selected.has(m), b.selected.has(m)
				if !was && !is || was == is && b.pkg.Reads.Member == nil && !b.sel.byMembers() {
					continue
				}
				for o := range objects(r.after, kind, m) {
					if r.unaware[o.Ref()] || !b.sel.object(o) {
						continue
					}
					one := run{b: b, before: was, after: is, evaluate: is}
					tasks = append(tasks, task{subject: Subject{Ref: o.Ref()}, object: o, runs: []run{one}})
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
		one := run{b: b, before: there && was.has(m), after: is && b.selected.has(m)}
		one.evaluate = one.after
		if one.before || one.after {
			tasks = append(tasks, task{subject: Subject{Ref: aggregate.Ref{Member: m}}, runs: []run{one}})
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
	old := r.before.binding(b.Name)
	if len(r.changed) > 0 {
		for k := range b.view.keys() {
			keys[k] = true
		}
		if v := r.before.byID[old.view]; v != nil {
			for k := range v.keys() {
				keys[k] = true
			}
		}
	}
	var tasks []task
	for k := range keys {
		one := run{b: b, before: old.keyExists(r.before, k)}
		for e := range b.view.under(k) {
			if b.counts(e, r.after) {
				one.after = true
				break
			}
		}
		one.evaluate = one.after
		if one.before || one.after {
			tasks = append(tasks, task{subject: Subject{Key: k}, runs: []run{one}})
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
		t := task{subject: Subject{Ref: ref}, object: o}
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
