package remediate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/policy"
)

// Run corrects until the context ends. Whenever this process comes to lead, it first
// resolves the actions that an earlier leader left in doubt. Run returns when all that it
// started has ended.
func (d *Dispatcher) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	workers.Go(func() { d.resolveLoop(ctx) })
	workers.Go(func() { d.stopLoop(ctx) })
	if d.opts.Retention > 0 {
		workers.Go(func() { d.deleteLoop(ctx) })
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if err := d.checkLeadership(ctx); err != nil {
			return err
		}
		start, changed, next := d.plan(d.opts.Clock())
		for _, i := range start {
			workers.Go(func() { d.correct(ctx, i) })
		}
		for _, binding := range changed {
			d.opts.Changed(binding)
		}
		timer.Reset(max(next.Sub(d.opts.Clock()), time.Millisecond))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-d.triggered:
		case <-timer.C:
		}
	}
}

// plan returns the corrections to start now, the policies whose status has changed, and
// the time of the next plan at the latest.
func (d *Dispatcher) plan(now time.Time) (start []*Intent, changed []string, next time.Time) {
	notLeading := ""
	if err := d.checkLeader(); err != nil {
		notLeading = err.Error()
	}
	p := pass{now: now, health: d.checkHealth(), held: d.heldMembers(), away: d.checkAway()}
	p.unknown = d.unknownOwners(p.held)
	d.mu.Lock()
	defer d.mu.Unlock()
	p.next = now.Add(time.Hour)
	if notLeading != "" {
		p.next = now.Add(time.Second)
	}
	d.ledger.Prune(now, func(binding string) time.Duration {
		if s := d.policies[binding]; s != nil {
			return s.spec.Limits.Window
		}
		return 0
	})
	for _, binding := range sortedKeys(d.policies) {
		s := d.policies[binding]
		before := s.fingerprint()
		s.notLeading = notLeading
		d.planLocked(binding, s, &p)
		if s.fingerprint() != before {
			changed = append(changed, binding)
		}
	}
	return p.start, changed, p.next
}

// pass is one plan of all policies.
type pass struct {
	now    time.Time
	health map[policy.Ref]Health
	held   map[string]error // why members may not be written to now
	// unknown is of which members it is not known what GitOps controllers manage, and why.
	unknown map[string]string
	away    string // why nothing is written to any member; "" when something may be
	start   []*Intent
	next    time.Time // of the next plan
}

// again makes the next plan at a time at the latest; zero is no time.
func (p *pass) again(at time.Time) { p.next = earliest(p.next, at) }

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// fingerprint is the part of a policy's status whose changes are reported.
func (s *policyState) fingerprint() string {
	id := ""
	if s.halt != nil {
		id = s.halt.ID
	}
	return fmt.Sprint(id, s.waiting, s.pending, s.progress.wave, s.progress.phase, s.progress.unhealthy)
}

// checkHealth returns the health of what waves have written. It is read without the lock.
func (d *Dispatcher) checkHealth() map[policy.Ref]Health {
	written := map[policy.Ref]Written{}
	d.mu.Lock()
	for _, s := range d.policies {
		if len(s.spec.Waves) > 0 && s.progress.phase != v1alpha1.WaveDone {
			maps.Copy(written, s.progress.written)
		}
	}
	d.mu.Unlock()
	health := make(map[policy.Ref]Health, len(written))
	for target, w := range written {
		health[target] = d.opts.Health(w)
	}
	return health
}

// heldPollInterval is how soon a held member is checked again.
const heldPollInterval = time.Second

// heldMembers returns which members that have intents may not be written to, and why. It
// is read without the lock.
func (d *Dispatcher) heldMembers() map[string]error {
	held := map[string]error{}
	d.mu.Lock()
	for _, s := range d.policies {
		for member := range s.members {
			held[member] = nil
		}
	}
	d.mu.Unlock()
	for member := range held {
		held[member] = d.opts.Held(member)
	}
	return held
}

