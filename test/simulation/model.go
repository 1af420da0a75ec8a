package simulation

import (
	"encoding/json"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/test/simulation/apiserver"
)

// model is what must hold, in a form without the code that it is about. It is told what
// processes send, what members execute and what people do.
type model struct {
	seen   map[*parked]bool
	gate   gateModel
	bounds boundModel
	clock  windowModel
	record recordModel
	limits limitModel
	halts  haltModel
	waves  waveModel
	fights fightModel

	versions  versionModel
	approvals approvalModel
	rollbacks rollbackModel
	ceiling   ceilingModel
	owner     ownerModel

	whole bool // halts, waves and approvals are not fed by the world
}

func newModel(*world) model {
	return model{seen: map[*parked]bool{}, record: newRecordModel(), bounds: newBoundModel(), halts: newHaltModel(), waves: newWaveModel(), fights: newFightModel(), approvals: newApprovalModel(), versions: newVersionModel(), rollbacks: newRollbackModel()}
}

// sent is told of each request when it is sent.
func (m *model) sent(w *world, p *process, r *parked) {
	if !m.whole && strings.Contains(r.request.URL.Path, "/policystates") && r.request.Method != http.MethodGet {
		m.waves.recorded(w, p, r)
		m.versions.recorded(w, p, r)
	}
	if !r.writes() {
		return
	}
	x := w.writeOf(r)
	m.record.sent(w, p, x)
	m.gate.sent(w, p, r, x)
	if m.whole {
		m.gate.policy(w, p, x)
		m.limits.sent(w, p, x)
		m.halts.sent(w, p, x)
		return
	}
	m.bounds.sent(w, p, r, x)
	m.owner.sent(w, p, x)
	if x.rollbackOf != "" {
		m.rollbacks.sent(w, p, x)
		return
	}
	m.gate.policy(w, p, x)
	m.clock.sent(w, p, r, x)
	m.ceiling.sent(w, p, x)
	m.limits.sent(w, p, x)
	m.halts.sent(w, p, x)
	m.waves.sent(w, p, x)
	m.versions.sent(w, p, x)
	m.fights.sent(w, p, x)
	m.approvals.sent(w, p, x)
}

// written is told of each write that has changed a member; p is nil for a client that has
// given up.
func (m *model) written(w *world, p *process, r *parked) {
	x := w.writeOf(r)
	m.record.written(w, x)
	m.limits.written(x)
	if x.rollbackOf != "" {
		m.rollbacks.executed(w, x)
		return
	}
	m.fights.written(x)
	if p != nil && !m.whole {
		m.waves.written(w, p, x)
	}
}

// acknowledged is told of each halt that a person has acknowledged.
func (m *model) acknowledged(w *world, p *process, policy string, h *remediate.Halt) {
	m.limits.acknowledged(w, p, policy, h)
	m.halts.acked[h.ID] = true
	m.waves.acknowledged(w, policy, h)
	m.fights.acknowledged(policy, h)
}

// check is called after each step.
func (m *model) check(w *world) {
	m.gate.check(w)
	if m.whole {
		return
	}
	m.bounds.check(w)
	m.halts.check(w)
	m.waves.check(w)
	m.versions.check(w)
	m.approvals.check(w)
}

// write is a request to write, as far as it says what it is for.
type write struct {
	member, name   string
	policy, action string // of its Action
	rollbackOf     string // the Action that it rolls back, for a person
	generation     string // that the Action is of
	verb           string
}

func (x write) target() string { return x.member + " " + x.name }

// writeOf says what a request to write is for: the annotation that it sets names its
// Action. A delete sets none; the Action is the one that is under way for its target.
func (w *world) writeOf(r *parked) write {
	if r.is == nil {
		x := w.parse(r)
		r.is = &x
	}
	return *r.is
}

func (w *world) parse(r *parked) write {
	x := write{member: r.to, name: path.Base(r.request.URL.Path), verb: r.request.Method}
	if manager, found := strings.CutPrefix(r.request.URL.Query().Get("fieldManager"), "federator/"); found {
		x.policy = manager
	}
	var body struct {
		Metadata struct {
			Name        string            `json:"name"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if json.Unmarshal(r.body, &body) == nil {
		x.action = body.Metadata.Annotations["federator.dev/action"]
		if r.request.Method == http.MethodPost {
			x.name = body.Metadata.Name
		}
	}
	if o := w.hub.Peek("actions", "", x.action); o != nil {
		x.rollbackOf, _ = o["spec"].(map[string]any)["rollbackOf"].(string)
		x.generation, _ = o["spec"].(map[string]any)["generation"].(string)
	}
	return x
}

// hubKinds are the kinds of the hub, read once.
var hubKinds = sync.OnceValue(func() []*apiserver.Kind {
	custom, err := apiserver.Custom("../../charts/federator/crds")
	if err != nil {
		panic(err)
	}
	return append(custom, apiserver.Builtins()...)
})

// quiet reports whether nothing is left to do.
func (m *model) quiet(w *world) bool { return len(m.wanted(w)) == 0 && m.record.quiet(w) }

// wanted returns the targets that enforced policies still have to correct.
func (m *model) wanted(w *world) (targets []string) {
	for _, mem := range w.members {
		objects, _ := mem.server.Objects("deployments")
		for _, o := range objects {
			name := mem.name + " " + o["metadata"].(map[string]any)["name"].(string)
			for _, x := range w.policies {
				if x.enforced && !x.gone && violates(x.policy, o) && w.ceiling.permits(w, x, mem.name) && !w.owners.others(name, o) {
					targets = append(targets, name+" "+x.policy)
				}
			}
		}
	}
	return targets
}

// unfinished is called when faults have been over for long and not all is done.
// Invariant 7: what is wanted is written or visibly refused.
func (m *model) unfinished(w *world) {
	if targets := m.wanted(w); len(targets) > 0 {
		for _, p := range w.processes {
			for _, name := range slices.Sorted(maps.Keys(w.policies)) {
				if s, ok := p.dispatcher.Status(name); ok {
					w.note("%s: %v, waiting %q, %d pending, halted %+v, wave %+v, plans %+v", p.name, w.policies[name], s.Waiting, s.Pending, s.Halted, s.Wave, s.Plans)
				}
			}
		}
		w.fail("7 liveness", "%v after the last fault these are neither written nor refused: %v", patience, targets)
		return
	}
	m.record.unfinished(w)
}

// since is how long ago something was, at most now.
func since(at time.Time) time.Duration { return time.Since(at) }
