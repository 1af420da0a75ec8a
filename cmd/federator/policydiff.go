package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

const policyDiffHelp = `Print the violations that a change of policies adds and removes, on manifests, a
saved snapshot, or clusters, which are only read. Both are evaluated on one state.

  federator policy diff policies/ changed/ --snapshot fleet-before
  federator policy diff old/ new/ --new-bindings bindings.yaml --contexts dev --exit-code`

// diffOptions are the flags of `federator policy diff`.
type diffOptions struct {
	in       policyInput
	old, new string // files of bindings
	output   string
	fail     bool
}

func newPolicyDiffCommand() *cobra.Command {
	var opts diffOptions
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Print the violations that a change of policies adds and removes",
		Long:  policyDiffHelp,
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return badInput(runPolicyDiff(cmd, &opts, args[0], args[1]))
		},
	}
	opts.in.registerSource(cmd.Flags())
	cmd.Flags().StringVar(&opts.old, "old-bindings", "", "`file` of bindings of the old policies")
	cmd.Flags().StringVar(&opts.new, "new-bindings", "", "`file` of bindings of the new policies")
	cmd.Flags().StringVarP(&opts.output, "output", "o", "table", "table or json")
	cmd.Flags().BoolVar(&opts.fail, "exit-code", false, "exit with 1 when something is added")
	return cmd
}

func runPolicyDiff(cmd *cobra.Command, opts *diffOptions, before, after string) error {
	if opts.output != "table" && opts.output != "json" {
		return fmt.Errorf("--output %q is not table or json", opts.output)
	}
	var bundles [2]*bundle
	var err error
	for i, x := range []struct{ dir, bindings string }{{before, opts.old}, {after, opts.new}} {
		in := opts.in
		in.policies, in.bindings = []string{x.dir}, x.bindings
		if bundles[i], err = in.load(cmd.ErrOrStderr()); err != nil {
			return err
		}
	}
	fleet, err := opts.in.open(cmd, bundles[:]...)
	if err != nil {
		return err
	}
	var reports [2]*report
	for i, b := range bundles {
		if reports[i], _, err = b.evaluate(cmd.Context(), fleet, opts.in.budget); err != nil {
			return err
		}
	}
	d := diff(reports[0], reports[1])
	if err := d.write(cmd.OutOrStdout(), opts.output); err != nil {
		return err
	}
	if opts.fail && len(d.Added) > 0 {
		return &errFindings{text: plural(len(d.Added), "finding is", "findings are") + " added"}
	}
	return nil
}