// planLocked plans one policy.
func (d *Dispatcher) planLocked(binding string, s *policyState, p *pass) {
	for target := range s.obsolete {
		s.dropOutcome(target, p.now)
	}
	var targets []policy.Ref
	var retry time.Time
	why, until := d.blockedLocked(binding, s, p.now)
	if s.halt == nil && why == "" {
		targets, retry = s.openTargets(p.now, d.opts.RetryAfter)
		s.pending = len(targets)
		if !s.spec.DryRun && len(targets) > 0 {
			if err := d.checkLimitsLocked(binding, s, s.unmanaged(targets), p.now); err != nil {
				why = err.Error()
			}
		}
	} else {
		s.pending, retry = s.countOpen(p.now, d.opts.RetryAfter)
	}
	p.again(retry)
	if why == "" && p.away != "" {
		why, until = p.away, p.now.Add(heldPollInterval)
	}
	if s.waiting = why; why != "" {
		p.again(until)
		return
	}
	remaining := d.startLocked(binding, s, targets, p)
	if s.spec.DryRun {
		return
	}
	halt, again := s.progress.advance(s.spec.Waves, remaining, func(r policy.Ref) Health { return p.health[r] }, p.now)
	if halt != "" {
		d.haltLocked(binding, s, v1alpha1.Unhealthy, halt, nil)
		d.trigger()
	}
	p.again(again)
}

// startLocked starts the corrections of targets that may be written now, and returns how
// many corrections of the current wave remain, running ones included.
func (d *Dispatcher) startLocked(binding string, s *policyState, targets []policy.Ref, p *pass) (remaining int) {
	waiting := 0
	for _, target := range targets {
		if !s.progress.reaches(s.spec.Waves, target.Member) {
			continue
		}
		remaining++
		i := s.intents[target]
		if why := d.refuseMemberLocked(i.Intent, p); why != "" {
			if waiting++; s.waiting == "" {
				s.waiting = why
			}
			continue
		}
		if d.busy[target] || d.inflight[target.Member] >= d.opts.MemberConcurrency {
			continue // the end of a correction triggers a plan
		}
		if at := d.ledger.NextStart(binding, target.Member, s.spec.Limits.PerMinute, p.now); at.After(p.now) {
			p.again(at)
			continue
		}
		if d.inflight[target.Member] == 0 && !d.bounds.Admits(len(d.inflight)) {
			continue // as above
		}
		if at := d.bounds.NextStart(p.now); at.After(p.now) && !i.DryRun {
			p.again(at)
			continue
		}
		d.busy[target] = true
		d.inflight[target.Member]++
		if !i.DryRun {
			d.ledger.RecordStart(binding, target.Member, p.now)
			d.bounds.Start(p.now)
		}
		p.start = append(p.start, s.withConsent(i.Intent, p.now))
	}
	for target := range d.busy {
		if s.intents[target] != nil && s.progress.reaches(s.spec.Waves, target.Member) {
			remaining++
		}
	}
	if waiting < remaining {
		s.waiting = "" // other members are written to
	}
	return remaining
}

// blockedLocked returns why nothing is written for a policy now, and when that may change.
func (d *Dispatcher) blockedLocked(binding string, s *policyState, now time.Time) (why string, until time.Time) {
	switch {
	case s.notLeading != "":
		return s.notLeading, time.Time{}
	case !d.recovered:
		return resolving, time.Time{}
	}
	r := d.refusePolicyLocked(binding, s, now)
	return r.why, r.until
}

