package remediate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/dryrun"
	"federator.dev/federator/pkg/remediate/internal/plans"
	"federator.dev/federator/pkg/remediate/internal/planstore"
)

// plan is a Plan on the hub.
type plan struct {
	PlanInfo

	version string
	amends  string
	targets map[plans.Key]bool

	since     time.Time // it entered its state
	message   string
	approved  bool // its targets may be written now
	written   int
	countedAt time.Time // when it was looked at last whether all is written
	recorded  string    // what the hub has of the status
	recordAt  time.Time // when counters are due to be recorded
	saving    bool

	recordedWritten int
	retryAt         time.Time

	dryRun     *v1alpha1.DryRunCounts // of a dry run
	unanswered map[string]bool        // members that have not answered it, or about other versions
}

// Times of Plans.
const (
	amendAfter   = 10 * time.Second // what has come meanwhile is in one amendment
	planInterval = 10 * time.Second // how often it is looked at whether a Plan is done
	freezeRetry  = 5 * time.Second
)

// passes reports whether the Plan's targets may be written, for a generation of its policy.
func (p *plan) passes(generation string) bool {
	return p.approved && p.Generation == generation && (p.Purpose == v1alpha1.PlanGeneration || p.Purpose == v1alpha1.PlanAmendment)
}

// keepsFormerPlan reports whether a Plan was approved of the generation whose place the present one
// takes: Former intents that it has need no other.
func (s *policyState) keepsFormerPlan(p *plan) bool {
	return s.spec.Replaces != nil && p.Generation == s.spec.Replaces.Generation && (p.State == v1alpha1.PlanApproved || p.State == v1alpha1.PlanDone)
}

// isUncertain reports that it is not known now whether the Approvals of a Plan that was approved
// still count. A halt's Plan is acknowledged.
func (p *plan) isUncertain() bool {
	return p.State == v1alpha1.PlanApproved && !p.approved && p.Purpose != v1alpha1.PlanHalt
}

func (p *plan) enter(state v1alpha1.PlanState, message string, now time.Time) {
	p.State, p.message, p.since = state, message, now
	p.approved = state == v1alpha1.PlanApproved || state == v1alpha1.PlanDone
}

// isOver reports that nothing will be written with the Plan any more.
func (p *plan) isOver() bool {
	return p.State == v1alpha1.PlanSuperseded || p.State == v1alpha1.PlanExpired || p.State == v1alpha1.PlanDone && p.Purpose == v1alpha1.PlanHalt
}

func (s *policyState) plan(name string) *plan {
	if n := slices.IndexFunc(s.plans, func(p *plan) bool { return p.Name == name }); n >= 0 {
		return s.plans[n]
	}
	return nil
}

// reviewPlans updates the states of a policy's Plans.
func (s *policyState) reviewPlans(p *pass) {
	for _, pl := range s.plans {
		switch {
		case pl.Purpose == v1alpha1.PlanDryRun:
			s.reviewDryRunPlan(pl, p.now)
		case pl.Purpose == v1alpha1.PlanHalt:
			s.reviewHaltPlan(pl, p.now)
		case s.keepsFormerPlan(pl):
			s.reviewPlan(pl, p)
		case pl.Generation != s.spec.Generation && !pl.isOver():
			pl.enter(v1alpha1.PlanSuperseded, "the policy has been changed", p.now)
		default:
			s.reviewPlan(pl, p)
		}
	}
}

// savePlansLocked has the states of a policy's Plans recorded, and forgets those that are over.
func (d *Dispatcher) savePlansLocked(s *policyState, p *pass) {
	if !s.ready {
		return
	}
	for _, pl := range s.plans {
		d.savePlanLocked(s, pl, p)
	}
	s.plans = slices.DeleteFunc(s.plans, func(pl *plan) bool { return pl.isOver() && pl.isRecorded() && !pl.saving })
}

// reviewPlan decides by its Approvals whether what a Plan has may be written.
func (s *policyState) reviewPlan(pl *plan, p *pass) {
	a := s.approved[pl.UID]
	met := a.Met && (a.Until.IsZero() || p.now.Before(a.Until))
	switch pl.State {
	case v1alpha1.PlanWaiting:
		pl.Approved = a
		if !met {
			return
		}
		pl.enter(v1alpha1.PlanApproved, "", p.now)
		if pl.Purpose == v1alpha1.PlanGeneration {
			s.adoptTerms()
		}
		p.again(p.now.Add(planInterval))
	case v1alpha1.PlanApproved:
		if pl.approved = met; s.approved == nil || a.Unknown {
			return // it has not been said yet what is approved
		}
		if pl.Approved = a; !met {
			pl.enter(v1alpha1.PlanExpired, "its Approvals ended before everything was written", p.now)
			return
		}
		p.again(a.Until)
		if at := pl.countedAt.Add(planInterval); p.now.Before(at) {
			p.again(at)
			return
		}
		if pl.countedAt = p.now; s.isWritten(pl) {
			pl.enter(v1alpha1.PlanDone, "", p.now)
		} else {
			p.again(p.now.Add(planInterval))
		}
	}
}

