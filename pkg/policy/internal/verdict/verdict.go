// Package verdict holds the results of policies: verdicts, violations and remedies, and
// the health of policies.
package verdict

import (
	"fmt"

	"federator.dev/federator/pkg/aggregate"
)

// State says how reliable a verdict is.
type State uint8

// The states of a verdict.
const (
	Known   State = iota // all that it read was complete
	Unknown              // it read an incomplete scope and may be wrong
	Error                // there is no verdict
)

var verdictStates = []string{"Known", "Unknown", "Error"}

func (s State) String() string { return verdictStates[s] }

// MarshalText writes the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Verdict is all violations of one binding on one subject at one revision.
type Verdict struct {
	Binding    string      `json:"binding"`
	Version    string      `json:"version,omitempty"` // of the policy: the start of a digest
	Subject    Subject     `json:"subject"`
	State      State       `json:"state"`
	Violations []Violation `json:"violations,omitempty"` // shared: not to be changed
	Gaps       []Gap       `json:"gaps,omitempty"`       // why it is Unknown, at most MaxGaps
	Message    string      `json:"message,omitempty"`    // why it is Error
	FirstSeen  Times       `json:"-"`                    // when each violation was; of an Error of its own, since when it is one

	// Revision is that of the state in which the verdict last changed.
	Revision aggregate.Revision `json:"revision"`
}

// Clean reports whether the verdict has neither violations nor an error.
func (v *Verdict) Clean() bool { return v.State != Error && len(v.Violations) == 0 }

// MaxGaps is how many gaps a verdict names.
const MaxGaps = 8

// Gap is an incomplete scope, or one with an object whose contribution to a view failed:
// to readers of the view, it is Partial.
type Gap struct {
	Member  string          `json:"member"`
	Kind    aggregate.Kind  `json:"kind"`
	State   aggregate.State `json:"state"`
	Failure string          `json:"failure,omitempty"` // the view, the first such object, and why
	Reason  string          `json:"reason,omitempty"`  // why it is Unknown although another process reads it
	Partly  bool            `json:"-"`                 // some of it was not read by this process
}

// Unread reports whether this process has not read a scope that it may read.
func (g Gap) Unread() bool {
	return g.Failure == "" && !aggregate.Status{State: g.State, Unread: g.Partly}.Read()
}

// String returns the gap for messages.
func (g Gap) String() string {
	if g.Failure != "" {
		return g.Failure
	}
	if g.Reason != "" {
		return fmt.Sprintf("%s of %s is %s: %s", g.Kind, g.Member, g.State, g.Reason)
	}
	return fmt.Sprintf("%s of %s is %s", g.Kind, g.Member, g.State)
}
