package bulkrollback

import (
	"context"
	"errors"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
)

// Conditions of a Rollback.
const (
	permitted = "Permitted"
	complete  = "Complete"
)

// count sets the counters.
func (j *job) count() {
	s, q := &j.status, j.queue
	s.Done, s.Failed, s.Refused = int32(q.done), int32(q.failed), int32(q.refused) // at most v1alpha1.MaxPlanTargets
	s.Outcomes = q.list(s.Outcomes)
}

// setConditions sets the conditions from state and reason.
func (j *job) setConditions() {
	s := &j.status
	set := func(kind string, is metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kind, Status: is, Reason: reason, Message: message, ObservedGeneration: j.r.Generation})
	}
	switch {
	case s.Reason == notAllowed, s.Reason == unproven && s.State == v1alpha1.RollbackRefused:
		set(permitted, metav1.ConditionFalse, s.Reason, s.Message)
	case s.Reason == unproven:
		set(permitted, metav1.ConditionUnknown, s.Reason, s.Message)
	case j.allowed:
		set(permitted, metav1.ConditionTrue, "Allowed", "RBAC grants the user the verb rollback on the FleetPolicy")
	}
	if s.State == v1alpha1.RollbackDone {
		set(complete, metav1.ConditionTrue, string(s.State), s.Message)
		return
	}
	reason := s.Reason
	if reason == "" {
		reason = string(s.State)
	}
	message := s.Message
	if s.State == v1alpha1.RollbackRunning {
		message = "targets are being rolled back" // counters alone do not change a condition
	}
	set(complete, metav1.ConditionFalse, reason, message)
}

// save writes the status if it has changed: counters, and what is said with them, every 10 s.
func (j *job) save(ctx context.Context) {
	s, was := &j.status, &j.recorded
	if apiequality.Semantic.DeepEqual(s, was) {
		return
	}
	same := s.State == was.State && s.Reason == was.Reason && s.Plan == was.Plan && (s.State == v1alpha1.RollbackRunning || s.Message == was.Message)
	if same && time.Now().Before(j.recordAt) {
		return
	}
	j.put(ctx)
}

// put writes the status, and reports whether the hub has it.
func (j *job) put(ctx context.Context) bool {
	err := j.write(ctx)
	if err != nil {
		j.recordAt = time.Now().Add(interval)
		if ctx.Err() == nil && !apierrors.IsNotFound(err) && !errors.Is(err, errReplaced) {
			j.c.opts.Logger.Error("writing the status of a Rollback failed", "rollback", j.r.Name, "error", err) // retried
		}
		return false
	}
	j.recorded, j.recordAt = *j.status.DeepCopy(), time.Now().Add(countersEvery)
	return true
}

var errReplaced = errors.New("it was deleted and created again")

func (j *job) write(ctx context.Context) error {
	ctx, cancel, err := j.c.leased(ctx, requestTimeout)
	if err != nil {
		return err
	}
	defer cancel()
	client := j.c.client
	now := &v1alpha1.Rollback{}
	if err := client.Get().Resource(v1alpha1.Rollbacks).Name(j.r.Name).Do(ctx).Into(now); err != nil {
		return err
	}
	if now.UID != j.r.UID {
		return errReplaced
	}
	now.ManagedFields, now.Status = nil, j.status
	return client.Put().Resource(v1alpha1.Rollbacks).Name(j.r.Name).SubResource("status").Param("fieldManager", "federator").Body(now).Do(ctx).Error()
}
