package policy

import (
	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/policy/bench"
	"federator.dev/federator/internal/cli/policy/docs"
	"federator.dev/federator/internal/cli/policy/explain"
	"federator.dev/federator/internal/cli/policy/history"
	"federator.dev/federator/internal/cli/policy/preview"
	"federator.dev/federator/internal/cli/policy/regotest"
)

func Command(version string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Develop, test and evaluate policies",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(checkCommand(version), lintCommand(version), explain.Command(version), diffCommand(version), bench.Command(version))
	cmd.AddCommand(regotest.Command(), formatCommand(), docs.Command(), history.Command(version), preview.Command(version))
	return cmd
}
