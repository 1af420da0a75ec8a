// Package verdict is what policies find: verdicts, violations and remedies, and how
// policies do.
package verdict

import (
	"fmt"

	"federator.dev/federator/pkg/aggregate"
)

// State says how far a verdict can be relied on.
type State uint8

// The states of a verdict.
const (
	Known   State = iota // all that it read was complete
	Unknown              // it read an incomplete scope: it may be otherwise
	Error                // there is no verdict
)

var verdictStates = []string{"Known", "Unknown", "Error"}

func (s State) String() string { return verdictStates[s] }

// MarshalText writes the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Verdict is all violations of one binding on one subject at one revision.
type Verdict struct {
	Binding    string      `json:"binding"`
	Subject    Subject     `json:"subject"`
	State      State       `json:"state"`
	Violations []Violation `json:"violations,omitempty"` // shared: not to be changed
	Gaps       []Gap       `json:"gaps,omitempty"`       // why it is Unknown, at most MaxGaps
	Message    string      `json:"message,omitempty"`    // why it is Error

	// Revision is that of the state in which it was last found to differ.
	Revision aggregate.Revision `json:"revision"`
}

// Clean reports whether the verdict has nothing to say.
func (v *Verdict) Clean() bool { return v.State != Error && len(v.Violations) == 0 }

// MaxGaps is how many gaps a verdict names.
const MaxGaps = 8

// Gap is an incomplete scope, or one of which an object could not contribute to a view:
// to what reads the view, it is Partial.
type Gap struct {
	Member  string          `json:"member"`
	Kind    aggregate.Kind  `json:"kind"`
	State   aggregate.State `json:"state"`
	Failure string          `json:"failure,omitempty"` // the view, the first such object, and why
}

// String returns the gap for messages.
func (g Gap) String() string {
	if g.Failure != "" {
		return g.Failure
	}
	return fmt.Sprintf("%s of %s is %s", g.Kind, g.Member, g.State)
}
