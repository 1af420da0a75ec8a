package enforce

import (
	"errors"
	"fmt"

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
	// OverrideGitOps writes targets that GitOps controllers manage, IgnoreOptOut those that
	// are annotated federator.dev/protect.
	OverrideGitOps, IgnoreOptOut bool

	Limits  remediate.Limits
	Waves   []Wave
	Window  *remediate.Window
	Suspend bool
	Pause   bool // nothing is written, and no verdict counted, while policies are replaced

	Source, Commit, Path string // of the package
	// Generation is what is written, of the policy and its package: when it changes all
	// verdicts are counted again before anything is written, and waves restart.
	Generation string
	// Digests are of what the generation is made from, and Approval says who must approve it:
	// for Plans.
	Digests  v1alpha1.PlanDigests
	Approval remediate.ApprovalTerms
	// Version is that of the verdicts that are corrected: of others, no correction is made but of
	// those of Rollout.Former. "": all verdicts are corrected, whatever their version.
	Version string
	// Rollout is that of the version, which is not in effect everywhere; nil: it is.
	Rollout *VersionRollout
	// Hold is why violations are only reported now, whatever Mode says: the newest commit of
	// the source is not the active one, for example.
	Hold    string
	Ceiling *Ceiling // of the source; nil: unlimited
}

// VersionRollout is how a version takes the place of another, wave by wave. Where it has not, the verdicts
// are the former one's, and are corrected as that one's.
type VersionRollout struct {
	Former   FormerVersion
	Promoted int // how many of the waves have the version
}

// FormerVersion is what is written of the version that is in effect where the new one is not.
type FormerVersion struct {
	Version, Generation  string // as in EnforcementSpec
	Source, Commit, Path string
}

var modeRanks = map[policy.Mode]int{"": 0, policy.Observe: 0, policy.DryRun: 1, policy.Enforce: 2}

// compiledSpec is an EnforcementSpec with compiled selectors.
type compiledSpec struct {
	EnforcementSpec

	waves        []selector
	ceiling      selector
	ceilingWaves []selector
	// exceeded is in which field the spec exceeds the ceiling, "" if in none.
	exceeded string
}

func (s *EnforcementSpec) compile() (*compiledSpec, error) {
	c := &compiledSpec{EnforcementSpec: *s}
	if _, ok := modeRanks[s.Mode]; !ok {
		return nil, fmt.Errorf("mode %q is not Observe, DryRun or Enforce", s.Mode)
	}
	waves, err := compileWaves(s.Waves)
	errs := []error{err}
	c.waves = waves
	if s.Ceiling != nil {
		if c.ceiling, c.ceilingWaves, err = s.Ceiling.compile(); err != nil {
			errs = append(errs, fmt.Errorf("ceiling: %w", err))
		}
		c.exceeded = s.Ceiling.exceeded(s)
	}
	return c, errors.Join(errs...)
}

// rolloutSpec returns how corrections are rolled out to the members of a snapshot.
func (c *compiledSpec) rolloutSpec(s *aggregate.Snapshot, dryRun bool) remediate.RolloutSpec {
	out := remediate.RolloutSpec{
		DryRun: dryRun, Limits: c.Limits, Window: c.Window, Suspend: c.Suspend, Generation: c.Generation, Source: c.Source,
		Commit: c.Commit, Path: c.Path, Digests: c.Digests, Approval: c.Approval,
	}
	if c.Ceiling != nil {
		out.CeilingWindow, out.Ceiling = c.Ceiling.Window, c.Ceiling.Version
	}
	out.Waves = c.rolloutWaves(s)
	if r := c.Rollout; r != nil {
		out.Replaces = &remediate.Replaced{Generation: r.Former.Generation, Promoted: r.Promoted}
	}
	return out
}

// takes reports whether corrections are made of the verdicts of a version, and whether it is the
// former one. While the policies are replaced, a state may have verdicts of neither.
func (c *compiledSpec) takes(version string) (former, ok bool) {
	switch {
	case c.Version == "" || version == c.Version:
		return false, true
	case c.Rollout != nil && version == c.Rollout.Former.Version:
		return true, true
	}
	return false, false
}
