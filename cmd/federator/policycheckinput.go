package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/policies"
)

// policyInput are the flags that say which policies are evaluated, and on what.
type policyInput struct {
	source   sourceFlags
	policies []string
	bindings string
	only     []string
	budget   time.Duration
}

func (in *policyInput) register(fs *pflag.FlagSet) {
	in.registerSource(fs)
	fs.StringArrayVar(&in.policies, "policies", nil, "`directory` of policies (default those that come with federator)")
	fs.StringVar(&in.bindings, "bindings", "", "`file` of bindings; a policy without one is evaluated everywhere")
	fs.StringArrayVar(&in.only, "policy", nil, "evaluate this `policy` only: a package or a binding")
}

// registerSource registers what does not say which policies.
func (in *policyInput) registerSource(fs *pflag.FlagSet) {
	in.source.register(fs)
	fs.DurationVar(&in.source.timeout, "timeout", 5*time.Minute, "how long to wait for clusters; what is missing then is not known")
	fs.DurationVar(&in.budget, "evaluation-timeout", 5*time.Second, "how long the evaluation of one subject may take")
}

// bundle is policies with what they are bound to.
type bundle struct {
	set      *policy.Set
	bindings []policy.Binding
}

// load reads the policies and their bindings. Warnings go to stderr.
func (in *policyInput) load(stderr io.Writer) (*bundle, error) {
	if in.source.timeout <= 0 || in.budget <= 0 {
		return nil, errors.New("--timeout and --evaluation-timeout must be positive")
	}
	set, err := readPolicies(in.policies)
	if err != nil {
		return nil, err
	}
	return bindPolicies(set, in.bindings, in.only, stderr)
}

// readPolicies loads the policies in directories, or those that come with federator
// when there is none.
func readPolicies(dirs []string) (*policy.Set, error) {
	sources, err := readSources(dirs)
	if err != nil {
		return nil, err
	}
	set, err := policy.Load(sources, policy.LoadOptions{})
	if err != nil {
		return nil, err
	}
	if len(set.Packages) == 0 {
		return nil, fmt.Errorf("there is no policy in %s", strings.Join(dirs, ", "))
	}
	return set, nil
}

func readSources(dirs []string) ([]policy.Source, error) {
	if len(dirs) == 0 {
		library, err := policy.ReadSource("policies", policies.FS)
		return []policy.Source{library}, err
	}
	sources := make([]policy.Source, 0, len(dirs))
	for _, dir := range dirs {
		s, err := readDirectory(dir)
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// readDirectory reads the policies in a directory. Symbolic links that leave it are
// not followed.
func readDirectory(dir string) (s policy.Source, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return s, err
	}
	if !info.IsDir() {
		return s, &fs.PathError{Op: "read policies", Path: dir, Err: errors.New("not a directory")}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	name := filepath.ToSlash(filepath.Clean(dir))
	if name == "." {
		name = ""
	}
	return policy.ReadSource(name, root.FS())
}

// bindPolicies reads the bindings in a file, and gives policies that have none
// their own. only narrows both.
func bindPolicies(set *policy.Set, file string, only []string, stderr io.Writer) (*bundle, error) {
	var bindings []policy.Binding
	if file != "" {
		data, err := readBounded(file)
		if err != nil {
			return nil, fmt.Errorf("bindings: %w", err)
		}
		if bindings, err = policy.ParseBindings(set, file, data); err != nil {
			return nil, err
		}
	}
	own, warnings := policy.DefaultBindings(set, bindings)
	bindings = append(bindings, own...)
	if len(only) > 0 {
		named := func(b policy.Binding, name string) bool { return b.Name == name || b.Package == name }
		for _, name := range only {
			switch {
			case slices.ContainsFunc(bindings, func(b policy.Binding) bool { return named(b, name) }):
			case set.Package(name) != nil:
				return nil, fmt.Errorf("--policy %s cannot be evaluated:\n%w", name, policy.LoadErrors(warnings))
			default:
				return nil, fmt.Errorf("--policy %q is neither a package nor a binding", name)
			}
		}
		bindings = slices.DeleteFunc(bindings, func(b policy.Binding) bool {
			return !slices.ContainsFunc(only, func(name string) bool { return named(b, name) })
		})
		warnings = nil // of others
	}
	if len(bindings) == 0 {
		return nil, fmt.Errorf("no policy can be evaluated:\n%w", policy.LoadErrors(warnings))
	}
	for _, w := range warnings {
		if _, err := fmt.Fprintln(stderr, w); err != nil {
			return nil, err
		}
	}
	return &bundle{set: set, bindings: bindings}, nil
}

// wants are the kinds that the bound policies read.
func (b *bundle) wants() wanted {
	var w wanted
	read := func(p *policy.Package) {
		w.kinds = slices.Concat(w.kinds, p.Kinds, p.Reads.ByName, p.Reads.Objects)
		w.every = w.every || p.AnyKind
	}
	for _, binding := range b.bindings {
		p := b.set.Package(binding.Package)
		read(p)
		for _, v := range p.Reads.Views {
			w.kinds = append(w.kinds, b.set.Package(v.Package).Kinds...)
			w.every = w.every || b.set.Package(v.Package).AnyKind
		}
	}
	return w
}

// options are those of an evaluation at a time.
func (b *bundle) options(at time.Time, budget time.Duration) policy.EngineOptions {
	// Nobody waits for what is slow here.
	opts := policy.EngineOptions{Set: b.set, Limits: policy.Limits{Evaluation: budget, Slow: math.MaxInt64}}
	for _, binding := range b.bindings {
		opts.Bindings = append(opts.Bindings, binding.At(at))
	}
	return opts
}

// evaluate evaluates a bundle on a fleet.
func (b *bundle) evaluate(ctx context.Context, fleet *opened, budget time.Duration) (*report, *policy.State, error) {
	state, err := policy.Evaluate(ctx, b.options(fleet.asOf, budget), fleet.Snapshot)
	if err != nil {
		return nil, nil, err
	}
	r, err := b.report(fleet, state)
	return r, state, err
}

// open opens the fleet that the flags name, for what bundles read, and says what of
// it is not known.
func (in *policyInput) open(cmd *cobra.Command, bundles ...*bundle) (*opened, error) {
	var want wanted
	for _, b := range bundles {
		w := b.wants()
		want.kinds = append(want.kinds, w.kinds...)
		want.every = want.every || w.every
	}
	fleet, err := in.source.open(cmd.Context(), cmd.Flags(), want, cmd.InOrStdin(), cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	return fleet, fleet.warnIncomplete(cmd.ErrOrStderr(), want)
}
