package remediate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/ledger"
)

// Limit bounds how many distinct targets are affected within a sliding window. Zero
// fields do not bound.
type Limit struct {
	Count   int
	Percent float64 // of the denominator, at least one target
}

func (l Limit) unlimited() bool { return l.Count == 0 && l.Percent == 0 }

// allowed returns how many targets of so many the limit allows.
func (l Limit) allowed(denominator int) int {
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

// Limits are how much one policy may affect.
type Limits struct {
	Window time.Duration // 0 means an hour
	Policy Limit         // over all members
	Member Limit         // in each member
	Fleet  Limit         // over all members and policies: the sum that this one may add to
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
	if l.Window < 0 || l.PerMinute < 0 {
		errs = append(errs, fmt.Errorf("limits: window %v, %d per minute", l.Window, l.PerMinute))
	}
	return errors.Join(errs...)
}

// BudgetUsage is how much of a limit is used.
type BudgetUsage struct {
	Scope       string `json:"of"` // policy, a member's name, or fleet
	Targets     int    `json:"targets"`
	Max         int    `json:"most"`
	Denominator int    `json:"denominator"`
}

// overLimitError says which limit of a policy is exceeded. Nothing more is written for
// the policy until the halt is acknowledged.
type overLimitError struct {
	policy string
	BudgetUsage
}

func (e *overLimitError) Error() string {
	limit := "limit of member " + e.Scope
	switch e.Scope {
	case "policy":
		limit = "limit of the policy"
	case "fleet":
		limit = "limit of the fleet"
	}
	return fmt.Sprintf("policy %q: %s: %d targets would be changed, the maximum is %d (of %d subjects)", e.policy, limit, e.Targets, e.Max, e.Denominator)
}

// Totals are how many subjects a policy evaluates: the denominators of percentages.
type Totals struct {
	Fleet   int
	Members map[string]int
	// Violations and Unknown are how many of a member's subjects violate the policy, and of
	// how many that is not known. They may be nil.
	Violations, Unknown map[string]int
}

// limitCheck holds a policy to its limits, and to one of the fleet.
type limitCheck struct {
	policy string
	limits Limits
	fleet  Limit
	totals Totals
}

// check returns how much of each limit is used by what the policy has written, is
// writing and is about to write, and an overLimitError for the first that is exceeded.
func (c *limitCheck) check(l *ledger.Ledger, pending []policy.Ref, now time.Time) ([]BudgetUsage, error) {
	affected := l.Affected(c.policy, c.limits.Window, pending, now)
	var usage []BudgetUsage
	var over *overLimitError
	add := func(u BudgetUsage, limit Limit) {
		u.Max = limit.allowed(u.Denominator)
		usage = append(usage, u)
		if u.Targets > u.Max && over == nil {
			over = &overLimitError{c.policy, u}
		}
	}
	if !c.limits.Policy.unlimited() {
		add(BudgetUsage{Scope: "policy", Targets: len(affected.Targets), Denominator: c.totals.Fleet}, c.limits.Policy)
	}
	if !c.limits.Member.unlimited() {
		for _, member := range sortedKeys(affected.Members) {
			add(BudgetUsage{Scope: member, Targets: affected.Members[member], Denominator: c.totals.Members[member]}, c.limits.Member)
		}
	}
	for _, fleet := range []Limit{c.fleet, c.limits.Fleet} {
		if !fleet.unlimited() {
			add(BudgetUsage{Scope: "fleet", Targets: l.Fleet(affected, now), Denominator: c.totals.Fleet}, fleet)
		}
	}
	if over != nil {
		return usage, over
	}
	return usage, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
