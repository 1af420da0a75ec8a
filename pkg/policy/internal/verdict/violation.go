package verdict

import (
	"encoding/json"
	"slices"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
)

// violationBytes estimates what a violation, or a remedy, takes besides its strings.
const violationBytes = 120

// Size estimates the bytes of a violation, in memory or as JSON.
func (v *Violation) Size() int {
	n := violationBytes + len(v.Msg) + len(v.Details) + len(v.Exempt)
	if r := v.Remedy; r != nil {
		n += violationBytes + len(r.Object) + len(r.Patch)
	}
	return n
}

// Violation is one violation of a policy.
type Violation struct {
	Msg     string          `json:"msg"`
	Details json.RawMessage `json:"details,omitempty"` // JSON
	Remedy  *Remedy         `json:"remedy,omitempty"`
	Exempt  string          `json:"exempt,omitempty"` // the reason of its exemption; "" when it has none
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

func SameViolations(a, b []Violation) bool {
	return slices.EqualFunc(a, b, func(a, b Violation) bool {
		return a.Msg == b.Msg && a.Exempt == b.Exempt && string(a.Details) == string(b.Details) && sameRemedy(a.Remedy, b.Remedy)
	})
}

// Same reports whether two verdicts say the same, whenever that was found.
func Same(a, b *Verdict) bool {
	return a.State == b.State && a.Message == b.Message && SameViolations(a.Violations, b.Violations)
}

func sameRemedy(a, b *Remedy) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Action == b.Action && a.Target == b.Target && string(a.Object) == string(b.Object) && string(a.Patch) == string(b.Patch) && a.Propagation == b.Propagation
}

// Clip shortens a string that a message quotes.
func Clip(s string) string {
	return clip.Text(s, 100)
}
