package remediate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/rollout"
)

// healthInterval is how often the health of what waves have written is looked at.
const healthInterval = time.Second

// rules returns what the waves of a policy must pass.
func (s *RolloutSpec) rules() []rollout.Wave {
	out := make([]rollout.Wave, 0, len(s.Waves))
	for _, w := range s.Waves {
		out = append(out, rollout.Wave{Name: w.Name, Soak: w.Soak, Timeout: w.Timeout, Require: w.Require, MaxFailed: w.MaxFailed})
	}
	return out
}

// beginRolloutLocked begins the rollout of another generation. The waves of one that is known
// go on where they were.
func (d *Dispatcher) beginRolloutLocked(s *policyState, now time.Time) {
	if len(s.spec.Waves) > 0 && !s.hasBegun() {
		s.beginRollout(now)
	}
	if s.spec.Replaces == nil && s.replaced != nil {
		s.replaced, s.formerWritten = nil, map[policy.Ref]*writtenTarget{}
		s.touch()
	}
}

// hasBegun reports that the rollout of the present generation has begun. One that is done stays
// so, however many waves there are now.
func (s *policyState) hasBegun() bool {
	r := s.rollout
	return r != nil && r.Generation == s.spec.Generation && (r.Wave < len(s.spec.Waves) || r.Phase == v1alpha1.WaveDone)
}

func (s *policyState) beginRollout(now time.Time) {
	state, written := rollout.Begin(s.spec.Generation, now), map[policy.Ref]*writtenTarget{}
	if r := s.replaced; r != nil && r.Generation == s.spec.Generation && r.HasWaves() && (r.Wave < len(s.spec.Waves) || r.Phase == v1alpha1.WaveDone) {
		state, written = r.Resume(now), s.formerWritten // what was to take its place is taken back
	}
	if r := s.spec.Replaces; r != nil && s.rollout != nil && s.rollout.Generation == r.Generation {
		s.formerWritten = s.written
	}
	s.rollout, s.written = &state, written
	s.unclean, s.health = map[string]int{}, rollout.Health{}
	for target := range written {
		s.unclean[target.Member]++
		s.health.Unknown = "what was written has not been looked at yet"
		s.health.Unhealthy++
	}
	s.excused, s.baseline, s.needsBaseline = nil, nil, true
	s.touch()
}

// ownWaves are those of a generation that took no other's place.
type ownWaves struct {
	known      bool
	generation string
	waves      []Wave
}

// keepReplaced keeps how far the generation had come whose place the present one takes. Where that
// is not known, it had not begun.
func (s *policyState) keepReplaced(now time.Time) {
	of, was := s.spec.Replaces, s.replaced
	if of == nil || s.spec.DryRun || was != nil && was.Generation == of.Generation && was.By == s.spec.Generation {
		return
	}
	var state rollout.State
	var own []map[string]bool
	knows := s.own.known && s.own.generation == of.Generation
	if knows {
		own = membersOf(s.own.waves)
	}
	switch {
	case knows && len(s.own.waves) == 0:
		state = rollout.Everywhere(of.Generation)
	case s.rollout != nil && s.rollout.Generation == of.Generation:
		state = *s.rollout
	case was != nil && was.Generation == of.Generation:
		state = was.State
	default:
		state = rollout.Begin(of.Generation, now)
		own = nil
	}
	kept := state.Replace(s.spec.Generation, own, membersOf(s.spec.Waves))
	s.replaced = &kept
	s.touch()
	for target, i := range s.intents {
		if i.Former {
			s.updateDue(target, now)
		}
	}
}

func membersOf(waves []Wave) (out []map[string]bool) {
	for n := range waves {
		out = append(out, waves[n].Members)
	}
	return out
}

// formerReaches reports whether a Former intent may be written: the waves of its generation had come
// to its member. One of another source is not, whose ceiling is not known here.
func (s *policyState) formerReaches(i *Intent) bool {
	of, r := s.spec.Replaces, s.replaced
	if of == nil || r == nil || r.Generation != of.Generation || r.By != s.spec.Generation || i.Source != "" && i.Source != s.spec.Source {
		return false
	}
	n, ok := s.waveOf(i.Remedy.Target.Member)
	return r.Reaches(n, !ok && len(s.spec.Waves) > 0)
}

