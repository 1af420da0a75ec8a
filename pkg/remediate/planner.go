package remediate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/tracing"
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
		p := d.plan(d.opts.Clock())
		for _, i := range p.start {
			workers.Go(func() { d.correct(ctx, i) })
		}
		for _, r := range p.saves {
			workers.Go(func() { d.saveRecord(ctx, r) })
		}
		for _, r := range p.planSaves {
			workers.Go(func() { d.savePlan(ctx, r) })
		}
		for _, r := range p.freezes {
			workers.Go(func() { d.freeze(ctx, r) })
		}
		for _, r := range p.dryRuns {
			workers.Go(func() { d.makeDryRun(ctx, r) })
		}
		for _, binding := range p.changed {
			d.opts.Changed(binding)
		}
		timer.Reset(max(p.next.Sub(d.opts.Clock()), time.Millisecond))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-d.triggered:
		case <-timer.C:
		}
	}
}

// plan decides which corrections start now, and what is recorded before others do.
func (d *Dispatcher) plan(now time.Time) *pass {
	notLeading := ""
	if err := d.checkLeader(); err != nil {
		notLeading = err.Error()
	}
	p := d.prepare(now)
	d.mu.Lock()
	defer d.mu.Unlock()
	p.next = now.Add(time.Hour)
	if notLeading != "" {
		p.next = now.Add(time.Second)
	}
	d.ledger.Advance(now)
	for _, name := range sortedKeys(d.policies) {
		s := d.policies[name]
		before := s.fingerprint()
		s.notLeading = notLeading
		d.planLocked(s, p)
		if s.fingerprint() != before {
			p.changed = append(p.changed, name)
		}
	}
	return p
}

// pass is one plan of all policies: what has been asked before it, and what it decides.
type pass struct {
	now        time.Time
	swept      bool // health is of now
	health     map[policy.Ref]Health
	haltHealth map[string]Health              // of the targets of halts
	held, away map[string]error               // why members may not be written to now, and are not known
	unknown    map[string]string              // of which members it is not known what GitOps controllers manage, and why
	tooMany    string                         // why nothing is written to any member: too many are away, or recorded
	verdicts   map[string]map[string]Verdicts // by policy and member, for gates on effects
	ceilings   map[string]string              // by source, as Options.Ceiling says

	start     []*Intent
	saves     []saveRequest
	planSaves []planSave
	freezes   []*freezeRequest
	dryRuns   []*dryRun
	changed   []string  // policies whose status has changed
	next      time.Time // of the next plan, at the latest
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
	id, wave := "", ""
	for _, h := range s.halts {
		id += h.ID + " "
	}
	if w := s.waveStatus(); w != nil {
		wave = fmt.Sprint(w.Generation, w.Number, w.Phase, w.Unhealthy)
	}
	return fmt.Sprint(id, s.waiting, s.pending, wave, s.dryRun.remaining, s.dryRun.stale)
}

// prepare asks what a plan needs to know. It is asked without the lock.
func (d *Dispatcher) prepare(now time.Time) *pass {
	p := &pass{
		now: now, tooMany: cmp.Or(d.checkAway(), d.checkRoom()), health: map[policy.Ref]Health{}, haltHealth: map[string]Health{}, held: map[string]error{}, away: map[string]error{},
		verdicts: map[string]map[string]Verdicts{}, ceilings: map[string]string{},
	}
	written := map[policy.Ref]Written{}
	halted := map[string]policy.Ref{}
	d.mu.Lock()
	p.swept = !now.Before(d.nextSweep)
	for _, s := range d.policies {
		p.ceilings[s.spec.Source] = ""
		for member := range s.members {
			p.held[member] = nil
		}
		for n := range s.spec.Waves {
			for member := range s.spec.Waves[n].Members {
				p.held[member] = nil
			}
			for _, g := range s.spec.Waves[n].gates() {
				for _, name := range g.policies(s.name) {
					p.verdicts[name] = nil
				}
			}
		}
		if p.swept && s.followsHealth(now) {
			for target, w := range s.written {
				written[target] = w.Written
			}
		}
		for _, h := range s.halts {
			for _, t := range h.Targets {
				if h.Reason == v1alpha1.Unhealthy && h.Generation != s.spec.Generation {
					halted[t] = decodeSubject(t, policy.Ref{}).Ref
				}
			}
		}
	}
	if p.swept {
		d.nextSweep = now.Add(healthInterval)
	}
	d.mu.Unlock()
	d.askHealth(p, written, halted)
	for member := range p.held {
		p.held[member] = d.opts.Held(member)
		p.away[member] = d.opts.MemberAway(member)
	}
	p.unknown = d.unknownOwners(p.held)
	for source := range p.ceilings {
		p.ceilings[source] = d.ceilingOf(source)
	}
	for name := range p.verdicts {
		p.verdicts[name] = d.opts.Verdicts(name)
	}
	return p
}

