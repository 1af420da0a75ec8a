package simulation

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// Invariant 1, where approval is required: beyond what was approved nothing is written. A write
// is of a target in a Plan of the policy's generation whose Approvals count now, or counted until
// all of it was written; or so few targets are written that they need none. A Plan does not
// change; at most one of a generation waits; and what a policy requires lasts until people have
// approved a generation that does not.
type approvalModel struct {
	frozen             map[types.UID]map[string]bool // the targets of Plans
	met                map[string]bool               // generations that enough people have approved
	kept               map[string]int                // how many people policies require by what the hub has recorded
	parts              map[types.UID]map[string]bool // the targets that the parts of Plans name, as of a revision
	partsAt, checkedAt uint64
}

func newApprovalModel() approvalModel {
	return approvalModel{frozen: map[types.UID]map[string]bool{}, met: map[string]bool{}, kept: map[string]int{}}
}

// counted is told of what a process is told.
func (m *approvalModel) counted(w *world, counted map[types.UID]remediate.Approved) {
	for _, pl := range w.plans() {
		if counted[pl.uid].Met && pl.purpose == v1alpha1.PlanGeneration {
			m.met[pl.generation] = true
		}
	}
}

// requirements returns what the hub has recorded that a policy requires: how many people, and
// beyond how many percent of its subjects; -1 is beyond none.
func (w *world) requirements(policy string) (people, above int) {
	status, _ := w.hub.Peek("policystates", "", policy)["status"].(map[string]any)
	kept, _ := status["approval"].(map[string]any)
	all, _ := kept["requirements"].([]any)
	above = 100
	for _, r := range all {
		r := r.(map[string]any)
		people = max(people, int(r["required"].(int64)))
		if share, has := r["above"].(int64); has {
			above = min(above, int(share))
		} else {
			above = -1
		}
	}
	return people, above
}

func (m *approvalModel) sent(w *world, p *process, x write) {
	wish := p.told.policies[x.policy]
	if wish == nil {
		return // the gate's model says so
	}
	people, above := w.requirements(x.policy)
	if wish.approvals > people {
		w.fail("1 approvals", "%s writes to %s for %s, which requires the approval of %d, and the hub does not know that", p.name, x.target(), wish.key(), wish.approvals)
	}
	if people == 0 || above >= 0 && w.model.limits.count(w, p, x, wish.window) <= p.subjects("")*above/100 {
		return
	}
	for _, pl := range w.plans() {
		if pl.policy == x.policy && (pl.generation == wish.key() || wish.isFormer(x) && pl.generation == x.generation) && pl.purpose != v1alpha1.PlanHalt && m.frozen[pl.uid][x.target()] && m.passes(p, &pl) {
			return
		}
	}
	w.fail("1 approvals", "%s writes to %s for %s, and no approved Plan has it", p.name, x.target(), wish.key())
}

// passes reports whether a process may write what a Plan has, as far as it knows.
func (m *approvalModel) passes(p *process, pl *planned) bool {
	a := p.approved[pl.policy][pl.uid]
	return pl.state == v1alpha1.PlanDone || a.Met && time.Now().Add(p.offset).Before(a.Until)
}

// check compares Plans, and what is required, with what they were.
func (m *approvalModel) check(w *world) {
	const invariant = "1 approvals"
	at := w.hub.LastChange("plans", "planparts", "policystates")
	if at == m.checkedAt {
		return
	}
	m.checkedAt = at
	waiting := map[string]string{}
	for _, pl := range w.plans() {
		if pl.state == "" || pl.state == v1alpha1.PlanFreezing {
			continue
		}
		targets := m.targets(w, pl.uid)
		was, known := m.frozen[pl.uid]
		if known && !pl.waits() {
			continue // it is deleted part by part
		}
		if known && !maps.Equal(was, targets) {
			w.fail(invariant, "Plan %s had %v, and has %v", pl.name, was, targets)
		}
		m.frozen[pl.uid] = targets
		if pl.state == v1alpha1.PlanWaiting && pl.purpose != v1alpha1.PlanHalt {
			if other := waiting[pl.generation]; other != "" {
				w.fail(invariant, "two Plans of %s wait: %s and %s", pl.generation, other, pl.name)
			}
			waiting[pl.generation] = pl.name
		}
	}
	for name := range w.policies {
		people, _ := w.requirements(name)
		if people < m.kept[name] && !m.approvedWith(w, name, people) {
			w.fail(invariant, "%s required the approval of %d people, and requires that of %d: nobody has approved that", name, m.kept[name], people)
		}
		m.kept[name] = people
	}
}

// targets is plannedTargets, read once while no part changes.
func (m *approvalModel) targets(w *world, plan types.UID) map[string]bool {
	if at := w.hub.LastChange("planparts"); at != m.partsAt || m.parts == nil {
		m.parts, m.partsAt = map[types.UID]map[string]bool{}, at
	}
	if m.parts[plan] == nil {
		m.parts[plan] = w.plannedTargets(plan)
	}
	return m.parts[plan]
}

// approvedWith reports whether people have approved a generation of a policy that requires no more
// people.
func (m *approvalModel) approvedWith(w *world, policy string, people int) bool {
	return slices.ContainsFunc(w.wishes[policy], func(x *wish) bool { return m.met[x.key()] && x.approvals <= people })
}

// subjects returns how many objects a process has read, in one member or ("") in all.
func (p *process) subjects(member string) (n int) {
	for _, m := range p.world.members {
		if revision, listed := p.read[m.name]; listed && (member == "" || m.name == member) {
			n += len(m.server.ObjectsAt("deployments", revision))
		}
	}
	return n
}
