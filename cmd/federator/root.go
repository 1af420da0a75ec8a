package main

import (
	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/actions"
	"federator.dev/federator/internal/cli/agent"
	"federator.dev/federator/internal/cli/audit"
	"federator.dev/federator/internal/cli/count"
	"federator.dev/federator/internal/cli/export"
	"federator.dev/federator/internal/cli/history"
	"federator.dev/federator/internal/cli/kept"
	"federator.dev/federator/internal/cli/kubeconfig"
	"federator.dev/federator/internal/cli/mcp"
	"federator.dev/federator/internal/cli/members"
	"federator.dev/federator/internal/cli/policy"
	"federator.dev/federator/internal/cli/query"
	"federator.dev/federator/internal/cli/snapshot"
	"federator.dev/federator/internal/cli/tree"
	"federator.dev/federator/internal/cli/ui"
	"federator.dev/federator/internal/cli/violations"
	"federator.dev/federator/internal/execplugin"
)

// newCommand returns the command tree. Errors are returned, not printed.
func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "federator",
		Short:         "One index over the objects of a fleet of clusters",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	v := version()
	root.AddCommand(
		newServeCommand(), newVersionCommand(),
		members.Command(v), query.Command(v), snapshot.Command(v), kubeconfig.Command(v), count.Command(v), export.Command(v), tree.Command(v),
		audit.Command(), violations.Command(v), history.Command(v), policy.Command(v), actions.Command(v), ui.Command(v), mcp.Command(v), kept.Command(), agent.Command(v), execplugin.Command(),
	)
	return root
}
