package enforce

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// EnforcementSpec are what may come of a binding's violations.
type EnforcementSpec struct {
	Mode    policy.Mode // Observe: nothing
	Force   bool
	ActAs   string
	Limits  remediate.Limits
	Waves   []Wave
	Window  *remediate.Window
	Suspend bool
	Pause   bool // nothing is written while policies are exchanged

	Source, Commit, Path string // where the package came from
	// Generation changes with the policy and its binding: everything is counted again
	// before anything is written, and waves begin anew.
	Generation string
	// Hold says why nothing may come of violations now, whatever Mode says: the newest
	// commit of the source is not the one that is active, for example.
	Hold    string
	Ceiling *Ceiling // of the source; nil: none
}

// Wave is a group of members that is written to after others.
type Wave struct {
	Name    string
	Members policy.MemberSelector // of those that no earlier wave has
	Soak    time.Duration
	Require v1alpha1.HealthRequirement
	Timeout time.Duration
}

// Ceiling is what the policies of a source may do at most. The hub sets it.
type Ceiling struct {
	Mode       policy.Mode
	Members    policy.MemberSelector
	Namespaces []string // patterns; none: all
	Actions    []AllowedAction
}

// AllowedAction are verbs on kinds. "*" is every kind that is not protected.
type AllowedAction struct {
	Verbs []string
	Kinds []string
}

var modeRanks = map[policy.Mode]int{"": 0, policy.Observe: 0, policy.DryRun: 1, policy.Enforce: 2}

// compiledSpec are Terms whose selectors are compiled.
type compiledSpec struct {
	EnforcementSpec

	waves   []func(aggregate.Member) bool
	ceiling func(aggregate.Member) bool
}

func (t *EnforcementSpec) compile() (*compiledSpec, error) {
	c := &compiledSpec{EnforcementSpec: *t}
	if _, ok := modeRanks[t.Mode]; !ok {
		return nil, fmt.Errorf("mode %q is none of Observe, DryRun and Enforce", t.Mode)
	}
	var errs []error
	for _, w := range t.Waves {
		has, err := w.Members.Compile()
		if err != nil {
			errs = append(errs, fmt.Errorf("wave %q: %w", w.Name, err))
		}
		c.waves = append(c.waves, has)
	}
	if t.Ceiling != nil {
		var err error
		if c.ceiling, err = t.Ceiling.Members.Compile(); err != nil {
			errs = append(errs, fmt.Errorf("ceiling: %w", err))
		}
		for _, p := range t.Ceiling.Namespaces {
			if _, err := path.Match(p, ""); err != nil {
				errs = append(errs, fmt.Errorf("ceiling: namespace %q: %w", p, err))
			}
		}
	}
	return c, errors.Join(errs...)
}

// effectiveMode is what may come of violations, and why it is less than is wanted.
func (c *compiledSpec) effectiveMode() (policy.Mode, string) {
	switch {
	case modeRanks[c.Mode] == 0:
		return policy.Observe, ""
	case c.Hold != "":
		return policy.Observe, c.Hold
	case c.Ceiling != nil && modeRanks[c.Ceiling.Mode] < modeRanks[c.Mode]:
		return orObserve(c.Ceiling.Mode), fmt.Sprintf("the ceiling of source %q is %s", c.Source, orObserve(c.Ceiling.Mode))
	}
	return c.Mode, ""
}

func orObserve(m policy.Mode) policy.Mode {
	if m == "" {
		return policy.Observe
	}
	return m
}

// overCeiling says why a remedy is beyond the ceiling of its source, or "".
func (c *compiledSpec) overCeiling(r *policy.Remedy, member aggregate.Member) string {
	if c.Ceiling == nil {
		return ""
	}
	allowed := slices.ContainsFunc(c.Ceiling.Actions, func(a AllowedAction) bool {
		return slices.Contains(a.Verbs, r.Action) && (slices.Contains(a.Kinds, "*") || slices.Contains(a.Kinds, string(r.Target.Kind)))
	})
	in := len(c.Ceiling.Namespaces) == 0 || slices.ContainsFunc(c.Ceiling.Namespaces, func(p string) bool {
		ok, _ := path.Match(p, r.Target.Namespace) // compile has checked the pattern
		return ok
	})
	switch {
	case !allowed:
		return fmt.Sprintf("source %q may not %s a %s", c.Source, r.Action, r.Target.Kind)
	case !c.ceiling(member):
		return fmt.Sprintf("source %q may not write to %s", c.Source, member.Name)
	case !in:
		return fmt.Sprintf("source %q may not write in namespace %q", c.Source, r.Target.Namespace)
	}
	return ""
}

// rolloutSpec is what the dispatcher holds corrections to, for the members of a snapshot.
func (c *compiledSpec) rolloutSpec(s *aggregate.Snapshot, dryRun bool) remediate.RolloutSpec {
	out := remediate.RolloutSpec{
		DryRun: dryRun, Limits: c.Limits, Window: c.Window, Suspend: c.Suspend, Generation: c.Generation,
	}
	taken := map[string]bool{}
	for i, w := range c.EnforcementSpec.Waves {
		members := map[string]bool{}
		for m := range s.Members() {
			if !taken[m.Name] && c.waves[i](m) {
				members[m.Name], taken[m.Name] = true, true
			}
		}
		out.Waves = append(out.Waves, remediate.Wave{Name: w.Name, Members: members, Soak: w.Soak, Require: w.Require, Timeout: w.Timeout})
	}
	return out
}
