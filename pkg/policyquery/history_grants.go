package policyquery

import (
	"context"
	"slices"
	"strings"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/queryapi"
)

// historyGrants say which records a caller may read now. They are of one request.
type historyGrants struct {
	reader   *callerReader
	snapshot *aggregate.Snapshot
	all      *bool           // everything in all members may be read; nil: not known yet
	reads    map[string]bool // whether what policies have looked at may be read
	under    map[underResource]*queryapi.Grants

	hub     Hub             // nil: nothing of it may be read
	onHub   map[string]bool // what may be listed on the hub, by resource
	actions *actionGrants
	there   therePolicies // nil: not known yet
}

func (q History) grants(ctx context.Context, caller queryapi.Caller) (*historyGrants, error) {
	snapshot := q.Index.Snapshot()
	reader, err := newCallerReader(ctx, caller, q.Kinds, snapshot)
	if err != nil {
		return nil, err
	}
	if q.State != nil {
		if state := q.State(); state != nil {
			if members := state.Elsewhere(); members != nil {
				if err := reader.addElsewhere(members, state.Told()); err != nil {
					return nil, err
				}
			}
		}
	}
	return &historyGrants{
		reader: reader, snapshot: snapshot, reads: map[string]bool{}, under: map[underResource]*queryapi.Grants{},
		hub: q.Hub, onHub: map[string]bool{}, actions: newActionGrants(readableHere{reader, snapshot}),
	}, nil
}

// mayRead reports whether the caller may read a record. What it may not read of one is taken out.
func (g *historyGrants) mayRead(r *history.Record) bool {
	switch r.Type {
	case history.Object:
		return g.object(r)
	case history.Verdict:
		return g.subject(r) && g.looked(r.Reads) && !slices.ContainsFunc(r.External, func(source string) bool { return !g.reader.MayReadSource(source) })
	case history.Member:
		return g.member(r.Member, r.MemberUID) && g.withoutCluster(r)
	case history.Scope:
		return g.scope(r)
	case history.Action:
		return g.action(r)
	case history.Policy:
		return g.policy(r)
	case history.Gap:
		switch {
		case r.Member == "":
			return true
		case r.Name != "":
			return g.object(r)
		case r.Kind != "":
			return g.scope(r)
		}
		return g.member(r.Member, r.MemberUID)
	}
	return false
}

func isMember(at *aggregate.Snapshot, name, uid string) bool {
	if at == nil {
		return false
	}
	m, ok := at.Member(name)
	return ok && m.UID == uid
}

// present reports whether the member that has a name now, here or where another process reads it, has a UID.
func (g *historyGrants) present(name, uid string) bool {
	if g.reader.isElsewhere(name) {
		return isMember(g.reader.there.told, name, uid)
	}
	return isMember(g.snapshot, name, uid)
}

func (g *historyGrants) member(name, uid string) bool {
	if g.present(name, uid) {
		return g.reader.MayReadMember(name)
	}
	return g.everything()
}

// withoutCluster takes out what only who may read Clusters on the hub may know, and reports whether anything is left.
func (g *historyGrants) withoutCluster(r *history.Record) bool {
	ofCluster := func(c history.Change) bool {
		return c.Path == "paused" || strings.HasPrefix(c.Path, "topology.") || strings.HasPrefix(c.Path, "conditions[")
	}
	if !slices.ContainsFunc(r.Changes, ofCluster) || g.everything() {
		return true
	}
	r.Changes = slices.DeleteFunc(r.Changes, ofCluster)
	return len(r.Changes) > 0 || r.Transition != history.Changed
}

// scope reports whether it may be known how a kind is in a member: if some of it may be read.
func (g *historyGrants) scope(r *history.Record) bool {
	if !g.present(r.Member, r.MemberUID) {
		return g.everywhere(r.Kind, "")
	}
	return g.reader.MayReadMember(r.Member) && !g.reader.grant(g.snapshot, r.Member, r.Kind).Empty() || g.everything()
}

