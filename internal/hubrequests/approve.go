package hubrequests

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
)

// maxGroups is how many groups an Approval may name, as in the CRD.
const maxGroups = 50

// Approval is what a person approves: a Plan, a halt, a rollback or a version of a FleetPolicy, or
// a commit of a PolicySource.
type Approval struct {
	FleetPolicy          string
	Plan, Halt, Rollback string // one of them, or Version; Plan and Rollback are the hash or the name of a Plan
	Version              string // in shadow: its digest, or the start of it

	PolicySource, Commit string

	Reason  string
	Expires time.Time
}

// Validate returns what is wrong with it.
func (a *Approval) Validate() error {
	of := 0
	for _, name := range []string{a.Plan, a.Halt, a.Rollback, a.Version, a.Commit} {
		if name != "" {
			of++
		}
	}
	switch {
	case (a.FleetPolicy == "") == (a.PolicySource == ""):
		return inputError("an Approval is of a FleetPolicy or of a PolicySource")
	case of != 1:
		return inputError("an Approval is of one plan, halt, rollback, version or commit")
	case (a.PolicySource == "") != (a.Commit == ""):
		return inputError("a commit is approved of its PolicySource, and a plan, a halt, a rollback or a version of its FleetPolicy")
	case strings.TrimSpace(a.Reason) == "":
		return inputError("a reason is required: why is this approved?")
	}
	return nil
}

// Approve creates an Approval in the caller's name, and returns it and what it approves.
func (c Client) Approve(ctx context.Context, a *Approval) (made *v1alpha1.Approval, what string, err error) {
	if err := a.Validate(); err != nil {
		return nil, "", err
	}
	me, err := c.whoAmI(ctx)
	if err != nil {
		return nil, "", err
	}
	given := &v1alpha1.Approval{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: "Approval"},
		Spec:     v1alpha1.ApprovalSpec{Reason: a.Reason, By: v1alpha1.UserName(me.Username), Expires: metav1.NewTime(a.Expires.Truncate(time.Second))},
	}
	what, required, err := c.nameApproved(ctx, a, &given.Spec)
	if err != nil {
		return nil, "", err
	}
	given.GenerateName = string(given.Spec.FleetPolicy) + given.Spec.PolicySource + "-"
	given.Spec.Groups = groupsToName(me.Groups, required)
	body, err := json.Marshal(given)
	if err != nil {
		return nil, "", err
	}
	made = &v1alpha1.Approval{}
	if err := Do(ctx, c.Objects("POST", v1alpha1.Approvals).SetHeader("Content-Type", "application/json").Body(body), made); err != nil {
		return nil, "", fmt.Errorf("approving %s: %w", what, err)
	}
	return made, what, nil
}

// nameApproved completes what is approved, and returns what that is and which groups are required.
func (c Client) nameApproved(ctx context.Context, a *Approval, spec *v1alpha1.ApprovalSpec) (what string, required []v1alpha1.GroupName, err error) {
	if a.PolicySource != "" {
		spec.PolicySource, spec.Commit = a.PolicySource, v1alpha1.CommitHash(a.Commit)
		ps := &v1alpha1.PolicySource{}
		if err := Do(ctx, c.Objects("GET", v1alpha1.PolicySources, a.PolicySource), ps); err != nil {
			return "", nil, c.Explain(err, "PolicySource", a.PolicySource)
		}
		if r := ps.Spec.Ceiling.Approval; r != nil {
			required = r.Groups
		}
		return fmt.Sprintf("commit %s of PolicySource %s", a.Commit, a.PolicySource), required, nil
	}
	fp, err := c.Policy(ctx, a.FleetPolicy)
	if err != nil {
		return "", nil, err
	}
	if r := fp.Spec.Approval; r != nil {
		required = r.Groups
	}
	spec.FleetPolicy = v1alpha1.PolicyName(a.FleetPolicy)
	if a.Halt != "" {
		spec.Halt = a.Halt
		return fmt.Sprintf("halt %s of FleetPolicy %s", a.Halt, a.FleetPolicy), required, nil
	}
	if a.Version != "" {
		if spec.Version, err = versionInShadow(fp, a.Version); err != nil {
			return "", nil, err
		}
		if fp.Status.Rollout.Candidate.Phase == v1alpha1.RolloutTakenBack {
			return fmt.Sprintf("another shadow of version %.12s of FleetPolicy %s", spec.Version, a.FleetPolicy), required, nil
		}
		return fmt.Sprintf("the end of the shadow of version %.12s of FleetPolicy %s", spec.Version, a.FleetPolicy), required, nil
	}
	plan, err := c.waitingPlan(ctx, a.FleetPolicy, a.Plan+a.Rollback)
	if err != nil {
		return "", nil, err
	}
	switch rollback := plan.Spec.Purpose == v1alpha1.PlanRollback; {
	case plan.Spec.Purpose == v1alpha1.PlanHalt && plan.Spec.Halt != nil:
		return "", nil, conflictError("plan %s is of a halt: approve that with --halt %s", plan.Name, plan.Spec.Halt.ID)
	case rollback && a.Rollback == "":
		return "", nil, conflictError("plan %s is a rollback: approve it with --rollback", plan.Name)
	case !rollback && a.Plan == "":
		return "", nil, conflictError("plan %s is not a rollback: approve it with --plan", plan.Name)
	case rollback:
		spec.Rollback = plan.Spec.Hash
	default:
		spec.Plan = plan.Spec.Hash
	}
	return fmt.Sprintf("Plan %s (%s) of %d targets", plan.Name, plan.Spec.Purpose, plan.Spec.Targets), required, nil
}

