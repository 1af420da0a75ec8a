package versions

import (
	"cmp"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
)

// Rollout returns how versions of a policy roll out: as itself says, or the source of its
// package. nil: they do not.
func Rollout(spec *v1alpha1.FleetPolicySpec, source *v1alpha1.VersionRollout) *v1alpha1.VersionRollout {
	return cmp.Or(spec.Rollout, source)
}

// Waves returns the waves of a policy, in which its corrections are made and its versions take
// effect.
func Waves(spec *v1alpha1.FleetPolicySpec, source *v1alpha1.VersionRollout) []v1alpha1.Wave {
	switch {
	case spec.Rollout != nil && len(spec.Rollout.Waves) > 0:
		return spec.Rollout.Waves
	case len(spec.Waves) > 0 || source == nil:
		return spec.Waves
	}
	return source.Waves
}

// Count returns how many waves a rollout has: within each of a ceiling's, all of the policy's.
func Count(ceiling, own int) int {
	if ceiling == 0 {
		return own
	}
	return ceiling * max(1, own)
}

// Members selects the members of the first n waves, see Count.
func Members(ceiling, own []policy.MemberSelector, n int) []policy.MemberSelector {
	if len(ceiling) == 0 {
		return slices.Clone(own[:min(n, len(own))])
	}
	per := max(1, len(own))
	whole := min(n/per, len(ceiling))
	out := slices.Clone(ceiling[:whole])
	if whole == len(ceiling) || n%per == 0 {
		return out
	}
	for i := range own[:n%per] {
		out = append(out, both(&ceiling[whole], &own[i]))
	}
	return out
}

// both selects what two selectors do. Where their patterns of names cannot be combined it is
// what the first one selects: the version is then seen in more members, and written to none of
// them before its wave.
func both(a, b *policy.MemberSelector) policy.MemberSelector {
	names, ok := bothNames(a.Names, b.Names)
	if !ok {
		return *a
	}
	return policy.MemberSelector{Names: names, Labels: bothLabels(a.Labels, b.Labels)}
}

func bothNames(a, b []string) ([]string, bool) {
	if len(a) == 0 || len(b) == 0 {
		return slices.Concat(a, b), true
	}
	var out []string
	for _, x := range a {
		for _, y := range b {
			switch {
			case x == y || !isPattern(x) && matches(y, x):
				out = append(out, x)
			case !isPattern(y) && matches(x, y):
				out = append(out, y)
			case isPattern(x) && isPattern(y):
				return nil, false
			}
		}
	}
	if len(out) == 0 {
		return []string{"none"}, true // which is no <namespace>/<name>
	}
	slices.Sort(out)
	return slices.Compact(out), true
}

func isPattern(name string) bool { return strings.ContainsAny(name, `*?[\`) }

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

func bothLabels(a, b *metav1.LabelSelector) *metav1.LabelSelector {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	out := a.DeepCopy()
	for key, value := range b.MatchLabels { // as expressions: a may want another value
		out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}})
	}
	out.MatchExpressions = append(out.MatchExpressions, b.DeepCopy().MatchExpressions...)
	slices.SortStableFunc(out.MatchExpressions, func(x, y metav1.LabelSelectorRequirement) int { return strings.Compare(x.Key, y.Key) }) // MatchLabels have no order
	return out
}
