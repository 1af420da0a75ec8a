package bulkrollback

import (
	"context"
	"errors"
	"fmt"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/pkg/remediate/rollbackplan"
)

// Reasons why a target was refused, besides those of remediate's phases.
const (
	changed = "Changed" // since
	gone    = "Gone"    // its Action was deleted
)

// start has as many targets rolled back as may be at once.
func (j *job) start(ctx context.Context) {
	for j.c.writes.TryAcquire(1) {
		it := j.queue.next(time.Now())
		if it == nil {
			j.c.writes.Release(1)
			return
		}
		go func() { // join waits for it
			defer j.c.writes.Release(1)
			j.outcomes <- j.rollBack(ctx, it)
		}()
	}
}

// rollBack rolls back the Actions of a target, the newest first.
func (j *job) rollBack(ctx context.Context, it *item) outcome {
	switch uid := j.c.opts.MemberUID(it.member); {
	case uid == "" && time.Since(j.led) < memberGrace:
		return outcome{it: it, retry: true, message: it.member + " is not known yet"}
	case uid != it.memberUID:
		return outcome{it: it, result: v1alpha1.ResultRefused, reason: rollbackplan.MemberGone, message: "the member is not there any more, or is another one of the same name"}
	}
	for len(it.actions) > 0 {
		if ctx.Err() != nil {
			return outcome{it: it, retry: true, message: "it was interrupted"}
		}
		if err := j.gate.admit(); err != nil {
			return outcome{it: it, retry: true, message: err.Error()}
		}
		if o, done := j.rollBackOne(ctx, it); !done {
			return o
		}
		it.actions = it.actions[1:]
	}
	return outcome{it: it}
}

// rollBackOne rolls back the newest Action that is left of a target.
func (j *job) rollBackOne(ctx context.Context, it *item) (o outcome, done bool) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	name := it.actions[0]
	made, err := j.c.opts.Dispatcher.RollBack(ctx, name, remediate.RollbackRequest{
		Force: j.r.Spec.Force, WhileStopped: j.r.Spec.WhileStopped, Admit: j.gate.admit,
		Reason: fmt.Sprintf("rolled back by %s: %s (Rollback %s)", j.r.Spec.By, j.r.Spec.Reason, j.r.Name),
	})
	refused := func(reason string, err error) (outcome, bool) {
		return outcome{it: it, result: v1alpha1.ResultRefused, reason: reason, message: err.Error()}, false
	}
	switch {
	case errors.Is(err, remediate.ErrRolledBack):
		return o, true
	case errors.Is(err, remediate.ErrNoAction):
		return refused(gone, err)
	case errors.Is(err, remediate.ErrMemberGone):
		return refused(rollbackplan.MemberGone, err)
	case errors.Is(err, remediate.ErrIrreversible):
		return refused(rollbackplan.Irreversible, err)
	case errors.Is(err, remediate.ErrChanged):
		return refused(changed, err)
	case err != nil:
		if !errors.Is(err, remediate.ErrNotNow) && ctx.Err() == nil {
			j.c.opts.Logger.Warn("rolling back an action failed, trying again", "rollback", j.r.Name, "action", name, "member", it.member, "error", err)
		}
		return outcome{it: it, retry: true, message: err.Error()}, false
	}
	switch made.Phase {
	case v1alpha1.PhaseSucceeded, v1alpha1.PhaseNoOp: // it is as it was before
		return o, true
	case v1alpha1.PhaseSuperseded:
		return outcome{it: it, retry: true, message: "targets change while they are rolled back"}, false
	case v1alpha1.PhaseProtected, v1alpha1.PhaseManaged:
		return outcome{it: it, result: v1alpha1.ResultRefused, reason: string(made.Phase), message: made.Message}, false
	}
	return outcome{it: it, result: v1alpha1.ResultFailed, reason: string(made.Phase), message: fmt.Sprintf("%s: %s", made.Name, made.Message)}, false
}
