package notices

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/notify"
)

const (
	// maxAge is how old facts are at most that do not go on.
	maxAge = 7 * 24 * time.Hour
	// judged is how long it may take to say whether an Approval counts, before it is told
	// without that.
	judged = 30 * time.Second
)

// transitions are those of PolicyStates that are told. Plans are told by their own status.
var transitions = map[v1alpha1.PolicyTransitionType]string{
	v1alpha1.HaltBegan: notify.HaltBegan,
	v1alpha1.HaltEnded: notify.HaltEnded,
}

// ofState returns the facts of a PolicyState: what its history has, and the halts that there
// are, which the history may not have any more.
func ofState(s *v1alpha1.PolicyState, now time.Time) (facts []notify.Fact) {
	add := func(t *v1alpha1.PolicyTransition, goesOn bool) {
		told, known := transitions[t.Type]
		if !known || !goesOn && now.Sub(t.At.Time) > maxAge {
			return
		}
		facts = append(facts, notify.Fact{
			UID: string(s.UID), Transition: string(t.Type) + "/" + t.ID, Type: told, Ongoing: goesOn,
			Subject: "FleetPolicy/" + s.Name, At: t.At.Time,
			Data: data("policy", s.Name, "halt", t.ID, "reason", t.Reason, "by", t.By, "message", t.Message),
		})
	}
	open := map[string]bool{}
	for n := range s.Status.Halts {
		h := &s.Status.Halts[n]
		open[h.ID] = true
		add(&v1alpha1.PolicyTransition{Type: v1alpha1.HaltBegan, ID: h.ID, At: h.Since, Reason: string(h.Reason), Message: h.Message}, true)
	}
	for n := range s.Status.History {
		if t := &s.Status.History[n]; t.Type != v1alpha1.HaltBegan || !open[t.ID] {
			add(t, false)
		}
	}
	return facts
}

// ofPlan returns the facts of a Plan. One that was approved had waited before, though nobody
// may have seen that.
func ofPlan(p *v1alpha1.Plan, now time.Time) []notify.Fact {
	if p.Spec.Purpose == v1alpha1.PlanDryRun {
		return nil // it waits for nobody
	}
	waits := notify.Fact{
		UID: string(p.UID), Transition: "PlanWaits", Type: notify.PlanWaits, Subject: "Plan/" + p.Name, At: p.CreationTimestamp.Time,
		Data: data(
			"policy", string(p.Spec.Policy), "purpose", string(p.Spec.Purpose), "plan", string(p.Spec.Hash), "targets", strconv.Itoa(int(p.Spec.Targets)),
			"generation", p.Spec.Generation, "required", strconv.Itoa(int(p.Status.Required)), "message", p.Status.Message),
	}
	if p.Spec.Halt != nil {
		waits.Data["halt"] = p.Spec.Halt.ID
	}
	switch p.Status.State {
	case v1alpha1.PlanWaiting:
		waits.Ongoing = true
		return []notify.Fact{waits}
	case v1alpha1.PlanApproved, v1alpha1.PlanDone, v1alpha1.PlanExpired:
	default:
		return nil
	}
	var by []string
	approved := waits
	for _, a := range p.Status.Approvals {
		by = append(by, string(a.By))
		if a.At.After(approved.At) {
			approved.At = a.At.Time
		}
	}
	if len(by) == 0 || now.Sub(approved.At) > maxAge {
		return nil // it needed none, or that is long ago
	}
	slices.Sort(by)
	approved.Transition, approved.Type, approved.Data = "PlanApproved", notify.PlanApproved, maps.Clone(waits.Data)
	approved.Data["by"] = strings.Join(by, ", ")
	return []notify.Fact{waits, approved}
}

// ofApproval returns the fact of an Approval, with whether it counts if that is known.
func ofApproval(a *v1alpha1.Approval, now time.Time) []notify.Fact {
	age := now.Sub(a.CreationTimestamp.Time)
	if age > maxAge || a.Status.State == "" && age < judged {
		return nil
	}
	return []notify.Fact{{
		UID: string(a.UID), Transition: "ApprovalGiven", Type: notify.ApprovalGiven, Subject: "Approval/" + a.Name, At: a.CreationTimestamp.Time,
		Data: data(
			"by", string(a.Spec.By), "reason", a.Spec.Reason, "policy", string(a.Spec.FleetPolicy), "policySource", a.Spec.PolicySource,
			"halt", a.Spec.Halt, "plan", string(a.Spec.Plan), "rollback", string(a.Spec.Rollback), "version", string(a.Spec.Version),
			"commit", string(a.Spec.Commit),
			"expires", a.Spec.Expires.UTC().Format(time.RFC3339), "state", string(a.Status.State), "stateReason", a.Status.Reason, "message", a.Status.Message),
	}}
}

// ofStop returns the fact of a stop.
func ofStop(s *hub.ActiveStop) notify.Fact {
	return notify.Fact{
		UID: s.UID, Transition: "stop", Type: notify.StopBegan, Until: notify.StopEnded, Subject: "ConfigMap/" + s.ConfigMap, At: s.Since,
		Data: data("stopped", s.StopScope.String(), "by", s.By, "reason", s.Reason, "message", s.Actions()+" are stopped: "+s.Text),
	}
}

// ofAction returns the fact of an Action that was rolled back.
func ofAction(a *v1alpha1.Action, now time.Time) []notify.Fact {
	if a.Status.EndedAt == nil || now.Sub(a.Status.EndedAt.Time) > maxAge {
		return nil
	}
	t := &a.Spec.Target
	object := string(t.Kind) + " " + t.Name
	if t.Namespace != "" {
		object = string(t.Kind) + " " + t.Namespace + "/" + t.Name
	}
	return []notify.Fact{{
		UID: string(a.UID), Transition: "RolledBack", Type: notify.RolledBack, Subject: "Action/" + a.Name, At: a.Status.EndedAt.Time,
		Data: data("policy", a.Spec.Binding, "member", t.Member, "object", object, "message", a.Status.Message),
	}}
}

// data returns pairs of keys and values, without empty values.
func data(pairs ...string) map[string]string {
	out := map[string]string{}
	for n := 0; n < len(pairs); n += 2 {
		if pairs[n+1] != "" {
			out[pairs[n]] = pairs[n+1]
		}
	}
	return out
}
