package remediate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/dryrun"
	"federator.dev/federator/pkg/remediate/internal/objects"
	"federator.dev/federator/pkg/remediate/internal/plans"
)

// DryRunRates bound how often members are asked what they would answer to writes.
type DryRunRates = dryrun.Rates

// Times of dry runs.
const (
	dryRunAfter    = 10 * time.Second // what a generation begins with is in its first dry run
	dryRunInterval = 10 * time.Minute // from the end of one to the next, for what has changed
	dryRunRetry    = time.Hour        // likewise, for members that answer again
	dryRunTimeout  = 15 * time.Second // of an answer
	dryRunTries    = 3                // of one that may be temporary, or superseded
)

// DryRunStatus is the newest dry run of a policy, and how far the next one has come.
type DryRunStatus struct {
	Plan    string // "" before the first one of this generation has ended
	At      time.Time
	Targets int
	Answers v1alpha1.DryRunCounts
	Changed int // targets that have come, gone or got another remedy since
	// Running reports that members are being asked, about Remaining targets still.
	Running   bool
	Remaining int
}

// dryRunState is what a policy in mode DryRun asks, and has asked.
type dryRunState struct {
	run        *dryRun   // nil for none
	remaining  int       // targets that it had not asked about at the last plan
	generation string    // that begin is of
	begin      time.Time // when there was first something to ask
	failed     string    // why the last one is not recorded

	changed   bool // intents have, since they were compared with the Plan
	compareAt time.Time
	stale     int // targets that are not those of the Plan
}

// dryRun is one under way.
type dryRun struct {
	freezeRequest

	gathering *dryrun.Gathering
	cancel    context.CancelFunc // nil until it has begun
}

// end ends the dry run that is under way, which records nothing then.
func (s *dryRunState) end() {
	if s.run != nil && s.run.cancel != nil {
		s.run.cancel()
	}
	s.run, s.remaining, s.failed = nil, 0, ""
}

// dryRunLocked begins and ends dry runs. It returns why there is none, "" where one is under
// way, or its Plan is there.
func (d *Dispatcher) dryRunLocked(s *policyState, p *pass) string {
	r := &s.dryRun
	if why := d.refuseDryRunLocked(s, p); why != "" {
		r.end()
		return why
	}
	if r.run != nil && r.run.spec.Generation == s.spec.Generation {
		r.remaining = r.run.gathering.Remaining()
		p.again(p.now.Add(time.Second))
		return r.failed
	}
	r.end()
	switch at := d.nextDryRunLocked(s, p); {
	case at.IsZero():
		return ""
	case p.now.Before(at):
		p.again(at)
		return ""
	case len(s.intents) > v1alpha1.MaxPlanTargets:
		return fmt.Sprintf("no dry run is made of %d targets: a Plan has at most %d", len(s.intents), v1alpha1.MaxPlanTargets)
	}
	targets := s.planTargets(func(policy.Ref) bool { return true })
	r.run = &dryRun{
		freezeRequest: freezeRequest{policy: s.name, epoch: d.epoch, spec: s.planSpec(v1alpha1.PlanDryRun), targets: targets}, gathering: dryrun.New(targets),
	}
	r.remaining = len(targets)
	p.again(p.now.Add(time.Second))
	p.dryRuns = append(p.dryRuns, r.run)
	return ""
}

// refuseDryRunLocked returns why members are not asked, "" if they may be. Halts, waves, limits,
// windows and approvals hold writes; a dry run is none.
func (d *Dispatcher) refuseDryRunLocked(s *policyState, p *pass) string {
	if why := cmp.Or(d.refuseFleetLocked(), d.stops.policy(s.name, s.spec.Source), d.opts.Incomplete(s.name)); why != "" {
		return why
	}
	switch {
	case s.spec.Suspend:
		return "suspended"
	case !s.ready:
		return "its verdicts have not all been counted"
	}
	why := s.spec.refuseCeiling(p.ceilings[s.spec.Source])
	if why != "" {
		p.again(p.now.Add(heldPollInterval))
	}
	return why
}

// dryRunPlan returns the Plan of the newest dry run of this generation, nil if there is none.
func (s *policyState) dryRunPlan() *plan {
	for n := len(s.plans) - 1; n >= 0; n-- {
		if p := s.plans[n]; p.Purpose == v1alpha1.PlanDryRun && p.Generation == s.spec.Generation && !p.isOver() {
			return p
		}
	}
	return nil
}

// nextDryRunLocked returns when the next dry run begins, zero while the last one shows what would be
// written.
func (d *Dispatcher) nextDryRunLocked(s *policyState, p *pass) time.Time {
	r, last := &s.dryRun, s.dryRunPlan()
	if last == nil {
		if r.begin.IsZero() || r.generation != s.spec.Generation {
			r.begin, r.generation = p.now, s.spec.Generation
		}
		return r.begin.Add(dryRunAfter)
	}
	r.begin = time.Time{}
	if r.changed {
		if p.now.Before(r.compareAt) {
			p.again(r.compareAt)
		} else {
			r.changed, r.compareAt, r.stale = false, p.now.Add(planInterval), s.countChanged(last)
		}
	}
	at := time.Time{}
	if r.stale > 0 {
		at = last.Since.Add(dryRunInterval)
	}
	for member := range last.unanswered {
		if held, has := p.held[member]; has && held == nil && p.away[member] == nil && d.stops.member(member) == "" {
			return earliest(at, last.Since.Add(dryRunRetry))
		}
		p.again(p.now.Add(time.Minute)) // it may answer then
	}
	return at
}

