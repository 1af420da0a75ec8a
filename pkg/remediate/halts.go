package remediate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/ledger"
	"federator.dev/federator/pkg/remediate/internal/rollout"
)

// Halt says why nothing more is written for a policy. It ends when it is acknowledged, or by
// a change of the policy after which its cause is gone; nothing else ends it. Status hands it
// out: it is immutable.
type Halt struct {
	ID         string // to be named by the acknowledgement
	Reason     v1alpha1.HaltReason
	Message    string
	Since      time.Time
	Generation string        // of the policy then
	Exceeded   []BudgetUsage // all limits that were exceeded then
	Over       *BudgetUsage  // the first of them
	Targets    []string      // that were fought over, or unhealthy: some of them
	With       string        // the other policy of a fight
	Plan       string        // the name of the Plan with the targets that wait because of it; "" until it is recorded
}

// Acknowledgement says who acknowledged a halt, so that writing resumes.
type Acknowledgement struct {
	Halt string // its ID
	By   string // "" when not known
	At   time.Time
}

// allowance is what an acknowledgement allows: to exceed one limit, so far, with one
// generation; or not to look at what was written before.
type allowance struct {
	Acknowledgement

	scope             v1alpha1.AllowanceScope
	member            string
	generation        string
	targets, subjects int
	expires           time.Time
	plan              string // that has the targets
}

// maxAllowance is how long an acknowledgement allows something, at most.
const maxAllowance = 24 * time.Hour

func (a *allowance) effective(generation string, now time.Time) bool {
	return a.generation == generation && now.Before(a.expires)
}

// haltLocked halts a policy: in memory at once, and for good once that is recorded.
func (d *Dispatcher) haltLocked(s *policyState, h Halt) {
	h.Since, h.Generation = d.opts.Clock(), s.spec.Generation
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %d", s.name, h.Reason, h.Message, h.Since.UnixNano()))
	h.ID = hex.EncodeToString(sum[:])[:12]
	h.Exceeded = h.Exceeded[:min(len(h.Exceeded), maxOver)]
	h.Targets = h.Targets[:min(len(h.Targets), maxHaltTargets)]
	if len(h.Exceeded) > 0 {
		h.Over = &h.Exceeded[0]
	}
	if len(s.halts) < maxHalts {
		s.halts = append(s.halts, &h)
		s.remember(v1alpha1.HaltBegan, &h, "", h.Message, h.Since)
		s.touch()
	}
	d.opts.Logger.Warn("policy halted", "policy", s.name, "reason", string(h.Reason), "message", h.Message, "halt", h.ID)
	d.trigger()
}

// remember adds to the history what has happened to a halt; the caller touches the record.
func (r *record) remember(what v1alpha1.PolicyTransitionType, h *Halt, by, message string, at time.Time) {
	r.history = r.history.With(v1alpha1.PolicyTransition{Type: what, ID: h.ID, Reason: string(h.Reason), By: by, Message: message}, at)
}

// reviewHaltPlan follows the halt that a Plan is of, and its acknowledgement.
func (s *policyState) reviewHaltPlan(pl *plan, now time.Time) {
	halted := slices.ContainsFunc(s.halts, func(h *Halt) bool { return h.ID == pl.Halt })
	allowed := s.isAllowed(pl.Name, now)
	switch {
	case halted:
		pl.Approved = s.approved[pl.UID]
	case allowed && pl.State == v1alpha1.PlanApproved && s.isWithdrawn(pl):
		s.allowances = slices.DeleteFunc(s.allowances, func(a allowance) bool { return a.plan == pl.Name })
		s.touch()
		pl.enter(v1alpha1.PlanDone, "its Approvals were withdrawn", now)
	case allowed && pl.State == v1alpha1.PlanWaiting:
		pl.enter(v1alpha1.PlanApproved, "the halt is acknowledged", now)
	case !allowed && pl.State == v1alpha1.PlanApproved:
		pl.enter(v1alpha1.PlanDone, "", now)
	case !allowed && pl.State == v1alpha1.PlanWaiting:
		pl.enter(v1alpha1.PlanSuperseded, "the halt has ended", now)
	}
}

// isWithdrawn reports that too few of the Approvals count any more by which a halt was
// acknowledged, where they are required.
func (s *policyState) isWithdrawn(pl *plan) bool {
	a := s.approved[pl.UID]
	if s.approval == nil || s.approved == nil || a.Unknown || !a.Met && len(pl.Approved.Given) == 0 {
		return false // it is not known, or it was not acknowledged by Approvals
	}
	pl.Approved = a
	return !a.Met
}