// object reports whether an object may be read, by the resource that it was read under.
func (g *historyGrants) object(r *history.Record) bool {
	if !g.present(r.Member, r.MemberUID) {
		return g.everywhere(r.Kind, r.Resource)
	}
	return g.reader.MayReadMember(r.Member) && g.grants(r.Member, r.Kind, r.Resource).Member(r.Member).Allows(r.Namespace) || g.everything()
}

// grants returns what may be read of objects of a kind in a member that were read under a resource: nothing where members do not serve
// that any more, for which there are no grants.
func (g *historyGrants) grants(member string, kind aggregate.Kind, resource string) *queryapi.Grants {
	of, at := g.reader, g.snapshot
	if of.isElsewhere(member) {
		of, at = &of.there.callerReader, of.there.told
		defer g.reader.takeError()
	}
	key := underResource{of, kind, resource}
	under, known := g.under[key]
	if !known {
		if all := of.grantsOf(at, kind, resource); all.Covers(resource) {
			under = all.ForResource(resource)
		}
		g.under[key] = under
	}
	return under
}

// underResource is of what grants are fetched once: those of a resource that is not served any more are none, however often they are
// asked for.
type underResource struct {
	of       *callerReader
	kind     aggregate.Kind
	resource string
}

// subject reports whether the subject of a verdict may be read.
func (g *historyGrants) subject(r *history.Record) bool {
	switch {
	case r.Member == "": // a key: looked decides
		return r.Reads != nil
	case r.Kind == "":
		return g.member(r.Member, r.MemberUID)
	case r.Resource == "" && g.present(r.Member, r.MemberUID):
		return g.reader.MayReadMember(r.Member) && g.reader.grant(g.snapshot, r.Member, r.Kind).Allows(r.Namespace)
	}
	return g.object(r)
}

// looked reports whether the caller may read all that a policy has looked at besides its subjects.
func (g *historyGrants) looked(at *history.Reads) bool {
	if at == nil {
		return true
	}
	var id strings.Builder
	for _, kind := range at.Kinds {
		id.WriteString(string(kind) + " ")
	}
	id.WriteString("in " + strings.Join(at.Members, " ") + " " + strings.Join(at.MemberUIDs, " "))
	may, known := g.reads[id.String()]
	if !known {
		may = g.mayLook(at)
		g.reads[id.String()] = may
	}
	return may
}

func (g *historyGrants) mayLook(at *history.Reads) bool {
	if at.Members == nil {
		return g.reader.seesAllMembers(g.snapshot) && !slices.ContainsFunc(at.Kinds, func(kind aggregate.Kind) bool { return !g.everywhere(kind, "") })
	}
	for i, member := range at.Members {
		if i >= len(at.MemberUIDs) || !g.present(member, at.MemberUIDs[i]) || !g.reader.MayReadMember(member) {
			return g.everything()
		}
		for _, kind := range at.Kinds {
			if !g.reader.grant(g.snapshot, member, kind).All {
				return g.everything()
			}
		}
	}
	return true
}

// everywhere reports whether all objects of a kind may be read in all members. Of a kind that no member serves any more
// only who may read everything may read what was.
func (g *historyGrants) everywhere(kind aggregate.Kind, resource string) bool {
	if g.reader.everything(g.snapshot, kind) && (resource == "" || g.grants("", kind, resource).Everything()) {
		return true
	}
	return g.everything()
}

// everything reports whether the caller may read everything in all members.
func (g *historyGrants) everything() bool {
	if g.all == nil {
		grants, err := g.reader.caller.GrantsIn(g.reader.ctx, "list", "*", g.snapshot, nil)
		if err != nil && g.reader.err == nil {
			g.reader.err = err
		}
		is := err == nil && grants.Everything()
		g.all = &is
	}
	return *g.all
}

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
