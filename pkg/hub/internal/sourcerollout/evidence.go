package sourcerollout

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/evidence"
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
		case r != nil && r.Candidate != nil && r.Effective != nil && r.Effective.Package == digest && r.Candidate.Package == digest &&
			r.Candidate.Phase == v1alpha1.RolloutTakenBack: // other parameters were, not what the commit changes
			p.Phase = v1alpha1.RolloutPromoted
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

// EvidenceOf returns how the verdicts of what has no FleetPolicy differ that a commit changes, adds or removes. beside
// has both versions of each; is is nil while nothing has been evaluated.
func EvidenceOf(is *policy.State, beside *policy.Set, packages []string, list []*v1alpha1.FleetPolicy) evidence.Commit {
	e := sum{is: is, beside: beside, named: map[string]bool{}, of: evidence.Commit{Parts: map[string]evidence.CommitPart{}}}
	if is != nil {
		e.of.Share = evidence.ShareOf(is)
	}
	bound := map[string]bool{} // packages that have a FleetPolicy, and constraints
	for _, fp := range list {
		if inEffect(fp) {
			e.named[fp.Name] = true
			bound[cmp.Or(fp.Spec.Constraint, fp.Spec.Package)] = true
		}
	}
	for _, pkg := range packages {
		if e.applies(pkg, bound) {
			e.addPackage(pkg)
		}
	}
	return e.of
}

// sum is the evidence of some packages.
type sum struct {
	is     *policy.State
	beside *policy.Set
	named  map[string]bool // FleetPolicies
	of     evidence.Commit
}

// applies reports whether something applies a package, or did, that is no FleetPolicy: by the packages, not by what is
// evaluated, which may be older.
func (e *sum) applies(pkg string, bound map[string]bool) bool {
	for _, name := range []string{pkg, e.beside.Candidate(pkg)} {
		p := e.beside.Package(name)
		if p == nil || !p.HasViolationRules {
			continue
		}
		if !p.HasConstraints() {
			return !bound[pkg]
		}
		for _, c := range e.beside.Of(p).Constraints {
			if e.beside.ConstraintOf(p, c.FullName()) != nil && !bound[c.FullName()] {
				return true
			}
		}
	}
	return false
}

// addPackage adds the evidence of the bindings of a package that are no FleetPolicies. One that has views only
// has none, and one whose candidate needs parameters has nothing to compare: nobody gives it any.
func (e *sum) addPackage(pkg string) {
	name := e.beside.Candidate(pkg)
	if e.is == nil || e.is.Set().Candidate(pkg) != name { // what is evaluated is older
		e.of.Older = true
		return
	}
	for b := range e.is.Bindings() {
		switch {
		case e.named[b.Name]:
		case b.Package == pkg && b.Next != nil:
			c, ok := e.is.Compare(b.Name)
			e.of.Older = e.of.Older || !ok
			e.add(b.Name, evidence.OfVersions(&c))
		case b.Package == pkg && e.removes(&b):
			n := e.is.Total(b.Name)
			e.add(b.Name, evidence.Part{Complete: e.is.Synced && e.is.BindingSynced(b.Name), Gone: int64(n.Violations)})
		case b.Package == name:
			e.of.Parts[b.Name] = evidence.CommitPart{Part: evidence.OfFirst(e.is, b.Name), Added: e.beside.Package(pkg) == nil}
		}
	}
}

func (e *sum) add(binding string, p evidence.Part) {
	e.of.Parts[binding] = evidence.CommitPart{Part: p}
}

// removes reports whether the commit does not have what a binding applies.
func (e *sum) removes(b *policy.Binding) bool {
	next := e.beside.Package(e.beside.Candidate(b.Package))
	return next == nil || !next.HasViolationRules || b.Constraint != "" && e.beside.ConstraintOf(next, b.Constraint) == nil
}
