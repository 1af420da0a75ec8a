package planstore

import (
	"context"
	"crypto/sha256"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate/internal/hubclient"
	"federator.dev/federator/pkg/remediate/internal/plans"
)

// Bounds of a Reader.
const (
	cachedParts   = 64   // of at most half a megabyte of text each
	cachedDigests = 1000 // of Plans
	maxVerifying  = 2    // Plans at once, each wholly in memory
)

// Reader reads Plans for people, part by part. What it returns is what was frozen: before it
// returns anything of a Plan it has read all parts, and compared them with the Plan's hash. It
// keeps the parts that were read last; they never change. A Reader is safe for concurrent use.
type Reader struct {
	store     Store
	digests   *lru.Cache // [][sha256.Size]byte of the parts of a Plan that was verified, by its UID
	parts     *lru.Cache // []v1alpha1.PlanGroup, by partKey
	verifying chan struct{}
}

type partKey struct {
	plan types.UID
	name string
}

// NewReader returns a Reader of the Plans on a hub.
func NewReader(hub hubclient.Client) *Reader {
	return &Reader{Store{hub}, lru.New(cachedDigests), lru.New(cachedParts), make(chan struct{}, maxVerifying)}
}

// Plans returns the Plans of a policy as they are now.
func (r *Reader) Plans(ctx context.Context, policy v1alpha1.PolicyName) ([]v1alpha1.Plan, error) {
	all, err := r.store.list(ctx, "spec.policy="+string(policy))
	if err != nil {
		return nil, fmt.Errorf("plans of %q: %w", policy, err)
	}
	return all, nil
}

// Groups returns the targets in a part of a Plan, which nobody may change. Its error is
// plans.ErrIncomplete or plans.ErrCorrupt where they are not those that were frozen.
func (r *Reader) Groups(ctx context.Context, plan *v1alpha1.Plan, part int32) ([]v1alpha1.PlanGroup, error) {
	digests, err := r.verify(ctx, plan)
	if err != nil {
		return nil, err
	}
	if part < 1 || int(part) > len(digests) {
		return nil, fmt.Errorf("plan %q: it has no part %d", plan.Name, part)
	}
	key := partKey{plan.UID, plans.PartName(plan.Name, part)}
	if groups, ok := r.parts.Get(key); ok {
		return groups.([]v1alpha1.PlanGroup), nil
	}
	p, err := r.store.part(ctx, plan, part)
	if err == nil && sha256.Sum256([]byte(p.Spec.Targets)) != digests[part-1] {
		err = fmt.Errorf("plan %q: %w: part %d has changed", plan.Name, plans.ErrCorrupt, part)
	}
	if err != nil {
		r.digests.Remove(plan.UID) // read all of it again before anything else is returned
		return nil, err
	}
	return r.keep(key, p)
}

// keep decodes a part, and keeps it.
func (r *Reader) keep(key partKey, p *v1alpha1.PlanPart) ([]v1alpha1.PlanGroup, error) {
	groups, err := p.Groups()
	if err != nil {
		return nil, err
	}
	r.parts.Add(key, groups)
	return groups, nil
}

// verify returns the digests of the parts of a Plan that has what its hash was computed from.
func (r *Reader) verify(ctx context.Context, plan *v1alpha1.Plan) ([][sha256.Size]byte, error) {
	if digests, ok := r.digests.Get(plan.UID); ok {
		return digests.([][sha256.Size]byte), nil
	}
	select {
	case r.verifying <- struct{}{}:
		defer func() { <-r.verifying }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if digests, ok := r.digests.Get(plan.UID); ok { // somebody else has verified it meanwhile
		return digests.([][sha256.Size]byte), nil
	}
	parts := make([]v1alpha1.PlanPart, 0, plan.Spec.Parts)
	digests := make([][sha256.Size]byte, 0, plan.Spec.Parts)
	for n := int32(1); n <= plan.Spec.Parts; n++ {
		p, err := r.store.part(ctx, plan, n)
		if err != nil {
			return nil, err
		}
		parts, digests = append(parts, *p), append(digests, sha256.Sum256([]byte(p.Spec.Targets)))
	}
	if _, err := plans.Decode(plan, parts); err != nil {
		return nil, err
	}
	for n := range parts {
		if _, err := r.keep(partKey{plan.UID, parts[n].Name}, &parts[n]); err != nil {
			return nil, err
		}
	}
	r.digests.Add(plan.UID, digests)
	return digests, nil
}
