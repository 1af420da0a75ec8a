package simulation

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// Invariant 3: nothing of the second wave is sent before the hub has recorded that it has begun,
// and that is not asked for before every target of the first is written or accounted for, the
// process has read each version that was written there, the member is within reach and not
// held, and what was written has been healthy for the whole soak.
type waveModel struct {
	first map[string][]wroteCanary // of the first wave, by edition of the policy
	// begun are the second waves that a process has asked to be recorded, by edition.
	begun    map[*process]map[string]bool
	wrote    map[string]bool     // policies and generations that have written something
	progress map[string]progress // by policy
	// accepted is when a person accepted what had been written, by policy and generation.
	accepted map[string]time.Time
	// excused are the targets that could not be written when a person accepted that.
	excused map[string]map[string]bool
	// refused are the targets, by policy, whose member has refused the last request to write them.
	refused map[string]map[string]bool
}

type wroteCanary struct {
	name     string
	revision uint64 // after the write
	at       time.Time
}

func newWaveModel() waveModel {
	return waveModel{first: map[string][]wroteCanary{}, begun: map[*process]map[string]bool{}, wrote: map[string]bool{}, progress: map[string]progress{}, accepted: map[string]time.Time{}, excused: map[string]map[string]bool{}, refused: map[string]map[string]bool{}}
}

// acknowledged is told that a person has ended a halt: of what is not healthy, that accepts what
// has been written so far.
func (m *waveModel) acknowledged(w *world, policy string, h *remediate.Halt) {
	if h.Reason == v1alpha1.Unhealthy {
		m.accepted[h.Generation], m.excused[h.Generation] = time.Now(), w.unwritten(policy)
	}
}

// unwritten returns the targets of a policy of which an Action was recorded and has written
// nothing.
func (w *world) unwritten(policy string) map[string]bool {
	targets := map[string]bool{}
	actions, _ := w.hub.Objects("actions")
	for _, o := range actions {
		spec, target := o["spec"].(map[string]any), o["spec"].(map[string]any)["target"].(map[string]any)
		status, _ := o["status"].(map[string]any)
		if spec["binding"] == policy && spec["rollbackOf"] == nil && status["phase"] != "Succeeded" && status["phase"] != "RolledBack" {
			targets[target["member"].(string)+" "+target["name"].(string)] = true
		}
	}
	return targets
}

func (m *waveModel) written(w *world, p *process, x write) {
	wish := p.told.policies[x.policy]
	if wish == nil || wish.isFormer(x) {
		return
	}
	m.wrote[wish.key()] = true
	if x.member == w.members[0].name {
		_, revision := w.members[0].server.Since("deployments", 1<<62)
		m.first[wish.edition()] = append(m.first[wish.edition()], wroteCanary{x.name, revision, time.Now()})
	}
}

// sent checks that the hub knows of the second wave before anything of it is sent.
func (m *waveModel) sent(w *world, p *process, x write) {
	wish := p.told.policies[x.policy]
	if wish == nil || !wish.waves || x.member == w.members[0].name || wish.isFormer(x) {
		return
	}
	o := w.hub.Peek("policystates", "", x.policy)
	if status, _ := o["status"].(map[string]any); waveOf(status, wish.key()) < 2 {
		w.fail("3 waves", "%s writes to %s, and the hub does not know that the second wave has begun", p.name, x.target())
	}
	m.inOrder(w, p, x, wish)
}

// answered is told what a member has answered to a request to write, a dry run too.
func (m *waveModel) answered(x write, code int) {
	if m.refused[x.policy] == nil {
		m.refused[x.policy] = map[string]bool{}
	}
	m.refused[x.policy][x.target()] = code == http.StatusForbidden
}

// inOrder checks that nothing is written in the second wave while something of the first is to be
// corrected again, as far as the process knows. That ends once the rollout is done for longer than
// its waves soak.
func (m *waveModel) inOrder(w *world, p *process, x write, wish *wish) {
	canary := w.members[0]
	if done := w.doneAt(wish); !m.accepted[wish.key()].IsZero() || !done.IsZero() && time.Since(done) > 2*wish.soak-skew {
		return
	}
	for _, o := range canary.server.ObjectsAt("deployments", p.read[canary.name]) {
		name := nameOf(o)
		failed := m.refused[wish.policy][canary.name+" "+name]
		if violates(wish.policy, o) && !failed && !p.owners.others(canary.name+" "+name, o) && p.ceiling.permits(w, wish, canary.name) {
			w.fail("3 waves", "%s writes to %s, and %s of the first wave is to be corrected again", p.name, x.target(), name)
		}
	}
}

// rollout returns how far a policy has come, as the hub has it.
func (w *world) rollout(policy string) map[string]any {
	status, _ := w.hub.Object("policystates", "", policy)["status"].(map[string]any)
	rollout, _ := status["rollout"].(map[string]any)
	return rollout
}

// check compares how far rollouts are with how far they were: one that is known goes on there.
func (m *waveModel) check(w *world) {
	for name := range w.policies {
		now := w.rollout(name)
		wave, _ := now["wave"].(int64)
		is := progress{fmt.Sprint(now["generation"]), wave, now["phase"] == string(v1alpha1.WaveDone)}
		if was := m.progress[name]; was.generation == is.generation && (is.wave < was.wave || was.done && !is.done) {
			w.fail("3 waves", "the rollout of %s was in wave %d (done %t), and is in wave %d (done %t)", is.generation, was.wave, was.done, is.wave, is.done)
		}
		m.progress[name] = is
	}
}

