package state

import (
	"iter"
	"maps"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/sorted"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// record is the outcome of a subject that is not clean, or that has another read set
// than most of its kind.
type record struct {
	subject verdict.Subject
	readSet *completeness.ReadSet
	outcome *Outcome
}

func lessRecord(a, b record) bool { return a.subject.Compare(b.subject) < 0 }

// tally counts the verdicts of one member by read set.
type tally struct {
	member    string
	byReadSet []readSetTally
}

type readSetTally struct {
	readSet                        *completeness.ReadSet
	ok, failed, violations, exempt int // verdicts without and with an error; violations without and with an exemption
}

func lessTally(a, b *tally) bool { return a.member < b.member }

// Verdicts are the verdicts of a binding. A subject without a record is clean and has
// its kind's default read set.
type Verdicts struct {
	Defaults    map[aggregate.Kind]*completeness.ReadSet
	records     *sorted.Tree[record]
	tallies     *sorted.Tree[*tally] // by member; "" for keys of views
	unpublished map[*tally]bool      // those that no published state shares yet
}

func NewVerdicts() Verdicts {
	return Verdicts{
		Defaults: map[aggregate.Kind]*completeness.ReadSet{},
		records:  sorted.New(lessRecord), tallies: sorted.New(lessTally), unpublished: map[*tally]bool{},
	}
}

// Freeze returns a copy that later changes do not touch.
func (b *Verdicts) Freeze() Verdicts {
	clear(b.unpublished)
	return Verdicts{records: b.records.Copy(), tallies: b.tallies.Copy(), Defaults: maps.Clone(b.Defaults)}
}

// Get returns the read set and the outcome of a subject.
func (b *Verdicts) Get(s verdict.Subject) (*completeness.ReadSet, *Outcome) {
	if r, ok := b.records.Get(record{subject: s}); ok {
		return r.readSet, r.outcome
	}
	return b.Defaults[s.Ref.Kind], nil
}

// Put stores the read set and the outcome of a subject.
func (b *Verdicts) Put(s verdict.Subject, c *completeness.ReadSet, f *Outcome) {
	if f == nil && c == b.Defaults[s.Ref.Kind] {
		b.records.Delete(record{subject: s})
		return
	}
	b.records.Set(record{subject: s, readSet: c, outcome: f})
}

// Append is Put for a subject that has no verdict, and comes after most that have one.
func (b *Verdicts) Append(s verdict.Subject, c *completeness.ReadSet, f *Outcome) {
	if f != nil || c != b.Defaults[s.Ref.Kind] {
		b.records.Append(record{subject: s, readSet: c, outcome: f})
	}
}

// Delete forgets a subject.
func (b *Verdicts) Delete(s verdict.Subject) { b.records.Delete(record{subject: s}) }

// Replaced estimates the bytes that were replaced since the last state.
func (b *Verdicts) Replaced() int64 { return b.records.ReplacedBytes() }

// Recount adds the verdicts to the counts of their read sets.
func (b *Verdicts) Recount() {
	for _, c := range b.Defaults {
		c.Refs++
	}
	b.tallies.Scan(func(t *tally) bool {
		for _, of := range t.byReadSet {
			if of.readSet != nil {
				of.readSet.Refs += of.ok + of.failed
			}
		}
		return true
	})
}

// WaitsIn reports whether a verdict on what is of a member has read keys that were not held.
func (b *Verdicts) WaitsIn(member string) bool {
	t, ok := b.tallies.Get(&tally{member: member})
	return ok && t.waits()
}

// Waiting yields the members with such verdicts; "" is for keys of views.
func (b *Verdicts) Waiting() iter.Seq[string] {
	return func(yield func(string) bool) {
		b.tallies.Scan(func(t *tally) bool { return !t.waits() || yield(t.member) })
	}
}

func (t *tally) waits() bool {
	return slices.ContainsFunc(t.byReadSet, func(of readSetTally) bool { return of.readSet != nil && of.readSet.Unheld.Any() })
}

// Quarantined yields the subjects whose evaluation a quarantine of one of the members
// withheld.
func (b *Verdicts) Quarantined(members []string) iter.Seq[verdict.Subject] {
	return func(yield func(verdict.Subject) bool) {
		b.records.Scan(func(rec record) bool {
			return !rec.outcome.quarantinedFor(members) || yield(rec.subject)
		})
	}
}

// Count adds n verdicts, which may be negative, to the counts.
func (b *Verdicts) Count(member string, c *completeness.ReadSet, f *Outcome, n int) {
	t, ok := b.tallies.Get(&tally{member: member})
	if !ok || !b.unpublished[t] {
		fresh := &tally{member: member}
		if ok {
			fresh.byReadSet = slices.Clone(t.byReadSet)
		}
		t = fresh
		b.tallies.Set(t)
		b.unpublished[t] = true
	}
	i := slices.IndexFunc(t.byReadSet, func(ct readSetTally) bool { return ct.readSet == c })
	if i < 0 {
		i = len(t.byReadSet)
		t.byReadSet = append(t.byReadSet, readSetTally{readSet: c})
	}
	ct := &t.byReadSet[i]
	switch {
	case f != nil && f.Failure != nil:
		ct.failed += n
	default:
		ct.ok += n
		if f != nil {
			for _, v := range f.Violations() {
				if v.Exempt != "" {
					ct.exempt += n
				} else {
					ct.violations += n
				}
			}
		}
	}
	if c != nil {
		c.Refs += n
	}
	if ct.ok == 0 && ct.failed == 0 {
		t.byReadSet = slices.Delete(t.byReadSet, i, i+1)
	}
	if len(t.byReadSet) == 0 {
		b.tallies.Delete(t)
		delete(b.unpublished, t)
	}
}
