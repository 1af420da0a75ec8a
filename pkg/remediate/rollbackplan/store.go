package rollbackplan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/hubclient"
	"federator.dev/federator/pkg/remediate/internal/plans"
	"federator.dev/federator/pkg/remediate/internal/planstore"
)

// Errors of a Store.
var (
	// ErrTooMany is returned for more targets than a Plan may have.
	ErrTooMany = plans.ErrTooMany
	// ErrChanged is returned for a Plan that somebody else has changed, or deleted.
	ErrChanged = planstore.ErrChanged
	// ErrDamaged is returned for a Plan whose parts on the hub are not those that were frozen.
	ErrDamaged = errors.New("the Plan is not what was frozen")
)

// pageSize is how many Actions are listed at once, of up to half a megabyte each.
const pageSize = 100

// noDigest is the digest of nothing.
const noDigest v1alpha1.Digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// Store has the Plans of Rollbacks on a hub.
type Store struct {
	hub   hubclient.Client
	plans planstore.Store
}

// NewStore returns a Store that sends its requests with any REST client of the hub: its paths
// are not used.
func NewStore(hub rest.Interface) Store {
	c := hubclient.Client{REST: hub}
	return Store{c, planstore.Store{Hub: c}}
}

// Actions reads the Actions of a policy.
func (s Store) Actions(ctx context.Context, name v1alpha1.PolicyName) (*Gatherer, error) {
	g := NewGatherer(name)
	for next, restarts := "", 0; ; {
		page := &v1alpha1.ActionList{}
		err := s.hub.Retry(ctx, func(ctx context.Context) error {
			*page = v1alpha1.ActionList{}
			r := s.hub.Request(http.MethodGet, v1alpha1.Actions).Param("limit", strconv.Itoa(pageSize)).Param("fieldSelector", "spec.binding="+string(name))
			if next != "" {
				r = r.Param("continue", next)
			}
			return s.hub.Do(ctx, r, page)
		})
		if apierrors.IsResourceExpired(err) && restarts < 3 {
			restarts++ // the continue token has expired
			g, next = NewGatherer(name), ""
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("actions of policy %q: %w", name, err)
		}
		for i := range page.Items {
			g.Add(&page.Items[i])
		}
		if next = page.Continue; next == "" {
			return g, nil
		}
	}
}

// Frozen is the Plan of a Rollback before it is recorded.
type Frozen struct {
	Selection *Selection

	plan  *v1alpha1.Plan // nil where there is nothing to roll back
	parts []*v1alpha1.PlanPart
}

// Freeze makes the Plan of a Rollback. Targets that it cannot have, such as those of members
// that have no UID, are left out. The error is ErrTooMany.
func Freeze(r *v1alpha1.Rollback, selected *Selection, memberUID func(string) string) (*Frozen, error) {
	out := *selected
	out.Targets, out.LeftOut = nil, slices.Clone(selected.LeftOut)
	var targets []plans.Target
	for _, t := range selected.Targets {
		p := plans.Target{
			MemberUID: memberUID(t.Ref.Member), Ref: t.Ref, APIVersion: t.APIVersion, UID: t.UID, Verb: t.Verb, Remedy: t.digest,
			Actions: " " + strings.Join(t.Actions, " "), Irreversible: t.Lost,
		}
		if p.MemberUID == "" || t.MemberUID != "" && t.MemberUID != p.MemberUID {
			out.leaveOutTarget(MemberGone, &t, "its member is not there any more")
			continue
		}
		if err := p.Validate(); err != nil {
			out.leaveOutTarget(NotNamed, &t, "no Plan can name its target")
			continue
		}
		out.Targets = append(out.Targets, t)
		targets = append(targets, p)
	}
	f := &Frozen{Selection: &out}
	if len(targets) == 0 {
		return f, nil
	}
	var err error
	f.plan, f.parts, err = plans.Build(planSpec(r, selected), targets)
	return f, err
}

// Record records a Plan, which waits, and returns it: nil where there is nothing to roll back.
func (s Store) Record(ctx context.Context, f *Frozen) (*v1alpha1.Plan, error) {
	if f.plan == nil {
		return nil, nil
	}
	return s.plans.Create(ctx, f.plan, f.parts)
}

// leaveOutTarget counts all Actions of a target as left out.
func (s *Selection) leaveOutTarget(reason string, t *Target, message string) {
	for _, a := range t.Actions {
		s.leaveOut(reason, a, message)
	}
}

// UnknownGeneration is that of a Plan of Actions that do not say theirs.
const UnknownGeneration = "00000000000000000000000000000000"

// hexGeneration is what a Plan takes as a generation.
var hexGeneration = regexp.MustCompile(`^[0-9a-f]{32}$`)

func planSpec(r *v1alpha1.Rollback, selected *Selection) v1alpha1.PlanSpec {
	generation := selected.generation
	if !hexGeneration.MatchString(generation) {
		generation = UnknownGeneration
	}
	return v1alpha1.PlanSpec{
		Policy: r.Spec.Policy, Purpose: v1alpha1.PlanRollback, Generation: generation,
		Digests: v1alpha1.PlanDigests{Package: noDigest, Parameters: noDigest, Spec: noDigest},
		Authors: []v1alpha1.UserName{r.Spec.By}, AuthorsProven: true,
		Rollback: &v1alpha1.PlannedRollback{
			Name: r.Name, UID: string(r.UID), Commit: r.Spec.Commit, Since: r.Spec.Since, Until: r.Spec.Until,
			WhileStopped: r.Spec.WhileStopped, Force: r.Spec.Force, By: r.Spec.By, Reason: r.Spec.Reason,
		},
	}
}

// Plans returns the Plans of Rollbacks that were frozen completely, by UID of the Rollback, the
// oldest first. There is one for each, unless two processes made them at the same time.
func (s Store) Plans(ctx context.Context) (map[string][]*v1alpha1.Plan, error) {
	all, err := s.plans.ListPurpose(ctx, v1alpha1.PlanRollback)
	if err != nil {
		return nil, err
	}
	out := map[string][]*v1alpha1.Plan{}
	for i := range all {
		p := &all[i]
		if state := p.Status.State; p.Spec.Rollback == nil || state == "" || state == v1alpha1.PlanFreezing {
			continue
		}
		out[p.Spec.Rollback.UID] = append(out[p.Spec.Rollback.UID], p)
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b *v1alpha1.Plan) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
		})
	}
	return out, nil
}

// Targets returns what the Plan of a Rollback has.
func (s Store) Targets(ctx context.Context, plan *v1alpha1.Plan) (planned []Planned, err error) {
	targets, err := s.plans.Targets(ctx, plan)
	if errors.Is(err, plans.ErrCorrupt) || errors.Is(err, plans.ErrIncomplete) {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	for i := range targets {
		t := &targets[i]
		planned = append(planned, Planned{Ref: t.Ref, MemberUID: t.MemberUID, Actions: strings.Fields(t.Actions)})
	}
	return planned, err
}

// Planned is a target of a Plan.
type Planned struct {
	Ref       policy.Ref
	MemberUID string
	Actions   []string // to be rolled back, in this order
}

// PutStatus replaces the status of a Plan, which is updated. The error is ErrChanged where
// somebody else has changed it.
func (s Store) PutStatus(ctx context.Context, plan *v1alpha1.Plan, status v1alpha1.PlanStatus) error {
	version, err := s.plans.PutStatus(ctx, plan.Name, plan.ResourceVersion, status)
	if err != nil {
		return err
	}
	plan.Status, plan.ResourceVersion = status, version
	return nil
}