// countChanged returns how many targets have come, gone or got another remedy since a Plan.
func (s *policyState) countChanged(of *plan) int {
	same, other := 0, 0
	for _, i := range s.intents {
		switch {
		case !s.isPlannable(i):
		case of.targets[i.key()]:
			same++
		default:
			other++
		}
	}
	return max(other, len(of.targets)-same)
}

// reviewDryRunPlan ends the Plan of a dry run that shows no longer what would be written.
func (s *policyState) reviewDryRunPlan(pl *plan, now time.Time) {
	switch {
	case pl.isOver():
	case !s.spec.DryRun:
		pl.enter(v1alpha1.PlanSuperseded, "the policy is not in mode DryRun any more", now)
	case pl.Generation != s.spec.Generation:
		pl.enter(v1alpha1.PlanSuperseded, "the policy has been changed", now)
	case pl != s.dryRunPlan():
		pl.enter(v1alpha1.PlanSuperseded, "there has been another dry run since", now)
	}
}

// makeDryRun asks members about the targets of a dry run, and records its Plan.
func (d *Dispatcher) makeDryRun(ctx context.Context, r *dryRun) {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	d.mu.Lock()
	r.cancel = cancel
	current := d.isCurrentLocked(r)
	d.mu.Unlock()
	if !current || r.gathering.Run(asking, d.pacer, func(ctx context.Context, t *plans.Target, diff bool) { d.ask(ctx, r, t, diff) }) != nil {
		return
	}
	now := metav1.NewTime(d.opts.Clock())
	r.status = v1alpha1.PlanStatus{State: v1alpha1.PlanDone, Since: &now, DryRun: dryrun.Count(r.targets)}
	for {
		made, err := d.makePlan(ctx, &r.freezeRequest)
		if err == nil {
			d.finishDryRun(ctx, r, made)
			return
		}
		if asking.Err() != nil {
			return
		}
		d.opts.Logger.Error("recording a dry run failed", "policy", r.policy, "error", err)
		d.mu.Lock()
		if d.isCurrentLocked(r) {
			d.policies[r.policy].dryRun.failed = "the dry run cannot be recorded: " + clip.Line(err.Error(), maxMessage)
		}
		d.mu.Unlock()
		if sleep.For(asking, freezeRetry) != nil {
			return
		}
	}
}

// isCurrentLocked reports whether a dry run is still wanted.
func (d *Dispatcher) isCurrentLocked(r *dryRun) bool {
	s := d.policies[r.policy]
	return s != nil && s.dryRun.run == r
}

// finishDryRun has a policy show its dry run. One that is not wanted any more is deleted; of
// another leader's policies, that is left to it.
func (d *Dispatcher) finishDryRun(ctx context.Context, r *dryRun, made *plan) {
	d.mu.Lock()
	current, mine := d.isCurrentLocked(r), d.epoch == r.epoch
	if current {
		s := d.policies[r.policy]
		s.dryRun.end()
		s.dryRun.changed, s.dryRun.compareAt = true, time.Time{} // while it ran
		s.addPlan(made)
	}
	d.mu.Unlock()
	switch {
	case current:
		d.opts.Logger.Info("dry run ended", "policy", r.policy, "plan", made.Name, "targets", made.Targets)
		d.opts.Changed(r.policy)
		d.trigger()
	case mine:
		if err := d.plans.Delete(ctx, made.Name, string(made.UID)); err != nil && ctx.Err() == nil {
			d.opts.Logger.Error("deleting a dry run that is not wanted any more failed", "plan", made.Name, "error", err)
		}
	}
}

// ask sets a member's answer about a target. A target that has changed is asked about again, as
// it is evaluated now.
func (d *Dispatcher) ask(ctx context.Context, r *dryRun, t *plans.Target, diff bool) {
	for try := 1; ; try++ {
		i, why := d.dryRunIntent(r, t)
		switch {
		case why != "":
			t.DryRun, t.Message = v1alpha1.DryRunUnreachable, why
		case i == nil:
			t.DryRun, t.Message = v1alpha1.DryRunSuperseded, "it is no longer a violation, or has another remedy"
		default:
			t.UID = i.UID
			d.exec.tryOnly(ctx, i, t, diff)
		}
		if t.DryRun != v1alpha1.DryRunSuperseded || i == nil || try == dryRunTries || sleep.For(ctx, time.Second) != nil {
			break
		}
	}
	if ctx.Err() == nil {
		d.metrics.dryRuns.WithLabelValues(r.policy, t.Ref.Member, string(t.DryRun)).Inc()
	}
}

