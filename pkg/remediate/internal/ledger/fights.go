package ledger

import (
	"slices"
	"time"

	"federator.dev/federator/pkg/policy"
)

// What makes a fight of slow writes, and of two policies.
const (
	SlowFightWithin = 7 * 24 * time.Hour
	slowFightDays   = 5
	fightTurns      = 3
)

// Fight is a target that a policy writes again and again.
type Fight struct {
	Writes int    // within the window, or within SlowFightWithin
	Days   int    // distinct days of writes, of a slow fight
	With   string // the other policy, of a fight between two
	Turns  int    // that each of them has written
}

// Fight returns the fight over a target that a policy is about to write again. Writes before
// since do not count: they have been acknowledged.
func (l *Ledger) Fight(name string, ref policy.Ref, window time.Duration, most int, since, now time.Time) (Fight, bool) {
	t := l.targets[ref]
	if t == nil {
		return Fight{}, false
	}
	counts := func(w write, within time.Duration) bool { return now.Sub(w.at) < within && w.at.After(since) }
	n, slow := 0, 0
	var days []time.Time
	for _, w := range t.history {
		if w.policy != name {
			continue
		}
		if counts(w, window) {
			n++
		}
		if day := w.at.UTC().Truncate(24 * time.Hour); counts(w, SlowFightWithin) {
			if slow++; !slices.ContainsFunc(days, day.Equal) {
				days = append(days, day)
			}
		}
	}
	if with, turns := t.turns(name, func(w write) bool { return counts(w, window) }); with != "" {
		return Fight{Writes: n, With: with, Turns: turns}, true
	}
	switch {
	case n >= most:
		return Fight{Writes: n}, true
	case len(days) >= slowFightDays:
		return Fight{Writes: slow, Days: len(days)}, true
	}
	return Fight{}, false
}

// turns returns the policy with which another writes a target in turns, "" for none: each
// has written it fightTurns times after the other.
func (t *target) turns(name string, counts func(write) bool) (with string, turns int) {
	var others []string
	for _, w := range t.history {
		if w.policy != name && w.policy != nobody && counts(w) && !slices.Contains(others, w.policy) {
			others = append(others, w.policy)
		}
	}
	slices.Sort(others)
	for _, other := range others {
		own, theirs, last := 0, 0, ""
		for _, w := range t.history {
			if w.policy != name && w.policy != other || w.policy == last || !counts(w) {
				continue
			}
			if last = w.policy; last == name {
				own++
			} else {
				theirs++
			}
		}
		if min(own, theirs) >= fightTurns {
			return other, min(own, theirs)
		}
	}
	return "", 0
}
