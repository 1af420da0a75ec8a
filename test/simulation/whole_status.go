package simulation

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
)

// Invariant 6: what the hub's status says of a FleetPolicy equals the model's, eventually, and
// a process writes it at most once in 10 s for counters alone. And invariant 4 of halts, which
// whole processes read from the hub.
type statusModel struct {
	halts    map[string]recordedHalt // by ID, when they were seen first
	counters map[string]time.Time    // when counters alone were written last, by process and UID
	stored   *v1alpha1.FleetPolicy   // before a request
	writes   map[string]int          // of statuses
}

func newStatusModel() statusModel {
	return statusModel{halts: map[string]recordedHalt{}, counters: map[string]time.Time{}, writes: map[string]int{}}
}

// fleetPolicy returns a FleetPolicy on the hub, nil if there is none.
func (w *whole) fleetPolicy(name string) *v1alpha1.FleetPolicy {
	o := w.hub.Object(v1alpha1.FleetPolicies, "", name)
	if o == nil {
		return nil
	}
	text, err := json.Marshal(o)
	must(err)
	fp := &v1alpha1.FleetPolicy{}
	must(json.Unmarshal(text, fp))
	return fp
}

// policyOfStatus is the FleetPolicy whose status a request writes, "" for any other.
func policyOfStatus(r *parked) string {
	dir, last := path.Split(r.request.URL.Path)
	if r.to != "hub" || r.request.Method == http.MethodGet || last != "status" || !strings.Contains(dir, "/fleetpolicies/") {
		return ""
	}
	return path.Base(dir)
}

// before is called before a request is executed.
func (m *statusModel) before(w *whole, r *parked) {
	m.stored = nil
	if name := policyOfStatus(r); name != "" {
		m.stored = w.fleetPolicy(name)
	}
}

// countersEvery is how often a status may be written for counters alone.
const countersEvery = 10 * time.Second

// after is called after a request has been executed, or not.
func (m *statusModel) after(w *whole, p *process, r *parked) {
	m.check(w)
	was := m.stored
	if was == nil {
		return
	}
	is := w.fleetPolicy(was.Name)
	if is == nil || is.ResourceVersion == was.ResourceVersion {
		return
	}
	m.writes[was.Name]++
	if !reflect.DeepEqual(telling(&was.Status), telling(&is.Status)) {
		return
	}
	key := p.name + "/" + string(is.UID)
	if last, written := m.counters[key]; written && time.Since(last) < countersEvery {
		w.fail("6 status", "%s writes the status of %s for counters alone, %v after it did so last", p.name, is.Name, time.Since(last))
	}
	m.counters[key] = time.Now()
}

// telling is what a status says beside counters and times.
func telling(s *v1alpha1.FleetPolicyStatus) *v1alpha1.FleetPolicyStatus {
	out := &v1alpha1.FleetPolicyStatus{ObservedGeneration: s.ObservedGeneration, Origin: s.Origin, Acknowledged: s.Acknowledged}
	for i := range s.Conditions {
		c := s.Conditions[i]
		c.LastTransitionTime = metav1.Time{}
		out.Conditions = append(out.Conditions, c)
	}
	if s.Halted != nil {
		out.Halted = &v1alpha1.Halt{ID: s.Halted.ID}
	}
	if s.Wave != nil {
		out.Wave = &v1alpha1.WaveStatus{Number: s.Wave.Number, Phase: s.Wave.Phase}
	}
	return out
}

// check looks for halts that have begun and ended.
func (m *statusModel) check(w *whole) {
	present := map[string]recordedHalt{}
	for _, name := range wholeNames {
		maps.Copy(present, w.haltsOf(name))
	}
	for _, id := range slices.Sorted(maps.Keys(m.halts)) {
		h := m.halts[id]
		if _, still := present[id]; still {
			continue
		}
		delete(m.halts, id)
		switch {
		case w.acked[id]:
			w.allow(h)
		case w.policies[h.policy].version == h.version:
			w.fail("4 halts", "halt %s of %s has ended, and nobody has acknowledged it or changed the policy", id, h.policy)
		}
	}
	for id, h := range present {
		if _, known := m.halts[id]; !known {
			h.over = w.exceeded(h.policy, id)
			m.halts[id] = h
		}
	}
}

// exceeded returns the limits that a halt on the hub names, with the targets of its Plan.
func (w *whole) exceeded(policy, id string) func() []allowance {
	return func() (all []allowance) {
		o := w.hub.Object("policystates", "", policy)
		text, err := json.Marshal(o)
		must(err)
		var s v1alpha1.PolicyState
		must(json.Unmarshal(text, &s))
		for i := range s.Status.Allowances {
			a := &s.Status.Allowances[i]
			if a.Halt != id {
				continue
			}
			scope := a.Member
			if scope == "" {
				scope = strings.ToLower(string(a.Scope))
			}
			planned := map[string]bool{}
			for _, pl := range w.plans() {
				if pl.name == a.Plan {
					planned = w.plannedTargets(pl.uid)
				}
			}
			all = append(all, allowance{policy: policy, scope: scope, generation: w.policies[policy].key(), targets: int(a.Targets), until: a.Expires.Time, plan: planned})
		}
		return all
	}
}

// allow notes what the acknowledgement of a halt lets pass.
func (w *whole) allow(h recordedHalt) {
	w.model.limits.allowed = append(w.model.limits.allowed, h.over()...)
}

// stopped reports whether a stop on the hub is of a policy.
func (w *whole) stopped(policy string) bool {
	return w.hub.Object("configmaps", hubNamespace, "federator-stop") != nil || w.hub.Object("configmaps", hubNamespace, "federator-stop-policy-"+policy) != nil
}