// dryRunIntent returns the present intent for a target of a dry run, nil if it is another one,
// and why its member is not asked, "" if it is.
func (d *Dispatcher) dryRunIntent(r *dryRun, t *plans.Target) (i *Intent, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if why := d.stops.member(t.Ref.Member); why != "" {
		return nil, why
	}
	if !d.isCurrentLocked(r) {
		return nil, ""
	}
	now := d.policies[r.policy].intents[t.Ref]
	switch {
	case now != nil && now.Unresolved != "":
		return nil, now.Unresolved
	case now != nil && now.key() == t.Key():
		return now.Intent, ""
	}
	return nil, ""
}

// tryOnly sets what the member of an intent's target answers to the write, which is not done.
func (x *executor) tryOnly(ctx context.Context, i *Intent, t *plans.Target, diff bool) {
	defer func() {
		if p := recover(); p != nil {
			t.DryRun, t.Message = v1alpha1.DryRunInvalid, fmt.Sprintf("panicked: %v", p)
		}
	}()
	a := &Action{Name: i.actionName(), Intent: *i}
	a.APIVersion, a.withheld = i.apiVersion(), x.withholds(i.Remedy.Target.Kind)
	owner, err := "", error(nil)
	if x.owner != nil {
		owner, err = x.owner(i)
	}
	switch why := x.protection.protected(i.Remedy.Target, nil); {
	case why != "":
		t.DryRun, t.Message = v1alpha1.DryRunProtected, why
	case err != nil:
		t.DryRun, t.Message = v1alpha1.DryRunUnreachable, err.Error()
	case owner != "":
		t.DryRun, t.Message = v1alpha1.DryRunManaged, "managed by "+owner
	case x.refusal(i) != "":
		t.DryRun, t.Message = v1alpha1.DryRunInvalid, x.refusal(i)
	default:
		var seen *observed
		seen, t.DryRun, t.Message = x.answer(ctx, a)
		if t.DryRun == v1alpha1.DryRunPassed {
			t.Irreversible = a.Irreversible
			if diff {
				t.Diff = objects.Diff(seen.object, seen.after, a.withheld)
			}
		}
	}
}

// answer returns the member's answer to an action. What may be temporary is tried again.
func (x *executor) answer(ctx context.Context, a *Action) (seen *observed, answer v1alpha1.DryRunAnswer, message string) {
	for try, wait := 1, time.Second; ; try, wait = try+1, 2*wait {
		seen, err := x.tryTarget(ctx, a)
		switch {
		case err == nil && a.Phase == "":
			if _, err := encodeAction(a); err != nil { // it could not be written: each write has its Action first
				return nil, v1alpha1.DryRunInvalid, err.Error()
			}
			return seen, v1alpha1.DryRunPassed, a.claimMessage()
		case err == nil:
			return seen, dryRunAnswers[a.Phase], a.Message
		case errors.Is(err, errInvalidIntent):
			return nil, v1alpha1.DryRunInvalid, err.Error()
		}
		class, why := classify(err, &a.Intent), describeError(err, a.Remedy.Target)
		switch class.phase {
		case v1alpha1.PhaseContended:
			return nil, v1alpha1.DryRunContended, "fields are owned by " + class.manager + ": " + why
		case v1alpha1.PhaseSuperseded:
			return nil, v1alpha1.DryRunSuperseded, why
		case v1alpha1.PhaseFailed:
			return nil, v1alpha1.DryRunRefused, why
		}
		hangs := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNotNow)
		if hangs || try == dryRunTries || sleep.For(ctx, max(class.retryAfter, wait)) != nil {
			return nil, v1alpha1.DryRunUnreachable, why
		}
	}
}

// dryRunAnswers are the answers of dry runs that prepare has ended.
var dryRunAnswers = map[v1alpha1.ActionPhase]v1alpha1.DryRunAnswer{
	v1alpha1.PhaseSuperseded: v1alpha1.DryRunSuperseded, v1alpha1.PhaseNoOp: v1alpha1.DryRunNoOp, v1alpha1.PhaseProtected: v1alpha1.DryRunProtected,
}

// tryTarget tries an action once.
func (x *executor) tryTarget(ctx context.Context, a *Action) (*observed, error) {
	ctx, cancel := context.WithTimeout(ctx, dryRunTimeout)
	defer cancel()
	if x.checkMember != nil {
		if err := x.checkMember(a.Remedy.Target.Member); err != nil {
			return nil, err
		}
	}
	c, err := x.clients.Client(a.Remedy.Target.Member, a.Remedy.Target.Kind, a.APIVersion)
	if err != nil {
		return nil, err
	}
	return x.prepare(ctx, c, a)
}

// dryRunStatus returns the status of a policy's dry runs.
func (s *policyState) dryRunStatus() *DryRunStatus {
	if !s.spec.DryRun {
		return nil
	}
	st := &DryRunStatus{}
	if r := s.dryRun.run; r != nil {
		st.Running, st.Remaining = true, r.gathering.Remaining()
	}
	if p := s.dryRunPlan(); p != nil {
		st.Plan, st.At, st.Targets, st.Answers, st.Changed = p.Name, p.since, p.Targets, *p.dryRun, s.dryRun.stale
	}
	return st
}
