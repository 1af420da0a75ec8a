package selection

import (
	"fmt"

	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/policy"
)

// Rule selects records of the history: all that is set must match.
type Rule struct {
	Types      []string // Violation, Action, Policy, Member, Kind or Object; none: all
	Policies   []string // patterns of path.Match
	Severities []string // of violations
	// Members selects by the member that a record is about. If it is set, records about the hub do not match; if it has labels, nor do those
	// of members whose labels are not known, such as one that has left.
	Members     policy.MemberSelector
	Kinds       []string // as kubectl writes them, such as Deployment.apps; "*" is all, and what has none
	Namespaces  []string // patterns of path.Match; "" matches what has no namespace
	Transitions []string
}

// Options configure a Selection.
type Options struct {
	Rules []Rule
	// Named reports whether a FleetPolicy names the Notification: then its violations, Actions and what becomes of it are selected, whatever the
	// rules say. nil: none does.
	Named func(policy string) bool
	// Labels returns the labels of a member; known is false where there is no such member. nil: no labels are known.
	Labels func(member string) (labels map[string]string, known bool)
}

// FieldError is what is wrong with a field of a Rule.
type FieldError struct {
	Field   string // such as rules[2].policies[0]
	Problem string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Selection is compiled rules.
type Selection struct {
	rules  [typeCount][]*block // those that may match records of a type
	named  func(string) bool
	labels func(string) (map[string]string, bool)
}

// New compiles rules. Its errors are FieldErrors.
func New(opts Options) (*Selection, error) {
	s := &Selection{named: opts.Named, labels: opts.Labels}
	if s.named == nil {
		s.named = func(string) bool { return false }
	}
	if s.labels == nil {
		s.labels = func(string) (map[string]string, bool) { return nil, false }
	}
	for i := range opts.Rules {
		c := compiler{at: fmt.Sprintf("rules[%d].", i)}
		x, types := c.rule(&opts.Rules[i])
		if c.err != nil {
			return nil, c.err
		}
		for _, t := range types {
			s.add(t, x)
		}
	}
	return s, nil
}

func (s *Selection) add(t typeIndex, x *rule) {
	n := len(s.rules[t])
	if n == 0 || s.rules[t][n-1].full() {
		s.rules[t] = append(s.rules[t], &block{})
		n++
	}
	s.rules[t][n-1].add(x)
}

// Selects reports whether a record is selected. It does not keep it.
func (s *Selection) Selects(r *history.Record) bool {
	if r.Type == history.Gap {
		return true
	}
	if r.Exempt != "" && r.Exemption != history.ExemptionBegan {
		return false
	}
	t, known := typeOf(r.Type)
	if !known {
		return false
	}
	if t <= lastOfPolicies && r.Policy != "" && s.named(r.Policy) {
		return true
	}
	transition := Transition(r)
	for _, b := range s.rules[t] {
		if b.matches(r, transition, s.labels) {
			return true
		}
	}
	return false
}

// Transition returns the transition of a record to those who are told nothing of exempt violations: one that becomes exempt is closed to them,
// and one that ceases to be is opened.
func Transition(r *history.Record) string {
	switch r.Exemption {
	case history.ExemptionBegan:
		return history.Closed
	case history.ExemptionEnded:
		return history.Opened
	}
	return r.Transition
}
