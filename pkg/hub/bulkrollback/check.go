package bulkrollback

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub/internal/people"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/pkg/remediate/rollbackplan"
)

// check returns what holds the Rollback, or ends it, whatever it has come to: nothing is
// written before it returns nothing.
func (j *job) check(ctx context.Context, now time.Time) verdict {
	if age := now.Sub(j.r.CreationTimestamp.Time); age > maxAge {
		return verdict{v1alpha1.RollbackExpired, j.status.Reason, fmt.Sprintf("it was not done within %s: %s", maxAge, j.status.Message)}
	}
	if v := j.checkUser(now); v.state != "" {
		return v
	}
	st := j.c.opts.Dispatcher.CorrectionState(string(j.r.Spec.Policy))
	switch {
	case !st.Restored:
		return wait(unsettled, "Actions of an earlier leader are being resolved")
	case !j.c.opts.StopsKnown():
		return wait(stopped, "it is not known whether writes are stopped")
	case st.Stopped != "" && !j.r.Spec.WhileStopped:
		return wait(stopped, "%s", st.Stopped)
	}
	if j.plan == nil {
		return verdict{} // what would be written again is known when Actions are selected
	}
	if v := j.learnGenerations(ctx, &st, now); v.state != "" {
		return v
	}
	was := j.plan.Spec.Generation
	return j.checkPolicy(ctx, &st, func(generation string) bool {
		return generation == was || was == rollbackplan.UnknownGeneration || j.generations[generation] || j.generations[""]
	})
}

// checkUser reports whether the user may roll back, and whether it is proven who that is.
func (j *job) checkUser(now time.Time) verdict {
	c := j.c
	c.mu.Lock()
	seen := c.seen[j.r.UID]
	c.mu.Unlock()
	since, asked, why := c.opts.Approvals().RollbacksSince()
	switch {
	case asked.IsZero() || !asked.After(seen):
		return wait(unproven, "it is not known yet whether the hub checks who creates Rollbacks: %s", orUnknown(why))
	case since.IsZero():
		return wait(unproven, "Rollbacks are not carried out now: %s", why)
	case !j.r.CreationTimestamp.After(since):
		return refuse(unproven, "it was created before the hub was proven to check who creates Rollbacks, at %s: create another one", since.UTC().Format(time.RFC3339))
	}
	groups := make([]string, 0, len(j.r.Spec.Groups))
	for _, g := range j.r.Spec.Groups {
		groups = append(groups, string(g))
	}
	allowed, _, err := c.reviews.Allowed(people.Ask(people.RollBack, v1alpha1.FleetPolicies, string(j.r.Spec.Policy), string(j.r.Spec.By), groups), now)
	switch {
	case err != nil:
		return wait(unproven, "it is not known yet whether %s may roll back FleetPolicy %s", j.r.Spec.By, j.r.Spec.Policy)
	case !allowed:
		return refuse(notAllowed, "RBAC does not grant %s the verb rollback on FleetPolicy %s", j.r.Spec.By, j.r.Spec.Policy)
	}
	j.allowed = true
	return verdict{}
}

// learnGenerations reads which generations have written what is rolled back, where another leader
// has frozen the Plan, which names the newest of them: the policy may have returned to another.
func (j *job) learnGenerations(ctx context.Context, st *remediate.CorrectionState, now time.Time) verdict {
	if j.generations != nil || !st.Known || st.Generation == "" || st.Generation == j.plan.Spec.Generation {
		return verdict{}
	}
	if now.Before(j.retryAt) {
		return wait(failed, "%s", j.failure)
	}
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	gathered, v, err := j.gather(ctx)
	if err != nil {
		return j.fail(ctx, err)
	}
	if v.state == "" {
		j.generations = gathered.Generations(&j.r.Spec)
	}
	return v
}

func orUnknown(why string) string {
	if why == "" {
		return "it is being asked"
	}
	return why
}

// policyMode is what the hub says of the FleetPolicy.
type policyMode struct {
	at       time.Time
	enforces bool
}

// enforces reports whether the FleetPolicy on the hub enforces, as of a second ago at most.
func (j *job) enforces(ctx context.Context) (bool, error) {
	if now := time.Now(); now.Sub(j.policy.at) >= interval {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		fp := &v1alpha1.FleetPolicy{}
		err := j.c.client.Get().Resource(v1alpha1.FleetPolicies).Name(string(j.r.Spec.Policy)).Do(ctx).Into(fp)
		if err != nil && !apierrors.IsNotFound(err) {
			return true, fmt.Errorf("FleetPolicy %q: %w", j.r.Spec.Policy, err)
		}
		j.policy = policyMode{now, err == nil && fp.Spec.Mode == v1alpha1.Enforce && !fp.Spec.Suspend && fp.DeletionTimestamp == nil}
	}
	return j.policy.enforces, nil
}

// checkPolicy reports whether the policy would write again what is rolled back: wrote says so of
// its generations. Both the hub and what corrects here must say that it would not.
func (j *job) checkPolicy(ctx context.Context, st *remediate.CorrectionState, wrote func(generation string) bool) verdict {
	enforces, err := j.enforces(ctx)
	switch {
	case err != nil:
		return j.fail(ctx, err)
	case st.Stopped != "", st.Halted:
		return verdict{}
	case !enforces && (!st.Known || st.Suspended || st.Idle):
		return verdict{}
	case !enforces:
		return wait(policyEnforces, "FleetPolicy %s is about to end correcting", j.r.Spec.Policy)
	case st.Known && !st.Suspended && st.Generation != "" && !wrote(st.Generation):
		return verdict{} // it was changed since
	}
	return wait(policyEnforces, "FleetPolicy %s would write the same again: suspend it, stop it or change it", j.r.Spec.Policy)
}
