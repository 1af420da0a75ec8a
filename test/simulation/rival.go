package simulation

import (
	"maps"
	"slices"
	"time"

	"federator.dev/federator/api/v1alpha1"
)

// rival is another controller that undoes what a policy has corrected, once faults are over: at
// once, while processes end, or once a day.
type rival struct {
	left  int  // times
	kills bool // processes end in between
	daily bool // a day passes in between, without any process
}

// drawRival draws one, in few schedules: they take long.
func (w *world) drawRival() (r rival) {
	if w.choices.oneIn(6) {
		r.left = 8
		r.kills = w.choices.oneIn(2)
		r.daily = w.choices.oneIn(3)
	}
	return r
}

// offerRival offers that it undoes the correction of the first object, until people are told of
// the fight.
func (w *world) offerRival(add func(int, string, func())) {
	x, m, name := w.policies["replicas"], w.members[0], "d0"
	if w.isFighting("replicas") {
		w.rival.left = 0
	}
	if w.rival.left == 0 || x == nil || x.gone || !x.enforced || w.thrives() {
		return
	}
	o := m.server.Object("deployments", namespace, name)
	if o == nil || violates("replicas", o) {
		return
	}
	add(1, "rival", func() {
		w.rival.left--
		w.drift(m, name, 0)
		w.deadline = time.Now().Add(patience)
		w.note("%s: the rival undoes what was corrected in %s", m.name, name)
		if w.rival.kills || w.rival.daily {
			w.restart(w.rival.daily)
		}
	})
}

// offerRelapse offers once that an object of each wave has to be corrected again, after the second
// wave has begun.
func (w *world) offerRelapse(add func(int, string, func())) {
	if !w.relapse || len(w.members) < 2 || w.thrives() {
		return
	}
	for how, name := range []string{"replicas", "tier"} { // as drift counts
		x, rollout := w.policies[name], w.rollout(name)
		if x == nil || x.gone || !x.enforced || !x.waves || rollout["generation"] != x.key() || rollout["wave"] != int64(2) {
			continue
		}
		add(1, "relapse", func() {
			w.relapse = false
			for _, m := range w.members[:2] {
				w.drift(m, "d0", how)
				w.note("%s: d0 is changed (%d)", m.name, how)
			}
		})
	}
}

// thrives reports that two policies fight already.
func (w *world) thrives() bool {
	x := w.policies["thrift"]
	return x != nil && x.enforced && !x.gone
}

// restart ends all processes and starts another one, a day later if so.
func (w *world) restart(daily bool) {
	for len(w.processes) > 0 {
		w.crash(w.processes[0])
	}
	w.settle()
	if daily {
		w.pass(24 * time.Hour)
	}
	w.deadline = time.Now().Add(patience)
	w.addProcess()
	w.note("p%d starts", w.born)
}

// concede has a person give up one of two policies that fight.
func (w *world) concede() {
	w.mu.Lock()
	w.version++
	w.policies["thrift"].enforced = false
	w.mu.Unlock()
	w.deadline = time.Now().Add(patience)
	w.note("people: %v", w.policies["thrift"])
}

// isFighting reports whether a policy is halted because it fights.
func (w *world) isFighting(policy string) bool {
	return slices.Contains(slices.Collect(maps.Values(w.reasons(policy))), string(v1alpha1.Fighting))
}

// isHalted reports whether a policy is halted, as the hub has it.
func (w *world) isHalted() bool {
	for name := range w.policies {
		if len(w.reasons(name)) > 0 {
			return true
		}
	}
	return false
}

// isSoaking reports whether a policy waits for the health of what its first wave has written.
func (w *world) isSoaking() bool {
	for name := range w.policies {
		if rollout := w.rollout(name); rollout["phase"] == string(v1alpha1.WaveSoaking) && rollout["wave"] == int64(1) && len(w.members[0].unreconciled()) > 0 {
			return true
		}
	}
	return false
}

// reasons returns why a policy is halted, as the hub has it, by the ID of the halt.
func (w *world) reasons(policy string) map[string]string {
	status, _ := w.hub.Object("policystates", "", policy)["status"].(map[string]any)
	halts, _ := status["halts"].([]any)
	all := map[string]string{}
	for _, h := range halts {
		h := h.(map[string]any)
		all[h["id"].(string)], _ = h["reason"].(string)
	}
	return all
}
