package simulation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// approval is what a person has approved, until a time: one Plan, which another one of the same
// name is not.
type approval struct {
	plan    types.UID
	by      string
	expires time.Time
}

// approvers are who may approve.
var approvers = []string{"ann", "bob", "eve"}

// planned is a Plan on the hub.
type planned struct {
	name, policy, generation string
	uid                      types.UID
	purpose                  v1alpha1.PlanPurpose
	state                    v1alpha1.PlanState
}

// plans returns the Plans on the hub.
func (w *world) plans() []planned {
	objects, _ := w.hub.Objects("plans")
	all := make([]planned, 0, len(objects))
	for _, o := range objects {
		meta, spec := o["metadata"].(map[string]any), o["spec"].(map[string]any)
		status, _ := o["status"].(map[string]any)
		text := func(of map[string]any, field string) string { s, _ := of[field].(string); return s }
		all = append(all, planned{
			text(meta, "name"), text(spec, "policy"), text(spec, "generation"), types.UID(text(meta, "uid")),
			v1alpha1.PlanPurpose(text(spec, "purpose")), v1alpha1.PlanState(text(status, "state")),
		})
	}
	return all
}

// waits reports whether people are asked to approve the Plan, or have.
func (pl *planned) waits() bool {
	return pl.state == v1alpha1.PlanWaiting || pl.state == v1alpha1.PlanApproved
}

// plannedTargets returns the targets that the parts of a Plan name.
func (w *world) plannedTargets(plan types.UID) map[string]bool {
	targets := map[string]bool{}
	parts, _ := w.hub.Objects("planparts")
	for _, o := range parts {
		owners, _ := o["metadata"].(map[string]any)["ownerReferences"].([]any)
		if len(owners) != 1 || owners[0].(map[string]any)["uid"] != string(plan) {
			continue
		}
		var groups []v1alpha1.PlanGroup
		if err := json.Unmarshal([]byte(o["spec"].(map[string]any)["targets"].(string)), &groups); err != nil {
			panic(err)
		}
		for n := range groups {
			for _, t := range groups[n].Targets {
				targets[groups[n].Member+" "+t.Name] = true
			}
		}
	}
	return targets
}

// offerApprovals offers that people approve Plans, or withdraw that, that the hub stops proving
// who they are, and that processes count what they have approved.
func (w *world) offerApprovals(add func(int, string, func())) {
	for _, pl := range w.plans() {
		if pl.waits() {
			add(5, "approve", func() {
				w.approve(pl, approvers[w.choices.below(len(approvers))], []time.Duration{time.Hour, 24 * time.Hour, time.Minute}[w.choices.below(3)])
			})
		}
	}
	if n := len(w.approvals); n > 0 {
		add(1, "withdraw", func() {
			at := w.choices.below(n)
			w.note("people: the Approval of %s by %s is withdrawn", w.approvals[at].plan, w.approvals[at].by)
			w.approvals = slices.Delete(w.approvals, at, at+1)
		})
	}
	add(1, "unproven", func() {
		w.unproven = !w.unproven
		w.note("hub: it does not prove who creates Approvals: %t", w.unproven)
	})
	for _, p := range w.processes {
		w.offerCounts(p, add)
	}
}

func (w *world) approve(pl planned, by string, valid time.Duration) {
	w.approvals = append(w.approvals, approval{pl.uid, by, time.Now().Add(valid)})
	w.note("people: %s approves Plan %s (%s) of %s for %v", by, pl.name, pl.uid, pl.policy, valid)
}

