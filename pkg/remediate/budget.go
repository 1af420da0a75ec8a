package remediate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"federator.dev/federator/pkg/policy"
)

// Limit bounds how many distinct targets are affected within a sliding window.
// What is zero does not bound.
type Limit struct {
	Count   int
	Percent float64 // of the denominator, at least one target
}

func (l Limit) unlimited() bool { return l.Count == 0 && l.Percent == 0 }

// most returns how many targets the limit allows.
func (l Limit) most(denominator int) int {
	n := int(float64(denominator) * l.Percent / 100)
	if l.Percent > 0 {
		n = max(n, 1)
	}
	switch {
	case l.Percent == 0:
		return l.Count
	case l.Count == 0:
		return n
	}
	return min(l.Count, n)
}

// Limits are what one binding may affect.
type Limits struct {
	Window time.Duration // 0 means an hour
	Policy Limit         // over all members
	Member Limit         // in each member
	Fleet  Limit         // over all members and bindings: what this one may add to
	// PerMinute is how many writes one member gets of the binding. 0: any number.
	// Those beyond wait.
	PerMinute int
}

func (l Limits) validate() error {
	var errs []error
	for name, of := range map[string]Limit{"policy": l.Policy, "member": l.Member, "fleet": l.Fleet} {
		if of.Count < 0 || of.Percent < 0 || of.Percent > 100 {
			errs = append(errs, fmt.Errorf("limit of the %s: %d targets, %v percent", name, of.Count, of.Percent))
		}
	}
	if l.Window < 0 || l.PerMinute < 0 {
		errs = append(errs, fmt.Errorf("limits: window %v, %d per minute", l.Window, l.PerMinute))
	}
	return errors.Join(errs...)
}

// Spent is where a limit stands.
type Spent struct {
	Of          string `json:"of"` // policy, a member's name, or fleet
	Targets     int    `json:"targets"`
	Most        int    `json:"most"`
	Denominator int    `json:"denominator"`
}

// OverLimitError says which limit is exceeded. Nothing more is written of the binding
// until somebody acknowledges.
type OverLimitError struct {
	Binding string
	Spent
}

func (e *OverLimitError) Error() string {
	return fmt.Sprintf("binding %q: %d targets of %s would be affected, of %d at most (of %d in all)", e.Binding, e.Targets, e.Of, e.Most, e.Denominator)
}

// ledger remembers which targets were written when: the sliding windows of all
// limits. It reads no clock. It is not safe for concurrent use.
type ledger struct {
	fleet       Limit
	fleetWindow time.Duration
	written     map[string]map[policy.Ref]time.Time // by binding: when last
	writes      map[string]map[string][]time.Time   // by binding and member, within the last minute
	writing     map[policy.Ref]string               // the binding of targets that may be written, which is not known yet
}

func newLedger(fleet Limit, window time.Duration) *ledger {
	return &ledger{fleet: fleet, fleetWindow: window, written: map[string]map[policy.Ref]time.Time{}, writes: map[string]map[string][]time.Time{}, writing: map[policy.Ref]string{}}
}

// begin takes note of a target that is about to be written, and counts until end: its
// violation may be gone, and with it what wants it corrected, before the member has
// answered.
func (l *ledger) begin(binding string, target policy.Ref) { l.writing[target] = binding }

func (l *ledger) end(target policy.Ref) { delete(l.writing, target) }

// note takes note of a write.
func (l *ledger) note(binding string, target policy.Ref, at time.Time) {
	if l.written[binding] == nil {
		l.written[binding] = map[policy.Ref]time.Time{}
	}
	if last := l.written[binding][target]; at.After(last) {
		l.written[binding][target] = at
	}
}

// started takes note of a write that begins.
func (l *ledger) started(binding, member string, at time.Time) {
	if l.writes[binding] == nil {
		l.writes[binding] = map[string][]time.Time{}
	}
	l.writes[binding][member] = append(l.writes[binding][member], at)
}

// forget lets what was written count no more, after an acknowledgement.
func (l *ledger) forget(binding string) { delete(l.written, binding) }

// prune drops what is outside every window.
func (l *ledger) prune(now time.Time, window func(binding string) time.Duration) {
	for binding, targets := range l.written {
		keep := max(window(binding), l.fleetWindow)
		for target, at := range targets {
			if now.Sub(at) >= keep {
				delete(targets, target)
			}
		}
		if len(targets) == 0 {
			delete(l.written, binding)
		}
	}
	for binding, members := range l.writes {
		for member, times := range members {
			times = slices.DeleteFunc(times, func(at time.Time) bool { return now.Sub(at) >= time.Minute })
			if members[member] = times; len(times) == 0 {
				delete(members, member)
			}
		}
		if len(members) == 0 {
			delete(l.writes, binding)
		}
	}
}

// soon returns when the binding may write to a member next: now, or later.
func (l *ledger) soon(binding, member string, perMinute int, now time.Time) time.Time {
	times := l.writes[binding][member]
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

// Denominators are how many subjects a binding judges: what percentages are of.
type Denominators struct {
	Total   int
	Members map[string]int
}

// check holds what a binding wants to write, is writing and has written to its limits.
// pending are the distinct targets that it wants to write now.
func (l *ledger) check(binding string, limits Limits, of Denominators, pending []policy.Ref, now time.Time) ([]Spent, error) {
	affected, perMember := map[policy.Ref]bool{}, map[string]int{}
	add := func(target policy.Ref) {
		if !affected[target] {
			affected[target] = true
			perMember[target.Member]++
		}
	}
	for target, at := range l.written[binding] {
		if now.Sub(at) < limits.Window {
			add(target)
		}
	}
	for target, by := range l.writing {
		if by == binding {
			add(target)
		}
	}
	for _, target := range pending {
		add(target)
	}
	var spent []Spent
	var over *OverLimitError
	hold := func(s Spent, limit Limit) {
		s.Most = limit.most(s.Denominator)
		spent = append(spent, s)
		if s.Targets > s.Most && over == nil {
			over = &OverLimitError{binding, s}
		}
	}
	if !limits.Policy.unlimited() {
		hold(Spent{Of: "policy", Targets: len(affected), Denominator: of.Total}, limits.Policy)
	}
	if !limits.Member.unlimited() {
		for _, member := range sortedKeys(perMember) {
			hold(Spent{Of: member, Targets: perMember[member], Denominator: of.Members[member]}, limits.Member)
		}
	}
	for _, fleet := range []Limit{l.fleet, limits.Fleet} {
		if !fleet.unlimited() {
			hold(Spent{Of: "fleet", Targets: l.ofFleet(affected, now), Denominator: of.Total}, fleet)
		}
	}
	if over != nil {
		return spent, over
	}
	return spent, nil
}

// ofFleet counts the distinct targets of all bindings, and of one that is checked.
func (l *ledger) ofFleet(affected map[policy.Ref]bool, now time.Time) int {
	n := len(affected)
	seen := map[policy.Ref]bool{}
	add := func(target policy.Ref) {
		if !affected[target] && !seen[target] {
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
	for target := range l.writing {
		add(target)
	}
	return n
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
