package verdict

import (
	"fmt"
	"strings"
	"time"
)

// Quarantine is a member for which a policy is temporarily not evaluated: its
// evaluations repeatedly used up their time without a result, or were slow for so long
// that others waited for them. Verdicts that no change affects stay as they are; others
// of the member are Errors, and are evaluated when the quarantine ends.
type Quarantine struct {
	Member string    `json:"member"`
	Reason string    `json:"why"`
	Until  time.Time `json:"until"`
}

// Counts are the verdicts of a binding, of one member or of all. Known, Unknown
// and Errors add up to all verdicts; the other two count violations.
type Counts struct {
	Known      int `json:"known"`
	Unknown    int `json:"unknown"`
	Errors     int `json:"errors"`
	Violations int `json:"violations"` // exempt ones not included
	Exempt     int `json:"exempt"`
}

func (c *Counts) Add(o Counts) {
	c.Known += o.Known
	c.Unknown += o.Unknown
	c.Errors += o.Errors
	c.Violations += o.Violations
	c.Exempt += o.Exempt
}

// Health is the health of a binding's policy.
type Health struct {
	Evaluations int64        `json:"evaluations"`
	Nanoseconds int64        `json:"nanoseconds"`           // of evaluation
	Overruns    int64        `json:"overruns"`              // evaluations that exceeded their budget
	Errors      int64        `json:"errors"`                // evaluations that failed, overruns included
	WideReads   int64        `json:"wide"`                  // reads of a complete view, kind or member, which every change of it repeats
	Interpreted int64        `json:"interpreted"`           // evaluations that OPA interpreted: of what is not compiled, and of errors
	NotCompiled string       `json:"notCompiled,omitempty"` // the rule that is not compiled, and why: OPA interprets all evaluations
	Quarantines []Quarantine `json:"quarantines,omitempty"` // members for which it is temporarily not evaluated
	Views       string       `json:"views,omitempty"`       // why a view that it reads exceeds its limit: verdicts that read it are Errors

	// Failures are scopes with an object whose contribution to a view that the policy
	// reads failed, of members that it sees and does not tolerate: at most MaxGaps.
	// Verdicts that read the view are Unknown.
	Failures []Gap `json:"failures,omitempty"`
}

// Problem says what, besides incomplete scopes, keeps verdicts from being Known, and
// what resolves it; "" is nothing.
func (h *Health) Problem() string {
	var parts []string
	for i, q := range h.Quarantines {
		if i == MaxGaps {
			parts = append(parts, fmt.Sprintf("and %d more members are quarantined", len(h.Quarantines)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("member %q is quarantined: %s", q.Member, q.Reason))
	}
	if h.Views != "" {
		parts = append(parts, h.Views)
	}
	for _, g := range h.Failures {
		parts = append(parts, fmt.Sprintf("%s; verdicts that read the view are Unknown until evaluating the view for the object succeeds; to make them Known, tolerate gaps of member %q", g, g.Member))
	}
	return strings.Join(parts, "; ")
}
