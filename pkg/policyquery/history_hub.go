package policyquery

import (
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/history"
)

// These are the rules of /query/v1/actions, halts, plans, stops and sources, for what is recorded of them.

// action reports whether an Action may be read: as Actions decides or, in a member that has left, by who may read the kind in all.
func (g *historyGrants) action(r *history.Record) bool {
	if !g.hubAllows(v1alpha1.Actions) {
		return false
	}
	of := ActionSummary{Member: r.Member, memberUID: r.MemberUID, Target: ActionTarget{Member: r.Member, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}}
	return g.actions.mayRead(&of) || r.MemberUID != "" && !g.present(r.Member, r.MemberUID) && g.everywhere(r.Kind, "")
}

// policy reports whether a record of a policy, or of a source of policies, may be read.
func (g *historyGrants) policy(r *history.Record) bool {
	switch r.Kind {
	case history.FleetPolicyKind:
		return g.fleetPolicy(r)
	case history.PlanKind: // who has approved it is not for all
		if g.hub != nil && !g.hubAllows(v1alpha1.Plans) {
			r.By, r.Message = "", ""
		}
		return g.hub != nil
	case history.ApprovalKind:
		return g.hubAllows(v1alpha1.Approvals)
	case history.PolicySourceKind:
		return g.hubAllows(v1alpha1.PolicySources)
	case history.StopKind:
		return g.stop(r)
	}
	return false
}

// fleetPolicy reports whether a halt or a suspension may be read: as Halts decides or, of a FleetPolicy that is gone, by who may list
// PolicyStates.
func (g *historyGrants) fleetPolicy(r *history.Record) bool {
	if !g.hubAllows(v1alpha1.FleetPolicies) {
		return false
	}
	if g.there == nil {
		policies, err := g.hub.FleetPolicies()
		if err != nil {
			g.fail(hubNotRead(err))
			return false
		}
		g.there = policiesThere(policies.Items)
	}
	when := r.Time
	if r.MemberTime != nil {
		when = *r.MemberTime
	}
	return g.there.had(r.Policy, false, when) || g.hubAllows(v1alpha1.PolicyStates)
}

// stop reports whether a stop may be read, and takes out of it who has made it, and why, as Stops does.
func (g *historyGrants) stop(r *history.Record) bool {
	if g.hub == nil {
		return false
	}
	for of, resource := range map[string]string{r.Policy: v1alpha1.FleetPolicies, r.Source: v1alpha1.PolicySources} {
		if of != "" && !g.hubAllows(resource) {
			r.By, r.Message = "", ""
		}
	}
	if r.Subject == history.MalformedStop && !g.reader.seesAllMembers(g.snapshot) { // it may name a member
		r.Name, r.Message = "", ""
	}
	if _, is := g.snapshot.Member(r.Member); r.Member != "" && !is && !g.reader.isElsewhere(r.Member) {
		return g.everything()
	}
	return r.Member == "" || g.reader.MayReadMember(r.Member)
}

// hubAllows reports whether the caller may list a resource of federator's on the hub.
func (g *historyGrants) hubAllows(resource string) bool {
	if g.hub == nil {
		return false
	}
	may, known := g.onHub[resource]
	if !known {
		var err error
		if may, err = g.reader.caller.HubAllows(g.reader.ctx, "list", resource); err != nil {
			g.fail(err)
		}
		g.onHub[resource] = may
	}
	return may
}

// fail notes that grants are unknown.
func (g *historyGrants) fail(err error) {
	if g.reader.err == nil {
		g.reader.err = err
	}
}