// offerCounts offers that a leader counts Approvals, and later acts on it.
func (w *world) offerCounts(p *process, add func(int, string, func())) {
	if p.paused || !p.leads() || !p.recovered() {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(w.policies)) {
		if counted := p.counted[name]; counted != nil {
			add(10, "tell", func() {
				delete(p.counted, name)
				p.approved[name], p.toldAt[name] = counted, time.Now()
				w.note("%s: Approvals of %s: %s", p.name, name, describe(counted))
				w.model.approvals.counted(w, counted)
				p.dispatcher.SetApprovals(name, counted)
			})
			continue
		}
		if st, ok := p.dispatcher.Status(name); ok && w.changed(p, name, &st) {
			// What a policy does not take into account now, it is told again, but not at once.
			counted := w.count(&st)
			if describe(counted) != describe(p.approved[name]) || time.Since(p.toldAt[name]) >= time.Second {
				add(10, "count", func() { p.counted[name] = counted })
			}
		}
	}
}

func describe(counted map[types.UID]remediate.Approved) (text string) {
	for _, uid := range slices.Sorted(maps.Keys(counted)) {
		c := counted[uid]
		text += fmt.Sprintf("%s %d of %d until %v, met %t, unknown %t; ", uid, len(c.Given), c.Required, c.Until.UTC().Format(time.TimeOnly), c.Met, c.Unknown)
	}
	return text
}

// changed reports whether the Approvals of a policy's Plans come to something else than a process
// has been told, or its status says.
func (w *world) changed(p *process, name string, st *remediate.Status) bool {
	return slices.ContainsFunc(st.Plans, func(pl remediate.PlanInfo) bool {
		if pl.State != v1alpha1.PlanWaiting && (pl.State != v1alpha1.PlanApproved || pl.Purpose == v1alpha1.PlanHalt) {
			return false // nothing depends on them
		}
		is := w.countOf(pl.UID, required(st))
		told, was := p.approved[name][pl.UID]
		if !was || told.Unknown && !is.Unknown {
			return true
		}
		return is.Met != pl.Approved.Met || is.Unknown != pl.Approved.Unknown || len(is.Given) != len(pl.Approved.Given) || !is.Until.Equal(pl.Approved.Until)
	})
}

// count counts all Approvals, also those of Plans that the policy does not have.
func (w *world) count(st *remediate.Status) map[types.UID]remediate.Approved {
	counted := map[types.UID]remediate.Approved{}
	for _, pl := range st.Plans {
		counted[pl.UID] = w.countOf(pl.UID, required(st))
	}
	for _, a := range w.approvals {
		counted[a.plan] = w.countOf(a.plan, required(st))
	}
	return counted
}

// required returns how many people must approve.
func required(st *remediate.Status) (n int) {
	if st.Approval != nil {
		for _, r := range st.Approval.Requirements {
			n = max(n, int(r.Required))
		}
	}
	return max(n, 1)
}

// countOf counts the Approvals of a Plan by distinct people.
func (w *world) countOf(plan types.UID, required int) remediate.Approved {
	out := remediate.Approved{Required: required, Unknown: w.unproven}
	until := map[string]time.Time{}
	for _, a := range w.approvals {
		if a.plan == plan && time.Now().Before(a.expires) && a.expires.After(until[a.by]) && !w.unproven {
			until[a.by] = a.expires
		}
	}
	ends := slices.SortedFunc(maps.Values(until), func(a, b time.Time) int { return b.Compare(a) })
	for _, by := range slices.Sorted(maps.Keys(until)) {
		out.Given = append(out.Given, v1alpha1.GivenApproval{Name: by, By: v1alpha1.UserName(by)})
	}
	if out.Met = len(ends) >= required; out.Met {
		out.Until = ends[required-1]
	}
	return out
}

// calmApprovals has all people approve each Plan that waits, once faults are over.
func (w *world) calmApprovals(add func(int, string, func())) {
	for _, p := range w.processes {
		w.offerCounts(p, add)
	}
	for _, pl := range w.plans() {
		if !pl.waits() {
			continue
		}
		for _, by := range approvers {
			given := func(a approval) bool {
				return a.plan == pl.uid && a.by == by && a.expires.After(time.Now().Add(patience))
			}
			if !slices.ContainsFunc(w.approvals, given) {
				add(1, "approve", func() { w.approve(pl, by, 24*time.Hour) })
			}
		}
	}
}