// askHealth asks for the health of what was written, and of the targets of halts.
func (d *Dispatcher) askHealth(p *pass, written map[policy.Ref]Written, halted map[string]policy.Ref) {
	if d.opts.Healths == nil {
		for target, w := range written {
			p.health[target] = d.opts.Health(w)
		}
		for text, target := range halted {
			p.haltHealth[text] = d.opts.Health(Written{Target: target})
		}
		return
	}
	list := slices.AppendSeq(make([]Written, 0, len(written)+len(halted)), maps.Values(written))
	texts := sortedKeys(halted)
	for _, text := range texts {
		list = append(list, Written{Target: halted[text]})
	}
	if len(list) == 0 {
		return
	}
	for n, h := range d.opts.Healths(list) {
		if n < len(written) {
			p.health[list[n].Target] = h
		} else {
			p.haltHealth[texts[n-len(written)]] = h
		}
	}
}

// followsHealth reports whether the health of what was written decides anything.
func (s *policyState) followsHealth(now time.Time) bool {
	r := s.rollout
	return r != nil && len(s.spec.Waves) > 0 && (r.Phase != v1alpha1.WaveDone || now.Before(r.Done.Add(s.soaks())))
}

// heldPollInterval is how soon a held member is checked again.
const heldPollInterval = time.Second

// planLocked plans one policy.
func (d *Dispatcher) planLocked(s *policyState, p *pass) {
	if s.notLeading != "" || !d.recovered {
		s.waiting, s.pending = cmp.Or(s.notLeading, resolving), s.queue.Len()+s.awaiting.len()+s.unresolved.len()
		return
	}
	defer d.saveLocked(s, p)
	defer d.freezeLocked(s, p)
	p.again(s.advance(p.now))
	if s.removed {
		s.dryRun.end()
		return
	}
	s.keepReplaced(p.now)
	d.endHaltsLocked(s, p)
	s.dropAllowances(p.now)
	s.reviewApprovals(p)
	d.savePlansLocked(s, p)
	s.pending = s.queue.Len() + s.awaiting.len() + s.unresolved.len()
	if s.spec.DryRun {
		s.waiting = d.dryRunLocked(s, p)
		return
	}
	s.dryRun.end()
	if s.ready && len(s.halts) == 0 && !s.isUnapproved() && d.opts.Incomplete(s.name) == "" {
		d.beginRolloutLocked(s, p.now)
		if p.swept && s.followsHealth(p.now) {
			d.observeLocked(s, p.health, p.now)
		}
		d.stepLocked(s, p)
	}
	r := d.refusePolicyLocked(s, p.now)
	if r.why == "" {
		if why := s.spec.refuseCeiling(p.ceilings[s.spec.Source]); why != "" {
			r = refusal{why, p.now.Add(heldPollInterval)}
		}
	}
	if r.why == "" && s.queue.Len() > 0 {
		if why := d.haltOverLimitsLocked(s, p.now); why != "" {
			r.why = why
		} else if !s.isRecorded() {
			r.why = recording
		}
	}
	if r.why == "" && p.tooMany != "" {
		r = refusal{p.tooMany, p.now.Add(heldPollInterval)}
	}
	p.again(r.until)
	if s.waiting = r.why; r.why == "" {
		d.startLocked(s, p)
	}
}

