package policy

import (
	"federator.dev/federator/pkg/policy/internal/binding"
)

// ErrBinding is a binding that cannot be used as it is written.
var ErrBinding = binding.ErrInvalid

// How policies are bound.
type (
	// Binding says where a policy applies, and with which parameters. Verdicts belong
	// to bindings.
	Binding = binding.Binding
	// Mode is what may come of a binding's violations. The engine only reports it.
	Mode = binding.Mode
	// MemberSelector selects members by name and by the labels of their Clusters. The
	// zero value selects all of them.
	MemberSelector = binding.MemberSelector
	// Match selects objects; of what it leaves out it selects everything.
	Match = binding.Match
	// Exemption says which subjects' violations are expected. They stay visible.
	Exemption = binding.Exemption
)

// The modes of a binding.
const (
	Observe = binding.Observe
	DryRun  = binding.DryRun
	Enforce = binding.Enforce
)

// ParseBindings reads the bindings of a YAML or JSON file, {bindings: […]}, and
// holds them to a set as ValidateBindings does. What is wrong is LoadErrors, at
// their lines; errors.Is(err, ErrBinding) is true of it.
func ParseBindings(set *Set, file string, data []byte) ([]Binding, error) {
	return binding.Parse(set, file, data)
}

// ValidateBindings holds bindings to the packages of a set: names are unique,
// packages are there, parameters are of their schemas, and nothing is said that means
// nothing for what a package judges. It returns copies with the defaults of parameters
// that are not given, or LoadErrors that are ErrBinding.
func ValidateBindings(set *Set, bindings []Binding) ([]Binding, error) {
	return binding.Validate(set, bindings)
}

// DefaultBindings returns a binding for each package that none of the bindings
// names: it observes everywhere. Packages that cannot do without parameters have
// none, and a warning instead; those that have views only have none.
func DefaultBindings(set *Set, bindings []Binding) ([]Binding, []Finding) {
	return binding.Defaults(set, bindings)
}
