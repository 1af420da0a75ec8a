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
	class   *completeness.ReadSet
	found   *Outcome
}

func lessRecord(a, b record) bool { return a.subject.Compare(b.subject) < 0 }

// tally counts the verdicts of one member by class.
type tally struct {
	member  string
	classes []classTally
}

type classTally struct {
	class                           *completeness.ReadSet
	good, failed, violations, waved int // verdicts, failed ones apart; violations, exempt ones apart
}

func lessTally(a, b *tally) bool { return a.member < b.member }

// Verdicts are those of a binding. A subject without a record is clean and of its
// kind's default class.
type Verdicts struct {
	Defaults map[aggregate.Kind]*completeness.ReadSet
	records  *sorted.Tree[record]
	tallies  *sorted.Tree[*tally] // by member; "" for keys of views
	owned    map[*tally]bool      // those that no state has yet
}

func NewVerdicts() Verdicts {
	return Verdicts{
		Defaults: map[aggregate.Kind]*completeness.ReadSet{},
		records:  sorted.New(lessRecord), tallies: sorted.New(lessTally), owned: map[*tally]bool{},
	}
}

// Freeze returns a copy that later changes do not touch.
func (b *Verdicts) Freeze() Verdicts {
	clear(b.owned)
	return Verdicts{records: b.records.Copy(), tallies: b.tallies.Copy(), Defaults: maps.Clone(b.Defaults)}
}

// Get returns what is known of a subject that has a verdict.
func (b *Verdicts) Get(s verdict.Subject) (*completeness.ReadSet, *Outcome) {
	if r, ok := b.records.Get(record{subject: s}); ok {
		return r.class, r.found
	}
	return b.Defaults[s.Ref.Kind], nil
}

// Put takes note of a verdict.
func (b *Verdicts) Put(s verdict.Subject, c *completeness.ReadSet, f *Outcome) {
	if f == nil && c == b.Defaults[s.Ref.Kind] {
		b.records.Delete(record{subject: s})
		return
	}
	b.records.Set(record{subject: s, class: c, found: f})
}

// Drop forgets the verdict on a subject.
func (b *Verdicts) Drop(s verdict.Subject) { b.records.Delete(record{subject: s}) }

// Replaced is about how many bytes were replaced since the last state.
func (b *Verdicts) Replaced() int64 { return b.records.Replaced() }

// Recount counts the verdicts that have each class again.
func (b *Verdicts) Recount() {
	for _, c := range b.Defaults {
		c.Refs++
	}
	b.tallies.Scan(func(t *tally) bool {
		for _, of := range t.classes {
			if of.class != nil {
				of.class.Refs += of.good + of.failed
			}
		}
		return true
	})
}

// HeldBack yields the subjects whose evaluation the quarantine of a member holds back.
func (b *Verdicts) HeldBack(members []string) iter.Seq[verdict.Subject] {
	return func(yield func(verdict.Subject) bool) {
		b.records.Scan(func(rec record) bool {
			return rec.found == nil || rec.found.Held == "" || !slices.Contains(members, rec.found.Held) || yield(rec.subject)
		})
	}
}

// Count adds n verdicts of a class, or takes them away.
func (b *Verdicts) Count(member string, c *completeness.ReadSet, f *Outcome, n int) {
	t, ok := b.tallies.Get(&tally{member: member})
	if !ok || !b.owned[t] {
		fresh := &tally{member: member}
		if ok {
			fresh.classes = slices.Clone(t.classes)
		}
		t = fresh
		b.tallies.Set(t)
		b.owned[t] = true
	}
	i := slices.IndexFunc(t.classes, func(ct classTally) bool { return ct.class == c })
	if i < 0 {
		i = len(t.classes)
		t.classes = append(t.classes, classTally{class: c})
	}
	ct := &t.classes[i]
	switch {
	case f != nil && f.Err != "":
		ct.failed += n
	default:
		ct.good += n
		if f != nil {
			for _, v := range f.Violations {
				if v.Exempt != "" {
					ct.waved += n
				} else {
					ct.violations += n
				}
			}
		}
	}
	if c != nil {
		c.Refs += n
	}
	if ct.good == 0 && ct.failed == 0 {
		t.classes = slices.Delete(t.classes, i, i+1)
	}
	if len(t.classes) == 0 {
		b.tallies.Delete(t)
		delete(b.owned, t)
	}
}

// Outcome is what a verdict has to say beside its state. Immutable.
type Outcome struct {
	Violations []verdict.Violation
	Err        string
	Held       string // the member whose quarantine holds the evaluation back
	Revision   aggregate.Revision
}

func SameFound(a, b *Outcome) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Err == b.Err && a.Held == b.Held && verdict.SameViolations(a.Violations, b.Violations)
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
