package engine

import (
	"context"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// task is a subject and the bindings that it concerns.
type task struct {
	subject verdict.Subject
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
	before  *state.State
	after   *aggregate.Snapshot
	deltas  []aggregate.Delta
	changes *Changes

	joined, left, changed map[string]bool // members; changed ones are of both snapshots
	was                   map[*bound]*sight
	dirty                 map[aggregate.Ref][]*bound          // objects to evaluate
	dirtySubjects         map[*bound]map[verdict.Subject]bool // members and keys to evaluate
	keys                  map[*view]map[string]bool           // that changed
	unaware               map[aggregate.Ref]bool              // of changed members: objects that have a delta
	failures, gapsChanged bool
	share                 bool // evaluations take over what was found for twins
}

// sight is what a binding selected and saw before the round.
type sight struct{ selected, visible binding.MemberSet }

func (e *Engine) begin(ctx context.Context, after *aggregate.Snapshot) *round {
	e.broken = true // until the round is finished
	e.snapshot = after
	e.round++
	state := e.State()
	return &round{
		e: e, ctx: ctx, before: state, after: after, changes: &Changes{Before: state},
		joined: map[string]bool{}, left: map[string]bool{}, changed: map[string]bool{},
		was:   map[*bound]*sight{},
		dirty: map[aggregate.Ref][]*bound{}, dirtySubjects: map[*bound]map[verdict.Subject]bool{}, keys: map[*view]map[string]bool{},
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

func (r *round) markSubject(b *bound, s verdict.Subject) {
	if r.dirtySubjects[b] == nil {
		r.dirtySubjects[b] = map[verdict.Subject]bool{}
	}
	r.dirtySubjects[b][s] = true
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