// haltOverLimitsLocked halts a policy that would exceed a limit, or fights. It returns why
// nothing is written, "" if something may be.
func (d *Dispatcher) haltOverLimitsLocked(s *policyState, now time.Time) string {
	usage, exceeded := d.checkLimitsLocked(s, now)
	s.usage = usage
	if len(exceeded) > 0 {
		d.haltLocked(s, Halt{Reason: v1alpha1.OverLimit, Message: fmt.Sprintf("policy %q: %s", s.name, exceeded[0].describe()), Exceeded: exceeded})
	} else {
		d.checkFightsLocked(s, now)
	}
	if len(s.halts) > 0 {
		return halted
	}
	if s.longest < s.spec.Limits.Window {
		s.longest = s.spec.Limits.Window
		s.touch()
	}
	return ""
}

// startLocked starts the corrections that may be written now.
func (d *Dispatcher) startLocked(s *policyState, p *pass) {
	reached, runs := s.reached(p.now), map[string]bool{}
	s.queue.Members(func(name string, _, running int) { runs[name] = running > 0 })
	waiting, writing := "", false
	for _, member := range sortedKeys(runs) {
		if !s.reaches(member, reached) {
			if s.formers[member] == 0 {
				continue
			}
			defer s.setAside(member)()
		}
		first, ok := s.queue.Next(member)
		if !ok {
			writing = writing || runs[member] // the end of what runs triggers a plan
			continue
		}
		if why := d.refuseMemberLocked(s, s.intents[first].Intent, p); why != "" {
			waiting = cmp.Or(waiting, why)
			continue
		}
		writing = true
		d.startMemberLocked(s, member, p)
	}
	if !writing {
		s.waiting = cmp.Or(waiting, s.held)
		if s.waiting == "" && s.awaiting.len() > 0 {
			s.waiting = s.awaitsApproval()
		}
		s.waiting = cmp.Or(s.waiting, s.whyUnresolved())
	}
}

// startMemberLocked starts the corrections of a policy in one member.
func (d *Dispatcher) startMemberLocked(s *policyState, member string, p *pass) {
	var busy []policy.Ref // by others: their end triggers a plan
	defer func() {
		for _, target := range busy {
			s.queue.Add(target)
		}
	}()
	if d.waits[member]+d.waits[anyMember] > 0 {
		p.again(p.now.Add(slotPoll)) // people go first
		return
	}
	for d.inflight[member] < d.opts.MemberConcurrency {
		target, ok := s.queue.Next(member)
		if !ok {
			return
		}
		if d.busy[target] {
			s.queue.Remove(target)
			busy = append(busy, target)
			continue
		}
		i := s.intents[target]
		if at := d.ledger.NextStart(s.name, member, s.spec.Limits.PerMinute, p.now); at.After(p.now) {
			p.again(at)
			return
		}
		if d.inflight[member] == 0 && !d.bounds.Admits(len(d.inflight)) {
			return // as above
		}
		if at := d.bounds.NextStart(p.now); at.After(p.now) {
			p.again(at)
			return
		}
		d.busy[target] = true
		d.inflight[member]++
		s.queue.Begin(target)
		d.ledger.RecordStart(s.name, member, p.now)
		d.bounds.Start(p.now)
		p.start = append(p.start, s.attributed(i.Intent, p.now))
	}
}

