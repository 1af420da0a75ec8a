package remediate

import (
	"slices"
	"strings"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
)

// policyState is what the dispatcher knows of one policy.
type policyState struct {
	spec       RolloutSpec
	ready      bool // all verdicts have been counted
	totals     Totals
	intents    map[policy.Ref]*desiredIntent
	members    map[string]int      // number of intents by member
	due        map[policy.Ref]bool // targets of intents that are not done, or have failed
	failed     map[policy.Ref]bool // of these: those that have failed
	outcomes   map[policy.Ref]*targetOutcome
	obsolete   map[policy.Ref]bool // targets of outcomes that have no intent any more
	halt       *Halt
	allowance  *allowance
	consent    *consent
	progress   waveProgress
	usage      []BudgetUsage
	waiting    string
	notLeading string // why this process does not act; "" when it does
	pending    int
}

// desiredIntent is an intent with the name of its Action.
type desiredIntent struct {
	*Intent

	name    string
	managed bool // a GitOps controller manages the target, or that is not known
}

// targetOutcome is the result of a target's last correction.
type targetOutcome struct {
	Outcome
	actionName string // of the intent
	writes     []time.Time
}

// allowance is how far an acknowledgement raises the limits.
type allowance struct {
	targets int
	until   time.Time
}

// consent is the last acknowledgement, and until when Actions name it.
type consent struct {
	Acknowledgement
	until time.Time
}

func newPolicyState() *policyState {
	return &policyState{outcomes: map[policy.Ref]*targetOutcome{}, obsolete: map[policy.Ref]bool{}}
}

// clear removes all intents.
func (s *policyState) clear() {
	s.intents, s.members = map[policy.Ref]*desiredIntent{}, map[string]int{}
	s.due, s.failed = map[policy.Ref]bool{}, map[policy.Ref]bool{}
}

// set sets the intent for its target.
func (s *policyState) set(i *desiredIntent) {
	target := i.Remedy.Target
	if s.intents[target] == nil {
		s.members[target.Member]++
	}
	s.intents[target] = i
	s.updateDue(target)
}

// unset removes the intent for a target.
func (s *policyState) unset(target policy.Ref) {
	if s.intents[target] == nil {
		return
	}
	if s.members[target.Member]--; s.members[target.Member] == 0 {
		delete(s.members, target.Member)
	}
	delete(s.intents, target)
	s.updateDue(target)
}

// updateDue updates whether a target is due: its intent is not done, or has failed.
func (s *policyState) updateDue(target policy.Ref) {
	delete(s.due, target)
	delete(s.failed, target)
	i := s.intents[target]
	if i == nil {
		return
	}
	if o := s.outcomes[target]; o != nil && o.actionName == i.name {
		if o.Phase != v1alpha1.PhaseFailed {
			return
		}
		s.failed[target] = true
	}
	s.due[target] = true
}

// isDesired reports whether an intent is the present one for its target.
func (s *policyState) isDesired(i *Intent) bool {
	now := s.intents[i.Remedy.Target]
	return now != nil && now.name == i.actionName()
}

// dropOutcome forgets the outcome of a target without an intent, once its writes are
// outside the window.
func (s *policyState) dropOutcome(target policy.Ref, now time.Time) {
	o := s.outcomes[target]
	switch {
	case o == nil || s.intents[target] != nil:
		delete(s.obsolete, target)
	case len(within(o.writes, s.spec.Limits.Window, now)) > 0:
		s.obsolete[target] = true
	default:
		delete(s.obsolete, target)
		delete(s.outcomes, target)
	}
}

// within returns the times that are within a window before a time.
func within(times []time.Time, window time.Duration, now time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(times), func(at time.Time) bool { return now.Sub(at) >= window })
}

// openTargets returns the targets to correct, in order, and when the next failed one is
// retried.
func (s *policyState) openTargets(now time.Time, retryAfter time.Duration) (targets []policy.Ref, next time.Time) {
	targets = make([]policy.Ref, 0, len(s.due))
	for target := range s.due {
		if s.failed[target] {
			if at := s.outcomes[target].At.Add(retryAfter); at.After(now) {
				next = earliest(next, at)
				continue
			}
		}
		targets = append(targets, target)
	}
	slices.SortFunc(targets, func(a, b policy.Ref) int { return strings.Compare(a.String(), b.String()) })
	return targets, next
}

// countOpen counts the openTargets, at the cost of the failed ones.
func (s *policyState) countOpen(now time.Time, retryAfter time.Duration) (n int, next time.Time) {
	n = len(s.due)
	for target := range s.failed {
		if at := s.outcomes[target].At.Add(retryAfter); at.After(now) {
			next = earliest(next, at)
			n--
		}
	}
	return n, next
}

// withConsent returns an intent that names the acknowledgement it follows.
func (s *policyState) withConsent(i *Intent, now time.Time) *Intent {
	if s.consent == nil || !now.Before(s.consent.until) {
		return i
	}
	out, by := *i, s.consent.Acknowledgement
	out.Acknowledged = &by
	return &out
}
