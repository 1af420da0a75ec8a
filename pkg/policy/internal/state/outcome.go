package state

import (
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// Outcome is the content of a verdict apart from its state. Immutable once it is stored.
type Outcome struct {
	Violations []verdict.Violation
	Failure    *Failure // nil: it was evaluated
	Revision   aggregate.Revision
	FirstSeen  verdict.Times // of the violations; of a failure, when it began
}

// Failure is why a subject was not evaluated.
type Failure struct {
	Err            string
	QuarantinedFor string // the member whose quarantine withheld the evaluation; "" for none

	former []Seen // the violations that were found before
}

// Failed returns the outcome of an evaluation that failed.
func Failed(err string) *Outcome { return &Outcome{Failure: &Failure{Err: err}} }

// quarantinedFor reports whether the quarantine of one of some members withheld the evaluation.
func (f *Outcome) quarantinedFor(members []string) bool {
	return f != nil && f.Failure != nil && f.Failure.QuarantinedFor != "" && slices.Contains(members, f.Failure.QuarantinedFor)
}

// SameOutcome reports whether two outcomes say the same, whenever they were found.
func SameOutcome(a, b *Outcome) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Failure != nil && b.Failure != nil {
		return a.Failure.Err == b.Failure.Err && a.Failure.QuarantinedFor == b.Failure.QuarantinedFor
	}
	return a.Failure == b.Failure && verdict.SameViolations(a.Violations, b.Violations)
}

// seenBytes is what a Seen takes.
const seenBytes = 16

// Size estimates the bytes that an outcome takes.
func (f *Outcome) Size() int64 {
	if f == nil {
		return 0
	}
	n := 0
	if f.Failure != nil {
		n = len(f.Failure.Err) + len(f.Failure.former)*seenBytes
	}
	for i := range f.Violations {
		n += f.Violations[i].Size()
	}
	return int64(n) + f.FirstSeen.Size()
}

// Seen is when a violation was first seen, in seconds since 1970; 0: it is gone.
type Seen struct {
	Key uint64 // see verdict.ViolationKey
	At  int64
}

// Seen returns the violations of a subject, and those that a failure hides.
func (f *Outcome) Seen(s verdict.Subject) []Seen {
	switch {
	case f == nil:
		return nil
	case f.Failure != nil:
		return f.Failure.former
	}
	out := make([]Seen, len(f.Violations))
	for i := range f.Violations {
		out[i] = Seen{verdict.ViolationKey(s, f.Violations[i].Msg), f.FirstSeen.Seconds(i)}
	}
	return out
}

// Dated returns the outcome of a subject with the times at which its violations were first seen: those
// of before, an outcome of the same subject, or of recall, and else now. Outcomes of one evaluation may
// be shared by many subjects: one that has times of its own is a copy.
func (f *Outcome) Dated(s verdict.Subject, before *Outcome, now int64, recall func(key uint64) (at int64, ok bool)) *Outcome {
	if f.Failure != nil {
		return f.datedFailure(s, before, now)
	}
	var times []int64
	known := before.Seen(s)
	for i := range f.Violations {
		at := now
		if len(known) > 0 || recall != nil {
			key := verdict.ViolationKey(s, f.Violations[i].Msg)
			if j := slices.IndexFunc(known, func(k Seen) bool { return k.Key == key }); j >= 0 {
				at = known[j].At
			} else if recall != nil {
				if t, ok := recall(key); ok {
					at = t
				}
			}
		}
		if at != now && times == nil {
			times = make([]int64, len(f.Violations))
			for j := range i {
				times[j] = now
			}
		}
		if times != nil {
			times[i] = at
		}
	}
	if times == nil {
		f.FirstSeen = verdict.AllAt(now) // the same for all that share it
		return f
	}
	own := *f
	own.FirstSeen = verdict.TimesOf(times)
	return &own
}

func (f *Outcome) datedFailure(s verdict.Subject, before *Outcome, now int64) *Outcome {
	own, failure := *f, *f.Failure
	own.Failure, failure.former = &failure, before.Seen(s)
	own.FirstSeen = verdict.AllAt(now)
	if before != nil && before.Failure != nil && before.Failure.Err == failure.Err {
		own.FirstSeen = before.FirstSeen
	}
	return &own
}
