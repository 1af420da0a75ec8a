package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const policyCheckHelp = `Evaluate policies on manifests, a saved snapshot, or clusters, which are only read.

Of clusters the kinds that the policies read are followed until all is there, or
until --timeout; what is missing then makes verdicts Unknown, and is said. A
policy that no binding names is evaluated everywhere with its own parameters.

Exits with 0 when nothing is found, 1 when there are violations of at least the
severity of --fail-on, 2 when the input is no good, and 3 when there are none but
verdicts are not known or policies have failed.

  federator policy check -f manifests/
  federator policy check --policies policies/ --contexts dev,staging --fail-on high
  federator policy check --snapshot fleet-before --bindings bindings.yaml -o sarif`

// checkOptions are the flags of `federator policy check`.
type checkOptions struct {
	in       policyInput
	output   string
	failOn   string
	unknowns bool
}

func newPolicyCheckCommand() *cobra.Command {
	var opts checkOptions
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Evaluate policies on manifests, a snapshot or clusters",
		Long:  policyCheckHelp,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return badInput(runPolicyCheck(cmd, &opts)) },
	}
	opts.in.register(cmd.Flags())
	cmd.Flags().StringVarP(&opts.output, "output", "o", "table", "table, json, sarif or junit")
	cmd.Flags().StringVar(&opts.failOn, "fail-on", severities[0], "least `severity` to fail for: low, medium, high, critical, or none to never fail")
	cmd.Flags().BoolVar(&opts.unknowns, "allow-unknown", false, "do not fail for verdicts that are not known")
	return cmd
}

func runPolicyCheck(cmd *cobra.Command, opts *checkOptions) error {
	if !slices.Contains(formats, opts.output) {
		return fmt.Errorf("--output %q is not %s", opts.output, strings.Join(formats, ", "))
	}
	if opts.failOn != failNever && !slices.Contains(severities, opts.failOn) {
		return fmt.Errorf("--fail-on %q is not %s or %s", opts.failOn, strings.Join(severities, ", "), failNever)
	}
	b, err := opts.in.load(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	fleet, err := opts.in.open(cmd, b)
	if err != nil {
		return err
	}
	r, _, err := b.evaluate(cmd.Context(), fleet, opts.in.budget)
	if err != nil {
		return err
	}
	if err := r.write(cmd.OutOrStdout(), opts.output); err != nil {
		return err
	}
	return r.verdict(opts.failOn, !opts.unknowns)
}
