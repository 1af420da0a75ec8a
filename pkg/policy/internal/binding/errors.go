package binding

import (
	"cmp"
	"slices"

	"federator.dev/federator/pkg/policy/internal/module"
)

// bindingFinding is a finding about one of several bindings.
type bindingFinding struct {
	module.Finding
	binding int
	path    string // of what is wrong, within the binding
}

type bindingFindings []bindingFinding

func (b bindingFindings) findings() []module.Finding {
	var out []module.Finding
	for _, x := range b {
		out = append(out, x.Finding)
	}
	return out
}

// bindingError are Errors that are also ErrInvalid.
type bindingError struct{ module.Errors }

func (bindingError) Is(target error) bool { return target == ErrInvalid }

func (e bindingError) Unwrap() error { return e.Errors }

func asError(list []module.Finding) error {
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b module.Finding) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col)) })
	return bindingError{list}
}
