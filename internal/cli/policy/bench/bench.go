package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/cli/input"
	"federator.dev/federator/internal/cli/policy/evaluation"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/policyfiles"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/explain"
)

const help = `Measure what the evaluation of one subject costs, for each policy: time, documents
read in addition to the subject, and memory allocated. Input is manifests, a saved
snapshot, or clusters, which are only read. Evaluation uses one CPU.

With --compare, exits with 1 if a policy costs more than --factor times its cost in
the saved run. Reads and allocations do not depend on the machine.

  federator policy bench --snapshot fleet-before --save before.json
  federator policy bench --snapshot fleet-before --compare before.json --factor 1.5`

// options are the flags of `federator policy bench`.
type options struct {
	in            evaluation.Flags
	count         int
	save, compare string // files
	factor        float64
	output        string

	version string // of federator
}

func Command(version string) *cobra.Command {
	opts := options{in: evaluation.NewFlags(version), version: version}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what evaluations cost",
		Long:  help,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return exit.BadInput(run(cmd, &opts)) },
	}
	opts.in.Register(cmd.Flags())
	cmd.Flags().IntVar(&opts.count, "count", 5, "how many times each subject is evaluated")
	cmd.Flags().StringVar(&opts.save, "save", "", "`file` to save the run to")
	cmd.Flags().StringVar(&opts.compare, "compare", "", "`file` of a saved run to compare with")
	cmd.Flags().Float64Var(&opts.factor, "factor", 1.2, "fail if the cost exceeds this multiple of the saved one")
	cmd.Flags().StringVarP(&opts.output, "output", "o", "table", "table or json")
	return cmd
}

func (o *options) check() error {
	switch {
	case o.output != "table" && o.output != "json":
		return fmt.Errorf("--output %q is not table or json", o.output)
	case o.count <= 0:
		return errors.New("--count must be positive")
	case !(o.factor >= 1): // also if it is NaN
		return errors.New("--factor must be at least 1")
	}
	return nil
}

func run(cmd *cobra.Command, opts *options) error {
	if err := opts.check(); err != nil {
		return err
	}
	var before *result
	if opts.compare != "" {
		var err error
		if before, err = loadResult(opts.compare); err != nil {
			return err
		}
	}
	b, err := opts.in.Load(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	fleet, err := opts.in.Open(cmd, b)
	if err != nil {
		return err
	}
	m, err := measure(cmd.Context(), b, fleet, opts)
	if err != nil {
		return err
	}
	if opts.save != "" {
		if err := m.save(opts.save); err != nil {
			return err
		}
	}
	if opts.output == "json" {
		err = console.WriteJSON(cmd.OutOrStdout(), m)
	} else {
		err = m.write(cmd.OutOrStdout(), before)
	}
	if err != nil || before == nil {
		return err
	}
	if slower := m.slower(before, opts.factor); len(slower) > 0 {
		return exit.Findings("evaluations cost more than before:\n" + strings.Join(slower, "\n"))
	}
	return nil
}

// measure evaluates the subjects of each binding o.count times.
func measure(ctx context.Context, b *policyfiles.Bundle, fleet *input.Fleet, o *options) (*result, error) {
	opts := evaluation.Options(b, fleet.AsOf, o.in.Timeout)
	state, err := policy.Evaluate(ctx, opts, fleet.Snapshot)
	if err != nil {
		return nil, err
	}
	m := &result{Version: o.version, Taken: time.Now().UTC(), Policies: []cost{}}
	for scope := range fleet.Scopes("") {
		m.Objects += scope.Objects
	}
	for binding := range state.Bindings() {
		c, err := explain.Measure(ctx, opts, state, binding.Name, o.count)
		if err != nil {
			return nil, err
		}
		h, _ := state.Health(binding.Name)
		x := cost{Policy: binding.Name, Evaluations: c.Evaluations, NotCompiled: h.NotCompiled}
		if n := float64(c.Evaluations); n > 0 {
			x.Nanoseconds, x.Reads = float64(c.Nanoseconds)/n, float64(c.Reads)/n
			x.Allocations, x.Bytes = float64(c.Allocations)/n, float64(c.Bytes)/n
		}
		m.Policies = append(m.Policies, x)
	}
	return m, nil
}