// findHaltPlans sets which Plans have the targets of halts, after Plans were read: that of one
// may be lost, or may have been recorded right before the process ended.
func (s *policyState) findHaltPlans() {
	for _, h := range s.halts {
		name := ""
		if n := slices.IndexFunc(s.plans, func(p *plan) bool { return p.Halt == h.ID && !p.isOver() }); n >= 0 {
			name = s.plans[n].Name
		}
		if h.Plan != name {
			s.setHaltPlan(h.ID, name)
		}
	}
}

// setHaltPlan sets which Plan has the targets of a halt, if it stands. A Halt that readers may
// have stays as it is.
func (s *policyState) setHaltPlan(id, name string) {
	n := slices.IndexFunc(s.halts, func(h *Halt) bool { return h.ID == id })
	if n < 0 {
		return
	}
	h := *s.halts[n]
	h.Plan = name
	s.halts[n] = &h
	s.touch()
}

// Acknowledge ends a halt on behalf of a user, once that is recorded. Of a halt over limits,
// as many targets as were counted then are allowed, for the limits that were exceeded and
// for this generation of the policy, until the limits' window has passed, at most a day;
// Actions name the acknowledgement. It is for the targets that waited then, which are in the
// halt's Plan. Errors are ErrNoHalt, and ErrNotNow until that is recorded.
func (d *Dispatcher) Acknowledge(binding, id, by string) error {
	return d.AcknowledgeUntil(binding, id, by, time.Time{})
}

// AcknowledgeUntil is Acknowledge on behalf of users whose Approvals end: what they allow ends
// then, at the latest. Zero is never.
func (d *Dispatcher) AcknowledgeUntil(binding, id, by string, until time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.policies[binding]
	if s == nil || !d.recovered {
		return fmt.Errorf("policy %q: halt %q: %w", binding, id, ErrNoHalt)
	}
	n := slices.IndexFunc(s.halts, func(h *Halt) bool { return h.ID == id })
	if n < 0 {
		return fmt.Errorf("policy %q: halt %q: %w", binding, id, ErrNoHalt)
	}
	if h := s.halts[n]; h.Reason == v1alpha1.OverLimit && h.Plan == "" && h.Generation == s.spec.Generation && s.ready && !s.removed {
		why := "the targets that wait because of it are being recorded"
		if s.freezeError != "" {
			why = "no Plan can be made of the targets that wait because of it: " + s.freezeError
		}
		return fmt.Errorf("policy %q: halt %q: %w: %s", binding, id, ErrNotNow, why)
	}
	now := d.opts.Clock()
	ack := Acknowledgement{Halt: id, By: by, At: now}
	s.allow(s.halts[n], ack, until, now)
	s.remember(v1alpha1.HaltEnded, s.halts[n], by, "the halt was acknowledged", now)
	if s.halts[n].Reason == v1alpha1.Unhealthy { // what was seen before is not why it halts again
		s.health, d.nextSweep = rollout.Health{Unknown: "what was written is looked at again"}, time.Time{}
	}
	s.halts = slices.Delete(s.halts, n, n+1)
	s.acknowledged = &ack
	s.touch()
	d.trigger()
	return nil
}

// knownHaltsLocked returns the halts that this process knows of as the leader, while everything
// is read again: by policy.
func (d *Dispatcher) knownHaltsLocked() map[string][]*Halt {
	if !d.foreign {
		return nil
	}
	out := map[string][]*Halt{}
	for name, s := range d.policies {
		if len(s.halts) > 0 {
			out[name] = s.halts
		}
	}
	return out
}

// keepHaltsLocked keeps halts that are not recorded, unless it is recorded that they have ended:
// a write of somebody else, or an older backup of the hub, ends none.
func (d *Dispatcher) keepHaltsLocked(known map[string][]*Halt) {
	for _, name := range sortedKeys(known) {
		s := d.policies[name]
		if s == nil {
			s = newPolicyState(name, d.ledger)
			s.removed = true
			d.policies[name] = s
		}
		for _, h := range known[name] {
			if !s.knows(h.ID) && len(s.halts) < maxHalts {
				d.opts.Logger.Warn("halt kept, which somebody else has removed from the PolicyState", "policy", name, "halt", h.ID)
				s.halts = append(s.halts, h)
				s.touch()
			}
		}
	}
}