// isBeyond reports whether an intent is one of the former generation that is beyond its waves: it is
// not written, and nothing waits for it.
func (s *policyState) isBeyond(i *Intent) bool {
	return i.Former && !s.spec.DryRun && !s.formerReaches(i)
}

// lets reports whether waves let a target be written. One whose present intent is Former does not wait
// for those of the present generation.
func (s *policyState) lets(target policy.Ref, reached int) bool {
	if s.isFormer(target) {
		return s.formerReaches(s.intents[target].Intent)
	}
	return s.reaches(target.Member, reached)
}

// isFormer reports whether the intent for a target is of the former generation: what becomes of it
// says nothing about the present one.
func (s *policyState) isFormer(target policy.Ref) bool {
	i := s.intents[target]
	return i != nil && i.Former
}

// setAside takes the intents of a member out of the queue that are not Former. restore puts them back.
func (s *policyState) setAside(member string) (restore func()) {
	if s.formers[member] == s.members[member] {
		return func() {}
	}
	var former, others []policy.Ref
	for target, ok := s.queue.Next(member); ok; target, ok = s.queue.Next(member) {
		s.queue.Remove(target)
		if s.isFormer(target) {
			former = append(former, target)
		} else {
			others = append(others, target)
		}
	}
	add := func(targets []policy.Ref) {
		for _, target := range targets {
			s.queue.Add(target)
		}
	}
	add(former)
	return func() { add(others) }
}

// stepLocked takes the next step of a rollout, which may halt the policy.
func (d *Dispatcher) stepLocked(s *policyState, p *pass) {
	s.held = ""
	if len(s.spec.Waves) == 0 || s.rollout == nil {
		return
	}
	if s.rollout.Phase == v1alpha1.WaveDone {
		if p.now.Before(s.rollout.Done.Add(s.soaks())) && len(s.written) > 0 {
			p.again(p.now.Add(healthInterval))
		}
		return
	}
	if name := s.unknownEffect(p); name != "" {
		s.held = fmt.Sprintf("the verdicts of policy %q are not known now", name)
		p.again(p.now.Add(heldPollInterval))
		return
	}
	s.takeBaseline(p)
	facts := d.factsLocked(s, p)
	before := *s.rollout
	step := before.Next(s.spec.rules(), &facts, p.now)
	ends := step.State.Wave != before.Wave || step.State.Phase == v1alpha1.WaveDone
	if ends && (s.saving || p.now.Before(s.retryAt)) {
		return // it ends by what is so when that can be recorded, for which there is a plan
	}
	if ends && !p.swept {
		d.nextSweep = time.Time{} // what was healthy a moment ago may not be any more
		d.trigger()
		return
	}
	s.held = step.Held
	*s.rollout = step.State
	s.health.Interrupted = false // the soak has begun again, once
	if step.State.Wave != before.Wave {
		s.needsBaseline = true
		s.takeBaseline(p)
		d.trigger() // for the next step
	}
	recorded := func(r rollout.State) rollout.State {
		r.Progressing = time.Time{}
		return r
	}
	if recorded(before) != recorded(step.State) {
		s.touch()
	}
	if step.Halt != "" {
		d.haltLocked(s, Halt{Reason: v1alpha1.Unhealthy, Message: step.Halt, Targets: s.unhealthyTargets(p)})
	}
	p.again(p.now.Add(healthInterval))
}

func (s *policyState) soaks() (sum time.Duration) {
	for n := range s.spec.Waves {
		sum += s.spec.Waves[n].Soak
	}
	return sum
}

