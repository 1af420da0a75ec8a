package state

import (
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// Outcome is the content of a verdict apart from its state. Immutable once it is stored.
type Outcome struct {
	found     *[]verdict.Violation // which others may share; nil: none
	Failure   *Failure             // nil: it was evaluated
	Revision  aggregate.Revision
	FirstSeen verdict.Times // of the violations; of a failure, when it began
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

// Violations returns what was found. The caller must not change it.
func (f *Outcome) Violations() []verdict.Violation {
	if f == nil || f.found == nil {
		return nil
	}
	return *f.found
}

// SameOutcome reports whether two outcomes say the same, whenever they were found.
func SameOutcome(a, b *Outcome) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Failure != nil && b.Failure != nil {
		return a.Failure.Err == b.Failure.Err && a.Failure.QuarantinedFor == b.Failure.QuarantinedFor
	}
	return a.Failure == b.Failure && verdict.SameViolations(a.Violations(), b.Violations())
}

// seenBytes is what a Seen takes.
const seenBytes = 24

// Size estimates the bytes that an outcome takes.
func (f *Outcome) Size() int64 {
	if f == nil {
		return 0
	}
	n := 0
	if f.Failure != nil {
		n = len(f.Failure.Err) + len(f.Failure.former)*seenBytes
	}
	for i := range f.Violations() {
		n += f.Violations()[i].Size()
	}
	return int64(n) + f.FirstSeen.Size()
}

// Seen is when a violation was first seen, in seconds since 1970.
type Seen struct {
	Subject, Violation uint64 // digests
	At                 int64
}

// Seen returns the violations of a subject, and those that a failure hides.
func (f *Outcome) Seen(s verdict.Subject) []Seen {
	switch {
	case f == nil:
		return nil
	case f.Failure != nil:
		return f.Failure.former
	}
	out, subject := make([]Seen, len(f.Violations())), s.Digest()
	for i := range f.Violations() {
		out[i] = Seen{subject, f.Violations()[i].Digest(), f.FirstSeen.Seconds(i)}
	}
	return out
}

// FindsMore reports whether an outcome has violations that another one of the same subject does not know.
func (f *Outcome) FindsMore(s verdict.Subject, than *Outcome) bool {
	known := than.Seen(s)
	for i := range f.Violations() {
		key := f.Violations()[i].Digest()
		if !slices.ContainsFunc(known, func(k Seen) bool { return k.Violation == key }) {
			return true
		}
	}
	return false
}

// Dated returns the outcome of a subject with the times at which its violations were first seen: those of
// before, an outcome of the same subject, or of earlier where these have none, and else now.
// Outcomes of one evaluation may be shared by many subjects: one that has times of its own is a copy.
func (f *Outcome) Dated(s verdict.Subject, before *Outcome, earlier []Seen, now int64) *Outcome {
	known := before.Seen(s)
	if len(known) == 0 {
		known = earlier
	} else if len(earlier) > 0 {
		known = slices.Concat(known, earlier) // the first of a violation counts
	}
	if f.Failure != nil {
		return f.datedFailure(before, known, now)
	}
	var times []int64
	for i := range f.Violations() {
		at := now
		if len(known) > 0 {
			key := f.Violations()[i].Digest()
			if j := slices.IndexFunc(known, func(k Seen) bool { return k.Violation == key }); j >= 0 {
				at = known[j].At
			}
		}
		if at != now && times == nil {
			times = make([]int64, len(f.Violations()))
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

func (f *Outcome) datedFailure(before *Outcome, known []Seen, now int64) *Outcome {
	own, failure := *f, *f.Failure
	own.Failure, failure.former = &failure, known
	own.FirstSeen = verdict.AllAt(now)
	if before != nil && before.Failure != nil && before.Failure.Err == failure.Err {
		own.FirstSeen = before.FirstSeen
	}
	return &own
}

// Continued returns an outcome that takes the place of another version's, which was shown for the subject so far: what
// both find, was there before.
func (f *Outcome) Continued(s verdict.Subject, shown *Outcome, at aggregate.Revision) *Outcome {
	own := *f
	if f.Failure != nil {
		failure := *f.Failure
		own.Failure, failure.former = &failure, shown.Seen(s)
		if shown != nil && shown.Failure != nil && shown.Failure.Err == failure.Err {
			own.FirstSeen = shown.FirstSeen
		}
	} else {
		known := shown.Seen(s)
		times := make([]int64, len(f.Violations()))
		for i := range f.Violations() {
			times[i] = f.FirstSeen.Seconds(i)
			key := f.Violations()[i].Digest()
			if j := slices.IndexFunc(known, func(k Seen) bool { return k.Violation == key }); j >= 0 {
				times[i] = known[j].At
			}
		}
		own.FirstSeen = verdict.TimesOf(times)
	}
	if own.Revision = at; SameOutcome(f, shown) {
		own.Revision = shown.Revision
	}
	return &own
}
