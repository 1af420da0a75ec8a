package bulkrollback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/pkg/remediate/rollbackplan"
)

// Reasons of the status; see v1alpha1.RollbackStatus.
const (
	unproven       = "Unproven"
	notAllowed     = "NotAllowed"
	policyEnforces = "PolicyEnforces"
	stopped        = "Stopped"
	unsettled      = "Unsettled"
	needsApproval  = "Approval"
	tooManyTargets = "TooManyTargets"
	failed         = "Failed"
)

// job is a Rollback that is carried out. Its fields are those of the goroutine of run.
type job struct {
	c         *Controller
	r         *v1alpha1.Rollback // as it was when the job began: the spec does not change
	led       time.Time          // since when this process leads
	triggered trigger.Trigger

	status    v1alpha1.RollbackStatus // as it is to be
	recorded  v1alpha1.RollbackStatus // as the hub has it
	recordAt  time.Time               // when counters are due
	failure   string                  // of the last attempt to do something on the hub
	plan      *v1alpha1.Plan          // nil before it is frozen
	queue     *queue                  // of its targets
	selected  string                  // generation of the policy that would write what was selected, the last time
	policy    policyMode
	outcomes  chan outcome
	allowed   bool // it was, at least once
	planSaved time.Time

	gate        gate            // of writes
	until       time.Time       // of the Approvals; zero for ever
	generations map[string]bool // that have written what is rolled back; nil: not known
	failures    int             // in a row
	retryAt     time.Time       // after them
}

func (c *Controller) newJob(r *v1alpha1.Rollback, led time.Time) *job {
	return &job{c: c, r: r, led: led, triggered: trigger.New(), status: *r.Status.DeepCopy(), recorded: *r.Status.DeepCopy(), outcomes: make(chan outcome, maxWrites)}
}

// run carries the Rollback out until it has ended, or the context: it is deleted, or this
// process leads no more.
func (j *job) run(ctx context.Context) {
	c := j.c
	c.mu.Lock()
	c.jobs[j.r.UID] = j.triggered
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.jobs, j.r.UID)
		delete(c.plans, j.r.UID)
		c.mu.Unlock()
		c.opts.Approvals().Trigger()
		c.ended.Store(true)
		c.triggered.Fire()
	}()
	defer j.join()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		j.step(ctx)
		if j.save(ctx); j.recorded.State.IsFinal() {
			break
		}
		select {
		case <-ctx.Done():
			return
		case o := <-j.outcomes:
			j.queue.ended(o, time.Now())
		case <-j.triggered:
		case <-tick.C:
		}
	}
	c.opts.Logger.Info("rollback ended", "rollback", j.r.Name, "policy", string(j.r.Spec.Policy), "state", string(j.recorded.State), "reason", j.recorded.Reason,
		"done", j.recorded.Done, "failed", j.recorded.Failed, "refused", j.recorded.Refused)
}

// join waits for the writes that are under way.
func (j *job) join() {
	for j.queue != nil && j.queue.running > 0 {
		j.queue.ended(<-j.outcomes, time.Now())
	}
}

// step does what can be done now, and sets the status.
func (j *job) step(ctx context.Context) {
	if j.status.State.IsFinal() {
		return
	}
	began := time.Now()
	v := j.check(ctx, began)
	if v.state != "" {
		j.gate.close(v.message)
	} else {
		v = j.proceed(ctx, began)
	}
	if j.queue != nil {
		if v.state.IsFinal() && j.queue.running > 0 {
			return // what is under way is counted before
		}
		j.count()
	}
	j.enter(v)
}

// verdict is what holds a Rollback, or ends it. The zero value is nothing.
type verdict struct {
	state           v1alpha1.RollbackState
	reason, message string
}

func wait(reason, format string, args ...any) verdict {
	return verdict{v1alpha1.RollbackWaiting, reason, fmt.Sprintf(format, args...)}
}

func refuse(reason, format string, args ...any) verdict {
	return verdict{v1alpha1.RollbackRefused, reason, fmt.Sprintf(format, args...)}
}

// proceed freezes the Plan, waits for its approval, and writes. What holds the Rollback was
// asked at a time.
func (j *job) proceed(ctx context.Context, asked time.Time) verdict {
	if asked.Before(j.retryAt) {
		return wait(failed, "%s", j.failure)
	}
	if j.plan == nil {
		v, err := j.freeze(ctx)
		if err != nil {
			return j.fail(ctx, err)
		}
		if j.succeed(); v.state != "" {
			return v
		}
		if v := j.check(ctx, asked); v.state != "" { // the Plan may be an earlier leader's
			return v
		}
	}
	v, err := j.awaitApproval(ctx)
	if err != nil {
		return j.fail(ctx, err)
	}
	if j.succeed(); v.state != "" {
		j.gate.close(v.message)
		return v
	}
	until := asked.Add(maxGateAge)
	if !j.until.IsZero() && j.until.Before(until) {
		until = j.until
	}
	j.gate.open(until)
	j.start(ctx)
	if j.queue.isDone() {
		j.count()
		return verdict{v1alpha1.RollbackDone, "", j.summary()}
	}
	message := fmt.Sprintf("%d of %d targets are left", j.queue.left(), j.status.Planned)
	if j.queue.waiting != "" {
		message += ": " + j.queue.waiting
	}
	return verdict{v1alpha1.RollbackRunning, "", message}
}

