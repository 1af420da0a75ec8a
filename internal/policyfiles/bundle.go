package policyfiles

import (
	"fmt"
	"io"
	"slices"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/pkg/policy"
)

// Bundle is policies and their bindings.
type Bundle struct {
	Set      *policy.Set
	Bindings []policy.Binding
	// Expansions are those beside the policies; nil: none.
	Expansions *Expansions
	// External are the documents from outside the fleet.
	External *policy.External
}

// Bind reads the bindings in a file and adds default bindings for policies without one.
// only, unless empty, restricts the result to packages and bindings of these names.
func Bind(set *policy.Set, file string, only []string, stderr io.Writer) (*Bundle, error) {
	var bindings []policy.Binding
	if file != "" {
		data, err := config.ReadFile(file)
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
	return &Bundle{Set: set, Bindings: bindings}, nil
}

// Reads returns the kinds that the bound policies read one by one, and those that they name
// by a wildcard.
func (b *Bundle) Reads() (kinds []policy.KindRef, open policy.KindSet) {
	add := func(p *policy.Package) {
		of := p.Evaluates()
		of.Kinds = nil // they are among kinds
		open.Add(of)
	}
	for _, binding := range b.Bindings {
		p := b.Set.Package(binding.Package)
		kinds = slices.Concat(kinds, p.KindsRead())
		add(p)
		for _, v := range p.Reads.Views {
			kinds = append(kinds, b.Set.Package(v.Package).Kinds...)
			add(b.Set.Package(v.Package))
		}
	}
	return kinds, open
}
