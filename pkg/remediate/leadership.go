package remediate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/remediate/internal/ledger"
	"federator.dev/federator/pkg/remediate/internal/plans"
	"federator.dev/federator/pkg/remediate/internal/planstore"
)

// takeoverTimeout bounds how long a new leader waits for members to answer which actions
// were written.
const takeoverTimeout = 2 * resolveTimeout

// resolving is why nothing is written, and nothing rolled back, before takeOver is done.
const resolving = "actions of an earlier leader are being resolved"

// lease returns until when this process is the leader, or why it is not.
func (d *Dispatcher) lease() (until time.Time, err error) {
	if d.opts.Lease == nil {
		return time.Time{}, nil
	}
	return d.opts.Lease()
}

// checkLeader returns why this process is not the leader, nil when it is.
func (d *Dispatcher) checkLeader() error {
	_, err := d.lease()
	return err
}

// observeLeadership records whether this process is the leader, and returns whether it is
// one that has recovered already. A lease that ended before it was seen to be renewed may
// have been another process's in between.
func (d *Dispatcher) observeLeadership() (leads, recovered bool) {
	now := time.Now()
	until, err := d.lease()
	leads = err == nil
	d.mu.Lock()
	defer d.mu.Unlock()
	recovered = d.recovered
	if lapsed := !d.held.IsZero() && !now.Before(d.held); !leads || lapsed {
		if recovered {
			d.forgetLocked()
		}
		d.recovered, d.foreign = false, false
		d.endMakingLocked()
	}
	if d.held = until; !leads {
		d.held = time.Time{}
	}
	return leads, recovered && d.recovered
}

// readAgainLocked has everything read again that lasts: somebody else has written some of it.
// Where that happens again and again, it is read less and less often.
func (d *Dispatcher) readAgainLocked() {
	if d.recovered {
		now := d.opts.Clock()
		if d.readDelay = min(max(2*d.readDelay, minReadDelay), maxReadDelay); now.Sub(d.foreignAt) > calmAfter {
			d.readDelay = 0
		}
		d.foreignAt, d.foreign = now, true
	}
	d.recovered = false
	d.endMakingLocked()
}

// beginMaking returns a context for making a Plan, which ends when what the Plan follows from is read
// again: then it may be made, approved and done meanwhile, and to make it once more would delete it.
func (d *Dispatcher) beginMaking(ctx context.Context, r *freezeRequest) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.makes[r] = cancel; !d.recovered || d.epoch != r.epoch {
		cancel()
	}
	return ctx, func() {
		d.mu.Lock()
		delete(d.makes, r)
		d.mu.Unlock()
		cancel()
	}
}

func (d *Dispatcher) endMakingLocked() {
	for _, cancel := range d.makes {
		cancel()
	}
}

// Delays of reading again what somebody else has written.
const (
	minReadDelay = time.Second
	maxReadDelay = time.Minute
	calmAfter    = 5 * time.Minute
)

// forgetLocked forgets all that this process has learned as the leader: what others do from
// now on would make it false.
func (d *Dispatcher) forgetLocked() {
	d.epoch++
	d.nextSweep = time.Time{}
	now := d.opts.Clock()
	d.ledger = ledger.New(d.opts.FleetWindow)
	for name, s := range d.policies {
		if s.removed {
			delete(d.policies, name)
			continue
		}
		s.reset(d.ledger)
		d.ledger.SetWindow(name, s.spec.Limits.Window, now)
	}
}

// checkLeadership takes over when this process has come to lead.
func (d *Dispatcher) checkLeadership(ctx context.Context) error {
	if leads, recovered := d.observeLeadership(); leads && !recovered {
		return d.takeOver(ctx)
	}
	return nil
}

// resolveLoop resolves the actions in doubt that could not be resolved at once.
func (d *Dispatcher) resolveLoop(ctx context.Context) {
	var watch sync.WaitGroup
	defer watch.Wait()
	watch.Go(func() { d.watchLeadership(ctx) })
	for sleep.For(ctx, resolveInterval) == nil {
		d.mu.Lock()
		recovered := d.recovered
		d.mu.Unlock()
		if recovered {
			d.exec.resolveAll(ctx)
		}
	}
}

// watchLeadership triggers a plan when this process becomes the leader, or no longer is:
// without corrections nothing else would, and another process may have acted in between.
func (d *Dispatcher) watchLeadership(ctx context.Context) {
	if d.opts.Lease == nil {
		return
	}
	for sleep.For(ctx, time.Second) == nil {
		if leads, recovered := d.observeLeadership(); leads != recovered {
			d.trigger()
		}
	}
}

