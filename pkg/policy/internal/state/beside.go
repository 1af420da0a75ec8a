package state

import (
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// Comparison is how the verdicts of the version of a policy that is to take the place of another differ from the
// other's, on all members.
type Comparison struct {
	Version  string // of the one that is to take the other's place
	Subjects int    // its subjects
	New      int    // violations that only it finds, exempt ones aside
	Gone     int    // violations that only the other finds, exempt ones aside
	Errors   int    // subjects whose verdict is an Error, and is not of the other
	Complete bool   // the state is Synced, and no scope is waited for that it evaluates or reads
	// Former and Next are the health of both.
	Former, Next verdict.Health
}

// Compare compares the versions of a policy; false if there is one only. It visits the violations of both.
func (s *State) Compare(binding string) (Comparison, bool) {
	b := s.parts.Binding(binding)
	if b == nil || b.Next == nil {
		return Comparison{}, false
	}
	c := Comparison{
		Version: b.Next.Version, Complete: s.Synced && !s.anyGap(b.Next, s.parts.Gaps.Awaited),
		Former: s.health(b), Next: s.health(b.Next),
	}
	b.Next.tallies.Scan(func(t *tally) bool {
		n := b.Next.counts(s, t)
		c.Subjects += n.Known + n.Unknown + n.Errors
		return true
	})
	if s.unknownViews(b) || s.unknownViews(b.Next) {
		c.compareVerdicts(s, b)
		return c, true
	}
	b.Next.records.Scan(func(r record) bool {
		_, former := b.Get(r.subject)
		c.New += more(r.outcome, former)
		if failed(r.outcome) && !failed(former) {
			c.Errors++
		}
		return true
	})
	b.records.Scan(func(r record) bool {
		_, next := b.Next.Get(r.subject)
		c.Gone += more(r.outcome, next)
		return true
	})
	return c, true
}

// unknownViews reports whether verdicts are Errors because of a view that is over its limit: their outcomes do not
// tell which.
func (s *State) unknownViews(b *Binding) bool {
	for _, v := range s.parts.Views {
		if ReadsView(b.Pkg, v) && v.OverLimit != "" {
			return true
		}
	}
	return false
}

// compareVerdicts compares all verdicts, clean ones too.
func (c *Comparison) compareVerdicts(s *State, b *Binding) {
	of := func(x *Binding, subject verdict.Subject) *Outcome {
		if !x.hasSubject(s, subject) {
			return nil
		}
		reads, f := x.Get(subject)
		if v := x.Verdict(s, subject, reads, f); v.State == verdict.Error {
			return Failed(v.Message)
		}
		return f
	}
	for subject := range b.Next.Subjects(s, "") {
		former, next := of(b, subject), of(b.Next, subject)
		c.New += more(next, former)
		if failed(next) && !failed(former) {
			c.Errors++
		}
	}
	for subject := range b.Subjects(s, "") {
		c.Gone += more(of(b, subject), of(b.Next, subject))
	}
}

func failed(f *Outcome) bool { return f != nil && f.Failure != nil }

// more returns how many violations one outcome has and another has not, exempt ones aside. Each counts as often as
// its message is there.
func more(f, than *Outcome) int {
	if f == nil || len(f.Violations) == 0 {
		return 0
	}
	known := map[uint64]int{}
	if than != nil {
		for i := range than.Violations {
			if v := &than.Violations[i]; v.Exempt == "" {
				known[v.Digest()]++
			}
		}
	}
	n := 0
	for i := range f.Violations {
		v := &f.Violations[i]
		if v.Exempt != "" {
			continue
		}
		if key := v.Digest(); known[key] > 0 {
			known[key]--
		} else {
			n++
		}
	}
	return n
}
