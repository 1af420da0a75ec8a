package queryclient

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// completionTimeout bounds requests for completion: no completion is better than a shell
// that hangs.
const completionTimeout = 3 * time.Second

// Complete returns the completions that list finds, and none on errors.
func (f *Flags) Complete(cmd *cobra.Command, list func(context.Context, *Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	a, err := f.Client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found, err := list(ctx, a)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	slices.Sort(found)
	return slices.Compact(found), cobra.ShellCompDirectiveNoFileComp
}

// CompleteResources completes the first argument with the resources served.
func (f *Flags) CompleteResources(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.Complete(cmd, func(ctx context.Context, a *Client) ([]string, error) { return a.resourceNames(ctx) })
}

// CompleteKinds completes a flag's resources, whatever the arguments are.
func (f *Flags) CompleteKinds(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return f.CompleteResources(cmd, nil, typed)
}

// CompleteMembers completes names of members.
func (f *Flags) CompleteMembers(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return f.Complete(cmd, func(ctx context.Context, a *Client) ([]string, error) { return a.Members(ctx) })
}

// CompleteNamespaces completes names of namespaces.
func (f *Flags) CompleteNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return f.Complete(cmd, func(ctx context.Context, a *Client) ([]string, error) {
		return a.Names(ctx, a.Target+"/api/v1/namespaces", nil)
	})
}