// factsLocked returns what is known of a policy's present wave.
func (d *Dispatcher) factsLocked(s *policyState, p *pass) rollout.Facts {
	w := &s.spec.Waves[s.rollout.Wave]
	f := rollout.Facts{Health: s.health, Any: len(s.written) > 0 || len(s.failed) > 0, Open: s.openIn(s.rollout.Wave)}
	for n := 0; n < len(s.spec.Waves) && !f.Any; n++ {
		f.Any = s.openIn(n) > 0
	}
	if r := s.spec.Replaces; r != nil {
		f.Any = true // having nothing to write is right, too
		if s.rollout.Wave >= r.Promoted {
			f.NotYet = notYet
		}
	}
	f.Targets = f.Open
	for member, targets := range s.failed {
		if !w.Members[member] {
			continue
		}
		for target := range targets {
			if s.isFormer(target) {
				continue
			}
			f.Targets++
			if !s.excused[excuseKey(target)] {
				f.Failed++
			}
		}
	}
	for _, t := range s.written {
		if t.wave == s.rollout.Wave {
			f.Targets++
		}
	}
	for _, member := range slices.Sorted(maps.Keys(w.Members)) {
		why := ""
		switch n := s.totals.Unknown[member]; {
		case p.held[member] != nil:
			why = p.held[member].Error()
		case p.away[member] != nil:
			why = p.away[member].Error()
		case d.stops.member(member) != "":
			why = d.stops.member(member)
		case s.totals.Unread[member]:
			why = unread(member)
		case n > 0:
			why = fmt.Sprintf("member %s has %d verdicts that are not known", member, n)
		}
		if f.Held = cmp.Or(f.Held, why); f.Held != "" {
			break
		}
	}
	f.Effect = s.effect(p)
	return f
}

// notYet is why a wave waits whose members still have the former version.
const notYet = "the new version is not in effect in its members yet"

// openIn returns how many targets of a wave are neither written nor accounted for.
func (s *policyState) openIn(wave int) (n int) {
	members := s.spec.Waves[wave].Members
	s.queue.Members(func(name string, due, running int) {
		if members[name] {
			n += due + running
		}
	})
	for _, waiting := range []map[string]int{s.awaiting.members, s.unresolved.members} {
		for member, targets := range waiting {
			if members[member] {
				n += targets
			}
		}
	}
	return n + s.supersededIn(members)
}

// supersededIn counts the targets of which a newer version is on its way.
func (s *policyState) supersededIn(members map[string]bool) (n int) {
	for target := range s.superseded {
		if members[target.Member] {
			n++
		}
	}
	return n
}

// reached returns the last wave that may be written to, from 0.
func (s *policyState) reached(now time.Time) int {
	if s.rollout == nil || s.rollout.Generation != s.spec.Generation {
		return -1
	}
	return s.rollout.Reached(s.spec.rules(), func(wave int) bool {
		if s.openIn(wave) > 0 {
			return false
		}
		for member := range s.spec.Waves[wave].Members {
			if s.unclean[member] > 0 {
				return false
			}
		}
		return true
	}, now)
}

// reaches reports whether a member may be written to: its wave has begun.
func (s *policyState) reaches(member string, reached int) bool {
	if len(s.spec.Waves) == 0 {
		return true
	}
	n, ok := s.waveOf(member)
	return ok && n <= reached
}

// observeLocked takes the health of what was written into account.
func (d *Dispatcher) observeLocked(s *policyState, health map[policy.Ref]Health, now time.Time) {
	h := rollout.Health{}
	accepted := s.acceptedAt(v1alpha1.AllowHealth, now)
	clear(s.unclean)
	for _, target := range slices.SortedFunc(maps.Keys(s.written), func(a, b policy.Ref) int { return cmp.Compare(a.String(), b.String()) }) {
		w := s.written[target]
		if since := s.rollout.Healthy; w.wave == s.rollout.Wave && !since.IsZero() && w.at.After(since) {
			h.Interrupted = true // it has not soaked yet
		}
		if !w.at.After(accepted) || w.wave >= len(s.spec.Waves) {
			continue
		}
		of := health[target]
		require := s.spec.Waves[w.wave].Require
		switch {
		case of.Status == Healthy, of.Status != Unknown && require == v1alpha1.RequireNothing, of.Status == Progressing && require == v1alpha1.RequireNotDegraded:
			w.settled = true
			continue
		case of.Status == Degraded && h.Degraded == "":
			h.Degraded = fmt.Sprintf("%s is Degraded", target)
			if of.Why != "" {
				h.Degraded += ": " + of.Why
			}
		case of.Status == Unknown && h.Unknown == "":
			h.Unknown = fmt.Sprintf("%s is not known", target)
			if of.Why != "" {
				h.Unknown += ": " + of.Why
			}
		}
		s.unclean[target.Member]++
		if w.settled || w.soaked && of.Status != Unknown {
			w.settled, w.soaked, h.Interrupted = false, false, true
		}
		if w.wave > s.rollout.Wave { // cannot be
			continue
		}
		h.Unhealthy++
		if of.Status == Progressing {
			h.Progressing++
		}
	}
	s.health = h
}

