package engine

import (
	"fmt"
	"sync/atomic"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/fleetdoc"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/lineprofile"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/quarantine"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// boundBinding is a binding in the engine, with its verdicts. All but the counters
// belong to the engine's goroutine; workers read what evaluations need.
type boundBinding struct {
	binding.Binding

	slot       string // unique: the binding's name, or that of a next version
	id         uint32 // unique, never reused
	pkg        *module.Package
	sel        *binding.Selection
	query      query
	celParams  map[string]any // of a template in CEL
	mask       *mask.Mask     // of the object
	pins       map[aggregate.Kind]string
	memoizable bool // see memoizable
	// inputParts and fleetParts are what it reads of input.member and data.fleet.members.
	inputParts, fleetParts fleetdoc.Parts
	// view is a view of a package in the engine, with what evaluates it.
	view        *view  // of a ViewSubject
	fingerprint string // of the package's rules
	// digest is of all that its verdicts follow from, objects aside; "" until it is asked for.
	digest string

	// next is the version that is to take its place, which has it as its former; nil: none. route says where it has,
	// and routing where in the engine's snapshot.
	next, former *boundBinding
	route        binding.Route
	routing      *binding.Routing

	selected, visible, tolerated binding.MemberSet // of the engine's snapshot

	state.Verdicts
	shown *state.Binding // what was published of the policy until this one is evaluated; nil: nothing, or it is

	retries      map[verdict.Subject]int   // how often subjects exceeded the budget
	frozen       *state.Binding            // nil when the verdicts have changed since
	published    *state.Binding            // what freeze returned last
	heldBytes    int64                     // of violations and remembered reads
	heldByMember map[string]int64          // the same, by member
	refused      map[verdict.Subject]int64 // subjects without room for their verdicts, and the bytes that these take

	*counters
	profile *lineprofile.Profile // of the lines of the set that the query is of
}

// counters are the statistics of a binding; workers update them.
type counters struct {
	evaluations, memoized, nanoseconds, overruns, errors, wideReads, reads, interpretedCount atomic.Int64

	scores quarantine.Scores
}

// updateMembers finds the members that the binding selects, sees and tolerates.
func (b *boundBinding) updateMembers(s *fleetview.View) {
	b.selected, b.visible, b.tolerated = b.sel.MemberSets(s, b.id+1)
	b.updateRouting(s)
	b.frozen = nil
}

func (b *boundBinding) clear() {
	b.Verdicts = state.NewVerdicts()
	b.frozen, b.retries = nil, nil
	b.heldBytes, b.heldByMember, b.refused = 0, map[string]int64{}, nil
}

// count adds n verdicts with a read set to the binding's counts; its published copy is
// outdated then.
func (b *boundBinding) count(member string, c *completeness.ReadSet, f *state.Outcome, n int) {
	b.frozen = nil
	b.Verdicts.Count(member, c, f, n)
}

// isSubject reports whether an object is a subject.
func (b *boundBinding) isSubject(selected *binding.MemberSet, o aggregate.Object) bool {
	return !o.IsZero() && selected.Has(o.Member()) && b.sel.Selects(o)
}

// hasKey reports whether a key of the binding's view is one that the binding selects, and that is judged here.
func (b *boundBinding) hasKey(e *Engine, key string) bool {
	if !e.owner.Owns(b.Name, key) {
		return false
	}
	for entry := range b.view.Entries(key) {
		if b.entryCounts(entry, e.fleet) {
			return true
		}
	}
	return false
}

// entryCounts reports whether an entry of the binding's view is one that the binding
// selects.
func (b *boundBinding) entryCounts(e matview.Entry, s *fleetview.View) bool {
	return b.sel.EntryCounts(&e.Object.Ref, s, &b.selected, &b.visible)
}

// view is a view of a package in an engine, with how it is evaluated.
type view struct {
	matview.View

	query   query
	index   *module.Index // nil: it is a view of policies
	ofFleet bool          // an index: objects of other members are looked for, too
	pins    map[aggregate.Kind]string
	scores  *quarantine.Scores
	// identity names the view in what processes tell each other; "" for an index of the subject's own member.
	identity string
	space    interest.Space        // of its keys in what processes tell each other
	retries  map[aggregate.Ref]int // how often objects exceeded the budget
}

func (v *view) clear() {
	v.View.Clear()
	v.retries = nil
}

// freeze returns an immutable copy of the binding as it is now.
func (b *boundBinding) freeze() *state.Binding {
	fresh := b.frozen == nil
	if fresh {
		b.frozen = &state.Binding{
			Binding: b.Binding, ID: b.id, Pkg: b.pkg, Described: b.Describe(b.pkg), Selection: b.sel, Selected: b.selected, Visible: b.visible, Tolerated: b.tolerated, Profile: b.profile,
			Verdicts: b.Verdicts.Freeze(),
		}
		if b.view != nil {
			b.frozen.View, b.frozen.Keys = b.view.ID, b.view.space
		}
	}
	health := verdict.Health{
		Evaluations: b.evaluations.Load(), Nanoseconds: b.nanoseconds.Load(), Overruns: b.overruns.Load(),
		Errors: b.errors.Load(), WideReads: b.wideReads.Load(), Interpreted: b.interpretedCount.Load(), NotCompiled: b.query.interpreted,
	}
	health.Quarantines = b.scores.List()
	retrying := b.retrying()
	// Most deltas concern few bindings: what is published of the others is shared.
	if last := b.published; fresh || last == nil || last.Next != nil || b.next != nil || last.Retrying != retrying || !sameCosts(&last.Health, &health) {
		s := *b.frozen
		s.Health, s.Retrying = health, retrying
		b.published = &s
	}
	return b.published
}

// sameCosts reports whether nothing was evaluated in between, and nothing is quarantined.
func sameCosts(a, b *verdict.Health) bool {
	return len(a.Quarantines)+len(b.Quarantines) == 0 && a.Evaluations == b.Evaluations && a.Nanoseconds == b.Nanoseconds && a.Overruns == b.Overruns &&
		a.Errors == b.Errors && a.WideReads == b.WideReads && a.Interpreted == b.Interpreted
}

const readBytes = 48 // about what one remembered read takes

func bindingFull(limit int64) string {
	return fmt.Sprintf("the binding's violations and what its evaluations read take more than %d bytes in total", limit)
}

// addHeld adds to the bytes that a subject's verdict takes; more may be negative.
func (b *boundBinding) addHeld(s verdict.Subject, more int64) {
	if more == 0 {
		return
	}
	b.heldBytes += more
	if b.heldByMember[s.Ref.Member] += more; b.heldByMember[s.Ref.Member] <= 0 {
		delete(b.heldByMember, s.Ref.Member)
	}
}

// refuse reports whether there is no room for a verdict, and remembers it. Members that
// hold little get as much room again, so that one that holds much does not harm them.
func (b *boundBinding) refuse(s verdict.Subject, cost, limit int64) bool {
	if b.heldBytes+cost <= limit || b.heldBytes+cost <= 2*limit && b.heldByMember[s.Ref.Member]+cost <= limit/16 {
		return false
	}
	if b.refused == nil {
		b.refused = map[verdict.Subject]int64{}
	}
	b.refused[s] = cost
	return true
}

// markRefused marks refused subjects for whose verdicts there is room again.
func (r *pass) markRefused(b *boundBinding) {
	room := r.e.opts.Limits.Binding/4*3 - b.heldBytes
	for s, cost := range b.refused {
		if room -= cost; room < 0 {
			return
		}
		if b.pkg.Subject == module.ObjectSubject {
			r.markObject(b, s.Ref)
		} else {
			r.markSubject(b, s)
		}
	}
}
