package hub

import (
	"context"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/hub/internal/gitops"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// GitOpsTrust names objects of GitOps controllers that are believed when they say what they
// own: users who may write their status decide what is not corrected.
type GitOpsTrust = gitops.Trust

// GitOpsOptions configure GitOps. Index is required.
type GitOpsOptions = gitops.Options

// GitOps knows which targets GitOps controllers manage, from trusted objects of the index.
type GitOps struct{ owners *gitops.Owners }

// NewGitOps returns GitOps, or what is wrong with the options.
func NewGitOps(opts GitOpsOptions) (*GitOps, error) {
	owners, err := gitops.New(opts)
	if err != nil {
		return nil, err
	}
	return &GitOps{owners}, nil
}

// Kinds are the kinds that members must be synced with.
func (g *GitOps) Kinds() []aggregate.Kind { return g.owners.Kinds() }

// Run follows the index until the context ends.
func (g *GitOps) Run(ctx context.Context) error { return g.owners.Run(ctx) }

// Owner returns who manages a target. Of a Ref of a member alone it says whether that is
// known there.
func (g *GitOps) Owner(target policy.Ref) remediate.Ownership {
	if target.Kind == "" {
		return remediate.Ownership{Unknown: g.owners.Unknown(target.Member)}
	}
	answer := g.owners.Of(target)
	if answer.Owner == nil {
		return remediate.Ownership{Unknown: answer.Unknown}
	}
	return remediate.Ownership{Owner: answer.Owner.String()}
}
