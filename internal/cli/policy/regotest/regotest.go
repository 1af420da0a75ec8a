package regotest

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/policyfiles"
	"federator.dev/federator/pkg/policy/policytest"
)

const help = `Run the tests of policies.

Rego tests are the rules test_* in files *_test.rego. They run as with "opa test",
except that errors of builtins fail them. Fleet fixtures, *_fleet.yaml, define a fleet
of members, objects and incomplete scopes, and the verdicts expected for it. Each is
evaluated twice: at once, and incrementally, change by change.

Suites of Gatekeeper (test.gatekeeper.sh/v1alpha1) run as they are, with the files that
they name. A case that asks for what only an admission request has is skipped, with the
reason.

Exits with 0 if all tests pass, 1 if one fails or the coverage is below --threshold,
and 2 if policies or fixtures are invalid.

  federator policy test policies/
  federator policy test policies/ --run unique_host -v
  federator policy test gatekeeper-library/library/general
  federator policy test policies/ --threshold 90 -o junit > junit.xml`

// options are the flags of `federator policy test`.
type options struct {
	output     string
	run        string
	coverage   bool
	threshold  float64
	verbose    bool
	allowEmpty bool
	timeout    time.Duration
	seed       uint64
}

var formats = []string{"table", "json", "junit"}

func Command() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "test DIR...",
		Short: "Run the tests of policies",
		Long:  help,
		Args:  cobra.MinimumNArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return exit.BadInput(run(cmd, args, &opts)) },
	}
	fs := cmd.Flags()
	fs.StringVarP(&opts.output, "output", "o", "table", "table, json or junit")
	fs.StringVar(&opts.run, "run", "", "run the tests whose names match this `regexp`")
	fs.BoolVar(&opts.coverage, "coverage", false, "report how much of the policies the Rego tests evaluate, and suites of the templates")
	fs.Float64Var(&opts.threshold, "threshold", 0, "fail if the coverage is below this `percent`")
	fs.BoolVarP(&opts.verbose, "verbose", "v", false, "also list the tests that pass, and what they print")
	fs.BoolVar(&opts.allowEmpty, "allow-empty", false, "accept a directory without tests")
	fs.DurationVar(&opts.timeout, "timeout", 5*time.Second, "how long a test may take")
	fs.Uint64Var(&opts.seed, "seed", 1, "`seed` of the order in which changes of fixtures are applied")
	return cmd
}

func (o *options) check() (policytest.Options, error) {
	out := policytest.Options{Coverage: o.coverage || o.threshold > 0, Print: true, Timeout: o.timeout, Seed: o.seed}
	switch {
	case !slices.Contains(formats, o.output):
		return out, fmt.Errorf("--output %q is not %s", o.output, strings.Join(formats, ", "))
	case o.threshold < 0 || o.threshold > 100:
		return out, fmt.Errorf("--threshold %v is not a percentage", o.threshold)
	case o.timeout <= 0:
		return out, errors.New("--timeout must be positive")
	case o.seed == 0:
		return out, errors.New("--seed must be positive")
	}
	if o.run != "" {
		var err error
		if out.Run, err = regexp.Compile(o.run); err != nil {
			return out, fmt.Errorf("--run: %w", err)
		}
	}
	return out, nil
}

func run(cmd *cobra.Command, dirs []string, opts *options) error {
	options, err := opts.check()
	if err != nil {
		return err
	}
	r := results{Seed: opts.seed, Cases: []policytest.Case{}}
	for _, dir := range dirs {
		if err := r.add(cmd, dir, options, opts.allowEmpty); err != nil {
			return err
		}
	}
	if opts.run != "" && len(r.Cases) == 0 && r.found > 0 {
		return fmt.Errorf("no test matches --run %q", opts.run)
	}
	r.finish()
	if err := r.write(cmd.OutOrStdout(), opts.output, opts.verbose); err != nil {
		return err
	}
	return r.verdict(opts.threshold)
}

// add runs the tests of one directory.
func (r *results) add(cmd *cobra.Command, dir string, options policytest.Options, allowEmpty bool) error {
	tree, name, err := policyfiles.OpenDir(dir)
	if err != nil {
		return err
	}
	options.Name = name
	one, err := policytest.Run(cmd.Context(), tree.FS(), options)
	if err := errors.Join(ignore(err, policytest.ErrNoTests, allowEmpty), tree.Close()); err != nil {
		if errors.Is(err, policytest.ErrNoTests) {
			return fmt.Errorf("%s: %w", dir, err)
		}
		return err
	}
	r.found += one.Total
	r.Cases = append(r.Cases, one.Cases...)
	if c := one.Coverage; c != nil {
		if r.Coverage == nil {
			r.Coverage = &policytest.Coverage{}
		}
		r.Coverage.Add(c)
	}
	return nil
}

// ignore drops an error if yes is true and it is the given one.
func ignore(err, target error, yes bool) error {
	if yes && errors.Is(err, target) {
		return nil
	}
	return err
}

// results are the outcomes of the tests.
type results struct {
	Passed   int                  `json:"passed"`
	Failed   int                  `json:"failed"`
	Errors   int                  `json:"errors"`
	Skipped  int                  `json:"skipped"`
	Seed     uint64               `json:"seed"`
	Cases    []policytest.Case    `json:"cases"`
	Coverage *policytest.Coverage `json:"coverage,omitempty"`

	found int
}

func (r *results) finish() {
	slices.SortStableFunc(r.Cases, func(a, b policytest.Case) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Name, b.Name))
	})
	for i := range r.Cases {
		switch r.Cases[i].Outcome {
		case policytest.Passed:
			r.Passed++
		case policytest.Failed:
			r.Failed++
		case policytest.Errored:
			r.Errors++
		case policytest.Skipped:
			r.Skipped++
		}
	}
}

// verdict returns an error if a test failed or the coverage is below the threshold.
func (r *results) verdict(threshold float64) error {
	var parts []string
	if r.Failed > 0 {
		parts = append(parts, console.Plural(r.Failed, "test failed", "tests failed"))
	}
	if r.Errors > 0 {
		parts = append(parts, console.Plural(r.Errors, "test could not be evaluated", "tests could not be evaluated"))
	}
	if threshold > 0 && r.Coverage.Percent < threshold {
		parts = append(parts, fmt.Sprintf("%.1f%% of the lines are covered, less than %v%%", r.Coverage.Percent, threshold))
	}
	if len(parts) == 0 {
		return nil
	}
	return exit.Findings(strings.Join(parts, "; "))
}
