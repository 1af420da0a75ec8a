package compiled

import (
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/policy/internal/value"
)

// Data is what programs read below data other than rules.
type Data interface {
	// Read returns the document at a path below data, undefined if there is none. It is
	// asked once for each path of an evaluation.
	Read(path []string) (value.Value, error)
}

// Input is what an evaluation is of.
type Input struct {
	Input  value.Value // undefined: there is none
	Data   Data
	Cancel topdown.Cancel
}
