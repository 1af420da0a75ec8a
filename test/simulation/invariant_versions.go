package simulation

import (
	"encoding/json"
	"fmt"
	"net/http"

	"federator.dev/federator/api/v1alpha1"
)

// Invariant 9, where a version takes the place of another: a write is of the version that is wanted,
// or of the former one, as far as the process knows; of the wanted one only in the waves that have
// it, of the former one no further than its own waves had come; and no wave ends that does not have
// the version.
type versionModel struct {
	came map[string]progress // how far rollouts had come, by generation, as the hub had it last
}

func newVersionModel() versionModel { return versionModel{came: map[string]progress{}} }

const versionInvariant = "9 versions"

// sent is told of each write of a policy.
func (m *versionModel) sent(w *world, p *process, x write) {
	wish := p.told.policies[x.policy]
	if !w.versions || wish == nil {
		return
	}
	wave := 2
	if x.member == w.members[0].name {
		wave = 1
	}
	switch {
	case wish.isFormer(x):
		former := &wish.replaces.former
		if came := m.came[former.key()]; former.waves && !came.done && came.wave < int64(wave) {
			w.fail(versionInvariant, "%s writes to %s for %s, which had come to wave %d", p.name, x.target(), former.key(), came.wave)
		}
	case x.generation != wish.key():
		w.fail(versionInvariant, "%s writes to %s for %s, and %s is wanted", p.name, x.target(), x.generation, wish.key())
	case wish.replaces != nil && wish.replaces.promoted < wave:
		w.fail(versionInvariant, "%s writes to %s for %s, which is %v", p.name, x.target(), wish.key(), wish.replaces)
	}
}

// recorded checks that no wave ends before it has the version, as far as the process knows.
func (m *versionModel) recorded(w *world, p *process, r *parked) {
	var body struct {
		Metadata struct{ Name string } `json:"metadata"`
		Status   map[string]any        `json:"status"`
	}
	if !w.versions || r.request.Method == http.MethodDelete || json.Unmarshal(r.body, &body) != nil {
		return
	}
	wish := p.told.policies[body.Metadata.Name]
	if wish == nil || wish.replaces == nil {
		return
	}
	ended := int(waveOf(body.Status, wish.key())) - 1
	if rollout, _ := body.Status["rollout"].(map[string]any); ended >= 0 && rollout["phase"] == string(v1alpha1.WaveDone) {
		ended++
	}
	if ended > wish.replaces.promoted {
		w.fail(versionInvariant, "%s records that %d waves of %s have ended, which is %v", p.name, ended, wish.key(), wish.replaces)
	}
}

// check notes how far rollouts have come.
func (m *versionModel) check(w *world) {
	for name := range w.policies {
		if is := w.model.waves.progress[name]; is.generation != "" {
			m.came[is.generation] = is
		}
		// Of one that was replaced before its begin was recorded, that is recorded with what replaced it.
		status, _ := w.hub.Object("policystates", "", name)["status"].(map[string]any)
		if former, _ := status["replaced"].(map[string]any); former != nil {
			wave, _ := former["wave"].(int64)
			if generation := fmt.Sprint(former["generation"]); m.came[generation].generation == "" {
				m.came[generation] = progress{generation, wave, former["done"] != nil}
			}
		}
	}
}
