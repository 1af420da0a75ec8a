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

// judgedBefore reports whether a member was judged here.
func (r *pass) judgedBefore(member string) bool { return r.was != nil && r.was.Judges(member) }

func (r *pass) markObject(b *boundBinding, ref aggregate.Ref) {
	if list := r.dirty[ref]; !slices.Contains(list, b) {
		r.dirty[ref] = append(list, b)
	}
}

func (r *pass) markSubject(b *boundBinding, s verdict.Subject) {
	if r.dirtySubjects[b] == nil {
		r.dirtySubjects[b] = map[verdict.Subject]bool{}
	}
	r.dirtySubjects[b][s] = true
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
