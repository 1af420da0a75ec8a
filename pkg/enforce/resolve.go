package enforce

import (
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// Claim is what a process that corrects asks the one that judges a target of which others have remedies.
type Claim struct {
	Policy string
	Target policy.Ref
	Verb   string // of the remedy
	Bases  []KnownBy
}

// KnownBy is what a process knows of a target: the text of its policy.Basis.
type KnownBy struct{ Process, Basis string }

// Resolution is what a target is in the process that judges it.
type Resolution struct {
	// MemberUID, APIVersion, UID and ResourceVersion are those of remediate.Intent.
	MemberUID, APIVersion, UID, ResourceVersion string
	// Why nothing may be written now, "" if it may: the target is not what the remedies rest on.
	Why string
	// Beyond is why the remedy exceeds the ceiling of its source, "" if it does not: there is no such correction.
	Beyond string
}

// Resolve says what targets are that this process judges. wants reports whether another process knows of objects that are judged
// here and have some keys.
func (c *Corrector) Resolve(claims []Claim, wants func(process string, k *interest.Keys) bool) []Resolution {
	out := make([]Resolution, len(claims))
	c.mu.Lock()
	state, specs := c.state, make(map[string]*compiledSpec, len(claims))
	for n := range claims {
		specs[claims[n].Policy] = c.specs[claims[n].Policy]
	}
	c.mu.Unlock()
	for n := range claims {
		out[n] = resolve(state, specs[claims[n].Policy], &claims[n], wants)
	}
	return out
}

func resolve(s *policy.State, spec *compiledSpec, claim *Claim, wants func(string, *interest.Keys) bool) Resolution {
	switch {
	case s == nil || !s.Judges(claim.Target.Member):
		return Resolution{Why: "the process that is to judge its target does not yet"}
	case spec == nil:
		return Resolution{Why: "the process that judges its target does not know the policy yet"}
	}
	member, _ := s.Member(claim.Target.Member)
	if why := spec.overCeiling(&policy.Remedy{Action: claim.Verb, Target: claim.Target}, member); why != "" {
		return Resolution{Beyond: why}
	}
	for _, k := range claim.Bases {
		if !s.Supports(claim.Target, k.Basis, func(keys *interest.Keys) bool { return wants(k.Process, keys) }) {
			return Resolution{Why: "process " + k.Process + ", which has the remedy, knows its target otherwise than the process that judges it"}
		}
	}
	var i remediate.Intent
	describeTarget(s, claim.Target, &i)
	return Resolution{MemberUID: i.MemberUID, APIVersion: i.APIVersion, UID: i.UID, ResourceVersion: i.ResourceVersion}
}

// describeTarget sets what an intent says of a target that is judged here.
func describeTarget(s *policy.State, target aggregate.Ref, i *remediate.Intent) {
	if m, ok := s.Snapshot.Member(target.Member); ok {
		i.MemberUID = m.UID
	}
	if o, ok := s.Snapshot.Get(target); ok {
		i.APIVersion, i.UID, i.ResourceVersion = o.APIVersion(), o.UID(), o.ResourceVersion()
	} else {
		i.UID, i.ResourceVersion = "", ""
	}
}

// refreshElsewhereLocked updates what is known of the targets that other processes judge.
func (c *Corrector) refreshElsewhereLocked() {
	for _, b := range c.bindings {
		for ref, t := range b.elsewhere {
			was := t.basis.Text
			if t.basis = c.state.Basis(ref, t.basis); t.basis.Text != was {
				b.markChanged(ref)
			}
		}
	}
}

// toldMembersChanged reports whether members that other processes judge have come, left or changed.
func toldMembersChanged(before, after *policy.State) bool {
	was, is := before.Told(), after.Told()
	if was == nil || is == nil {
		return was != is
	}
	if was.Shape() == is.Shape() {
		return false
	}
	n := 0
	for m := range is.Members() {
		n++
		if had, ok := was.Member(m.Name); !ok || !sameForCorrections(&had, &m) {
			return true
		}
	}
	for range was.Members() {
		n--
	}
	return n != 0
}

// sameForCorrections reports whether corrections do not depend on how a member differs.
func sameForCorrections(a, b *aggregate.Member) bool {
	return a.Name == b.Name && a.UID == b.UID && a.Role == b.Role && slices.Equal(a.Labels, b.Labels)
}
