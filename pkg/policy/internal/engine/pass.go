package engine

import (
	"context"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/fleetdoc"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// task is a subject and the bindings that it concerns.
type task struct {
	subject  verdict.Subject
	object   aggregate.Object // zero when it does not exist
	bindings []bindingTask
}

// bindingTask is one binding of a task: whether the subject was and is one of the
// binding, and whether to evaluate it.
type bindingTask struct {
	b                       *boundBinding
	before, after, evaluate bool
	result                  result
}

// pass is the way of one call from a state to the next.
type pass struct {
	e       *Engine
	ctx     context.Context // The pass lives as long as the call.
	before  *state.State
	was     *fleetview.View // the snapshot of before; nil: there was none
	after   *fleetview.View
	deltas  []aggregate.Delta
	causing *Cause // whose readers are being marked; nil without Options.Causes
	changes *Changes
	now     int64 // in seconds since 1970

	steppedBack bool // the caller's clock, since the last pass

	exported            *exportNotes              // nil: nobody asks
	joined, left        map[string]bool           // members
	rejudged            map[string]bool           // members that are judged here, or not, unlike before
	changed             map[string]fleetdoc.Parts // what differs of members that are in both snapshots
	affected            map[memberBinding]bool    // what is known of them: see affects
	previous            map[*boundBinding]*memberSets
	dirty               map[aggregate.Ref][]*boundBinding          // objects to evaluate
	dirtySubjects       map[*boundBinding]map[verdict.Subject]bool // members and keys to evaluate
	changedKeys         map[*view]map[string]bool                  // of views
	hasDelta            map[aggregate.Ref]bool                     // objects of changed members that have a delta
	changedScopes       []completeness.Scope                       // in state, or new or gone
	changedMembers      []string                                   // joined, left or changed
	relabelled          bool                                       // some member has other labels
	viewFailuresChanged bool
	recountAsked        bool     // less may be wanted than before
	useMemo             bool     // evaluations share outcomes
	preview             *Preview // that the pass is of; nil: it is of the engine
}

// memberSets are the members that a binding selected and saw before the pass.
type memberSets struct{ selected, visible binding.MemberSet }

func (e *Engine) startPass(ctx context.Context, after *fleetview.View) *pass {
	e.needsReset = true // until the pass is finished
	e.fleet = after
	e.passID++
	before := e.State()
	var was *fleetview.View
	if before != nil {
		was = state.PartsOf(before).Fleet
	}
	now := clockOf(e.wall())
	return &pass{
		e: e, ctx: ctx, before: before, was: was, after: after, exported: e.newExportNotes(), changes: &Changes{Before: before}, now: now, steppedBack: e.clock.Set(now),
		joined: map[string]bool{}, left: map[string]bool{}, rejudged: map[string]bool{}, changed: map[string]fleetdoc.Parts{},
		previous: map[*boundBinding]*memberSets{},
		dirty:    map[aggregate.Ref][]*boundBinding{}, dirtySubjects: map[*boundBinding]map[verdict.Subject]bool{}, changedKeys: map[*view]map[string]bool{},
	}
}

// invalidate marks the subjects that read a key.
func (r *pass) invalidate(key uint64) {
	for id, o := range r.e.byObject.Readers(key) {
		if b := r.e.byID[id]; b != nil {
			r.markObject(b, o.Ref())
		}
	}
	for id, s := range r.e.bySubject.Readers(key) {
		if b := r.e.byID[id]; b != nil {
			r.markSubject(b, s)
		}
	}
}

// takeOver takes note of a member of the snapshot, if it is judged here unlike before. was is whether it was there.
func (r *pass) takeOver(member string, was bool) {
	if r.e.subs != nil && r.after.Judges(member) && !(was && r.judgedBefore(member)) {
		r.e.takeovers.Add(member)
	}
}

// takeKeys marks the keys that are judged here, or not, unlike before, and takes note of it if any is from now on.
func (r *pass) takeKeys(former *fleetview.KeyOwner) {
	for _, b := range r.e.bindings {
		if b.pkg.Subject != module.ViewSubject {
			continue
		}
		for k := range b.view.Keys() {
			was, is := former.Owns(b.Name, k), r.e.owner.Owns(b.Name, k)
			if was != is {
				r.markSubject(b, verdict.Subject{Key: k})
			}
			if is && !was && r.e.subs != nil {
				r.e.takeovers.Add("")
			}
		}
	}
	if r.e.subs != nil && !r.e.holdsKeys() {
		r.e.takeovers.Add("") // some may be
	}
}

// holdsKeys reports whether all keys that are subjects are known.
func (e *Engine) holdsKeys() bool {
	return len(e.fleet.AwayMembers()) == 0 || !slices.ContainsFunc(e.bindings, func(b *boundBinding) bool {
		return b.pkg.Subject == module.ViewSubject && !e.subs.Held().HasAll(b.view.space)
	})
}

// takeAll takes note, in a pass that evaluates everything, of the members that are judged here unlike before, and of keys: whose these
// were is not known. Where a member is let go of that was read here, all are awaited that wait for keys.
func (r *pass) takeAll() {
	if r.e.subs == nil {
		return
	}
	r.e.takeovers.Add("")
	letGo := r.was != nil && slices.ContainsFunc(r.after.AwayMembers(), func(member string) bool {
		_, was := r.was.Member(member)
		return was && !r.was.Away(member)
	})
	for m := range r.after.Members() {
		was := false
		if r.was != nil {
			_, was = r.was.Member(m.Name)
		}
		r.takeOver(m.Name, was && !letGo)
	}
}

// awaitWaiting awaits the members, and keys, with verdicts that wait for keys: what they have read of a member that is read here no
// longer may be missing from now on.
func (r *pass) awaitWaiting() {
	if r.e.subs == nil || !r.e.subs.Waits() {
		return
	}
	for _, b := range r.e.bindings {
		for member := range b.Waiting() {
			if member == "" || r.judged(member) {
				r.e.takeovers.Add(member)
			}
		}
	}
}

// judged reports whether a member is judged here.
func (r *pass) judged(member string) bool {
	_, is := r.after.Member(member)
	return is && r.after.Judges(member)
}

// settleTakeovers forgets the members that are judged here since a moment, and have been told what they read of others, or are not any
// more. It returns the others.
func (r *pass) settleTakeovers(parts *state.Parts) []string {
	e := r.e
	taken := e.takeovers.Members()
	if len(taken) == 0 {
		return nil
	}
	unread := map[string]bool{"": !e.holdsKeys()}
	isTaken := func(member string) bool {
		_, is := slices.BinarySearch(taken, member)
		return is
	}
	for m := range e.gaps.AwaitedOf(isTaken, parts.Unawaited()) {
		unread[m] = true
	}
	if r.changes.reset || len(r.changedMembers) > 0 {
		for _, m := range taken {
			if m != "" && !r.judged(m) {
				e.takeovers.Remove(m)
			}
		}
	}
	waiting := e.subs.Waits() && len(r.after.AwayMembers()) > 0
	at := 0 // the binding in which the last one waits: most do in the same
	e.takeovers.Settle(e.subs, func(member string) bool { return !unread[member] }, func(member string) bool {
		for i := 0; waiting && i < len(e.bindings); i++ {
			if n := (at + i) % len(e.bindings); e.bindings[n].WaitsIn(member) {
				at = n
				return true
			}
		}
		return false
	})
	return e.takeovers.Members()
}

// judgedBefore reports whether a member was judged here.
func (r *pass) judgedBefore(member string) bool { return r.was != nil && r.was.Judges(member) }

func (r *pass) markObject(b *boundBinding, ref aggregate.Ref) {
	if list := r.dirty[ref]; !slices.Contains(list, b) {
		r.dirty[ref] = append(list, b)
		r.changes.causedBy(r.causing, verdict.Subject{Ref: ref})
	}
}

func (r *pass) markSubject(b *boundBinding, s verdict.Subject) {
	if r.dirtySubjects[b] == nil {
		r.dirtySubjects[b] = map[verdict.Subject]bool{}
	}
	r.dirtySubjects[b][s] = true
	r.changes.causedBy(r.causing, s)
}

// markReaders marks all subjects of a binding that read something other than their own
// object.
func (r *pass) markReaders(b *boundBinding) {
	for o := range r.e.byObject.Pairs(b.id) {
		r.markObject(b, o.Ref())
	}
	for s := range r.e.bySubject.Pairs(b.id) {
		r.markSubject(b, s)
	}
}

// markRetries marks subjects that recently exceeded their budget, as a busy machine is
// no reason for a lasting Error, and refused ones for which there is room again.
func (r *pass) markRetries() {
	for _, b := range r.e.bindings {
		r.markRefused(b)
		for s, tries := range b.retries {
			switch {
			case tries > maxRetries:
			case isQuarantined(b, s):
				b.retries[s] = maxRetries + 1 // no more retries
			case b.pkg.Subject == module.ObjectSubject:
				r.markObject(b, s.Ref)
			default:
				r.markSubject(b, s)
			}
		}
	}
}