// takeOver reads what lasts of all policies: their states, and the recorded actions. It
// resolves those that have not ended, and counts those that were written. Nothing new is
// written before, and what this process knew before counts for nothing.
func (d *Dispatcher) takeOver(ctx context.Context) error {
	d.mu.Lock()
	delay := d.readDelay
	if !d.foreign {
		delay = 0
	}
	d.mu.Unlock()
	if err := sleep.For(ctx, delay); err != nil {
		return err
	}
	for d.checkLeader() == nil {
		err := d.restore(ctx)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		d.opts.Logger.Error("reading PolicyStates and Actions failed", "error", err)
		if err := sleep.For(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil // another process takes over
}

func (d *Dispatcher) restore(ctx context.Context) error {
	states, err := d.states.listStates(ctx)
	if err != nil {
		return err
	}
	frozen, err := d.restorePlans(ctx)
	if err != nil {
		return err
	}
	actions, err := d.journal.list(ctx)
	if err != nil {
		return err
	}
	d.exec.clearInDoubt() // the journal knows more
	for _, a := range actions {
		if isFinal(a.Phase) {
			continue
		}
		whole, err := d.journal.get(ctx, a.Name)
		switch {
		case errors.Is(err, ErrNoAction):
		case err != nil:
			return err
		case !isFinal(whole.Phase):
			d.exec.addInDoubt(whole)
		default:
			*a = *whole // it has ended meanwhile
		}
	}
	d.restoreStates(states, frozen, actions)
	soon, cancel := context.WithTimeout(ctx, takeoverTimeout)
	d.exec.resolveAll(soon) // others do not wait for slow members
	cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.opts.Clock()
	for _, x := range d.exec.listInDoubt() { // each may have been written
		d.recordDoubtLocked(&x.action.Intent, now)
	}
	d.recovered, d.foreign = true, false
	return ctx.Err()
}

// restoreStates replaces what this process knows by what the hub has.
func (d *Dispatcher) restoreStates(states []v1alpha1.PolicyState, frozen map[string][]*plan, actions []*Action) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.knownHaltsLocked()
	d.forgetLocked()
	now := d.opts.Clock()
	for n := range states {
		s := d.policies[states[n].Name]
		if s == nil {
			s = newPolicyState(states[n].Name, d.ledger)
			s.removed = true
			d.policies[s.name] = s
		}
		s.record = decodeRecord(&states[n])
		s.needsBaseline = len(s.baseline) == 0
	}
	d.keepHaltsLocked(known)
	for name, list := range frozen {
		s := d.policies[name]
		if s == nil { // without a state there is nothing that others are for
			list = slices.DeleteFunc(list, func(p *plan) bool { return p.Purpose != v1alpha1.PlanDryRun })
			if len(list) == 0 {
				continue
			}
			s = newPolicyState(name, d.ledger)
			s.removed = true // until its intents are known
			d.policies[name] = s
		}
		s.plans = list
	}
	for _, s := range d.policies {
		s.findHaltPlans()
	}
	for _, a := range actions {
		d.countLocked(a, now)
		if s := d.policies[a.Binding]; s != nil && isWritten(a.Phase) {
			s.restoreWrite(a)
		}
	}
	for _, s := range d.policies {
		s.restored(now)
	}
}

// restorePlans reads the Plans that are in use, with their targets. One that was not recorded
// whole, or is not what it was, is deleted: it approves nothing.
func (d *Dispatcher) restorePlans(ctx context.Context) (map[string][]*plan, error) {
	all, err := d.plans.List(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string][]*plan{}
	for n := range all {
		object := &all[n]
		if object.Spec.Purpose == v1alpha1.PlanRollback {
			continue // a person's request, and no policy's
		}
		switch object.Status.State {
		case v1alpha1.PlanWaiting, v1alpha1.PlanApproved, v1alpha1.PlanDone:
		case v1alpha1.PlanSuperseded, v1alpha1.PlanExpired:
			continue
		default:
			gone, err := d.plans.Discard(ctx, object)
			if err == nil && !gone {
				err = fmt.Errorf("plan %q: %w", object.Name, planstore.ErrChanged) // this process may be completing it
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		targets, err := d.plans.Targets(ctx, object)
		if errors.Is(err, plans.ErrCorrupt) || errors.Is(err, plans.ErrIncomplete) {
			d.opts.Logger.Error("a Plan is not what it was: deleting it", "plan", object.Name, "error", err)
			err = d.plans.Delete(ctx, object.Name, string(object.UID))
			if err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if p := newPlan(object, targets); !p.isOver() {
			out[string(object.Spec.Policy)] = append(out[string(object.Spec.Policy)], p)
		}
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b *plan) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name)) })
	}
	return out, nil
}

// isWritten reports whether an action in this phase has written its target.
func isWritten(phase v1alpha1.ActionPhase) bool {
	return phase == v1alpha1.PhaseSucceeded || phase == v1alpha1.PhaseRolledBack
}

// recordWriteLocked counts a write towards limits and, unless a person has requested it, as a
// turn of a fight.
func (d *Dispatcher) recordWriteLocked(i *Intent, at, now time.Time) {
	record := d.ledger.RecordWrite
	if i.RollbackOf != "" {
		record = d.ledger.RecordRollback
	}
	record(i.Binding, i.Remedy.Target, i.Subject, at, now)
}

// recordDoubtLocked counts what may have been written.
func (d *Dispatcher) recordDoubtLocked(i *Intent, now time.Time) {
	by := i.Binding
	if i.RollbackOf != "" {
		by = ""
	}
	d.ledger.RecordDoubt(i.Binding, by, i.Remedy.Target, i.Subject, now, now)
}

