package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/policy/evaluation"
	"federator.dev/federator/internal/cli/report"
	"federator.dev/federator/internal/exit"
)

const checkHelp = `Evaluate policies on manifests, a saved snapshot, or clusters, which are only read.

From clusters, the kinds that the policies read are listed until all members have
synced or --timeout has passed; verdicts that depend on missing data are Unknown, and
what is missing is reported. A policy without a binding is evaluated everywhere with
its default parameters.

Exits with 0 if no policy of at least the severity --fail-on has findings, 1 if one has
violations, 2 if the input is invalid, and 3 if none has violations, but verdicts are
unknown or evaluations failed. As with "gator test", a constraint of Gatekeeper only
counts if its enforcementAction is deny, and a ValidatingAdmissionPolicyBinding if its
validationActions have Deny; templates, constraints and ExpansionTemplates among the
manifests are evaluated (instead of the library that ships with federator), and what
ExpansionTemplates generate is evaluated too. With -o gator, gator-json and gator-yaml
manifests are judged in all as "gator test" does, and all failures exit with 1.

  federator policy check -f manifests/
  federator policy check --policies policies/ --contexts dev,staging --fail-on high
  federator policy check -f manifests/ --policies gatekeeper-library/ -o gator
  federator policy check --snapshot fleet-before --bindings bindings.yaml -o sarif`

// checkOptions are the flags of `federator policy check`.
type checkOptions struct {
	in           evaluation.Flags
	output       string
	failOn       string
	allowUnknown bool
	denyOnly     bool
}

func checkCommand(version string) *cobra.Command {
	opts := checkOptions{in: evaluation.NewFlags(version)}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Evaluate policies on manifests, a snapshot or clusters",
		Long:  checkHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := check(cmd, &opts, version)
			if err != nil && report.IsGator(opts.output) {
				return exit.WithCode(err, exit.CodeFindings) // gator has no other
			}
			return exit.BadInput(err)
		},
	}
	opts.in.Register(cmd.Flags())
	cmd.Flags().StringVarP(&opts.output, "output", "o", "table", "table, json, sarif or junit; gator, gator-json and gator-yaml write the violations of constraints as \"gator test\" does")
	cmd.Flags().StringVar(&opts.failOn, "fail-on", report.Severities[0], "minimum `severity` to fail for: low, medium, high, critical, or none to never fail")
	cmd.Flags().BoolVar(&opts.allowUnknown, "allow-unknown", false, "do not fail for unknown verdicts")
	cmd.Flags().BoolVar(&opts.denyOnly, "deny-only", false, "write what constraints deny only, in the formats of gator")
	return cmd
}

func check(cmd *cobra.Command, opts *checkOptions, version string) error {
	if !slices.Contains(report.Formats, opts.output) {
		return fmt.Errorf("--output %q is not %s", opts.output, strings.Join(report.Formats, ", "))
	}
	if opts.failOn != report.FailNever && !slices.Contains(report.Severities, opts.failOn) {
		return fmt.Errorf("--fail-on %q is not %s or %s", opts.failOn, strings.Join(report.Severities, ", "), report.FailNever)
	}
	if report.IsGator(opts.output) {
		opts.in.AsGatorTest(cmd)
	}
	b, err := opts.in.LoadAll(cmd)
	if err != nil {
		return err
	}
	fleet, err := opts.in.Open(cmd, b)
	if err != nil {
		return err
	}
	r, _, err := evaluation.Report(cmd.Context(), b, fleet, opts.in.Timeout)
	if err != nil {
		return err
	}
	for _, w := range r.Warnings {
		if _, err := fmt.Fprintln(cmd.ErrOrStderr(), w); err != nil {
			return err
		}
	}
	r.DenyOnly = opts.denyOnly
	if err := r.Write(cmd.OutOrStdout(), opts.output, version); err != nil {
		return err
	}
	return r.Check(opts.failOn, !opts.allowUnknown)
}
