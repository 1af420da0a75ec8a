package policy

import (
	"federator.dev/federator/pkg/policy/internal/binding"
)

// ErrBinding is a binding that cannot be used as it is written.
var ErrBinding = binding.ErrInvalid

// Bindings of policies.
type (
	// Binding says where a policy applies, and with which parameters. Verdicts belong
	// to bindings.
	Binding = binding.Binding
	// Next is a version of a policy that is to take the place of another.
	Next = binding.Next
	// Mode is what may be done about a binding's violations. The engine only reports
	// it.
	Mode = binding.Mode
	// MemberSelector selects members by name and by the labels of their Clusters. The
	// zero value selects all of them.
	MemberSelector = binding.MemberSelector
	// Match selects objects; an empty field selects everything.
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
// validates them as ValidateBindings does. Its errors are LoadErrors with their lines,
// and ErrBinding.
func ParseBindings(set *Set, file string, data []byte) ([]Binding, error) {
	return binding.Parse(set, file, data)
}

// ValidateBindings checks bindings against the packages of a set: names are unique,
// packages exist, parameters match their schemas, and no field is set that has no effect
// for the package's subjects. It returns copies with the defaults of missing parameters,
// or LoadErrors that are ErrBinding.
func ValidateBindings(set *Set, bindings []Binding) ([]Binding, error) {
	return binding.Validate(set, bindings)
}

// DefaultBindings returns a binding for each package of which none of the bindings
// names a version: it observes everywhere. Packages that require parameters get a
// warning instead of a binding; packages with views only get neither.
func DefaultBindings(set *Set, bindings []Binding) ([]Binding, []Finding) {
	return binding.Defaults(set, bindings)
}

// FirstBindings returns a binding for each package and constraint that none of the bindings names, and that DefaultBindings has
// only once the candidate beside the active packages is active: it observes everywhere.
func FirstBindings(set *Set, bindings []Binding) []Binding { return binding.Firsts(set, bindings) }
