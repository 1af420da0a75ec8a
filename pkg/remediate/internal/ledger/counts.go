package ledger

import (
	"iter"
	"maps"
	"slices"
	"time"

	"federator.dev/federator/pkg/policy"
)

// tally counts targets, and the distinct subjects that they are corrected for.
type tally struct {
	targets  int
	subjects map[policy.Subject]int
}

func newTally() tally { return tally{subjects: map[policy.Subject]int{}} }

func (t *tally) add(s policy.Subject, by int) {
	t.targets += by
	if t.subjects[s] += by; t.subjects[s] == 0 {
		delete(t.subjects, s)
	}
}

// Counts are the targets of one policy, and how many are in each member.
type Counts struct {
	total   tally
	members map[string]*tally
}

func newCounts() Counts { return Counts{newTally(), map[string]*tally{}} }

func (c *Counts) add(member string, s policy.Subject, by int) {
	c.total.add(s, by)
	m := c.members[member]
	if m == nil {
		t := newTally()
		m = &t
		c.members[member] = m
	}
	if m.add(s, by); m.targets == 0 {
		delete(c.members, member)
	}
}

// Count is how many distinct targets there are, and how many distinct subjects these are
// corrected for.
type Count struct{ Targets, Subjects int }

func (t *tally) count() Count { return Count{t.targets, len(t.subjects)} }

// Affected counts the targets that a policy has written within its window, is writing, and
// is about to write.
func (l *Ledger) Affected(name string) Count {
	if a := l.accounts[name]; a != nil {
		return a.affected.total.count()
	}
	return Count{}
}

// Members returns the same by member, in order.
func (l *Ledger) Members(name string) iter.Seq2[string, Count] {
	return func(yield func(string, Count) bool) {
		a := l.accounts[name]
		if a == nil {
			return
		}
		for _, member := range slices.Sorted(maps.Keys(a.affected.members)) {
			if !yield(member, a.affected.members[member].count()) {
				return
			}
		}
	}
}

// Fleet counts the targets that all policies have written within a window, or are writing,
// and those that one is about to write. The window is the fleet's or the policy's own.
func (l *Ledger) Fleet(name string, window time.Duration) Count {
	v := l.views[window]
	if v == nil {
		return Count{}
	}
	n := v.tally.count()
	if a := l.accounts[name]; a != nil {
		extra := a.extra[v]
		// A subject may be in both: counted twice, it halts earlier.
		n.Targets, n.Subjects = n.Targets+extra.targets, n.Subjects+len(extra.subjects)
	}
	return n
}

// After is how much of a limit is used once a target is written, too. Where it is known to be
// written already, one more write of it uses nothing.
type After struct {
	Count

	Known bool
}

// Writes are the uses of all limits that a write of one target counts towards.
type Writes struct{ Policy, Member, Fleet, PolicyFleet After }

// Writing returns what would be used by what is written and being written, with one more
// target, whatever is pending.
func (l *Ledger) Writing(name string, ref policy.Ref, subject policy.Subject, now time.Time) (w Writes) {
	a, t := l.account(name), l.targets[ref]
	e := a.entries[ref]
	counted := e != nil && e.used()
	known := counted && (e.writing || !e.sure.IsZero() && e.sure.Add(a.window).After(now))
	w.Policy = a.used.total.with(subject, counted, known)
	w.Member = After{Count{1, 1}, false}
	if m := a.used.members[ref.Member]; m != nil {
		w.Member = m.with(subject, counted, known)
	}
	fleet := l.views[l.fleetWindow]
	w.Fleet = fleet.tally.with(subject, fleet.live[ref], t.isKnown(fleet.window, now))
	w.PolicyFleet = w.Fleet
	if own := l.views[a.window]; own != nil {
		w.PolicyFleet = own.tally.with(subject, own.live[ref], t.isKnown(own.window, now))
	}
	return w
}

// with counts one more target unless it is counted.
func (t *tally) with(s policy.Subject, counted, known bool) After {
	n := t.count()
	if !counted {
		n.Targets++
	}
	if !known && t.subjects[s] == 0 {
		n.Subjects++
	}
	return After{n, known}
}

// RecordStart counts a started correction towards the rate of a policy in a member.
func (l *Ledger) RecordStart(name, member string, at time.Time) {
	starts := l.account(name).starts
	times := append(starts[member], at)
	slices.SortFunc(times, time.Time.Compare)
	starts[member] = times
}

// NextStart returns when a policy may start its next correction in a member: now, or
// later. A rate of 0 is unlimited.
func (l *Ledger) NextStart(name, member string, perMinute int, now time.Time) time.Time {
	if perMinute == 0 || l.accounts[name] == nil {
		return now
	}
	times := l.accounts[name].starts[member]
	recent := 0
	for _, at := range times {
		if now.Sub(at) < time.Minute {
			recent++
		}
	}
	if recent < perMinute {
		return now
	}
	return times[len(times)-perMinute].Add(time.Minute)
}

func (l *Ledger) advanceStarts(now time.Time) {
	for _, a := range l.accounts {
		for member, times := range a.starts {
			times = slices.DeleteFunc(times, func(at time.Time) bool { return now.Sub(at) >= time.Minute })
			if a.starts[member] = times; len(times) == 0 {
				delete(a.starts, member)
			}
		}
	}
}