// isWritten reports whether each target of a Plan is written or accounted for.
func (s *policyState) isWritten(pl *plan) bool {
	for target, i := range s.intents {
		if pl.targets[i.key()] && !s.isDone(target) {
			return false
		}
	}
	return true
}

// countWritten counts a write for the Plans that approve it. The intent may be gone by now: the
// violation is.
func (s *policyState) countWritten(i *Intent) {
	key := (&desiredIntent{Intent: i}).key()
	for _, p := range s.plans {
		if p.State == v1alpha1.PlanApproved && p.targets[key] && p.written < p.Targets { // drift is written again
			p.written++
		}
	}
}

// freezeRequest is a Plan to be made.
type freezeRequest struct {
	policy  string
	epoch   int
	spec    v1alpha1.PlanSpec
	targets []plans.Target
	halt    string
	status  v1alpha1.PlanStatus // zero: it waits
}

// freezeLocked has a Plan made of what waits: because of a halt, or for approval.
func (d *Dispatcher) freezeLocked(s *policyState, p *pass) {
	if s.freezing || s.removed || !s.ready || s.spec.DryRun {
		return
	}
	if p.now.Before(s.freezeAt) {
		p.again(s.freezeAt)
		return
	}
	if slices.ContainsFunc(s.plans, func(pl *plan) bool { return pl.isOver() && pl.retryAt.IsZero() }) {
		return // its end is being recorded: the next one may have its name
	}
	r := &freezeRequest{policy: s.name, epoch: d.epoch, spec: s.planSpec("")}
	r.spec.AuthorsProven = true
	if h := s.unplannedHalt(); h != nil {
		r.halt, r.spec.Purpose = h.ID, v1alpha1.PlanHalt
		r.spec.Halt = &v1alpha1.PlannedHalt{ID: h.ID, Reason: h.Reason}
		for _, u := range h.Exceeded {
			r.spec.Halt.Over = append(r.spec.Halt.Over, u.budget())
		}
		r.targets = s.planTargets(func(target policy.Ref) bool { return !s.awaiting.all[target] && !s.isDone(target) })
	} else if !s.amend(r, p) {
		return
	}
	if k := s.approval; k != nil {
		r.spec.Authors, r.spec.AuthorsProven = slices.Clone(k.Authors), !k.AuthorsUnproven
	}
	if first := s.firstPlan(); first != nil { // whose authors do not approve what is added either
		r.spec.AuthorsProven = r.spec.AuthorsProven && first.AuthorsProven
		for _, a := range first.Authors {
			if !slices.Contains(r.spec.Authors, a) && len(r.spec.Authors) < maxAuthors {
				r.spec.Authors = append(r.spec.Authors, a)
			}
		}
	}
	s.freezing = true
	p.freezes = append(p.freezes, r)
}

// planSpec returns what Plans of the present generation have in common.
func (s *policyState) planSpec(purpose v1alpha1.PlanPurpose) v1alpha1.PlanSpec {
	return v1alpha1.PlanSpec{
		Policy: v1alpha1.PolicyName(s.name), Purpose: purpose, Generation: s.spec.Generation, Digests: s.spec.Digests, Origin: s.spec.origin(),
	}
}

// unplannedHalt returns a halt over limits whose targets are not frozen yet.
func (s *policyState) unplannedHalt() *Halt {
	n := slices.IndexFunc(s.halts, func(h *Halt) bool {
		return h.Reason == v1alpha1.OverLimit && h.Plan == "" && h.Generation == s.spec.Generation
	})
	if n < 0 {
		return nil
	}
	return s.halts[n]
}

// firstPlan returns the Plan of the present generation, nil if there is none.
func (s *policyState) firstPlan() *plan {
	n := slices.IndexFunc(s.plans, func(p *plan) bool {
		return p.Purpose == v1alpha1.PlanGeneration && p.Generation == s.spec.Generation && !p.isOver()
	})
	if n < 0 {
		return nil
	}
	return s.plans[n]
}