// expected is what a FleetPolicy's conditions must say once all is quiet.
func (w *whole) expected(fp *v1alpha1.FleetPolicy) (ready, enforcing string) {
	switch {
	case w.newest.files[fp.Spec.Package+".rego"] == "":
		return "NoPackage", "NotReady"
	case fp.Spec.Mode == v1alpha1.Observe:
		return "Bound", "Observing"
	case w.stopped(fp.Name):
		return "Bound", "Stopped"
	case len(w.haltsOf(fp.Name)) > 0:
		return "Bound", "Halted"
	case fp.Spec.Suspend:
		return "Bound", "Suspended"
	}
	return "Bound", "Enforcing"
}

// wantedOfWhole returns the targets that policies have to correct and may.
func (w *whole) wantedOfWhole() (targets []string) {
	for _, name := range wholeNames {
		fp := w.fleetPolicy(name)
		if fp == nil || w.newest.bad {
			continue
		}
		if _, enforcing := w.expected(fp); enforcing != "Enforcing" && enforcing != "Halted" {
			continue
		}
		for _, m := range w.members {
			objects, _ := m.server.Objects("deployments")
			for _, o := range objects {
				if violates(name, o) && !protected(o) {
					targets = append(targets, fmt.Sprint(m.name, " ", o["metadata"].(map[string]any)["name"], " ", name))
				}
			}
		}
	}
	return targets
}

// wrong says what a status says that is not so, "" if nothing.
func (m *statusModel) wrong(w *whole) string {
	for _, name := range wholeNames {
		if fp := w.fleetPolicy(name); fp != nil {
			if why := w.wrongOf(fp); why != "" {
				text, err := json.Marshal(fp.Status)
				must(err)
				return fmt.Sprintf("6 status: of %s: %s; it says %s", name, why, text)
			}
		}
	}
	return ""
}

func (w *whole) wrongOf(fp *v1alpha1.FleetPolicy) string {
	reason := func(condition string) string {
		if c := meta.FindStatusCondition(fp.Status.Conditions, condition); c != nil {
			return c.Reason
		}
		return "none"
	}
	if w.newest.bad {
		if c := meta.FindStatusCondition(fp.Status.Conditions, v1alpha1.Enforcing); c == nil || c.Status != metav1.ConditionFalse {
			return "it enforces, although the newest commit is bad"
		}
		return ""
	}
	ready, enforcing := w.expected(fp)
	halted := ""
	if fp.Status.Halted != nil {
		halted = fp.Status.Halted.ID
	}
	_, known := w.haltsOf(fp.Name)[halted]
	switch {
	case reason(v1alpha1.Ready) != ready:
		return "Ready is not " + ready
	case reason(v1alpha1.Enforcing) != enforcing:
		return "Enforcing is not " + enforcing
	case fp.Status.ObservedGeneration != fp.Generation:
		return fmt.Sprintf("the generation is %d", fp.Generation)
	case known != (len(w.haltsOf(fp.Name)) > 0):
		return fmt.Sprintf("the halts are %v", w.haltsOf(fp.Name))
	case ready != "Bound":
		return ""
	case fp.Status.Origin == nil || string(fp.Status.Origin.Commit) != w.newest.hash:
		return "the commit is " + w.newest.hash
	}
	return w.wrongCounts(fp)
}

// wrongCounts says which counts of a status are not those of members and Actions.
func (w *whole) wrongCounts(fp *v1alpha1.FleetPolicy) string {
	var subjects, violations int64
	for _, m := range w.members {
		objects, _ := m.server.Objects("deployments")
		for _, o := range objects {
			subjects++
			labels, _ := o["metadata"].(map[string]any)["labels"].(map[string]any)
			if fp.Name == "tier" && labels["tier"] != "gold" || fp.Name == "replicas" && violates(fp.Name, o) {
				violations++
			}
		}
	}
	if t := fp.Status.Totals; t == nil || t.Subjects != subjects || t.Violations != violations || t.Unknown != 0 || t.Errors != 0 {
		return fmt.Sprintf("%d of %d objects violate it", violations, subjects)
	}
	if fp.Spec.Mode == v1alpha1.Observe {
		return ""
	}
	return w.wrongActions(fp)
}

// wrongActions says which counts of Actions are wrong. What counts is the newest Action of a
// target, for as long as limits count it.
func (w *whole) wrongActions(fp *v1alpha1.FleetPolicy) string {
	_, state := w.expected(fp)
	enforcing := state == "Enforcing"                      // else violations may wait
	sure, possible := map[string]bool{}, map[string]bool{} // targets that have been written
	other := map[string]bool{}                             // targets with an outcome that may be newer
	actions, _ := w.hub.Objects("actions")
	for _, o := range actions {
		text, err := json.Marshal(o)
		must(err)
		var a v1alpha1.Action
		must(json.Unmarshal(text, &a))
		if a.Spec.Binding != fp.Name {
			continue
		}
		target := a.Spec.Target.Member + " " + a.Spec.Target.Name
		if a.Status.Phase != v1alpha1.PhaseSucceeded {
			other[target] = true
			continue
		}
		age := time.Since(a.Status.EndedAt.Time)
		sure[target] = sure[target] || age < fp.Spec.Limits.Window.Duration-2*skew
		possible[target] = true
	}
	n := int64(0)
	for target, is := range sure {
		if is && !other[target] {
			n++
		}
	}
	// A target that a person protects after it was written has a newer outcome, of which there is
	// no Action: nothing was sent. The same is so of what needed no write.
	is := fp.Status.Actions
	if is == nil || enforcing && (is.Pending != 0 || is.Failed != 0) || is.Succeeded > int64(len(possible)) || is.Succeeded+is.Protected+is.NoOp < n {
		return fmt.Sprintf("no correction is open, %d targets have been written within its window, and %d at all", n, len(possible))
	}
	return ""
}
