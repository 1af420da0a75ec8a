package sourcerollout

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub/internal/versions"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
)

// inEffect reports whether a FleetPolicy is in effect, or is with the packages of a commit, as far as it
// says: of others nothing rolls out.
func inEffect(fp *v1alpha1.FleetPolicy) bool {
	ready := meta.FindStatusCondition(fp.Status.Conditions, v1alpha1.Ready)
	return ready == nil || !slices.Contains([]string{"OtherSource", "Invalid"}, ready.Reason)
}

// PoliciesOf returns the FleetPolicies whose packages a commit of a source changes, as they say
// themselves how far its versions have come. byDefault is spec.rollout of the source.
func PoliciesOf(source string, c *policysource.RollingOut, byDefault *v1alpha1.VersionRollout, list []*v1alpha1.FleetPolicy) []Policy {
	var out []Policy
	for _, fp := range list {
		digest := v1alpha1.Digest(c.Set.Digest(fp.Spec.Package))
		if digest == "" || !isOf(fp, source, c.Packages) {
			continue
		}
		p, r := Policy{Name: fp.Name}, fp.Status.Rollout
		switch {
		case r != nil && r.Candidate != nil && r.Candidate.Package == digest:
			p.Phase, p.Message = r.Candidate.Phase, r.Candidate.Message
		case r != nil && r.Candidate == nil && r.Effective != nil && r.Effective.Package == digest:
			p.Phase = v1alpha1.RolloutPromoted
		case fp.Spec.Rollout == nil && byDefault == nil:
			p.Phase = v1alpha1.RolloutPromoted
		case !inEffect(fp):
			continue
		}
		out = append(out, p)
	}
	return out
}

// isOf reports whether a FleetPolicy has one of some packages of a source.
func isOf(fp *v1alpha1.FleetPolicy, source string, packages []string) bool {
	return (fp.Spec.Source == "" || fp.Spec.Source == source) && slices.Contains(packages, fp.Spec.Package)
}

// Asks reports whether one of some FleetPolicies has versions of packages of a source roll out.
func Asks(source string, packages []string, list []*v1alpha1.FleetPolicy) bool {
	return slices.ContainsFunc(list, func(fp *v1alpha1.FleetPolicy) bool {
		return fp.Spec.Rollout != nil && (fp.Spec.Source == source || isOf(fp, source, packages))
	})
}

// EvidenceOf returns how the verdicts of the packages without a FleetPolicy differ that a commit
// changes; false if there are none. beside has both versions of each; is is nil while nothing has
// been evaluated.
func EvidenceOf(is *policy.State, beside *policy.Set, packages []string, list []*v1alpha1.FleetPolicy) (v1alpha1.RolloutEvidence, bool) {
	bound := map[string]bool{} // packages that have a FleetPolicy
	named := map[string]bool{}
	for _, fp := range list {
		if inEffect(fp) {
			bound[fp.Spec.Package], named[fp.Name] = true, true
		}
	}
	var e sum
	for _, pkg := range packages {
		name := beside.Candidate(pkg)
		switch {
		case name == "" || bound[pkg] || beside.Package(pkg) == nil: // it is new, or gone
		case is == nil || is.Set().Candidate(pkg) != name: // what is evaluated is older
			e.any, e.incomplete = true, true
		default:
			e.addPackage(is, pkg, named)
		}
	}
	return e.evidence(), e.any
}

// sum is the evidence of some packages.
type sum struct {
	any, incomplete bool
	of              v1alpha1.RolloutEvidence
	former, next    policy.Health
}

// addPackage adds the evidence of the bindings of a package that are no FleetPolicies. One that has views only
// has none, and one whose candidate needs parameters has nothing to compare: nobody gives it any.
func (e *sum) addPackage(is *policy.State, pkg string, named map[string]bool) {
	for b := range is.Bindings() {
		if b.Package != pkg || named[b.Name] || b.Next == nil {
			continue
		}
		c, ok := is.Compare(b.Name)
		e.any, e.incomplete = true, e.incomplete || !ok || !c.Complete
		one := versions.FromComparison(&c)
		e.of.Subjects += one.Subjects
		e.of.New += one.New
		e.of.Gone += one.Gone
		e.of.Errors += one.Errors
		e.of.Unknown += one.Unknown
		e.former.Evaluations += c.Former.Evaluations
		e.former.Nanoseconds += c.Former.Nanoseconds
		e.next.Evaluations += c.Next.Evaluations
		e.next.Nanoseconds += c.Next.Nanoseconds
	}
}

func (e *sum) evidence() v1alpha1.RolloutEvidence {
	out := e.of
	out.Complete = e.any && !e.incomplete
	out.Cost = versions.Cost(&e.former, &e.next)
	return out
}