// knows reports whether a halt is recorded, or that it has ended.
func (r *record) knows(id string) bool {
	return slices.ContainsFunc(r.halts, func(h *Halt) bool { return h.ID == id }) || r.acknowledged != nil && r.acknowledged.Halt == id ||
		slices.ContainsFunc(r.history, func(t v1alpha1.PolicyTransition) bool { return t.Type == v1alpha1.HaltEnded && t.ID == id })
}

// allow adds what the acknowledgement of a halt allows, until a time at the latest.
func (s *policyState) allow(h *Halt, ack Acknowledgement, until, now time.Time) {
	s.dropAllowances(now)
	of := func(scope v1alpha1.AllowanceScope, most time.Duration) allowance {
		return allowance{Acknowledgement: ack, scope: scope, generation: h.Generation, expires: earliest(now.Add(min(most, maxAllowance)), until)}
	}
	window := cmp.Or(s.spec.Limits.Window, time.Hour)
	switch h.Reason {
	case v1alpha1.OverLimit:
		for _, u := range h.Exceeded {
			a := of(v1alpha1.AllowanceScope(v1alpha1.MemberScope), window)
			a.plan = h.Plan
			switch a.member = u.Scope; u.Scope {
			case scopePolicy:
				a.scope, a.member = v1alpha1.AllowanceScope(v1alpha1.PolicyScope), ""
			case scopeFleet:
				a.scope, a.member = v1alpha1.AllowanceScope(v1alpha1.FleetScope), ""
			}
			if u.Percent {
				a.subjects = u.Targets
			} else {
				a.targets = u.Targets
			}
			s.allowances = append(s.allowances, a)
		}
	case v1alpha1.Unhealthy:
		s.allowances = append(s.allowances, of(v1alpha1.AllowHealth, maxAllowance))
		s.excuseFailed(h)
	case v1alpha1.Fighting:
		s.allowances = append(s.allowances, of(v1alpha1.AllowFights, maxAllowance))
	default:
		s.allowances = append(s.allowances, of(v1alpha1.AllowFights, window)) // so that Actions name it
	}
	if len(s.allowances) > maxAllowances {
		s.allowances = s.allowances[len(s.allowances)-maxAllowances:]
	}
}

// excuseFailed has the corrections that have failed not fail the wave any more: those that the
// halt names, which may have failed under another leader, and those that have failed since.
func (s *policyState) excuseFailed(h *Halt) {
	for _, text := range h.Targets {
		if target := decodeSubject(text, policy.Ref{}).Ref; s.written[target] == nil {
			s.excuse(target)
		}
	}
	for _, m := range s.failed {
		for target := range m {
			s.excuse(target)
		}
	}
}

// excuse keeps that a failure of a target is excused. Beyond the limit it halts again.
func (s *policyState) excuse(target policy.Ref) {
	if key := excuseKey(target); len(s.excused) < maxExcused && !s.excused[key] {
		if s.excused == nil {
			s.excused = map[string]bool{}
		}
		s.excused[key] = true
		s.touch()
	}
}

// excuseKey is short, so that the record of many stays small.
func excuseKey(target policy.Ref) string {
	sum := sha256.Sum256([]byte(target.String()))
	return hex.EncodeToString(sum[:8])
}

// dropAllowances drops those that allow nothing any more.
func (s *policyState) dropAllowances(now time.Time) {
	n := len(s.allowances)
	s.allowances = slices.DeleteFunc(s.allowances, func(a allowance) bool {
		return !now.Before(a.expires) || s.ready && a.generation != s.spec.Generation
	})
	if len(s.allowances) != n {
		s.touch()
	}
}

// allowed returns how many targets and subjects a limit allows by acknowledgements: of halts
// with these Plans, or of any.
func (s *policyState) allowed(scope v1alpha1.LimitScope, member string, of *coverage, now time.Time) (by acknowledged) {
	for n := range s.allowances {
		a := &s.allowances[n]
		if a.scope == v1alpha1.AllowanceScope(scope) && a.member == member && (of == nil || of.has(a.plan)) && a.effective(s.spec.Generation, now) {
			by.targets, by.subjects = max(by.targets, a.targets), max(by.subjects, a.subjects)
		}
	}
	return by
}

// allowedForAll returns how many a limit allows whichever of the targets that are due there
// are written: what one acknowledgement allows is not for the targets of another. With none
// due it is for what has been written.
func (s *policyState) allowedForAll(due map[coverage]*refs, scope v1alpha1.LimitScope, member string, now time.Time) (by acknowledged) {
	none := true
	for of, targets := range due {
		if scope == v1alpha1.MemberScope && targets.members[member] == 0 {
			continue
		}
		one := s.allowed(scope, member, &of, now)
		if none {
			by, none = one, false
		}
		by.targets, by.subjects = min(by.targets, one.targets), min(by.subjects, one.subjects)
	}
	if none {
		return s.allowed(scope, member, nil, now)
	}
	return by
}

