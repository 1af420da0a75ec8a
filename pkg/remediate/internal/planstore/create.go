package planstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate/internal/hubclient"
	"federator.dev/federator/pkg/remediate/internal/plans"
)

// maxPasses is how often Create begins again because others are at the same Plan.
const maxPasses = 4

// errOther is returned for a Plan that is to be deleted first: one that is being frozen with
// other content (the same targets, of which other diffs or answers to dry runs are shown), or
// one that is over.
var errOther = errors.New("it was being frozen with other content, or is over")

// Create records a Plan: in state Freezing, then its parts, then in the state of its status, or
// Waiting if that has none. It completes what another process, or another call, began; where
// that was about to show something else of the same targets, it is deleted first, since nobody
// can have approved it.
//
// It returns the Plan as it is on the hub. That may be one with the same hash which was frozen
// earlier, in any state but Freezing, and made by other authors. The error is ErrTaken where
// the name is that of another Plan, and ErrChanged where others kept changing it.
func (s Store) Create(ctx context.Context, plan *v1alpha1.Plan, parts []*v1alpha1.PlanPart) (*v1alpha1.Plan, error) {
	return s.record(ctx, plan, parts, func(v1alpha1.PlanState) bool { return true })
}

// Recreate is Create for what is wanted again, such as a generation that was returned to: where
// the Plan is Done, Superseded or Expired, it is deleted, and recorded as a new one.
func (s Store) Recreate(ctx context.Context, plan *v1alpha1.Plan, parts []*v1alpha1.PlanPart) (*v1alpha1.Plan, error) {
	return s.record(ctx, plan, parts, func(state v1alpha1.PlanState) bool { return !IsFinal(state) })
}

// IsFinal reports whether a Plan leaves a state no more.
func IsFinal(state v1alpha1.PlanState) bool {
	return state == v1alpha1.PlanDone || state == v1alpha1.PlanSuperseded || state == v1alpha1.PlanExpired
}

// record is Create, which keeps a Plan that was frozen in some states.
func (s Store) record(ctx context.Context, plan *v1alpha1.Plan, parts []*v1alpha1.PlanPart, keep func(v1alpha1.PlanState) bool) (*v1alpha1.Plan, error) {
	for pass := 1; ; pass++ {
		made, err := s.create(ctx, plan, parts, keep)
		switch {
		case err == nil:
			return made, nil
		case pass == maxPasses || !errors.Is(err, errOther) && !errors.Is(err, ErrChanged):
			return nil, fmt.Errorf("plan %q: %w", plan.Name, err)
		case errors.Is(err, errOther):
			// Where it has begun to wait since it was read, it stays. Its parts are replaced.
			seen := &metav1.Preconditions{UID: &made.UID, ResourceVersion: &made.ResourceVersion}
			if _, err := s.delete(ctx, seen, v1alpha1.Plans, made.Name); err != nil {
				return nil, fmt.Errorf("plan %q: %w", plan.Name, err)
			}
		}
	}
}

// create is one pass of record. With errOther it returns the Plan that is there.
func (s Store) create(ctx context.Context, plan *v1alpha1.Plan, parts []*v1alpha1.PlanPart, keep func(v1alpha1.PlanState) bool) (*v1alpha1.Plan, error) {
	made, err := s.ensurePlan(ctx, plan)
	switch {
	case err != nil:
		return nil, err
	case made.Spec.Hash != plan.Spec.Hash:
		return nil, ErrTaken
	case made.DeletionTimestamp != nil:
		return nil, ErrChanged
	case isFrozen(made.Status.State) && keep(made.Status.State):
		return made, nil
	case isFrozen(made.Status.State):
		return made, errOther
	case !sameJSON(&made.Spec, &plan.Spec):
		return made, errOther
	}
	status := *plan.Status.DeepCopy()
	if made.Status.State == "" {
		freezing := v1alpha1.PlanStatus{State: v1alpha1.PlanFreezing, Since: status.Since}
		if err := s.setStatus(ctx, made, freezing); err != nil {
			return nil, err
		}
	}
	for _, p := range parts {
		if err := s.ensurePart(ctx, made, p); err != nil {
			return made, fmt.Errorf("part %d: %w", p.Spec.Number, err)
		}
	}
	if status.State == "" {
		status.State = v1alpha1.PlanWaiting
	}
	return made, s.setStatus(ctx, made, status)
}

// isFrozen reports whether all parts of a Plan have been recorded.
func isFrozen(state v1alpha1.PlanState) bool { return state != "" && state != v1alpha1.PlanFreezing }

func (s Store) setStatus(ctx context.Context, plan *v1alpha1.Plan, status v1alpha1.PlanStatus) error {
	version, err := s.putStatus(ctx, plan.Name, plan.ResourceVersion, &status)
	if err != nil {
		return err
	}
	plan.Status, plan.ResourceVersion = status, version
	return nil
}

// ensurePlan creates a Plan, and returns the one that has its name.
func (s Store) ensurePlan(ctx context.Context, plan *v1alpha1.Plan) (*v1alpha1.Plan, error) {
	out, bare := &v1alpha1.Plan{}, plan.DeepCopy()
	bare.Status = v1alpha1.PlanStatus{} // the hub ignores it
	if made, err := s.post(ctx, v1alpha1.Plans, bare, out); made || err != nil {
		return out, err
	}
	err := s.get(ctx, out, v1alpha1.Plans, plan.Name)
	if apierrors.IsNotFound(err) {
		return nil, ErrChanged
	}
	return out, err
}

// post creates an object; it is not made where one has its name, maybe by an attempt that failed.
func (s Store) post(ctx context.Context, resource string, object, into any) (made bool, err error) {
	body, err := json.Marshal(object)
	if err != nil {
		return false, err
	}
	err = s.Hub.Retry(ctx, func(ctx context.Context) error {
		return s.Hub.Do(ctx, s.Hub.Request(http.MethodPost, resource).SetHeader("Content-Type", hubclient.JSON).Body(body), into)
	})
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	return err == nil, err
}

// ensurePart creates a part of a Plan that is being frozen. One that is left of a deleted Plan
// with the same name is deleted: the hub would do so, too.
func (s Store) ensurePart(ctx context.Context, plan *v1alpha1.Plan, part *v1alpha1.PlanPart) error {
	part = part.DeepCopy()
	part.OwnerReferences = []metav1.OwnerReference{{APIVersion: planType.APIVersion, Kind: planType.Kind, Name: plan.Name, UID: plan.UID}}
	for range maxPasses {
		if made, err := s.post(ctx, v1alpha1.PlanParts, part, nil); made || err != nil {
			return err
		}
		there := &v1alpha1.PlanPart{}
		err := s.get(ctx, there, v1alpha1.PlanParts, plans.PartName(plan.Name, part.Spec.Number))
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return err
		case there.DeletionTimestamp != nil:
			return ErrChanged
		case ownedBy(&there.ObjectMeta, plan.UID):
			return nil
		}
		// Read after the part: if the Plan is still this one, the part is of an earlier Plan.
		now := &v1alpha1.Plan{}
		if err := s.get(ctx, now, v1alpha1.Plans, plan.Name); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if now.UID != plan.UID {
			return ErrChanged
		}
		if _, err := s.delete(ctx, &metav1.Preconditions{UID: &there.UID}, v1alpha1.PlanParts, there.Name); err != nil {
			return err
		}
	}
	return ErrChanged
}
