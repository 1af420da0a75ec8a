package verdict

import (
	"fmt"
	"strings"
	"time"
)

// Quarantine is a member for which a policy is not evaluated for a while: evaluations
// use up their time and give no answer, again and again, or are slow for so long that
// others wait for them. Verdicts that nothing touches
// stay what they are; others of the member are Errors, and are evaluated when it ends.
type Quarantine struct {
	Member string    `json:"member"`
	Why    string    `json:"why"`
	Until  time.Time `json:"until"`
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

func (c *Counts) Add(o Counts) {
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
	WideReads   int64        `json:"wide"`                  // reads of a whole view, kind or member, which every change of it repeats
	Quarantines []Quarantine `json:"quarantines,omitempty"` // members for which it is not evaluated for a while
	Views       string       `json:"views,omitempty"`       // a view that it reads and that holds too much: verdicts that read it are Errors

	// Failures are scopes of which an object could not contribute to a view that the
	// policy reads, of members that it sees and does not tolerate: at most MaxGaps.
	// Verdicts that read the view are Unknown.
	Failures []Gap `json:"failures,omitempty"`
}

// Problem says what keeps verdicts from being Known that is no fault of their scopes,
// and what ends it; "" is nothing.
func (h *Health) Problem() string {
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
