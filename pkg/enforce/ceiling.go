package enforce

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// Ceiling limits what the policies of a source may do. It is set on the hub.
type Ceiling struct {
	Mode       policy.Mode
	Members    policy.MemberSelector
	Namespaces []string // patterns; none: all
	Actions    []AllowedAction

	Force bool     // policies may set it
	ActAs []string // users that policies may act as; "" is federator itself, which is all that none allows
	// OverrideGitOps and IgnoreOptOut say whether policies may set them.
	OverrideGitOps, IgnoreOptOut bool
	// Limits that are set are upper bounds: those of a policy must be set as well, must not be
	// larger, and must not have a shorter window.
	Limits remediate.Limits
	// Window is when policies may write, in addition to their own: both must be open.
	Window *remediate.Window
	// Waves are those that policies pass: their own apply within each of these. Members that
	// none selects are not written to.
	Waves []Wave
	// Version is that of Options.Ceiling of remediate: what is planned under a ceiling is
	// written only while it is the source's.
	Version string
}

// AllowedAction allows verbs on kinds. "*" is every kind that is not protected.
type AllowedAction struct {
	Verbs []string
	Kinds []string
}

// Validate returns what is wrong with selectors and patterns.
func (c *Ceiling) Validate() error {
	_, _, err := c.compile()
	return err
}

// compile checks the ceiling, and returns which members it allows, and those of its waves.
func (c *Ceiling) compile() (members selector, waves []selector, err error) {
	members, err = c.Members.Compile()
	errs := []error{err}
	waves, err = compileWaves(c.Waves)
	errs = append(errs, err)
	for _, p := range c.Namespaces {
		if _, err := path.Match(p, ""); err != nil {
			errs = append(errs, fmt.Errorf("namespace %q: %w", p, err))
		}
	}
	return members, waves, errors.Join(errs...)
}

// exceeded returns in which field a spec exceeds the ceiling, "" if in none. Its mode is not
// among them: a lower one is in effect. What exceeds it is not changed, since its author
// relies on what was written.
func (c *Ceiling) exceeded(s *EnforcementSpec) string {
	self := fmt.Sprintf("the ceiling of source %q", s.Source)
	switch {
	case s.Force && !c.Force:
		return fmt.Sprintf("spec.force is true, and %s has force false", self)
	case s.ActAs != "" && !slices.Contains(c.ActAs, s.ActAs):
		return fmt.Sprintf("spec.actAs is %q, and %s has actAs %s", s.ActAs, self, users(c.ActAs))
	case s.ActAs == "" && len(c.ActAs) > 0 && !slices.Contains(c.ActAs, ""):
		return fmt.Sprintf("spec.actAs is not set, and %s has actAs %s", self, users(c.ActAs))
	case s.OverrideGitOps && !c.OverrideGitOps:
		return fmt.Sprintf("spec.gitops is Override, and %s has gitops Respect", self)
	case s.IgnoreOptOut && !c.IgnoreOptOut:
		return fmt.Sprintf("spec.optOut is None, and %s has optOut Honor", self)
	}
	if own, most := exceededLimit(&s.Limits, &c.Limits); own != "" {
		return fmt.Sprintf("spec.limits.%s, and %s has limits.%s", own, self, most)
	}
	return ""
}

// users shows the users of a ceiling, "" as itself.
func users(list []string) string {
	const shown = 5
	var quoted []string
	for _, u := range list[:min(len(list), shown)] {
		quoted = append(quoted, fmt.Sprintf("%q", u))
	}
	if n := len(list) - shown; n > 0 {
		quoted = append(quoted, fmt.Sprintf("and %d more", n))
	}
	return "[" + strings.Join(quoted, " ") + "]"
}

// exceededLimit returns which limit is not as strict as its bound, and that, "" for none. A
// count and a percentage cannot be compared: each has its own bound. Within a shorter window
// the same limit lets more pass.
func exceededLimit(own, most *remediate.Limits) (field, bound string) {
	bounded := false
	for _, x := range []struct {
		name      string
		own, most remediate.Limit
	}{{"policy", own.Policy, most.Policy}, {"member", own.Member, most.Member}, {"fleet", own.Fleet, most.Fleet}} {
		bounded = bounded || x.most != (remediate.Limit{})
		for _, n := range []struct {
			unit      string
			own, most float64
		}{{"count", float64(x.own.Count), float64(x.most.Count)}, {"percent", x.own.Percent, x.most.Percent}} {
			if looser(n.own, n.most) {
				return fmt.Sprintf("maxAffected.%s.%s is %s", x.name, n.unit, orNotSet(n.own)), fmt.Sprintf("%s.%s %v", x.name, n.unit, n.most)
			}
		}
	}
	if n, m := float64(own.PerMinute), float64(most.PerMinute); looser(n, m) {
		return "actionsPerMinute is " + orNotSet(n), fmt.Sprintf("actionsPerMinute %v", m)
	}
	if n, m := cmp.Or(own.Window, time.Hour), cmp.Or(most.Window, time.Hour); bounded && n < m {
		return fmt.Sprintf("window is %v", n), fmt.Sprintf("window %v", m)
	}
	return "", ""
}

// looser reports whether a limit is not set or larger, where there is a bound.
func looser(own, most float64) bool { return most > 0 && (own == 0 || own > most) }

func orNotSet(n float64) string {
	if n == 0 {
		return "not set"
	}
	return fmt.Sprint(n)
}

// effectiveMode returns the mode in effect, and why it is lower than Mode.
func (c *compiledSpec) effectiveMode() (policy.Mode, string) {
	switch {
	case modeRanks[c.Mode] == 0:
		return policy.Observe, ""
	case c.Hold != "":
		return policy.Observe, c.Hold
	case c.exceeded != "":
		return policy.Observe, c.exceeded
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
	case len(c.ceilingWaves) > 0 && waveOf(c.ceilingWaves, member) < 0:
		return fmt.Sprintf("source %q may not write to %s: no wave of its ceiling selects it", c.Source, member.Name)
	}
	return ""
}
