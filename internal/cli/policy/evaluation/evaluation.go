package evaluation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"federator.dev/federator/internal/cli/input"
	"federator.dev/federator/internal/cli/report"
	"federator.dev/federator/internal/policyfiles"
	"federator.dev/federator/pkg/policy"
)

// Flags are the flags that say which policies are evaluated, and on what.
type Flags struct {
	source   input.Flags
	Policies []string
	Bindings string
	External string
	only     []string
	Timeout  time.Duration
}

// NewFlags returns the flags; version is federator's own.
func NewFlags(version string) Flags { return Flags{source: input.Flags{Version: version}} }

func (in *Flags) Register(fs *pflag.FlagSet) {
	in.RegisterInput(fs)
	fs.StringArrayVar(&in.Policies, "policies", nil, "`directory` of policies (default the library that ships with federator)")
	fs.StringVar(&in.Bindings, "bindings", "", "`file` of bindings; a policy without one is evaluated everywhere")
	fs.StringArrayVar(&in.only, "policy", nil, "evaluate this `policy` only: a package or a binding")
}

// RegisterInput registers the flags that do not select policies.
func (in *Flags) RegisterInput(fs *pflag.FlagSet) {
	in.source.Register(fs)
	in.source.RegisterAsOf(fs)
	fs.DurationVar(&in.source.Timeout, "timeout", 5*time.Minute, "how long to wait for clusters; data that is missing then is incomplete")
	fs.StringVar(&in.External, "external", "", "`file` of data.fleet.external: YAML or JSON of source, key and document; verdicts that read others are Unknown")
	fs.DurationVar(&in.Timeout, "evaluation-timeout", 5*time.Second, "how long the evaluation of one subject may take")
}

// Load reads the policies and their bindings. Warnings go to stderr.
func (in *Flags) Load(stderr io.Writer) (*policyfiles.Bundle, error) {
	return in.load(stderr, nil)
}

// LoadAll is Load with the templates and constraints among the manifests, as "gator test"
// has them. They are instead of the library that ships with federator.
func (in *Flags) LoadAll(cmd *cobra.Command) (*policyfiles.Bundle, error) {
	own, err := in.source.Policies(cmd.InOrStdin(), in.Policies)
	if err != nil {
		return nil, err
	}
	return in.load(cmd.ErrOrStderr(), own)
}

// AsGatorTest has manifests be read and judged as "gator test" does, from standard input if
// nothing else is given.
func (in *Flags) AsGatorTest(cmd *cobra.Command) {
	in.source.AsGiven = true
	in.source.DefaultToStdin(cmd.Flags(), cmd.InOrStdin())
}

// load reads the policies, with those of more sources.
func (in *Flags) load(stderr io.Writer, own []policy.Source) (*policyfiles.Bundle, error) {
	if in.source.Timeout <= 0 || in.Timeout <= 0 {
		return nil, errors.New("--timeout and --evaluation-timeout must be positive")
	}
	sources := own
	if len(own) == 0 || len(in.Policies) > 0 {
		given, err := policyfiles.ReadSources(in.Policies)
		if err != nil {
			return nil, err
		}
		sources = append(given, own...)
	}
	set, expansions, err := policyfiles.LoadSources(sources, in.Policies)
	if err != nil {
		return nil, err
	}
	b, err := policyfiles.Bind(set, in.Bindings, in.only, stderr)
	if err != nil {
		return nil, err
	}
	b.Expansions = expansions
	if b.External, err = policyfiles.ReadExternal(in.External); err != nil {
		return nil, err
	}
	if missing := b.MissingExternal(); len(missing) > 0 {
		_, err = fmt.Fprintf(stderr, "warning: policies read external documents of %s: give them with --external FILE, or what reads them is Unknown\n", strings.Join(missing, ", "))
	}
	return b, err
}

// Options returns the options of an evaluation at a time.
func Options(b *policyfiles.Bundle, at time.Time, budget time.Duration) policy.EngineOptions {
	// No policy is quarantined for being slow: nothing else waits for it here.
	opts := policy.EngineOptions{Set: b.Set, AsOf: at, External: b.External, Limits: policy.Limits{Evaluation: budget, Slow: math.MaxInt64}}
	for _, binding := range b.Bindings {
		opts.Bindings = append(opts.Bindings, binding.At(at))
	}
	return opts
}

// Report evaluates a bundle on a fleet.
func Report(ctx context.Context, b *policyfiles.Bundle, fleet *input.Fleet, budget time.Duration) (*report.Report, *policy.State, error) {
	opts := Options(b, fleet.AsOf, budget)
	opts.Manifests = fleet.AsGiven
	state, err := policy.Evaluate(ctx, opts, fleet.Snapshot)
	if err != nil {
		return nil, nil, err
	}
	r, err := newReport(b, fleet, state)
	if err == nil && fleet.Manifests != nil {
		err = expand(ctx, b, fleet, budget, r)
	}
	return r, state, err
}

// Open reads the kinds that bundles read from the fleet that the flags name, and warns of
// those that are incomplete.
func (in *Flags) Open(cmd *cobra.Command, bundles ...*policyfiles.Bundle) (*input.Fleet, error) {
	var required input.Kinds
	for _, b := range bundles {
		kinds, open := b.Reads()
		required.Refs = append(required.Refs, kinds...)
		required.Open.Add(&open)
	}
	fleet, err := in.source.Open(cmd.Context(), cmd.Flags(), required, cmd.InOrStdin(), cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	return fleet, fleet.WarnIncomplete(cmd.ErrOrStderr(), required)
}
