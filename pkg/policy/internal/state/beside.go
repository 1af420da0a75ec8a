package state

import (
	"iter"

	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// Comparison is how the verdicts of the version of a policy that is to take the place of another differ from the
// other's, on all members.
//
// A subject that one of them does not have counts as clean there. What a verdict that is Unknown finds, or does not
// find, says nothing of its version, so that New and Gone are of verdicts that both know, or that failed:
//   - where both are Unknown nothing counts: neither version knows more, and what is away for days holds up no rollout;
//   - where only the next one is Unknown it counts as Unknown, and where only the former is and the next one
//     finds more, as Unsettled. That nothing new is found can then not be said, nor that something is: the evidence
//     is not Complete, by which a version is neither promoted nor taken back.
type Comparison struct {
	Version   string // of the one that is to take the other's place
	Subjects  int    // its subjects
	New       int    // violations that only it finds, exempt ones aside, and that the other did not find before it failed
	Gone      int    // violations that only the other finds, exempt ones aside, where its own verdict is no Error
	Errors    int    // subjects whose verdict is an Error, and is not of the other
	Unknown   int    // subjects whose verdict is Unknown, and is not of the other
	Unsettled int    // subjects of which it finds more, and of which the other's verdict is Unknown
	// Complete says that the state is Synced, that no scope is waited for that either of them evaluates or reads, and
	// that nothing is Unknown, Unsettled, or to be evaluated again because it took too long.
	Complete bool
	// Former and Next are the health of both.
	Former, Next verdict.Health
}

// Compare compares the versions of a policy; false if there is one only. It visits the violations of both, and all
// subjects of members for which not all verdicts are Known.
func (s *State) Compare(binding string) (Comparison, bool) {
	b := s.parts.Binding(binding)
	if b == nil || b.Next == nil {
		return Comparison{}, false
	}
	c := Comparison{Version: b.Next.Version, Former: s.health(b), Next: s.health(b.Next)}
	b.Next.tallies.Scan(func(t *tally) bool {
		n := b.Next.counts(s, t)
		c.Subjects += n.Known + n.Unknown + n.Errors
		was, _ := b.tallies.Get(t)
		c.compare(s, b, t.member, b.Next.complete(s, t) && b.complete(s, was))
		return true
	})
	b.tallies.Scan(func(t *tally) bool {
		if _, both := b.Next.tallies.Get(t); !both {
			c.compare(s, b, t.member, b.complete(s, t))
		}
		return true
	})
	c.Complete = s.Synced && c.Unknown == 0 && c.Unsettled == 0
	for of := range b.Versions() {
		c.Complete = c.Complete && !of.Retrying && !s.anyGap(of, s.parts.Gaps.Awaited) && !s.waits(of)
	}
	return c, true
}

// complete reports whether all that the verdicts of a tally read is complete.
func (b *Binding) complete(s *State, t *tally) bool {
	if t == nil {
		return true
	}
	for _, of := range t.byReadSet {
		if state, _ := b.completeness(s, of.readSet, t.member, func(verdict.Gap) bool { return false }); state != verdict.Known {
			return false
		}
	}
	return true
}

// compare compares the verdicts on what is of a member, or on keys. complete says that all that they read is.
func (c *Comparison) compare(s *State, b *Binding, member string, complete bool) {
	for subject := range b.Next.compared(s, member, complete) {
		next, former := b.Next.opinion(s, subject, complete), b.opinion(s, subject, complete)
		switch next.state {
		case verdict.Unknown:
			if former.state != verdict.Unknown {
				c.Unknown++
			}
		case verdict.Error:
			if former.state != verdict.Error {
				c.Errors++
			}
		case verdict.Known:
			n := next.more(former.found(subject))
			if former.state != verdict.Unknown {
				c.New += n
			} else if n > 0 {
				c.Unsettled++
			}
		}
	}
	for subject := range b.compared(s, member, complete) {
		former, next := b.opinion(s, subject, complete), b.Next.opinion(s, subject, complete)
		if former.state == verdict.Known && next.state == verdict.Known {
			c.Gone += former.more(next.found(subject))
		}
	}
}

// compared yields the subjects of a member, or keys: only those with a record where the verdicts of all others are
// Known and clean.
func (b *Binding) compared(s *State, member string, complete bool) iter.Seq[verdict.Subject] {
	switch {
	case complete:
		return func(yield func(verdict.Subject) bool) {
			for r := range b.recordsIn(member) {
				if !yield(r.subject) {
					return
				}
			}
		}
	case member == "" && b.Pkg.Subject != module.ViewSubject:
		return func(func(verdict.Subject) bool) {}
	}
	return b.Subjects(s, member)
}

// opinion is what a version has on a subject: Known and clean where it has none.
type opinion struct {
	state   verdict.State
	outcome *Outcome
}

func (b *Binding) opinion(s *State, subject verdict.Subject, complete bool) opinion {
	o := opinion{state: verdict.Known}
	if !complete && !b.hasSubject(s, subject) {
		return o
	}
	reads, f := b.Get(subject)
	if o.outcome = f; !complete {
		o.state, _ = b.completeness(s, reads, subject.Ref.Member, func(verdict.Gap) bool { return false })
	}
	if f != nil && f.Failure != nil {
		o.state = verdict.Error
	}
	return o
}

// found returns how often each violation is found that is not exempt, or was before an Error hid it.
func (o *opinion) found(subject verdict.Subject) map[uint64]int {
	if o.outcome == nil {
		return nil
	}
	found := map[uint64]int{}
	if o.state == verdict.Error {
		for _, x := range o.outcome.Seen(subject) {
			found[x.Violation]++
		}
		return found
	}
	for i := range o.outcome.Violations() {
		if v := &o.outcome.Violations()[i]; v.Exempt == "" {
			found[v.Digest()]++
		}
	}
	return found
}

// more returns how many violations it has that are not exempt and not among others, which it uses up. Each counts as
// often as its message is there.
func (o *opinion) more(than map[uint64]int) (n int) {
	if o.outcome == nil {
		return 0
	}
	for i := range o.outcome.Violations() {
		v := &o.outcome.Violations()[i]
		if v.Exempt != "" {
			continue
		}
		if key := v.Digest(); than[key] > 0 {
			than[key]--
		} else {
			n++
		}
	}
	return n
}
