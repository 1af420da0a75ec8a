package enforce

import (
	"cmp"
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

// EnforcementSpec says what is done about the violations of a policy.
type EnforcementSpec struct {
	Mode  policy.Mode // Observe: violations are only reported
	Force bool
	ActAs string
	// OverrideGitOps writes targets that GitOps controllers manage.
	OverrideGitOps bool
	Limits         remediate.Limits
	Waves          []Wave
	Window         *remediate.Window
	Suspend        bool
	Pause          bool // nothing is written, and no verdict counted, while policies are replaced

	Source, Commit, Path string // of the package
	// Generation is what is written, of the policy and its package: when it changes all
	// verdicts are counted again before anything is written, and waves restart.
	Generation string
	// Hold is why violations are only reported now, whatever Mode says: the newest commit of
	// the source is not the active one, for example.
	Hold    string
	Ceiling *Ceiling // of the source; nil: unlimited
}

// Wave is a group of members that is written to after the groups before it.
type Wave struct {
	Name    string
	Members policy.MemberSelector // those that are in no earlier wave
	Soak    time.Duration
	Require v1alpha1.HealthRequirement
	Timeout time.Duration
	// MaxFailed and Effect are as in remediate.Wave.
	MaxFailed int
	Effect    *remediate.EffectGate
}

// Ceiling limits what the policies of a source may do. It is set on the hub.
type Ceiling struct {
	Mode       policy.Mode
	Members    policy.MemberSelector
	Namespaces []string // patterns; none: all
	Actions    []AllowedAction
}

// AllowedAction allows verbs on kinds. "*" is every kind that is not protected.
type AllowedAction struct {
	Verbs []string
	Kinds []string
}

var modeRanks = map[policy.Mode]int{"": 0, policy.Observe: 0, policy.DryRun: 1, policy.Enforce: 2}

// compiledSpec is an EnforcementSpec with compiled selectors.
type compiledSpec struct {
	EnforcementSpec

	waves   []func(aggregate.Member) bool
	ceiling func(aggregate.Member) bool
}

func (s *EnforcementSpec) compile() (*compiledSpec, error) {
	c := &compiledSpec{EnforcementSpec: *s}
	if _, ok := modeRanks[s.Mode]; !ok {
		return nil, fmt.Errorf("mode %q is not Observe, DryRun or Enforce", s.Mode)
	}
	var errs []error
	for _, w := range s.Waves {
		has, err := w.Members.Compile()
		if err != nil {
			errs = append(errs, fmt.Errorf("wave %q: %w", w.Name, err))
		}
		c.waves = append(c.waves, has)
	}
	if s.Ceiling != nil {
		var err error
		if c.ceiling, err = s.Ceiling.Members.Compile(); err != nil {
			errs = append(errs, fmt.Errorf("ceiling: %w", err))
		}
		for _, p := range s.Ceiling.Namespaces {
			if _, err := path.Match(p, ""); err != nil {
				errs = append(errs, fmt.Errorf("ceiling: namespace %q: %w", p, err))
			}
		}
	}
	return c, errors.Join(errs...)
}

// effectiveMode returns the mode in effect, and why it is lower than Mode.
func (c *compiledSpec) effectiveMode() (policy.Mode, string) {
	switch {
	case modeRanks[c.Mode] == 0:
		return policy.Observe, ""
	case c.Hold != "":
		return policy.Observe, c.Hold
	case c.Ceiling != nil && modeRanks[c.Ceiling.Mode] < modeRanks[c.Mode]:
		mode := cmp.Or(c.Ceiling.Mode, policy.Observe)
		return mode, fmt.Sprintf("the ceiling of source %q is %s", c.Source, mode)
	}
	return c.Mode, ""
}

// overCeiling returns why a remedy exceeds the ceiling of its source, or "".
func (c *compiledSpec) overCeiling(r *policy.Remedy, member aggregate.Member) string {
	if c.Ceiling == nil {
		return ""
	}
	allowed := slices.ContainsFunc(c.Ceiling.Actions, func(a AllowedAction) bool {
		return slices.Contains(a.Verbs, r.Action) && (slices.Contains(a.Kinds, "*") || slices.Contains(a.Kinds, string(r.Target.Kind)))
	})
	in := len(c.Ceiling.Namespaces) == 0 || slices.ContainsFunc(c.Ceiling.Namespaces, func(p string) bool {
		ok, _ := path.Match(p, r.Target.Namespace) // compile validates the pattern
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

// rolloutSpec returns how corrections are rolled out to the members of a snapshot.
func (c *compiledSpec) rolloutSpec(s *aggregate.Snapshot, dryRun bool) remediate.RolloutSpec {
	out := remediate.RolloutSpec{
		DryRun: dryRun, Limits: c.Limits, Window: c.Window, Suspend: c.Suspend, Generation: c.Generation, Source: c.Source,
	}
	taken := map[string]bool{}
	for i, w := range c.EnforcementSpec.Waves {
		members := map[string]bool{}
		for m := range s.Members() {
			if !taken[m.Name] && c.waves[i](m) {
				members[m.Name], taken[m.Name] = true, true
			}
		}
		out.Waves = append(out.Waves, remediate.Wave{Name: w.Name, Members: members, Soak: w.Soak, Require: w.Require, Timeout: w.Timeout, MaxFailed: w.MaxFailed, Effect: w.Effect})
	}
	return out
}
