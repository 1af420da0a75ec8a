package simulation

import (
	"slices"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// A policy does not write one target again and again without a person: not more often than its
// fights allow within its window, not on more days of a week, and not in turns with another
// policy. One more of each is let pass: that of which a process cannot know yet.
type fightModel struct {
	writes   map[string][]writtenAt // by target, the oldest first
	accepted map[string]time.Time   // when a person let a policy go on, by policy
}

const (
	mostWrites = 5 // within a window
	mostDays   = 5 // within a week
	mostTurns  = 3 // of each of two policies
	week       = 7 * 24 * time.Hour
)

func newFightModel() fightModel {
	return fightModel{writes: map[string][]writtenAt{}, accepted: map[string]time.Time{}}
}

func (m *fightModel) acknowledged(policy string, h *remediate.Halt) {
	if h.Reason == v1alpha1.Fighting {
		m.accepted[policy] = time.Now()
	}
}

func (m *fightModel) written(x write) {
	m.writes[x.target()] = append(m.writes[x.target()], writtenAt{x, time.Now()})
}

func (m *fightModel) sent(w *world, p *process, x write) {
	const invariant = "4 fights"
	wish := p.told.policies[x.policy]
	if wish == nil {
		return // the gate's model says so
	}
	since := func(within time.Duration) (all []writtenAt) {
		for _, o := range m.writes[x.target()] {
			if time.Since(o.at) < within-skew && o.at.After(m.accepted[x.policy].Add(skew)) {
				all = append(all, o)
			}
		}
		return all
	}
	recent := since(wish.window)
	if n := own(recent, x.policy); n > mostWrites {
		w.fail(invariant, "%s writes %s for %s, which it has written %d times in %v", p.name, x.target(), x.policy, n, wish.window)
	}
	if n := days(since(week), x.policy); n > mostDays {
		w.fail(invariant, "%s writes %s for %s, which it has written on %d days", p.name, x.target(), x.policy, n)
	}
	if other, n := turns(recent, x.policy); n > mostTurns {
		w.fail(invariant, "%s writes %s for %s, which has written it in turns with %s, %d times each", p.name, x.target(), x.policy, other, n)
	}
}

func own(writes []writtenAt, policy string) (n int) {
	for _, o := range writes {
		if o.policy == policy {
			n++
		}
	}
	return n
}

// days returns on how many days a policy has written: by each clock, these days are the same.
func days(writes []writtenAt, policy string) int {
	var all []time.Time
	for _, o := range writes {
		day := o.at.UTC().Truncate(24 * time.Hour)
		if o.policy == policy && o.at.Sub(day) > skew && day.Add(24*time.Hour).Sub(o.at) > skew && !slices.ContainsFunc(all, day.Equal) {
			all = append(all, day)
		}
	}
	return len(all)
}

// turns returns the policy with which another writes in turns most, and how often each of them
// has written after the other.
func turns(writes []writtenAt, policy string) (with string, most int) {
	for _, b := range bindings {
		last, counts := "", map[string]int{}
		for _, o := range writes {
			if (o.policy == policy || o.policy == b.Name) && o.policy != last {
				last = o.policy
				counts[last]++
			}
		}
		if n := min(counts[policy], counts[b.Name]); b.Name != policy && n > most {
			with, most = b.Name, n
		}
	}
	return with, most
}
