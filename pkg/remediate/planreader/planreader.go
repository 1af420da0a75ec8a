// Package planreader reads the Plans on a hub for people, in any process: of a Plan it returns
// what was frozen, or nothing.
package planreader

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate/internal/hubclient"
	"federator.dev/federator/pkg/remediate/internal/plans"
	"federator.dev/federator/pkg/remediate/internal/planstore"
)

// ErrDamaged is returned for a Plan whose parts on the hub are not those that were frozen.
var ErrDamaged = errors.New("the Plan is not what was frozen")

// Reader reads Plans. It is safe for concurrent use.
type Reader struct{ reader *planstore.Reader }

// New returns a Reader that sends its requests with a client of the hub.
func New(hub rest.Interface) *Reader {
	return &Reader{planstore.NewReader(hubclient.Client{REST: hub})}
}

// Plans returns the Plans of a policy as they are now.
func (r *Reader) Plans(ctx context.Context, policy string) ([]v1alpha1.Plan, error) {
	return r.reader.Plans(ctx, v1alpha1.PolicyName(policy))
}

// Groups returns the targets in a part of a Plan, from 1, which the caller must not change. Its
// error is ErrDamaged where the parts on the hub are not those that the Plan's hash was computed
// from.
func (r *Reader) Groups(ctx context.Context, plan *v1alpha1.Plan, part int) ([]v1alpha1.PlanGroup, error) {
	groups, err := r.reader.Groups(ctx, plan, int32(part))
	if errors.Is(err, plans.ErrIncomplete) || errors.Is(err, plans.ErrCorrupt) {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return groups, err
}