// versionInShadow returns the digest of the version that is in shadow, or was taken back and may begin again, by that or its start.
func versionInShadow(fp *v1alpha1.FleetPolicy, digest string) (v1alpha1.Digest, error) {
	const shown = 12 // digits, where versions are named
	if len(digest) < shown || strings.Trim(digest, "0123456789abcdef") != "" {
		return "", inputError("%q is not the digest of a version, nor its first %d digits", digest, shown)
	}
	if r := fp.Status.Rollout; r != nil && r.Candidate != nil && strings.HasPrefix(string(r.Candidate.Digest), digest) {
		// Other parameters may begin again; a commit was taken back as a whole, and another one takes its place.
		again := r.Candidate.Phase == v1alpha1.RolloutTakenBack && r.Effective != nil && r.Effective.Package == r.Candidate.Package
		if r.Candidate.Phase != v1alpha1.RolloutShadow && !again {
			return "", conflictError("version %.12s is not in shadow: its phase is %s", r.Candidate.Digest, r.Candidate.Phase)
		}
		return r.Candidate.Digest, nil
	}
	return "", conflictError("FleetPolicy %q has no such version in shadow", fp.Name)
}

// waitingPlan returns a Plan of a policy that waits, by its hash or its name.
func (c Client) waitingPlan(ctx context.Context, policy, name string) (*v1alpha1.Plan, error) {
	hash := strings.TrimPrefix(name, policy+"-")
	const inName = 16 // characters of the hash
	if len(hash) < inName || strings.Trim(hash, "0123456789abcdef") != "" {
		return nil, inputError("%q is neither the hash nor the name of a Plan of FleetPolicy %q", name, policy)
	}
	p := &v1alpha1.Plan{}
	if err := Do(ctx, c.Objects("GET", v1alpha1.Plans, policy+"-"+hash[:inName]), p); err != nil {
		return nil, c.Explain(err, "Plan", policy+"-"+hash[:inName])
	}
	switch s := p.Status.State; {
	case !strings.HasPrefix(string(p.Spec.Hash), hash):
		return nil, conflictError("plan %s has another hash: %s", p.Name, p.Spec.Hash)
	case s != v1alpha1.PlanWaiting && s != v1alpha1.PlanApproved:
		return nil, conflictError("plan %s does not wait for approval: it is %s %s", p.Name, s, printable(p.Status.Message))
	}
	return p, nil
}

// groupsToName returns the groups that an Approval names: all that may matter, those that
// are required first. Groups of everybody name nobody.
func groupsToName(mine []string, required []v1alpha1.GroupName) []v1alpha1.GroupName {
	var first, rest []v1alpha1.GroupName
	for _, g := range mine {
		switch name := v1alpha1.GroupName(g); {
		case g == "system:authenticated" || g == "system:unauthenticated" || g == "system:serviceaccounts":
		case slices.Contains(required, name):
			first = append(first, name)
		default:
			rest = append(rest, name)
		}
	}
	all := append(first, rest...)
	return all[:min(len(all), maxGroups)]
}