// amend completes the request for a Plan of what waits for approval. It reports false where
// nothing needs one, or one waits already.
func (s *policyState) amend(r *freezeRequest, p *pass) bool {
	if s.approval == nil || s.within || s.spec.Approval.Unsettled || s.tooManyTerms || len(s.halts) > 0 {
		return false
	}
	if slices.ContainsFunc(s.plans, (*plan).isUncertain) {
		return false // what it has may still be approved: that is not known now
	}
	first := s.firstPlan()
	r.spec.Purpose = v1alpha1.PlanGeneration
	if first != nil {
		waits := func(p *plan) bool {
			return p.State == v1alpha1.PlanWaiting && p.Generation == s.spec.Generation && p.Purpose != v1alpha1.PlanHalt
		}
		if s.awaiting.len() == 0 || slices.ContainsFunc(s.plans, waits) {
			s.gatherFrom = time.Time{}
			return false
		}
		if s.gatherFrom.IsZero() {
			s.gatherFrom = p.now
		}
		if at := s.gatherFrom.Add(amendAfter); p.now.Before(at) {
			p.again(at)
			return false
		}
		r.spec.Purpose, r.spec.Amends = v1alpha1.PlanAmendment, first.Name
	}
	s.gatherFrom = time.Time{}
	r.targets = s.planTargets(func(target policy.Ref) bool { return s.awaiting.all[target] })
	return first == nil || len(r.targets) > 0
}

// planTargets returns the targets that a Plan has.
func (s *policyState) planTargets(has func(policy.Ref) bool) (out []plans.Target) {
	for target, i := range s.intents {
		if has(target) && s.isPlannable(i) {
			out = append(out, i.planTarget())
		}
	}
	return out
}

// isDone reports whether the intent for a target has its outcome.
func (s *policyState) isDone(target policy.Ref) bool {
	i, o := s.intents[target], s.outcomes.of[target]
	return i != nil && o != nil && o.actionName == i.name && o.Phase != v1alpha1.PhaseSuperseded && o.Phase != v1alpha1.PhaseFailed
}

// budget returns the limit as a Plan has it.
func (u *BudgetUsage) budget() v1alpha1.Budget {
	l := encodeLimit(u)
	return v1alpha1.Budget{Scope: l.Scope, Member: l.Member, Targets: max(l.Targets, l.Subjects), Allowed: l.Allowed, Denominator: l.Denominator}
}

// freeze makes a Plan, and records it.
func (d *Dispatcher) freeze(ctx context.Context, r *freezeRequest) {
	made, err := d.makePlan(ctx, r)
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.policies[r.policy]
	if d.epoch != r.epoch || s == nil {
		return // what it was about is forgotten
	}
	now := d.opts.Clock()
	s.freezing, s.freezeError = false, ""
	if err != nil {
		s.freezeError, s.freezeAt = clip.Line(err.Error(), maxMessage), now.Add(freezeRetry)
		if ctx.Err() == nil {
			d.opts.Logger.Error("recording a Plan failed", "policy", r.policy, "error", err)
		}
		d.trigger()
		return
	}
	s.addPlan(made)
	if r.halt != "" {
		s.setHaltPlan(r.halt, made.Name)
	}
	d.opts.Logger.Info("plan recorded", "policy", r.policy, "plan", made.Name, "purpose", string(made.Purpose), "targets", made.Targets)
	d.trigger()
}

// addPlan adds a Plan, instead of the one that had its name.
func (s *policyState) addPlan(made *plan) {
	s.plans = append(slices.DeleteFunc(s.plans, func(p *plan) bool { return p.Name == made.Name }), made)
}

func (d *Dispatcher) makePlan(ctx context.Context, r *freezeRequest) (*plan, error) {
	until, err := d.lease()
	if err != nil {
		return nil, err
	}
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	ctx, end := d.beginMaking(ctx, r)
	defer end()
	object, parts, err := plans.Build(r.spec, r.targets)
	if err != nil {
		return nil, err
	}
	if d.isEnding(r.policy, object.Name) {
		return nil, fmt.Errorf("the end of Plan %s, which has the same targets, is not recorded yet", object.Name)
	}
	object.Status = r.status
	recorded, err := d.plans.Recreate(ctx, object, parts)
	if err != nil {
		return nil, err
	}
	return newPlan(recorded, r.targets), nil
}

// isEnding reports whether a Plan is over, and the hub does not have that yet.
func (d *Dispatcher) isEnding(policy, name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.policies[policy]
	if s == nil {
		return false
	}
	pl := s.plan(name)
	return pl != nil && pl.isOver() && !pl.isRecorded()
}