// correct carries out one intent and records its outcome.
func (d *Dispatcher) correct(ctx context.Context, i *Intent) {
	d.mu.Lock()
	epoch := d.epoch
	d.mu.Unlock()
	a, err := d.executeSafely(ctx, i)
	target := i.Remedy.Target
	log := d.opts.Logger.With("policy", i.Binding, "member", target.Member, "kind", string(target.Kind), "namespace", target.Namespace, "name", target.Name)
	d.mu.Lock()
	now := d.opts.Clock()
	d.endWriteLocked(i)
	d.recordTriedLocked(i, a, err, now)
	switch s := d.policies[i.Binding]; {
	case s == nil:
	case d.epoch == epoch:
		s.recordOutcome(i, a, err, now, d.opts.RetryAfter)
	case err == nil && isWritten(a.Phase): // since a takeover that has not seen its Action
		s.addWritten(a, now)
	}
	if ctx.Err() == nil {
		d.countEndedLocked(a, err)
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

// executeSafely confines a panic to one correction, and traces it.
func (d *Dispatcher) executeSafely(ctx context.Context, i *Intent) (a *Action, err error) {
	target := i.Remedy.Target
	ctx, attempt := d.opts.Tracer.Begin(ctx, i.Cause, tracing.Correction{
		Policy: i.Binding, Name: i.actionName(),
		Target: tracing.Object{Member: target.Member, Kind: string(target.Kind), Namespace: target.Namespace, Name: target.Name},
	})
	defer func() { endAttempt(attempt, a, err) }()
	defer func() {
		if p := recover(); p != nil {
			a, err = &Action{Name: i.actionName(), Intent: *i}, fmt.Errorf("panicked: %v", p)
		}
	}()
	return d.exec.execute(ctx, i)
}

// endAttempt says how a correction has ended.
func endAttempt(attempt *tracing.Attempt, a *Action, err error) {
	switch {
	case errors.Is(err, ErrNotNow):
		attempt.Drop() // it is tried again later
	case err != nil:
		attempt.End(tracing.Ended{Action: a.Name, Message: "the outcome is not known", AuditID: a.AuditID})
	default:
		ended := tracing.Ended{Action: a.Name, Phase: string(a.Phase), Message: a.Message, AuditID: a.AuditID, TraceID: a.TraceID, Written: a.Phase == v1alpha1.PhaseSucceeded}
		if a.Remedy.Action != "delete" {
			ended.Version = a.WrittenVersion
		}
		attempt.End(ended)
	}
}

// recordOutcome records the outcome of an intent. An unknown one is retried like a failure.
func (s *policyState) recordOutcome(i *Intent, a *Action, err error, now time.Time, retryAfter time.Duration) {
	target := i.Remedy.Target
	s.queue.End(target)
	defer s.updateDue(target, now)
	if errors.Is(err, ErrNotNow) {
		return // as if it had not been tried
	}
	was := s.outcomes.of[target]
	o := &targetOutcome{
		outcome: outcome{Action: a.Name, Phase: a.Phase, Message: a.Message, At: now}, actionName: i.actionName(), retryAt: now.Add(retryAfter),
	}
	if err != nil {
		o.Phase, o.Message = v1alpha1.PhaseFailed, clip.Line(err.Error(), maxMessage)
	}
	s.outcomes.set(target, o)
	if o.Phase == v1alpha1.PhaseSuperseded {
		if o.superseded = 1; was != nil && was.actionName == o.actionName {
			o.superseded = was.superseded + 1
		}
	}
	if o.Phase == v1alpha1.PhaseSucceeded {
		s.countWritten(i)
	}
	if s.intents[target] == nil {
		o.actionName = ""
		s.obsolete.Set(target, s.shownUntil(o, now))
	}
	if o.Phase == v1alpha1.PhaseSucceeded && i.Wave > 0 && s.isReplaced(i.Generation) {
		s.formerWritten[target] = &writtenTarget{Written: a.written(), wave: int(i.Wave) - 1, at: now}
	}
	if o.Phase == v1alpha1.PhaseSucceeded && i.Wave > 0 && s.rollout != nil && s.rollout.Generation == i.Generation {
		s.written[target] = &writtenTarget{Written: a.written(), wave: int(i.Wave) - 1, at: now}
		s.unclean[target.Member]++
		s.health.Unhealthy++ // until it is looked at
		s.health.Unknown = cmp.Or(s.health.Unknown, target.String()+" is not known: it has just been written")
	}
}
