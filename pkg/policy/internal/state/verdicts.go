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

// record is what is known of a subject that has something to say, or of another
// class than others of its kind.
type record struct {
	subject verdict.Subject
	readSet *completeness.ReadSet
	outcome *Outcome
}

func lessRecord(a, b record) bool { return a.subject.Compare(b.subject) < 0 }

// tally counts the verdicts of one member by class.
type tally struct {
	member    string
	byReadSet []readSetTally
}

type readSetTally struct {
	readSet                        *completeness.ReadSet
	ok, failed, violations, exempt int // verdicts, failed ones apart; violations, exempt ones apart
}

func lessTally(a, b *tally) bool { return a.member < b.member }

// Verdicts are those of a binding. A subject without a record is clean and of its
// kind's default class.
type Verdicts struct {
	Defaults    map[aggregate.Kind]*completeness.ReadSet
	records     *sorted.Tree[record]
	tallies     *sorted.Tree[*tally] // by member; "" for keys of views
	unpublished map[*tally]bool      // those that no state has yet
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

// Get returns what is known of a subject that has a verdict.
func (b *Verdicts) Get(s verdict.Subject) (*completeness.ReadSet, *Outcome) {
	if r, ok := b.records.Get(record{subject: s}); ok {
		return r.readSet, r.outcome
	}
	return b.Defaults[s.Ref.Kind], nil
}

// Put takes note of a verdict.
func (b *Verdicts) Put(s verdict.Subject, c *completeness.ReadSet, f *Outcome) {
	if f == nil && c == b.Defaults[s.Ref.Kind] {
		b.records.Delete(record{subject: s})
		return
	}
	b.records.Set(record{subject: s, readSet: c, outcome: f})
}

// Delete forgets the verdict on a subject.
func (b *Verdicts) Delete(s verdict.Subject) { b.records.Delete(record{subject: s}) }

// Replaced is about how many bytes were replaced since the last state.
func (b *Verdicts) Replaced() int64 { return b.records.ReplacedBytes() }

// Recount counts the verdicts that have each class again.
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

// Quarantined yields the subjects whose evaluation the quarantine of a member holds back.
func (b *Verdicts) Quarantined(members []string) iter.Seq[verdict.Subject] {
	return func(yield func(verdict.Subject) bool) {
		b.records.Scan(func(rec record) bool {
			return rec.outcome == nil || rec.outcome.QuarantinedFor == "" || !slices.Contains(members, rec.outcome.QuarantinedFor) || yield(rec.subject)
		})
	}
}

// Count adds n verdicts of a class, or takes them away.
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
	case f != nil && f.Err != "":
		ct.failed += n
	default:
		ct.ok += n
		if f != nil {
			for _, v := range f.Violations {
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

// Outcome is what a verdict has to say beside its state. Immutable.
type Outcome struct {
	Violations     []verdict.Violation
	Err            string
	QuarantinedFor string // the member whose quarantine holds the evaluation back
	Revision       aggregate.Revision
}

func SameOutcome(a, b *Outcome) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Err == b.Err && a.QuarantinedFor == b.QuarantinedFor && verdict.SameViolations(a.Violations, b.Violations)
}

// Size is about how many bytes a finding takes.
func (f *Outcome) Size() int64 {
	if f == nil {
		return 0
	}
	n := len(f.Err)
	for i := range f.Violations {
		n += f.Violations[i].Size()
	}
	return int64(n)
}
