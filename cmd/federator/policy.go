package main

import "github.com/spf13/cobra"

func newPolicyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Write, test and try policies",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPolicyCheckCommand(), newPolicyLintCommand(), newPolicyExplainCommand(), newPolicyDiffCommand(), newPolicyBenchCommand())
	cmd.AddCommand(newPolicyTestCommand(), newPolicyFmtCommand(), newPolicyDocsCommand())
	return cmd
}
