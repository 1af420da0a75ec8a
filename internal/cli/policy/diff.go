package policy

import (
	"fmt"

	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/cli/policy/evaluation"
	"federator.dev/federator/internal/cli/report"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/policyfiles"
)

const diffHelp = `Print the violations that a change of policies adds and removes, on manifests, a
saved snapshot, or clusters, which are only read. Both versions are evaluated on the
same state.

  federator policy diff policies/ changed/ --snapshot fleet-before
  federator policy diff old/ new/ --new-bindings bindings.yaml --contexts dev --exit-code`

// diffOptions are the flags of `federator policy diff`.
type diffOptions struct {
	in       evaluation.Flags
	old, new string // files of bindings
	output   string
	fail     bool
}

func diffCommand(version string) *cobra.Command {
	opts := diffOptions{in: evaluation.NewFlags(version)}
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Print the violations that a change of policies adds and removes",
		Long:  diffHelp,
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return exit.BadInput(runDiff(cmd, &opts, args[0], args[1]))
		},
	}
	opts.in.RegisterInput(cmd.Flags())
	cmd.Flags().StringVar(&opts.old, "old-bindings", "", "`file` of bindings of the old policies")
	cmd.Flags().StringVar(&opts.new, "new-bindings", "", "`file` of bindings of the new policies")
	cmd.Flags().StringVarP(&opts.output, "output", "o", "table", "table or json")
	cmd.Flags().BoolVar(&opts.fail, "exit-code", false, "exit with 1 if results are added")
	return cmd
}

func runDiff(cmd *cobra.Command, opts *diffOptions, before, after string) error {
	if opts.output != "table" && opts.output != "json" {
		return fmt.Errorf("--output %q is not table or json", opts.output)
	}
	var bundles [2]*policyfiles.Bundle
	var err error
	for i, x := range []struct{ dir, bindings string }{{before, opts.old}, {after, opts.new}} {
		in := opts.in
		in.Policies, in.Bindings = []string{x.dir}, x.bindings
		if bundles[i], err = in.Load(cmd.ErrOrStderr()); err != nil {
			return err
		}
	}
	fleet, err := opts.in.Open(cmd, bundles[:]...)
	if err != nil {
		return err
	}
	var reports [2]*report.Report
	for i, b := range bundles {
		if reports[i], _, err = evaluation.Report(cmd.Context(), b, fleet, opts.in.Timeout); err != nil {
			return err
		}
	}
	d := report.Compare(reports[0], reports[1])
	if err := d.Write(cmd.OutOrStdout(), opts.output); err != nil {
		return err
	}
	if opts.fail && len(d.Added) > 0 {
		return exit.Findings(console.Plural(len(d.Added), "finding is", "findings are") + " added")
	}
	return nil
}
