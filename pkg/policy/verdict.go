package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"federator.dev/federator/pkg/aggregate"
)

// Subject is what a verdict is about: an object, a member or a key of a view.
// Which of them, the package says.
type Subject struct {
	Ref aggregate.Ref `json:"ref,omitzero"` // of a member only Member is set
	Key string        `json:"key,omitempty"`
}

// String returns the subject for messages.
func (s Subject) String() string {
	switch {
	case s.Ref.Kind != "":
		return s.Ref.String()
	case s.Ref.Member != "":
		return s.Ref.Member
	}
	return fmt.Sprintf("%q", s.Key)
}

// Compare orders subjects by member, kind, namespace, name and key.
func (s Subject) Compare(o Subject) int {
	return cmp.Or(
		cmp.Compare(s.Ref.Member, o.Ref.Member), cmp.Compare(s.Ref.Kind, o.Ref.Kind),
		cmp.Compare(s.Ref.Namespace, o.Ref.Namespace), cmp.Compare(s.Ref.Name, o.Ref.Name),
		cmp.Compare(s.Key, o.Key))
}

// VerdictState says how far a verdict can be relied on.
type VerdictState uint8

// The states of a verdict.
const (
	Known   VerdictState = iota // all that it read was complete
	Unknown                     // it read an incomplete scope: it may be otherwise
	Error                       // there is no verdict
)

var verdictStates = []string{"Known", "Unknown", "Error"}

func (s VerdictState) String() string { return verdictStates[s] }

// MarshalText writes the state's name.
func (s VerdictState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Verdict is all violations of one binding on one subject at one revision.
type Verdict struct {
	Binding    string       `json:"binding"`
	Subject    Subject      `json:"subject"`
	State      VerdictState `json:"state"`
	Violations []Violation  `json:"violations,omitempty"` // shared: not to be changed
	Gaps       []Gap        `json:"gaps,omitempty"`       // why it is Unknown, at most MaxGaps
	Message    string       `json:"message,omitempty"`    // why it is Error

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

// Violation is one finding.
type Violation struct {
	Msg     string          `json:"msg"`
	Details json.RawMessage `json:"details,omitempty"` // JSON
	Remedy  *Remedy         `json:"remedy,omitempty"`
	Exempt  string          `json:"exempt,omitempty"` // the reason why it is expected; "" when it is not
}

// Remedy is the change that a violation proposes.
type Remedy struct {
	Action string          `json:"action"` // apply, patch or delete
	Target aggregate.Ref   `json:"target"`
	Object json.RawMessage `json:"object,omitempty"` // of apply
	Patch  json.RawMessage `json:"patch,omitempty"`  // of patch: JSON Patch as an array, else JSON Merge Patch

	// Propagation of delete: Background, Foreground or Orphan; "" is the kind's own.
	Propagation string `json:"propagationPolicy,omitempty"`
}

func sameViolations(a, b []Violation) bool {
	return slices.EqualFunc(a, b, func(a, b Violation) bool {
		return a.Msg == b.Msg && a.Exempt == b.Exempt && string(a.Details) == string(b.Details) && sameRemedy(a.Remedy, b.Remedy)
	})
}

func sameRemedy(a, b *Remedy) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Action == b.Action && a.Target == b.Target && string(a.Object) == string(b.Object) && string(a.Patch) == string(b.Patch) && a.Propagation == b.Propagation
}

// Counts are the verdicts of a binding, of one member or of all. Known, Unknown
// and Errors are verdicts and sum up to all of them; the other two are violations
// of verdicts that are not Errors.
type Counts struct {
	Known      int `json:"known"`
	Unknown    int `json:"unknown"`
	Errors     int `json:"errors"`
	Violations int `json:"violations"` // exempt ones not included
	Exempt     int `json:"exempt"`
}

func (c *Counts) add(o Counts) {
	c.Known += o.Known
	c.Unknown += o.Unknown
	c.Errors += o.Errors
	c.Violations += o.Violations
	c.Exempt += o.Exempt
}

// Health is how a binding's policy does.
type Health struct {
	Evaluations int64        `json:"evaluations"`
	Nanoseconds int64        `json:"nanoseconds"`           // spent evaluating
	Overruns    int64        `json:"overruns"`              // evaluations that exceeded their budget
	Errors      int64        `json:"errors"`                // evaluations that failed, overruns included
	Wide        int64        `json:"wide"`                  // reads of a whole view, kind or member, which every change of it repeats
	Quarantines []Quarantine `json:"quarantines,omitempty"` // members for which it is not evaluated for a while
	Views       string       `json:"views,omitempty"`       // a view that it reads and that holds too much: verdicts that read it are Errors

	// Failures are scopes of which an object could not contribute to a view that the
	// policy reads, of members that it sees and does not tolerate: at most MaxGaps.
	// Verdicts that read the view are Unknown.
	Failures []Gap `json:"failures,omitempty"`
}

// Trouble says what keeps verdicts from being Known that is no fault of their scopes,
// and what ends it; "" is nothing.
func (h *Health) Trouble() string {
	var parts []string
	for i, q := range h.Quarantines {
		if i == MaxGaps {
			parts = append(parts, fmt.Sprintf("and %d more members are quarantined", len(h.Quarantines)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("member %q is quarantined: %s", q.Member, q.Why))
	}
	if h.Views != "" {
		parts = append(parts, h.Views)
	}
	for _, g := range h.Failures {
		parts = append(parts, fmt.Sprintf("%s; verdicts that read the view are Unknown until the object contributes again: tolerating the gaps of member %q ends that", g, g.Member))
	}
	return strings.Join(parts, "; ")
}

// What verdicts and remedies name, for rooms that may not know the index.
type (
	Ref      = aggregate.Ref
	Kind     = aggregate.Kind
	Revision = aggregate.Revision
)
