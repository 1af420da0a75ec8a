// Package plantest records Plans on a hub, for tests of what reads them.
package plantest

import (
	"cmp"
	"context"
	"strings"

	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/hubclient"
	"federator.dev/federator/pkg/remediate/internal/plans"
	"federator.dev/federator/pkg/remediate/internal/planstore"
)

// Create records a Plan with its parts, and returns it as it is on the hub. Of its spec, the
// policy is required; a purpose, a generation and digests that are not set are made up. The
// state of its status is Waiting if that has none.
func Create(ctx context.Context, hub rest.Interface, spec v1alpha1.PlanSpec, status v1alpha1.PlanStatus, groups ...v1alpha1.PlanGroup) (*v1alpha1.Plan, error) {
	spec.Purpose = cmp.Or(spec.Purpose, v1alpha1.PlanGeneration)
	spec.Generation = cmp.Or(spec.Generation, strings.Repeat("a", 32))
	for _, d := range []*v1alpha1.Digest{&spec.Digests.Package, &spec.Digests.Parameters, &spec.Digests.Spec} {
		*d = cmp.Or(*d, v1alpha1.Digest(strings.Repeat("1", 64)))
	}
	var targets []plans.Target
	for i := range groups {
		g := &groups[i]
		for n := range g.Targets {
			t := &g.Targets[n]
			targets = append(targets, plans.Target{
				MemberUID: g.MemberUID, Ref: policy.Ref{Member: g.Member, Kind: policy.Kind(g.Kind), Namespace: t.Namespace, Name: t.Name},
				APIVersion: g.APIVersion, UID: t.UID, Verb: g.Verb, Remedy: cmp.Or(t.Remedy, v1alpha1.Digest(strings.Repeat("2", 64))),
				Irreversible: t.Irreversible, Diff: t.Diff, DryRun: t.DryRun, Message: t.Message,
			})
		}
	}
	plan, parts, err := plans.Build(spec, targets)
	if err != nil {
		return nil, err
	}
	plan.Status = status
	return planstore.Store{Hub: hubclient.Client{REST: hub}}.Create(ctx, plan, parts)
}
