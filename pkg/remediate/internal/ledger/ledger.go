// Package ledger counts which targets were written when: the sliding windows of all
// limits and rates. It reads no clock.
package ledger

import (
	"slices"
	"time"

	"federator.dev/federator/pkg/policy"
)

// Ledger remembers writes by the name of the policy. It is not safe for concurrent use.
type Ledger struct {
	fleetWindow time.Duration
	written     map[string]map[policy.Ref]time.Time // by policy: the last write of each target
	starts      map[string]map[string][]time.Time   // by policy and member, within the last minute
	inflight    map[policy.Ref]string               // the policy of targets whose write has no known outcome yet
}

// New returns an empty ledger; the window is that of the fleet's limits.
func New(fleetWindow time.Duration) *Ledger {
	return &Ledger{fleetWindow: fleetWindow, written: map[string]map[policy.Ref]time.Time{}, starts: map[string]map[string][]time.Time{}, inflight: map[policy.Ref]string{}}
}

// BeginWrite counts a target until EndWrite: the violation, and with it the intent, may
// be gone before the member has answered.
func (l *Ledger) BeginWrite(name string, target policy.Ref) { l.inflight[target] = name }

// EndWrite ends BeginWrite.
func (l *Ledger) EndWrite(target policy.Ref) { delete(l.inflight, target) }

// RecordWrite counts a write that was done.
func (l *Ledger) RecordWrite(name string, target policy.Ref, at time.Time) {
	if l.written[name] == nil {
		l.written[name] = map[policy.Ref]time.Time{}
	}
	if last := l.written[name][target]; at.After(last) {
		l.written[name][target] = at
	}
}

// RecordStart counts a started correction towards the rate of a policy in a member.
func (l *Ledger) RecordStart(name, member string, at time.Time) {
	if l.starts[name] == nil {
		l.starts[name] = map[string][]time.Time{}
	}
	l.starts[name][member] = append(l.starts[name][member], at)
}

// Prune drops what is outside every window.
func (l *Ledger) Prune(now time.Time, window func(name string) time.Duration) {
	for name, targets := range l.written {
		keep := max(window(name), l.fleetWindow)
		for target, at := range targets {
			if now.Sub(at) >= keep {
				delete(targets, target)
			}
		}
		if len(targets) == 0 {
			delete(l.written, name)
		}
	}
	for name, members := range l.starts {
		for member, times := range members {
			times = slices.DeleteFunc(times, func(at time.Time) bool { return now.Sub(at) >= time.Minute })
			if members[member] = times; len(times) == 0 {
				delete(members, member)
			}
		}
		if len(members) == 0 {
			delete(l.starts, name)
		}
	}
}

// NextStart returns when a policy may start its next correction in a member: now, or
// later. A rate of 0 is unlimited.
func (l *Ledger) NextStart(name, member string, perMinute int, now time.Time) time.Time {
	times := l.starts[name][member]
	recent := 0
	for _, at := range times {
		if now.Sub(at) < time.Minute {
			recent++
		}
	}
	if perMinute == 0 || recent < perMinute {
		return now
	}
	return times[len(times)-perMinute].Add(time.Minute)
}

// Affected are the distinct targets that count towards the limits of a policy.
type Affected struct {
	Targets map[policy.Ref]bool
	Members map[string]int // how many of them
}

// Affected returns the targets that a policy has written within its window, is writing,
// and is about to write.
func (l *Ledger) Affected(name string, window time.Duration, pending []policy.Ref, now time.Time) Affected {
	a := Affected{Targets: map[policy.Ref]bool{}, Members: map[string]int{}}
	add := func(target policy.Ref) {
		if !a.Targets[target] {
			a.Targets[target] = true
			a.Members[target.Member]++
		}
	}
	for target, at := range l.written[name] {
		if now.Sub(at) < window {
			add(target)
		}
	}
	for target, by := range l.inflight {
		if by == name {
			add(target)
		}
	}
	for _, target := range pending {
		add(target)
	}
	return a
}

// Fleet counts the distinct targets of all policies, with those of one that is checked.
func (l *Ledger) Fleet(a Affected, now time.Time) int {
	n := len(a.Targets)
	seen := map[policy.Ref]bool{}
	add := func(target policy.Ref) {
		if !a.Targets[target] && !seen[target] {
			seen[target] = true
			n++
		}
	}
	for _, targets := range l.written {
		for target, at := range targets {
			if now.Sub(at) < l.fleetWindow {
				add(target)
			}
		}
	}
	for target := range l.inflight {
		add(target)
	}
	return n
}
