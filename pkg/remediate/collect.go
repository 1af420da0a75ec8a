package remediate

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
)

// PolicyStates outlive their FleetPolicies: deleting one and creating it again ends no halt,
// forgets no acknowledgement and lowers no approval. One that says nothing of the kind, of a
// policy that has not been there for long, is deleted.

// statesKept is how long a PolicyState is kept since something has happened to its policy.
const statesKept = 30 * 24 * time.Hour

// idleState is a PolicyState that holds nothing back.
type idleState struct {
	name, version string
	epoch         int
}

// deleteStates deletes the PolicyStates that nobody needs.
func (d *Dispatcher) deleteStates(ctx context.Context) {
	for _, c := range d.idleStates() {
		gone, err := d.deleteState(ctx, c)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			d.opts.Logger.Error("deleting an old PolicyState failed", "policy", c.name, "error", err) // the next pass tries again
		case gone:
			d.opts.Logger.Info("old PolicyState deleted", "policy", c.name)
		}
	}
}

func (d *Dispatcher) idleStates() (out []idleState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.opts.Clock().Add(-statesKept)
	for _, name := range sortedKeys(d.policies) {
		if s := d.policies[name]; d.recovered && s.isIdle(before) {
			out = append(out, idleState{name, s.version, d.epoch})
		}
	}
	return out
}

// isIdle reports whether there is no such policy, nothing of it binds, and nothing has happened
// to it since a time.
func (s *policyState) isIdle(before time.Time) bool {
	if !s.removed || s.version == "" || s.created.IsZero() || !s.isRecorded() || s.saving || s.freezing || len(s.halts) > 0 || s.approval != nil {
		return false
	}
	waits := func(p *plan) bool { return p.Purpose != v1alpha1.PlanDryRun && !p.isOver() }
	return !slices.ContainsFunc(s.plans, waits) && s.lastChange().Before(before)
}

// lastChange is when something has happened to a policy last, or an acknowledgement ends.
func (r *record) lastChange() time.Time {
	last := r.created
	see := func(times ...time.Time) {
		for _, at := range times {
			if at.After(last) {
				last = at
			}
		}
	}
	for _, h := range r.history {
		see(h.At.Time)
	}
	for n := range r.allowances {
		see(r.allowances[n].At, r.allowances[n].expires)
	}
	if a := r.acknowledged; a != nil {
		see(a.At)
	}
	if s := r.rollout; s != nil {
		see(s.Since, s.Began, s.Done, s.Healthy)
	}
	return last
}

// deleteState deletes a PolicyState in the version that was seen, if the hub has neither such a
// FleetPolicy nor Actions that count. One that is created meanwhile has its state recorded again.
func (d *Dispatcher) deleteState(ctx context.Context, c idleState) (gone bool, err error) {
	until, err := d.lease()
	if err != nil {
		return false, err
	}
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	if used, err := d.states.isUsed(ctx, c.name); used || err != nil {
		return false, err
	}
	if gone, err = d.states.deleteState(ctx, c.name, c.version); !gone || err != nil {
		return false, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.policies[c.name]
	switch {
	case s == nil || d.epoch != c.epoch:
	case s.saving || s.version != c.version: // it is recorded anew
	case s.removed && s.isRecorded():
		delete(d.policies, c.name)
	default: // there is such a policy again
		s.version = ""
		s.touch()
		d.trigger()
	}
	return true, nil
}

// isUsed implements stateStore.
func (s hubStates) isUsed(ctx context.Context, policy string) (used bool, err error) {
	err = s.retry(ctx, func(ctx context.Context) error {
		err := s.do(ctx, s.request(http.MethodGet, v1alpha1.FleetPolicies, policy), &metav1.PartialObjectMetadata{})
		if used = err == nil; !apierrors.IsNotFound(err) {
			return err
		}
		list := &v1alpha1.ActionList{}
		if err := s.do(ctx, s.request(http.MethodGet, v1alpha1.Actions).Param("limit", "1").Param("fieldSelector", "spec.binding="+policy), list); err != nil {
			return err
		}
		used = len(list.Items) > 0 || list.Continue != ""
		return nil
	})
	if err != nil {
		return true, fmt.Errorf("policy state %q: %w", policy, err)
	}
	return used, nil
}

// deleteState implements stateStore.
func (s hubStates) deleteState(ctx context.Context, policy, version string) (gone bool, err error) {
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Preconditions: &metav1.Preconditions{ResourceVersion: &version},
	})
	if err != nil {
		return false, err
	}
	err = s.retry(ctx, func(ctx context.Context) error {
		err := s.do(ctx, s.request(http.MethodDelete, v1alpha1.PolicyStates, policy).SetHeader("Content-Type", plainJSON).Body(body), nil)
		switch {
		case apierrors.IsConflict(err):
			return nil // it is needed
		case apierrors.IsNotFound(err):
			err = nil
		}
		gone = err == nil
		return err
	})
	if err != nil {
		return false, fmt.Errorf("policy state %q: %w", policy, err)
	}
	return gone, nil
}
