package enforce

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// Wave is a group of members that is written to after the groups before it.
type Wave struct {
	Name    string
	Members policy.MemberSelector // those that are in no earlier wave
	Soak    time.Duration
	Require v1alpha1.HealthRequirement
	Timeout time.Duration
	// MaxFailed and Effect are as in remediate.Wave.
	MaxFailed int
	Effect    *remediate.EffectGate
}

// selector reports whether it selects a member.
type selector = func(aggregate.Member) bool

func compileWaves(waves []Wave) (selectors []selector, err error) {
	var errs []error
	for _, w := range waves {
		has, err := w.Members.Compile()
		if err != nil {
			errs = append(errs, fmt.Errorf("wave %q: %w", w.Name, err))
		}
		selectors = append(selectors, has)
	}
	return selectors, errors.Join(errs...)
}

// waveOf returns the first wave that selects a member, -1 for none.
func waveOf(waves []selector, m aggregate.Member) int {
	return slices.IndexFunc(waves, func(has selector) bool { return has(m) })
}

// rolloutWaves returns the waves of a policy, with the members of a snapshot. Where its
// source's ceiling has waves, too, all its own are passed within each of those.
func (c *compiledSpec) rolloutWaves(s *aggregate.Snapshot) []remediate.Wave {
	own := c.EnforcementSpec.Waves
	if len(c.ceilingWaves) == 0 {
		return withMembers(own, s, func(m aggregate.Member) int { return waveOf(c.waves, m) })
	}
	outer, perOuter := c.Ceiling.Waves, max(1, len(own))
	var all []Wave
	for n := range outer {
		if len(own) == 0 {
			all = append(all, outer[n])
		}
		for i := range own {
			all = append(all, own[i].within(&outer[n]))
		}
	}
	out := withMembers(all, s, func(m aggregate.Member) int {
		a, b := waveOf(c.ceilingWaves, m), 0
		if len(own) > 0 {
			b = waveOf(c.waves, m)
		}
		if a < 0 || b < 0 {
			return -1
		}
		return a*perOuter + b
	})
	if len(own) > 0 {
		for n := range outer {
			surround(out[n*perOuter:(n+1)*perOuter], &outer[n])
		}
	}
	return out
}

// withMembers gives waves the members of a snapshot that they have.
func withMembers(waves []Wave, s *aggregate.Snapshot, waveOf func(aggregate.Member) int) []remediate.Wave {
	if len(waves) == 0 {
		return nil
	}
	var out []remediate.Wave
	for _, w := range waves {
		out = append(out, remediate.Wave{
			Name: w.Name, Members: map[string]bool{}, Soak: w.Soak, Require: w.Require, Timeout: w.Timeout, MaxFailed: w.MaxFailed, Effect: w.Effect,
		})
	}
	for m := range s.Members() {
		if n := waveOf(m); n >= 0 {
			out[n].Members[m.Name] = true
		}
	}
	return out
}

// strictness orders requirements.
var strictness = map[v1alpha1.HealthRequirement]int{v1alpha1.RequireNothing: 1, v1alpha1.RequireNotDegraded: 2, "": 3, v1alpha1.RequireHealthy: 3}

// within returns a wave of a policy as part of one of the ceiling, whose gates hold as well.
func (w Wave) within(outer *Wave) Wave {
	w.Name = outer.Name + "/" + w.Name
	if strictness[outer.Require] > strictness[w.Require] {
		w.Require = outer.Require
	}
	w.Timeout, w.MaxFailed = min(w.Timeout, outer.Timeout), min(w.MaxFailed, outer.MaxFailed)
	return w
}

// surround completes the waves of a policy that make up one of the ceiling: the last one
// soaks as long as that does, and in all of them its gate on the effect looks at all of its
// members. Where a wave of the policy has no members here, there is nothing to soak.
func surround(waves []remediate.Wave, outer *Wave) {
	members := map[string]bool{}
	for n := range waves {
		for m := range waves[n].Members {
			members[m] = true
		}
	}
	for n := range waves {
		w := &waves[n]
		if len(w.Members) == 0 {
			w.Soak = 0
		}
		if n == len(waves)-1 {
			w.Soak = max(w.Soak, outer.Soak)
		}
		if outer.Effect != nil {
			w.Ceiling = &remediate.EffectGate{Policies: outer.Effect.Policies, Unknown: outer.Effect.Unknown, Members: members}
		}
	}
}