// recordTriedLocked counts what has been written, or may have been.
func (d *Dispatcher) recordTriedLocked(i *Intent, a *Action, err error, now time.Time) {
	switch {
	case a.Phase == v1alpha1.PhaseSucceeded:
		d.recordWriteLocked(i, now, now)
	case err != nil && !errors.Is(err, ErrNotNow):
		d.recordDoubtLocked(i, now)
	}
}

// endedAt is when an action ended, not before the hub has recorded it: the clock of the process
// that wrote may have been behind, which would give back what it has spent.
func (a *Action) endedAt() time.Time {
	if a.created.After(a.Ended) {
		return a.created
	}
	return a.Ended
}

// countLocked counts an action towards limits and rates.
func (d *Dispatcher) countLocked(a *Action, now time.Time) {
	if isWritten(a.Phase) {
		d.recordWriteLocked(&a.Intent, a.endedAt(), now)
	}
	if now.Sub(a.Started) < time.Minute {
		d.ledger.RecordStart(a.Binding, a.Remedy.Target.Member, a.Started)
	}
}

// resolved counts and reports an action that was in doubt.
func (d *Dispatcher) resolved(a *Action) {
	d.mu.Lock()
	now := d.opts.Clock()
	if isWritten(a.Phase) {
		d.recordWriteLocked(&a.Intent, a.Ended, now)
		if s := d.policies[a.Binding]; s != nil {
			s.addWritten(a, now)
		}
	}
	d.mu.Unlock()
	d.corrected(a)
}

const (
	deleteInterval     = time.Hour
	exhaustedInterval  = 10 * time.Minute // while there is no room for more Actions
	leaderPollInterval = time.Second
)

// deleteLoop deletes Actions and Plans that ended long ago, and states that nobody needs: when
// this process comes to lead, and every hour from then on. That counts those that there are, too.
func (d *Dispatcher) deleteLoop(ctx context.Context) {
	var last time.Time // of the process's clock
	for sleep.For(ctx, leaderPollInterval) == nil {
		if d.checkLeader() != nil {
			last = time.Time{}
			continue
		}
		interval := deleteInterval
		if d.opts.quota.Exhausted() {
			interval = exhaustedInterval
		}
		if time.Since(last) < interval {
			continue
		}
		first := last.IsZero()
		last = time.Now()
		n, err := d.journal.deleteEnded(ctx, d.opts.Retention, d.longestWindow(), d.opts.Keep)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			d.opts.Logger.Error("deleting old Actions failed", "deleted", n, "error", err)
		case n > 0:
			d.opts.Logger.Info("old Actions deleted", "deleted", n, "retention", d.opts.Retention)
		}
		d.deletePlans(ctx)
		if !first { // then it is known which policies there are
			d.deleteStates(ctx)
		}
	}
}

// plansPerPass is how many Plans and parts are deleted at once.
const plansPerPass = 1000

// dryRunsKept is how long a dry run is kept after another one: nobody approves any, there may be
// one each ten minutes, and of many targets each has many megabytes.
const dryRunsKept = time.Hour

// deletePlans deletes Plans that were over long ago, and dry runs that others have replaced.
func (d *Dispatcher) deletePlans(ctx context.Context) {
	now := d.opts.Clock()
	d.purgePlans(ctx, now.Add(-min(dryRunsKept, d.opts.Retention)), func(p *v1alpha1.Plan) bool {
		return p.Spec.Purpose != v1alpha1.PlanDryRun || p.Status.State != v1alpha1.PlanSuperseded || d.isShown(p)
	})
	d.purgePlans(ctx, now.Add(-d.opts.Retention), d.isPlanInUse)
}

// isShown reports whether a policy has a Plan.
func (d *Dispatcher) isShown(p *v1alpha1.Plan) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.policies[string(p.Spec.Policy)]
	return s != nil && s.plan(p.Name) != nil
}

func (d *Dispatcher) purgePlans(ctx context.Context, before time.Time, inUse func(*v1alpha1.Plan) bool) {
	n, left, err := d.plans.Purge(ctx, before, plansPerPass, inUse)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		d.opts.Logger.Error("deleting old Plans failed", "deleted", n, "error", err)
	case n > 0:
		d.opts.Logger.Info("old Plans deleted", "deleted", n, "left", left, "retention", d.opts.Retention)
	}
}

// isPlanInUse reports whether a Plan is one that decides about writes.
func (d *Dispatcher) isPlanInUse(p *v1alpha1.Plan) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.policies[string(p.Spec.Policy)]
	if s == nil || s.removed && p.Spec.Purpose == v1alpha1.PlanDryRun {
		return false
	}
	return s.freezing || s.dryRun.run != nil || s.plan(p.Name) != nil
}

// longestWindow is how far back any limit counts writes, or a fight.
func (d *Dispatcher) longestWindow() time.Duration {
	longest := max(d.opts.FleetWindow, ledger.SlowFightWithin)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.policies {
		longest = max(longest, s.longest, s.spec.Limits.Window)
	}
	return longest
}
