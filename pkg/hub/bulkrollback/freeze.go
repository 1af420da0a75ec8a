package bulkrollback

import (
	"context"
	"errors"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/remediate/rollbackplan"
)

// freeze makes the Plan, or takes the one that an earlier leader has made, or says why there is
// none now.
func (j *job) freeze(ctx context.Context) (verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	all, err := j.c.store.Plans(ctx)
	if err != nil {
		return verdict{}, err
	}
	if list := all[string(j.r.UID)]; len(list) > 0 {
		if p := list[0]; isOver(p) {
			return verdict{v1alpha1.RollbackExpired, failed, "its Plan has ended: " + p.Status.Message}, nil
		}
		return verdict{}, j.adopt(ctx, list[0])
	}
	st := j.c.opts.Dispatcher.CorrectionState(string(j.r.Spec.Policy))
	// Where the policy would write again what was selected the last time, it still would.
	if v := j.checkPolicy(ctx, &st, func(generation string) bool { return generation == j.selected }); v.state != "" {
		return v, nil
	}
	gathered, v, err := j.gather(ctx)
	if err != nil || v.state != "" {
		return v, err
	}
	selected := gathered.Select(&j.r.Spec)
	st = j.c.opts.Dispatcher.CorrectionState(string(j.r.Spec.Policy))
	v = j.checkPolicy(ctx, &st, func(generation string) bool { return selected.Generations[generation] })
	if v.state != "" {
		if j.selected = ""; selected.Generations[st.Generation] {
			j.selected = st.Generation
		}
		return v, nil
	}
	j.generations = gathered.Generations(&j.r.Spec)
	return j.record(ctx, selected)
}

// gather reads the Actions of the policy, unless enough Rollbacks do so now: the verdict says it.
func (j *job) gather(ctx context.Context) (*rollbackplan.Gatherer, verdict, error) {
	if !j.c.gathers.TryAcquire(1) {
		return nil, wait(unsettled, "the Actions of other Rollbacks are being read"), nil
	}
	defer j.c.gathers.Release(1)
	gathered, err := j.c.store.Actions(ctx, j.r.Spec.Policy)
	return gathered, verdict{}, err
}

// record records a Plan of what was selected, once it is settled.
func (j *job) record(ctx context.Context, selected *rollbackplan.Selection) (verdict, error) {
	frozen, err := rollbackplan.Freeze(j.r, selected, j.c.opts.MemberUID)
	if errors.Is(err, rollbackplan.ErrTooMany) {
		return refuse(tooManyTargets, "%d targets would be rolled back, at most %d are allowed: choose a shorter time", len(selected.Targets), v1alpha1.MaxPlanTargets), nil
	}
	if err != nil {
		return verdict{}, err
	}
	since := j.led
	if j.r.CreationTimestamp.After(since) {
		since = j.r.CreationTimestamp.Time
	}
	if missing := len(selected.Targets) - len(frozen.Selection.Targets); selected.InDoubt+missing > 0 && time.Since(since) < settleTime {
		return wait(unsettled, "%d Actions are being written, and %d targets are of members that are not known yet", selected.InDoubt, missing), nil
	}
	// What is left out is recorded first: who finds the Plan selects nothing again.
	j.setLeftOut(frozen.Selection)
	j.enter(wait(needsApproval, "the Plan is being recorded"))
	if !j.put(ctx) {
		return verdict{}, errors.New("recording the status failed")
	}
	recording, cancel, err := j.c.leased(ctx, freezeTimeout)
	if err != nil {
		return verdict{}, err
	}
	defer cancel()
	plan, err := j.c.store.Record(recording, frozen)
	if err != nil {
		return verdict{}, err
	}
	if plan == nil {
		return verdict{v1alpha1.RollbackDone, "", "there is nothing to roll back; " + j.summary()}, nil
	}
	j.c.opts.Logger.Info("plan recorded", "rollback", j.r.Name, "policy", string(j.r.Spec.Policy), "plan", plan.Name, "targets", plan.Spec.Targets)
	return verdict{}, j.adopt(ctx, plan)
}

func (j *job) setLeftOut(s *rollbackplan.Selection) {
	j.status.LeftOut, j.status.Irreversible, j.status.Outcomes = 0, int32(min(s.Irreversible(), 1<<30)), nil
	for _, l := range s.LeftOut {
		j.status.LeftOut += int32(l.Actions) // as many as the hub has room for
		j.status.Outcomes = append(j.status.Outcomes, v1alpha1.RollbackOutcome{
			Result: v1alpha1.ResultLeftOut, Reason: l.Reason, Targets: int32(l.Actions), Action: l.Action, Message: clip.Text(l.Message, 256),
		})
	}
}

// adopt takes the Plan, with its targets.
func (j *job) adopt(ctx context.Context, plan *v1alpha1.Plan) error {
	planned, err := j.c.store.Targets(ctx, plan)
	if err != nil {
		return err
	}
	j.plan, j.queue = plan, newQueue(planned)
	j.status.Plan, j.status.Planned = plan.Name, plan.Spec.Targets
	j.publish()
	return nil
}
