package engine

import (
	"sync/atomic"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/quarantine"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// bound is a binding in an engine, with its verdicts. All but the counters belong
// to the engine's goroutine; workers read what evaluations need.
type bound struct {
	binding.Binding

	id    uint32 // never used again
	pkg   *module.Package
	sel   *binding.Selection
	query query
	mask  *mask.Mask // of the object
	pins  map[aggregate.Kind]string
	alike bool   // see the function
	view  *view  // of a ViewSubject
	hash  string // of the package: what changes when the policy does

	selected, visible, tolerated binding.MemberSet // of the engine's snapshot

	state.Verdicts

	overran map[verdict.Subject]int   // those that overran the budget: how often
	frozen  *state.Binding            // nil when the verdicts are newer
	sum     int64                     // bytes of what was found and read
	sums    map[string]int64          // by member
	refused map[verdict.Subject]int64 // subjects whose verdicts there was no room for: what they take

	*counters
}

// counters are how a binding's policy does. Workers count.
type counters struct {
	evaluations, nanoseconds, overruns, errors, wide, reads atomic.Int64

	score quarantine.Scores
}

// look finds the members that the binding selects, sees and tolerates.
func (b *bound) look(s *aggregate.Snapshot) {
	b.selected, b.visible, b.tolerated = b.sel.Sets(s, b.id+1)
	b.frozen = nil
}

func (b *bound) clear() {
	b.Verdicts = state.NewVerdicts()
	b.frozen, b.overran = nil, nil
	b.sum, b.sums, b.refused = 0, map[string]int64{}, nil
}

// count counts n verdicts of a class as the binding's: its frozen ones are older then.
func (b *bound) count(member string, c *completeness.ReadSet, f *state.Outcome, n int) {
	b.frozen = nil
	b.Verdicts.Count(member, c, f, n)
}

// matches reports whether an object is a subject.
func (b *bound) matches(selected *binding.MemberSet, o aggregate.Object) bool {
	return !o.IsZero() && selected.Has(o.Member()) && b.sel.Object(o)
}

// counts reports whether an entry of the binding's view counts.
func (b *bound) counts(e matview.Entry, s *aggregate.Snapshot) bool {
	return b.sel.Entry(&e.Of.Ref, s, &b.selected, &b.visible)
}

// view is a view of a package in an engine, with how it is evaluated.
type view struct {
	matview.View

	query   query
	pins    map[aggregate.Kind]string
	score   *quarantine.Scores
	overran map[aggregate.Ref]int // objects that overran the budget: how often
}

func (v *view) clear() {
	v.View.Clear()
	v.overran = nil
}

// freeze returns the binding as it is now.
func (b *bound) freeze() *state.Binding {
	if b.frozen == nil {
		b.frozen = &state.Binding{
			Binding: b.Binding, Pkg: b.pkg, Selection: b.sel, Selected: b.selected, Visible: b.visible, Tolerated: b.tolerated,
			Verdicts: b.Verdicts.Freeze(),
		}
		if b.view != nil {
			b.frozen.View = b.view.ID
		}
	}
	s := *b.frozen
	s.Health = verdict.Health{
		Evaluations: b.evaluations.Load(), Nanoseconds: b.nanoseconds.Load(), Overruns: b.overruns.Load(),
		Errors: b.errors.Load(), Wide: b.wide.Load(),
	}
	s.Health.Quarantines = b.score.Quarantines()
	return &s
}