// progress is how far a rollout has come.
type progress struct {
	generation string
	wave       int64
	done       bool
}

// doneAt returns when the rollout of what is wanted was done, as the hub has it; zero is not yet.
func (w *world) doneAt(wish *wish) time.Time {
	rollout := w.rollout(wish.policy)
	text, _ := rollout["done"].(string)
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || rollout["generation"] != wish.key() {
		return time.Time{}
	}
	return at
}

// sees reports whether a process has read something that a policy is to correct, whether or not
// it can be.
func (p *process) sees(policy string) bool {
	for _, m := range p.world.members {
		if revision, listed := p.read[m.name]; listed {
			for _, o := range m.server.ObjectsAt("deployments", revision) {
				if violates(policy, o) || policy == "tier" && tierOf(o) == "tin" {
					return true
				}
			}
		}
	}
	return false
}

// waveOf returns the wave of a generation that the status of a PolicyState has, 0 for none.
func waveOf(status map[string]any, generation string) float64 {
	return waveIn(status, "rollout", generation)
}

// replacedWaveOf is waveOf for the generation that the one in effect is to replace. If that is
// taken back, the former one goes on where it was.
func replacedWaveOf(status map[string]any, generation string) float64 {
	return waveIn(status, "replaced", generation)
}

func waveIn(status map[string]any, field, generation string) float64 {
	rollout, _ := status[field].(map[string]any)
	if rollout["generation"] != generation {
		return 0
	}
	switch n := rollout["wave"].(type) {
	case int64:
		return float64(n)
	case float64:
		return n
	}
	return 0
}

// recorded checks what a process knows when it first asks the hub to record the second wave.
// What comes later is of a wave that has begun.
func (m *waveModel) recorded(w *world, p *process, r *parked) {
	const invariant = "3 waves"
	var body struct {
		Metadata struct{ Name string } `json:"metadata"`
		Status   map[string]any        `json:"status"`
	}
	if json.Unmarshal(r.body, &body) != nil {
		return
	}
	wish := p.told.policies[body.Metadata.Name]
	canary := w.members[0]
	if wish == nil || !wish.waves || waveOf(body.Status, wish.key()) < 2 || m.begun[p][wish.edition()] {
		return
	}
	if m.begun[p] == nil {
		m.begun[p] = map[string]bool{}
	}
	m.begun[p][wish.edition()] = true
	o := w.hub.Peek("policystates", "", body.Metadata.Name)
	if status, _ := o["status"].(map[string]any); waveOf(status, wish.key()) >= 2 || replacedWaveOf(status, wish.key()) >= 2 {
		return // it was recorded before: by another process, or when a version was in effect that is taken back
	}
	if why := p.told.held[canary.name]; why != "" {
		w.fail(invariant, "%s begins the second wave of %s while the first one's member is held: %s", p.name, wish.policy, why)
	}
	if canary.away {
		w.fail(invariant, "%s begins the second wave of %s while the first one's member is away", p.name, wish.policy)
	}
	if !m.wrote[wish.key()] && wish.replaces == nil && !p.sees(wish.policy) {
		w.fail(invariant, "%s begins the second wave of %s, and the policy has had nothing to correct yet", p.name, wish.policy)
	}
	healthy := map[string]bool{}
	for _, o := range canary.server.ObjectsAt("deployments", p.read[canary.name]) {
		name := nameOf(o)
		if healthy[name] = reconciled(o); violates(wish.policy, o) && !p.owners.others(canary.name+" "+name, o) && p.ceiling.permits(w, wish, canary.name) && !m.excused[wish.key()][canary.name+" "+name] {
			w.fail(invariant, "%s begins the second wave of %s, and %s of the first is not corrected", p.name, wish.policy, name)
		}
		if wish.policy == "tier" && tierOf(o) == "tin" && !p.owners.others(canary.name+" "+name, o) && p.ceiling.permits(w, wish, canary.name) && m.accepted[wish.key()].IsZero() {
			w.fail(invariant, "%s begins the second wave of %s, and %s of the first cannot be corrected, which nobody has accepted", p.name, wish.policy, name)
		}
	}
	for _, c := range m.first[wish.edition()] {
		is, exists := healthy[c.name]
		switch {
		case p.read[canary.name] < c.revision:
			w.fail(invariant, "%s begins the second wave of %s before it has read what was written to %s", p.name, wish.policy, c.name)
		case exists && !is && c.at.After(m.accepted[wish.key()]):
			w.fail(invariant, "%s begins the second wave of %s while %s of the first is not healthy", p.name, wish.policy, c.name)
		case time.Since(c.at) < wish.soak-(w.ahead-w.behind)-time.Microsecond: // each by its own clock, as exactly as the hub keeps times
			w.fail(invariant, "%s begins the second wave of %s %v after %s of the first was written, its soak is %v", p.name, wish.policy, time.Since(c.at), c.name, wish.soak)
		}
	}
}
