package engine

import (
	"iter"
	"slices"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// Changes is how a call changed the verdicts.
type Changes struct {
	// Before and After are the states; Before is nil when there was none.
	Before, After *state.State

	// Viewed and Evaluated are when Apply had brought views up to date, and evaluated subjects; zero without Options.Causes.
	Viewed, Evaluated time.Time

	causes          map[verdict.Subject]*Cause // shared by the subjects of one change
	touched         []touch
	exported        ExportedChanges
	supersededBytes int64
	compareAll      bool // verdicts may differ without an evaluation
	membersChanged  bool // joined or left
	rebuilt         bool // verdicts were evaluated from nothing
	reset           bool // all of them
}

// Cause is an object whose change in a batch verdicts were evaluated for.
type Cause struct {
	Ref      aggregate.Ref
	Revision aggregate.Revision // of its change; 0: it was deleted
}

// Cause returns why Apply has evaluated a subject: the change of its own object, or one of those of objects that it has read. ok is false where
// no object was changed for it, and without Options.Causes where it was another one.
func (c *Changes) Cause(s verdict.Subject) (cause Cause, ok bool) {
	if s.Ref.Name != "" && c.Before != nil {
		was, before := c.Before.Snapshot.Get(s.Ref)
		is, after := c.After.Snapshot.Get(s.Ref)
		switch {
		case after && (!before || was.Revision() != is.Revision()):
			return Cause{s.Ref, is.Revision()}, true
		case before && !after:
			return Cause{s.Ref, 0}, true
		}
	}
	if of := c.causes[s]; of != nil {
		return *of, true
	}
	return Cause{}, false
}

// ForgetCauses forgets the changes of other objects, so that Changes that are kept take no more memory than what they tell.
// Cause is not called at the same time or later.
func (c *Changes) ForgetCauses() { c.causes = nil }

// causeOf returns the cause that a delta is.
func causeOf(d *aggregate.Delta) *Cause {
	if d.After.IsZero() {
		return &Cause{Ref: d.Ref}
	}
	return &Cause{d.Ref, d.After.Revision()}
}

// causedBy notes the first cause, if any, that a subject is evaluated for.
func (c *Changes) causedBy(cause *Cause, s verdict.Subject) {
	if cause == nil || c.causes[s] != nil {
		return
	}
	if c.causes == nil {
		c.causes = map[verdict.Subject]*Cause{}
	}
	c.causes[s] = cause
}

type touch struct {
	binding string
	subject verdict.Subject
}

// Change is a verdict that differs. Before is nil when the subject was not one of the
// binding, After when it no longer is.
type Change struct {
	Before, After *verdict.Verdict
}

// add notes a subject with an outcome, of the version of the policy that is in effect for it.
// After a reset all are compared.
func (c *Changes) add(b *boundBinding, s verdict.Subject, found ...*state.Outcome) {
	if !c.reset && b.inEffect(s.Ref.Member) {
		c.touch(b.Name, s, found...)
	}
}

func (c *Changes) touch(binding string, s verdict.Subject, found ...*state.Outcome) {
	for _, f := range found {
		if f != nil {
			c.touched = append(c.touched, touch{binding, s})
			return
		}
	}
}

// Empty reports whether no verdict with violations or an error, before or after, was
// evaluated again, so that All yields nothing, and no member joined or left. The
// converse need not hold.
func (c *Changes) Empty() bool {
	return c.Before != nil && len(c.touched) == 0 && !c.compareAll && !c.membersChanged
}

// SupersededBytes estimates the bytes of outcomes and views that Before holds and After
// does not.
func (c *Changes) SupersededBytes() int64 { return c.supersededBytes }

// Rebuilt reports whether bindings came, went or were evaluated from nothing: which violations there are
// follows from After.
func (c *Changes) Rebuilt() bool { return c.rebuilt }

// Reset reports whether everything was evaluated, on any snapshot: what differs need not follow from
// what was configured last.
func (c *Changes) Reset() bool { return c.reset }

// SeenChange is a violation that was first seen, or is gone.
type SeenChange struct {
	state.Seen // with when it was first seen, also where it is gone

	Binding string
	Of      verdict.Subject
	Gone    bool
}

// Seen yields the violations that were first seen in a call that has not Rebuilt, and those that are gone. A violation that a failure
// hides is not gone.
func (c *Changes) Seen() iter.Seq[SeenChange] {
	return func(yield func(SeenChange) bool) {
		for _, t := range c.touched {
			before, after := c.Before.SeenOf(t.binding, t.subject), c.After.SeenOf(t.binding, t.subject)
			for _, x := range after {
				if !slices.Contains(before, x) && !yield(SeenChange{Seen: x, Binding: t.binding, Of: t.subject}) {
					return
				}
			}
			for _, x := range before {
				gone := !slices.ContainsFunc(after, func(y state.Seen) bool { return x.Violation == y.Violation })
				if gone && !yield(SeenChange{Seen: x, Binding: t.binding, Of: t.subject, Gone: true}) {
					return
				}
			}
		}
	}
}

// All yields what differs, in state, violations or message, among the verdicts that
// have violations or failed in either state. Clean verdicts that turn from Known to
// Unknown or back are not among them: State.Counts has their number. The order is not
// defined.
func (c *Changes) All() iter.Seq[Change] {
	return func(yield func(Change) bool) {
		if c.After == nil {
			return
		}
		if !c.compareAll {
			seen := make(map[touch]bool, len(c.touched))
			for _, t := range c.touched {
				if seen[t] {
					continue
				}
				seen[t] = true
				if d, ok := c.compare(t); ok && !yield(d) {
					return
				}
			}
			return
		}
		for _, name := range c.names() {
			seen := map[verdict.Subject]bool{}
			for _, s := range []*state.State{c.Before, c.After} {
				if s == nil {
					continue
				}
				for v := range s.Findings(name, "") {
					if seen[v.Subject] {
						continue
					}
					seen[v.Subject] = true
					if d, ok := c.compare(touch{name, v.Subject}); ok && !yield(d) {
						return
					}
				}
			}
		}
	}
}

func (c *Changes) names() []string {
	var names []string
	for _, s := range []*state.State{c.Before, c.After} {
		if s != nil {
			for b := range s.Bindings() {
				names = append(names, b.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (c *Changes) compare(t touch) (Change, bool) {
	var d Change
	if c.Before != nil {
		if v, ok := c.Before.Get(t.binding, t.subject); ok {
			d.Before = &v
		}
	}
	if v, ok := c.After.Get(t.binding, t.subject); ok {
		d.After = &v
	}
	switch {
	case d.Before == nil || d.After == nil:
		return d, d.Before != d.After
	default:
		return d, !verdict.Same(d.Before, d.After)
	}
}
