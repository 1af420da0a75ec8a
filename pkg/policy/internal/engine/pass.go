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
	subject  verdict.Subject
	object   aggregate.Object // of an object that is there
	bindings []bindingTask
}

// bindingTask is one binding of a task: whether its subject had a verdict and has one now,
// and whether to evaluate it.
type bindingTask struct {
	b                       *boundBinding
	before, after, evaluate bool
	result                  result
}

// pass is one call's way from a state to the next.
type pass struct {
	e       *Engine
	ctx     context.Context //nolint:containedctx // The round lives as long as the call.
	before  *state.State
	after   *aggregate.Snapshot
	deltas  []aggregate.Delta
	changes *Changes

	joined, left, changed            map[string]bool // members; changed ones are of both snapshots
	previous                         map[*boundBinding]*memberSets
	dirty                            map[aggregate.Ref][]*boundBinding          // objects to evaluate
	dirtySubjects                    map[*boundBinding]map[verdict.Subject]bool // members and keys to evaluate
	changedKeys                      map[*view]map[string]bool                  // that changed
	hasDelta                         map[aggregate.Ref]bool                     // of changed members: objects that have a delta
	viewFailuresChanged, gapsChanged bool
	useMemo                          bool // evaluations take over what was found for twins
}

// memberSets is what a binding selected and saw before the round.
type memberSets struct{ selected, visible binding.MemberSet }

func (e *Engine) startPass(ctx context.Context, after *aggregate.Snapshot) *pass {
	e.needsReset = true // until the round is finished
	e.snapshot = after
	e.passID++
	state := e.State()
	return &pass{
		e: e, ctx: ctx, before: state, after: after, changes: &Changes{Before: state},
		joined: map[string]bool{}, left: map[string]bool{}, changed: map[string]bool{},
		previous: map[*boundBinding]*memberSets{},
		dirty:    map[aggregate.Ref][]*boundBinding{}, dirtySubjects: map[*boundBinding]map[verdict.Subject]bool{}, changedKeys: map[*view]map[string]bool{},
	}
}

// invalidate marks what read a key.
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

// markReaders marks all of a binding that read something beside its own object.
func (r *pass) markReaders(b *boundBinding) {
	for o := range r.e.byObject.Pairs(b.id) {
		r.markObject(b, o.Ref())
	}
	for s := range r.e.bySubject.Pairs(b.id) {
		r.markSubject(b, s)
	}
}

// markRetries marks what overran its budget a little while ago: a busy machine is no
// reason for an Error that stays. And it marks what there was no room for and now is.
func (r *pass) markRetries() {
	for _, b := range r.e.bindings {
		r.markRefused(b)
		for s, tries := range b.retries {
			switch {
			case tries > maxRetries:
			case isQuarantined(b, s):
				b.retries[s] = maxRetries + 1 // it has been tried often enough
			case b.pkg.Subject == module.ObjectSubject:
				r.markObject(b, s.Ref)
			default:
				r.markSubject(b, s)
			}
		}
	}
}