func (j *job) summary() string {
	text := fmt.Sprintf("%d of %d targets are rolled back", j.status.Done, j.status.Planned)
	if n := j.status.LeftOut; n > 0 {
		text += fmt.Sprintf("; %d Actions are left out", n)
	}
	return text
}

// fail is what is said after an error of the hub. It is tried again.
func (j *job) fail(ctx context.Context, err error) verdict {
	if ctx.Err() != nil {
		return verdict{j.status.State, j.status.Reason, j.status.Message}
	}
	if errors.Is(err, rollbackplan.ErrDamaged) {
		return refuse(failed, "%v", err)
	}
	if errors.Is(err, rollbackplan.ErrChanged) && (j.queue == nil || j.queue.running == 0) {
		j.plan, j.queue = nil, nil // somebody else has changed it: it is read again
	}
	j.retryAt = time.Now().Add(min(interval<<min(j.failures, 10), retryMost))
	j.failures++
	if text := err.Error(); text != j.failure {
		j.failure = text
		j.c.opts.Logger.Error("carrying out a Rollback failed, trying again", "rollback", j.r.Name, "error", err)
	}
	return wait(failed, "%v", err)
}

// succeed ends a row of failures.
func (j *job) succeed() { j.failure, j.failures, j.retryAt = "", 0, time.Time{} }

// enter sets the state.
func (j *job) enter(v verdict) {
	s := &j.status
	if s.State != v.state || s.Since == nil {
		now := metav1.Now()
		s.Since = &now
	}
	s.State, s.Reason, s.Message = v.state, v.reason, clip.Text(v.message, 1024)
	j.setConditions()
}

// awaitApproval reports what holds the Plan, and records what it has.
func (j *job) awaitApproval(ctx context.Context) (verdict, error) {
	a := j.c.opts.Approvals().Rollback(string(j.r.Spec.Policy), j.plan.Spec.Hash)
	j.until = a.Until
	met := a.Met && (a.Until.IsZero() || time.Now().Before(a.Until))
	if a.Unknown {
		return wait(needsApproval, "it is not known yet whether Plan %s of %d targets is approved", j.plan.Name, j.plan.Spec.Targets), nil
	}
	state := v1alpha1.PlanWaiting
	if met {
		state = v1alpha1.PlanApproved
	} else if j.plan.Status.State == v1alpha1.PlanApproved {
		return verdict{v1alpha1.RollbackExpired, needsApproval, "its Approvals ended before everything was rolled back"}, nil
	}
	if err := j.savePlan(ctx, state, a); err != nil {
		return verdict{}, err
	}
	if !met {
		return wait(needsApproval, "Plan %s of %d targets waits for Approvals of %d people, and has %d", j.plan.Name, j.plan.Spec.Targets, a.Required, len(a.Given)), nil
	}
	return verdict{}, nil
}

// savePlan records the state of the Plan: at once if it is another one, counters every 10 s.
func (j *job) savePlan(ctx context.Context, state v1alpha1.PlanState, a remediate.Approved) error {
	was := &j.plan.Status
	same := was.State == state && was.Since != nil && int(was.Required) == a.Required && slices.EqualFunc(was.Approvals, a.Given, func(x, y v1alpha1.GivenApproval) bool { return x.Name == y.Name && x.By == y.By })
	if same && (was.Written == j.status.Done || time.Since(j.planSaved) < countersEvery) {
		return nil
	}
	ctx, cancel, err := j.c.leased(ctx, requestTimeout)
	if err != nil {
		return err
	}
	defer cancel()
	status := v1alpha1.PlanStatus{State: state, Since: was.Since, Required: int32(min(a.Required, 1000)), Approvals: a.Given, Written: j.status.Done}
	if was.State != state || was.Since == nil {
		now := metav1.Now()
		status.Since = &now
	}
	if err := j.c.store.PutStatus(ctx, j.plan, status); err != nil {
		return err
	}
	j.planSaved = time.Now()
	j.publish()
	return nil
}

// publish tells those who count Approvals of the Plan.
func (j *job) publish() {
	c := j.c
	c.mu.Lock()
	c.plans[j.r.UID] = hub.RollbackPlan{
		Policy: string(j.r.Spec.Policy), Hash: j.plan.Spec.Hash, By: j.r.Spec.By, Since: j.plan.CreationTimestamp.Time, Written: int(j.status.Done),
	}
	c.mu.Unlock()
	c.opts.Approvals().Trigger()
}