// acceptedAt returns before when what was written is accepted as it is; zero is never.
func (s *policyState) acceptedAt(scope v1alpha1.AllowanceScope, now time.Time) (at time.Time) {
	for n := range s.allowances {
		if a := &s.allowances[n]; a.scope == scope && a.effective(s.spec.Generation, now) && a.At.After(at) {
			at = a.At
		}
	}
	return at
}

// endHaltsLocked ends the halts whose cause is gone after a change of the policy.
func (d *Dispatcher) endHaltsLocked(s *policyState, p *pass) {
	if !s.ready || s.removed {
		return
	}
	n := len(s.halts)
	s.halts = slices.DeleteFunc(s.halts, func(h *Halt) bool {
		if h.Generation == "" || h.Generation == s.spec.Generation || !d.causeGoneLocked(s, h, p) {
			return false
		}
		d.opts.Logger.Info("halt ended: the policy has been changed and its cause is gone", "policy", s.name, "halt", h.ID)
		s.remember(v1alpha1.HaltEnded, h, "", "the policy has been changed and its cause is gone", p.now)
		return true
	})
	if len(s.halts) != n {
		s.touch()
	}
	if slices.ContainsFunc(s.halts, func(h *Halt) bool { return h.Reason == v1alpha1.Unhealthy && h.Generation != s.spec.Generation }) {
		p.again(p.now.Add(healthInterval)) // what was written may become healthy
	}
}

// causeGoneLocked reports whether a halt's cause is gone under the present spec.
func (d *Dispatcher) causeGoneLocked(s *policyState, h *Halt, p *pass) bool {
	switch h.Reason {
	case v1alpha1.OverLimit:
		_, exceeded := d.checkLimitsLocked(s, p.now)
		return len(exceeded) == 0
	case v1alpha1.Fighting:
		for target := range s.intents {
			if slices.Contains(h.Targets, target.String()) {
				return false
			}
		}
		return len(h.Targets) > 0
	case v1alpha1.Unhealthy:
		return len(h.Targets) > 0 && !slices.ContainsFunc(h.Targets, func(t string) bool { return p.haltHealth[t].Status != Healthy })
	}
	return false
}

// checkFightsLocked halts a policy that writes a target again and again, and another one that
// does the same with it.
func (d *Dispatcher) checkFightsLocked(s *policyState, now time.Time) {
	if len(s.repeated) == 0 {
		return
	}
	since := s.acceptedAt(v1alpha1.AllowFights, now)
	type fight struct {
		ledger.Fight

		target policy.Ref
	}
	var fights []fight
	for target := range s.repeated {
		if f, ok := d.ledger.Fight(s.name, target, s.spec.Limits.Window, cmp.Or(s.spec.Limits.MaxReversions, d.opts.MaxReversions), since, now); ok {
			fights = append(fights, fight{f, target})
		}
	}
	clear(s.repeated) // until they are due again
	if len(fights) == 0 {
		return
	}
	slices.SortFunc(fights, func(a, b fight) int {
		return cmp.Or(-cmp.Compare(boolGauge(a.With != ""), boolGauge(b.With != "")), cmp.Compare(a.target.String(), b.target.String()))
	})
	first := fights[0]
	var targets []string
	for _, f := range fights {
		if f.With == first.With {
			targets = append(targets, f.target.String())
			s.repeated[f.target] = true
		}
	}
	h := Halt{Reason: v1alpha1.Fighting, Targets: targets, With: first.With}
	switch {
	case first.With != "":
		h.Message = fmt.Sprintf("%s has been written in turns with policy %q, %d times by each", first.target, first.With, first.Turns)
	case first.Days > 0:
		h.Message = fmt.Sprintf("%s has been corrected on %d days and violates the policy again", first.target, first.Days)
	default:
		h.Message = fmt.Sprintf("%s has been corrected %d times and violates the policy again", first.target, first.Writes)
	}
	d.haltLocked(s, h)
	if first.With == "" {
		return
	}
	if other := d.policies[first.With]; other != nil && !slices.ContainsFunc(other.halts, func(h *Halt) bool { return h.With == s.name }) {
		d.haltLocked(other, Halt{
			Reason: v1alpha1.Fighting, Targets: targets, With: s.name,
			Message: fmt.Sprintf("%s has been written in turns with policy %q, %d times by each", first.target, s.name, first.Turns),
		})
	}
}
