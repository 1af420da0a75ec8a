package remediate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate/internal/ledger"
)

// Limit bounds how many distinct targets are affected within a sliding window, and the
// targets of how many subjects. Zero fields do not bound.
type Limit struct {
	Count   int
	Percent float64 // of all subjects, at least one
}

func (l Limit) unlimited() bool { return l.Count == 0 && l.Percent == 0 }

// Limits are how much one policy may affect.
type Limits struct {
	Window time.Duration // 0 means an hour
	Policy Limit         // over all members
	Member Limit         // in each member
	Fleet  Limit         // over all members and policies: the sum that this one may add to
	// MaxReversions is how often a target may be corrected within the window, and violate
	// the policy again, before the policy is halted. 0 means that of Options.
	MaxReversions int
	// PerMinute is how many corrections of the policy one member gets. 0: any number.
	// The others wait.
	PerMinute int
}

func (l Limits) validate() error {
	var errs []error
	for name, of := range map[string]Limit{"policy": l.Policy, "member": l.Member, "fleet": l.Fleet} {
		if of.Count < 0 || of.Percent < 0 || of.Percent > 100 {
			errs = append(errs, fmt.Errorf("limit of the %s: %d targets, %v percent", name, of.Count, of.Percent))
		}
	}
	if l.Window < 0 || l.Window > ledger.Horizon || l.PerMinute < 0 || l.MaxReversions < 0 {
		errs = append(errs, fmt.Errorf("limits: window %v, %d per minute, %d reversions", l.Window, l.PerMinute, l.MaxReversions))
	}
	return errors.Join(errs...)
}

// Scopes of limits in a BudgetUsage; others are names of members.
const (
	scopePolicy = "policy"
	scopeFleet  = "fleet"
)

// BudgetUsage is how much of a limit is used.
type BudgetUsage struct {
	Scope       string `json:"of"` // policy, a member's name, or fleet
	Targets     int    `json:"targets"`
	Max         int    `json:"most"`
	Denominator int    `json:"denominator"` // of subjects
	Percent     bool   `json:"percent"`     // Targets and Max are of subjects
}

// describe says by how much a limit is exceeded.
func (u *BudgetUsage) describe() string {
	limit := "limit of member " + u.Scope
	switch u.Scope {
	case scopePolicy:
		limit = "limit of the policy"
	case scopeFleet:
		limit = "limit of the fleet"
	}
	if u.Percent {
		return fmt.Sprintf("%s: targets of %d subjects would be changed, the maximum is %d (of %d subjects)", limit, u.Targets, u.Max, u.Denominator)
	}
	return fmt.Sprintf("%s: %d targets would be changed, the maximum is %d (of %d subjects)", limit, u.Targets, u.Max, u.Denominator)
}

// Totals are how many subjects a policy evaluates: the denominators of percentages.
type Totals struct {
	Fleet   int
	Members map[string]int
	// Violations and Unknown are how many of a member's subjects violate the policy, and of
	// how many that is not known. They may be nil.
	Violations, Unknown map[string]int
	// Unread are the members that are not written to: not all that the policy reads of them is known,
	// or it is of before a restart. It may be nil.
	Unread map[string]bool
}

// acknowledged is how many targets and subjects acknowledgements allow.
type acknowledged struct{ targets, subjects int }

// use returns how much of a limit a count uses: the tighter of its two bounds, and those
// that it exceeds although acknowledgements allow so many.
func (l Limit) use(scope string, n ledger.Count, denominator int, by acknowledged) (tightest BudgetUsage, exceeded []BudgetUsage) {
	var all []BudgetUsage
	if l.Count > 0 {
		u := BudgetUsage{Scope: scope, Targets: n.Targets, Max: l.Count, Denominator: denominator}
		if all = append(all, u); n.Targets > max(l.Count, by.targets) {
			exceeded = append(exceeded, u)
		}
	}
	if l.Percent > 0 {
		u := BudgetUsage{Scope: scope, Targets: n.Subjects, Max: max(1, int(float64(denominator)*l.Percent/100)), Denominator: denominator, Percent: true}
		if all = append(all, u); n.Subjects > max(u.Max, by.subjects) {
			exceeded = append(exceeded, u)
		}
	}
	return slices.MinFunc(all, func(a, b BudgetUsage) int { return cmp.Compare(a.Max-a.Targets, b.Max-b.Targets) }), exceeded
}