// checkLimitsLocked halts a policy that would exceed a limit, or whose corrections are
// reverted again and again.
func (d *Dispatcher) checkLimitsLocked(binding string, s *policyState, targets []policy.Ref, now time.Time) error {
	limits := limitCheck{policy: binding, limits: s.spec.Limits, fleet: d.opts.Fleet, totals: s.totals}
	usage, err := limits.check(d.ledger, targets, now)
	s.usage = usage
	var over *overLimitError
	if errors.As(err, &over) {
		if s.allowance != nil && now.Before(s.allowance.until) && over.Targets <= s.allowance.targets {
			return nil
		}
		d.haltLocked(binding, s, v1alpha1.OverLimit, over.Error(), &over.BudgetUsage)
		return err
	}
	for _, target := range targets {
		if o := s.outcomes[target]; o != nil {
			if o.writes = within(o.writes, s.spec.Limits.Window, now); len(o.writes) >= d.opts.MaxReversions {
				err := fmt.Errorf("%s has been corrected %d times and violates the policy again", target, len(o.writes))
				d.haltLocked(binding, s, v1alpha1.Fighting, err.Error(), nil)
				return err
			}
		}
	}
	return nil
}

// correct carries out one intent and records its outcome.
func (d *Dispatcher) correct(ctx context.Context, i *Intent) {
	a, err := d.executeSafely(ctx, i)
	target := i.Remedy.Target
	log := d.opts.Logger.With("policy", i.Binding, "member", target.Member, "kind", string(target.Kind), "namespace", target.Namespace, "name", target.Name)
	d.mu.Lock()
	delete(d.busy, target)
	d.ledger.EndWrite(target)
	if d.inflight[target.Member]--; d.inflight[target.Member] == 0 {
		delete(d.inflight, target.Member)
	}
	if s := d.policies[i.Binding]; s != nil {
		s.recordOutcome(i, a, err, d.opts.Clock())
	}
	if ctx.Err() == nil {
		d.countEndedLocked(i, a, err)
	}
	if !i.DryRun && mayHaveWritten(a, err) {
		d.ledger.RecordWrite(i.Binding, target, d.opts.Clock())
	}
	d.mu.Unlock()
	if err == nil {
		d.corrected(a)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil && !errors.Is(err, ErrNotNow):
		log.Error("correction failed, outcome unknown", "action", a.Name, "error", err)
	case err == nil && a.Phase != v1alpha1.PhaseNoOp && a.Phase != v1alpha1.PhaseSuperseded:
		log.Info("correction ended", "action", a.Name, "phase", string(a.Phase), "message", a.Message, "revision", uint64(i.Revision))
	}
	d.opts.Changed(i.Binding)
	d.trigger()
}

// mayHaveWritten reports whether the target has been written, or may have been.
func mayHaveWritten(a *Action, err error) bool {
	if err != nil {
		return !errors.Is(err, ErrNotNow)
	}
	return a.Phase == v1alpha1.PhaseSucceeded
}

// executeSafely confines a panic to one correction.
func (d *Dispatcher) executeSafely(ctx context.Context, i *Intent) (a *Action, err error) {
	defer func() {
		if p := recover(); p != nil {
			a, err = &Action{Name: i.actionName(), Intent: *i}, fmt.Errorf("panicked: %v", p)
		}
	}()
	return d.exec.execute(ctx, i)
}

// recordOutcome records the outcome of an intent. An unknown one is retried like a failure.
func (s *policyState) recordOutcome(i *Intent, a *Action, err error, now time.Time) {
	target := i.Remedy.Target
	o := s.outcomes[target]
	if o == nil {
		o = &targetOutcome{}
		s.outcomes[target] = o
	}
	if s.intents[target] == nil {
		s.obsolete[target] = true
	}
	defer s.updateDue(target)
	switch {
	case errors.Is(err, ErrNotNow):
		o.actionName = "" // as if it had not been tried
		return
	case err != nil:
		o.Outcome = Outcome{Action: a.Name, Phase: v1alpha1.PhaseFailed, Message: clip.Line(err.Error(), maxMessage), At: now}
	default:
		o.Outcome = Outcome{Action: a.Name, Phase: a.Phase, Message: a.Message, At: now}
	}
	o.actionName = i.actionName()
	if err == nil && a.Phase == v1alpha1.PhaseSucceeded {
		o.writes = append(o.writes, now)
		if s.progress.written != nil {
			s.progress.written[target] = a.written()
		}
	}
}
