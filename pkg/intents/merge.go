package intents

import (
	"fmt"
	"maps"
	"slices"

	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// targetsOf returns all targets of a policy.
func (r *Receiver) targetsOf(name string) []policy.Ref {
	all := map[policy.Ref]bool{}
	for _, t := range r.tellers {
		if p := t.policies[name]; p != nil {
			for target := range p.intents {
				all[target] = true
			}
		}
	}
	return slices.Collect(maps.Keys(all))
}

// intentFor returns the intent for a target, nil for none: of what processes say, that counts of which they judge the subject, and only in
// the fleet's members. Subjects of several processes may have one target; of one that none of these judges, it returns what its judge is
// asked about it.
func (r *Receiver) intentFor(name string, target policy.Ref) (*remediate.Intent, *claimed) {
	member, is := r.fleet.Members[target.Member]
	if !is {
		return nil, nil
	}
	claim := &claimed{claim: enforce.Claim{Policy: name, Target: target}, judge: member.Judge}
	var parts []*remediate.Intent
	var judged *remediate.Intent
	astray := ""
	for _, id := range slices.Sorted(maps.Keys(r.tellers)) {
		p := r.tellers[id].policies[name]
		if p == nil || p.intents[target] == nil {
			continue
		}
		said := p.intents[target]
		counts := r.countingParts(id, said)
		parts = append(parts, counts...)
		switch {
		case len(counts) == 0:
		case said.Basis != "":
			claim.claim.Bases = append(claim.claim.Bases, enforce.KnownBy{Process: id, Basis: said.Basis})
		case id == member.Judge:
			judged = said
		default:
			astray = id
		}
	}
	if len(parts) == 0 {
		return nil, nil
	}
	i := enforce.Combine(parts)
	i.Basis, i.Parts, i.MemberUID = "", nil, member.UID
	if len(claim.claim.Bases) > 0 && astray == "" {
		claim.claim.Verb, claim.own = i.Remedy.Action, judged
		return &i, claim
	}
	if judged != nil {
		i.MemberUID, i.APIVersion, i.UID, i.ResourceVersion = judged.MemberUID, judged.APIVersion, judged.UID, judged.ResourceVersion
	}
	if astray != "" {
		i.Unresolved = fmt.Sprintf("process %s, which has the remedy, does not know yet that another process judges its target", astray)
	}
	return &i, nil
}

// countingParts returns the intents that one of a process was combined from, as far as it judges their subjects.
func (r *Receiver) countingParts(process string, i *remediate.Intent) (counts []*remediate.Intent) {
	parts := i.Parts
	if len(parts) == 0 {
		parts = []*remediate.Intent{i}
	}
	for _, p := range parts {
		if of := p.Subject.Ref.Member; of == "" || r.fleet.Members[of].Judge == process {
			counts = append(counts, p)
		}
	}
	return counts
}

// merge returns the spec and totals of a policy over all processes. Each counts for the members that it judges; what
// this process says counts for the rest.
func (r *Receiver) merge(name string, own *teaching) (remediate.RolloutSpec, remediate.Totals) {
	spec := *own.spec
	spec.Waves = slices.Clone(spec.Waves)
	for n := range spec.Waves {
		w := &spec.Waves[n]
		w.Members = map[string]bool{}
		w.Effect, w.Ceiling = withoutMembers(w.Effect), withoutMembers(w.Ceiling)
	}
	totals := remediate.Totals{Members: map[string]int{}, Violations: map[string]int{}, Unknown: map[string]int{}, Unread: map[string]bool{}}
	for id, t := range r.tellers {
		p := t.policies[name]
		if p == nil || p.spec == nil {
			continue
		}
		judges := func(member string) bool { return r.fleet.Members[member].Judge == id }
		if p.version == own.version {
			knows := judges
			if p == own { // as far as their judges have not told
				knows = func(member string) bool { return judges(member) || !r.hasTold(member, name, own.version) }
			}
			for n := range spec.Waves {
				mergeWave(&spec.Waves[n], &p.spec.Waves[n], knows)
			}
		}
		totals.Fleet += p.fleet
		for member, n := range p.totals {
			if n.Unread {
				totals.Unread[member] = true // some process has not read all of it
			}
			switch {
			case !n.Counted:
			case member == "":
				totals.Members[""] += n.Subjects
				totals.Violations[""] += n.Violations
				totals.Unknown[""] += n.Unknown
			case judges(member):
				totals.Members[member], totals.Violations[member], totals.Unknown[member] = n.Subjects, n.Violations, n.Unknown
			default:
				totals.Fleet -= n.Subjects
			}
		}
	}
	return spec, totals
}

// hasTold reports whether the process that judges a member has said a version of a policy.
func (r *Receiver) hasTold(member, name, version string) bool {
	t := r.tellers[r.fleet.Members[member].Judge]
	if t == nil {
		return false
	}
	p := t.policies[name]
	return p != nil && p.spec != nil && p.version == version
}

// mergeWave adds the members that a process judges to a wave.
func mergeWave(into, from *remediate.Wave, judges func(string) bool) {
	mergeMembers(into.Members, from.Members, judges)
	for _, g := range [][2]*remediate.EffectGate{{into.Effect, from.Effect}, {into.Ceiling, from.Ceiling}} {
		if g[0] != nil && g[0].Members != nil {
			mergeMembers(g[0].Members, g[1].Members, judges)
		}
	}
}

func mergeMembers(into, from map[string]bool, judges func(string) bool) {
	for member, in := range from {
		if judges(member) {
			into[member] = in
		}
	}
}