// checkLimitsLocked returns how much of each limit is used by what a policy has written, is
// writing and is about to write, and all limits that are exceeded.
func (d *Dispatcher) checkLimitsLocked(s *policyState, now time.Time) (usage, exceeded []BudgetUsage) {
	uses := map[v1alpha1.LimitScope]map[coverage]*refs{} // what is due and not counted yet
	add := func(l Limit, scope string, kind v1alpha1.LimitScope, n ledger.Count, denominator int, after func(*ledger.Writes) *ledger.After) {
		if l.unlimited() {
			return
		}
		member := ""
		if kind == v1alpha1.MemberScope {
			member = scope
		}
		u, over := l.use(scope, n, denominator, s.allowedForAll(s.due, kind, member, now))
		if len(over) > 0 && len(s.due) > 0 {
			if uses[kind] == nil || kind == v1alpha1.FleetScope { // its windows differ
				uses[kind] = d.uncountedLocked(s, after, now)
			}
			_, over = l.use(scope, n, denominator, s.allowedForAll(uses[kind], kind, member, now))
		}
		usage, exceeded = append(usage, u), append(exceeded, over...)
	}
	limits := &s.spec.Limits
	add(limits.Policy, scopePolicy, v1alpha1.PolicyScope, d.ledger.Affected(s.name), s.totals.Fleet, func(w *ledger.Writes) *ledger.After { return &w.Policy })
	if !limits.Member.unlimited() {
		for member, n := range d.ledger.Members(s.name) {
			add(limits.Member, member, v1alpha1.MemberScope, n, s.totals.Members[member], func(w *ledger.Writes) *ledger.After { return &w.Member })
		}
	}
	add(d.opts.Fleet, scopeFleet, v1alpha1.FleetScope, d.ledger.Fleet(s.name, d.opts.FleetWindow), s.totals.Fleet, func(w *ledger.Writes) *ledger.After { return &w.Fleet })
	add(limits.Fleet, scopeFleet, v1alpha1.FleetScope, d.ledger.Fleet(s.name, limits.Window), s.totals.Fleet, func(w *ledger.Writes) *ledger.After { return &w.PolicyFleet })
	return usage, exceeded
}

// uncountedLocked returns what is due, without what a limit counts already because it was written:
// one more write of that uses nothing, so that no acknowledgement is needed for it.
func (d *Dispatcher) uncountedLocked(s *policyState, after func(*ledger.Writes) *ledger.After, now time.Time) map[coverage]*refs {
	out := map[coverage]*refs{}
	for of, list := range s.due {
		left := newRefs()
		for target := range list.all {
			if w := d.ledger.Writing(s.name, target, s.intents[target].Subject, now); !after(&w).Known {
				left.add(target)
			}
		}
		if left.len() > 0 {
			out[of] = &left
		}
	}
	return out
}

// permitLocked returns why one more target must not be written now, "" if there is room in
// all limits.
func (d *Dispatcher) permitLocked(s *policyState, i *Intent, now time.Time) string {
	w := d.ledger.Writing(s.name, i.Remedy.Target, i.Subject, now)
	member := i.Remedy.Target.Member
	within := s.coverage(s.intents[i.Remedy.Target], now)
	for _, c := range []struct {
		limit       Limit
		scope       string
		kind        v1alpha1.LimitScope
		member      string
		after       ledger.After
		denominator int
	}{
		{s.spec.Limits.Policy, scopePolicy, v1alpha1.PolicyScope, "", w.Policy, s.totals.Fleet},
		{s.spec.Limits.Member, member, v1alpha1.MemberScope, member, w.Member, s.totals.Members[member]},
		{d.opts.Fleet, scopeFleet, v1alpha1.FleetScope, "", w.Fleet, s.totals.Fleet},
		{s.spec.Limits.Fleet, scopeFleet, v1alpha1.FleetScope, "", w.PolicyFleet, s.totals.Fleet},
	} {
		if c.limit.unlimited() || c.after.Known {
			continue
		}
		if _, exceeded := c.limit.use(c.scope, c.after.Count, c.denominator, s.allowed(c.kind, c.member, &within, now)); len(exceeded) > 0 {
			return exceeded[0].describe()
		}
	}
	return ""
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