// newPlan returns a Plan as the hub has it.
func newPlan(object *v1alpha1.Plan, targets []plans.Target) *plan {
	p := &plan{
		PlanInfo: PlanInfo{
			Name: object.Name, UID: object.UID, Hash: object.Spec.Hash, Purpose: object.Spec.Purpose, State: object.Status.State, Targets: int(object.Spec.Targets),
			Since: object.CreationTimestamp.Time, Generation: object.Spec.Generation, Authors: object.Spec.Authors, AuthorsProven: object.Spec.AuthorsProven,
		},
		version: object.ResourceVersion, amends: object.Spec.Amends,
		targets: make(map[plans.Key]bool, len(targets)), unanswered: map[string]bool{}, message: object.Status.Message, written: int(object.Status.Written), recordedWritten: int(object.Status.Written), recorded: planMark(&object.Status),
		approved: object.Status.State == v1alpha1.PlanDone,
	}
	p.Approved = Approved{Given: object.Status.Approvals, Required: int(object.Status.Required)} // what it was shown to have
	if h := object.Spec.Halt; h != nil {
		p.Halt = h.ID
	}
	if at := object.Status.Since; at != nil {
		p.since = at.Time
	}
	for n := range targets {
		t := &targets[n]
		p.targets[t.Key()] = true
		if t.DryRun == v1alpha1.DryRunUnreachable || t.DryRun == v1alpha1.DryRunSuperseded {
			p.unanswered[t.Ref.Member] = true
		}
	}
	if p.Purpose == v1alpha1.PlanDryRun {
		p.dryRun = dryrun.Count(targets)
	}
	return p
}

// status returns what the hub is to show of the Plan.
func (p *plan) status() v1alpha1.PlanStatus {
	since := metav1.NewTime(p.since)
	return v1alpha1.PlanStatus{
		State: p.State, Message: p.message, Since: &since, Required: int32(min(p.Approved.Required, 1000)), // people
		Approvals: p.Approved.Given, Written: int32(min(p.written, v1alpha1.MaxPlanTargets)), DryRun: p.dryRun,
	}
}

// isRecorded reports that the hub shows the Plan's state.
func (p *plan) isRecorded() bool {
	status := p.status()
	return p.recorded == planMark(&status)
}

// savePlanLocked has a Plan's status written if it has changed; only counters, once in 10 s.
func (d *Dispatcher) savePlanLocked(s *policyState, pl *plan, p *pass) {
	status := pl.status()
	mark := planMark(&status)
	if pl.saving || mark == pl.recorded && pl.recordedWritten == pl.written {
		return
	}
	if p.now.Before(pl.recordAt) && mark == pl.recorded || p.now.Before(pl.retryAt) {
		p.again(pl.recordAt)
		p.again(pl.retryAt)
		return
	}
	pl.saving = true
	p.planSaves = append(p.planSaves, planSave{s.name, pl.Name, pl.version, status, d.epoch})
}

// planSave is a Plan's status to be written.
type planSave struct {
	policy, name, version string
	status                v1alpha1.PlanStatus
	epoch                 int
}

// savePlan writes a Plan's status.
func (d *Dispatcher) savePlan(ctx context.Context, r planSave) {
	until, err := d.lease()
	if err == nil {
		if !until.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, until)
			defer cancel()
		}
		r.version, err = d.plans.PutStatus(ctx, r.name, r.version, r.status)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.policies[r.policy]
	if d.epoch != r.epoch || s == nil {
		return
	}
	pl := s.plan(r.name)
	if pl == nil {
		return
	}
	now := d.opts.Clock()
	pl.saving = false
	switch {
	case err == nil:
		pl.version, pl.recorded, pl.recordedWritten, pl.recordAt = r.version, planMark(&r.status), int(r.status.Written), now.Add(planInterval)
		pl.retryAt = time.Time{}
	case errors.Is(err, planstore.ErrChanged):
		d.opts.Logger.Warn("a Plan was changed by somebody else: reading all of them again", "policy", r.policy, "plan", r.name)
		d.readAgainLocked()
	default:
		pl.retryAt = now.Add(time.Second)
		if ctx.Err() == nil {
			d.opts.Logger.Error("recording the status of a Plan failed", "policy", r.policy, "plan", r.name, "error", err)
		}
	}
	d.trigger()
}

// planMark is what of a status is written at once.
func planMark(s *v1alpha1.PlanStatus) string {
	mark := fmt.Sprint(s.State, s.Message, s.Required)
	for _, g := range s.Approvals {
		mark += fmt.Sprint(" ", g.Name, g.By, g.Expires.Unix())
	}
	return mark
}
