package intents_test

import (
	"sync"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// recorder is an enforce.Actor that holds what it was told.
type recorder struct {
	mu       sync.Mutex
	policies map[string]*recorded
	removed  []string
}

type recorded struct {
	spec    remediate.RolloutSpec
	totals  remediate.Totals
	intents map[policy.Ref]remediate.Intent
	ready   bool
}

func newRecorder() *recorder { return &recorder{policies: map[string]*recorded{}} }

func (a *recorder) SetIntents(name string, spec remediate.RolloutSpec, totals remediate.Totals, list []remediate.Intent, ready bool) error {
	a.mu.Lock()
	delete(a.policies, name)
	a.mu.Unlock()
	return a.UpdateIntents(name, spec, totals, list, nil, ready)
}

func (a *recorder) UpdateIntents(name string, spec remediate.RolloutSpec, totals remediate.Totals, list []remediate.Intent, gone []policy.Ref, ready bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.policies[name]
	if p == nil {
		p = &recorded{intents: map[policy.Ref]remediate.Intent{}}
		a.policies[name] = p
	}
	p.spec, p.totals, p.ready = spec, totals, ready
	for _, target := range gone {
		delete(p.intents, target)
	}
	for _, i := range list {
		p.intents[i.Remedy.Target] = i
	}
	return nil
}

func (a *recorder) ClearIntents(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.policies, name)
}

func (a *recorder) RemovePolicy(name string) {
	a.ClearIntents(name)
	a.removed = append(a.removed, name)
}

func (*recorder) Protected(policy.Ref, map[string]string) string { return "" }