// unhealthyTargets returns some of the targets that are not healthy, or have failed.
func (s *policyState) unhealthyTargets(p *pass) (out []string) {
	for target := range s.written {
		if h, ok := p.health[target]; ok && h.Status != Healthy {
			out = append(out, target.String())
		}
	}
	for _, targets := range s.failed {
		for target := range targets {
			if !s.isFormer(target) {
				out = append(out, target.String())
			}
		}
	}
	slices.Sort(out)
	return out[:min(len(out), maxHaltTargets)]
}

// waveStatus returns the status of the waves, nil without any.
func (s *policyState) waveStatus() *WaveStatus {
	if len(s.spec.Waves) == 0 || s.rollout == nil {
		return nil
	}
	wave := s.rollout.Wave
	if s.rollout.Phase == v1alpha1.WaveDone {
		wave = min(wave, len(s.spec.Waves)-1)
	}
	if wave >= len(s.spec.Waves) {
		return nil
	}
	return &WaveStatus{
		Generation: s.rollout.Generation,
		Name:       s.spec.Waves[wave].Name, Number: wave + 1, Of: len(s.spec.Waves), Phase: s.rollout.Phase, Since: s.rollout.Since,
		Unhealthy: s.health.Unhealthy,
	}
}

// takeBaseline remembers the verdicts in the members of the present wave as they are when it
// begins, for its gate on the effect.
func (s *policyState) takeBaseline(p *pass) {
	w := &s.spec.Waves[s.rollout.Wave]
	if !s.needsBaseline {
		return
	}
	s.baseline, s.needsBaseline = nil, false
	known := map[v1alpha1.BaselineCount]bool{}
	for _, g := range w.gates() {
		s.touch()
		for _, name := range g.policies(s.name) {
			for _, member := range slices.Sorted(maps.Keys(g.Members)) {
				v := p.verdicts[name][member]
				b := v1alpha1.BaselineCount{Policy: name, Member: member, Violations: int64(v.Violations), Unknown: int64(v.Unknown)}
				if !known[b] {
					known[b] = true
					s.baseline = append(s.baseline, b)
				}
			}
		}
	}
}

// unknownEffect returns the policy of which it is not known now how many violations it has, "" if gates on effects know
// all that they compare.
func (s *policyState) unknownEffect(p *pass) string {
	for n := range s.spec.Waves {
		for _, g := range s.spec.Waves[n].gates() {
			for _, name := range g.policies(s.name) {
				if p.verdicts[name] == nil {
					return name
				}
			}
		}
	}
	return ""
}

// effect returns what has got worse in the members of the present wave since it began.
func (s *policyState) effect(p *pass) string {
	gates := s.spec.Waves[s.rollout.Wave].gates()
	for _, b := range s.baseline {
		for n := range gates {
			if why := gates[n].worse(s.name, b, p.verdicts[b.Policy][b.Member]); why != "" {
				return why
			}
		}
	}
	return ""
}

// worse returns in what verdicts are worse than when a wave of a policy began, "" in nothing.
func (g *EffectGate) worse(own string, b v1alpha1.BaselineCount, v Verdicts) string {
	if !g.Members[b.Member] || !slices.Contains(g.policies(own), b.Policy) {
		return ""
	}
	switch {
	case slices.Contains(g.Policies, b.Policy) && int64(v.Violations) > b.Violations:
		return fmt.Sprintf("policy %q has %d violations in member %s, %d when the wave began", b.Policy, v.Violations, b.Member, b.Violations)
	case g.Unknown && int64(v.Unknown) > b.Unknown:
		return fmt.Sprintf("policy %q has %d unknown verdicts in member %s, %d when the wave began", b.Policy, v.Unknown, b.Member, b.Unknown)
	}
	return ""
}

// verdicts returns the verdicts of a policy that corrects, by member.
func (d *Dispatcher) verdicts(name string) map[string]Verdicts {
	out := map[string]Verdicts{}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.policies[name]; s != nil {
		for member := range s.totals.Members {
			out[member] = Verdicts{s.totals.Violations[member], s.totals.Unknown[member]}
		}
	}
	return out
}
