package main

import (
	"github.com/spf13/cobra"
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
	root.AddCommand(
		newServeCommand(), newMembersCommand(), newQueryCommand(), newSnapshotCommand(), newVersionCommand(),
		newKubeconfigCommand(), newCountCommand(), newTreeCommand(), newViolationsCommand(), newPolicyCommand(), newActionsCommand(), newExecPluginCommand(),
	)
	return root
}
