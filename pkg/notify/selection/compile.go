package selection

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/policy"
)

// typeNames are the types as rules name them, in the order of typeIndex.
var typeNames = [typeCount]string{"Violation", "Action", "Policy", "Member", "Kind", "Object"}

// transitions are those of each type.
var transitions = [typeCount][]string{
	ofVerdict: {history.Opened, history.Changed, history.Closed, history.Failed, history.Known, history.Unknown},
	ofAction: {
		string(v1alpha1.PhasePending), string(v1alpha1.PhaseWriting), string(v1alpha1.PhaseSucceeded), string(v1alpha1.PhaseNoOp), string(v1alpha1.PhaseFailed),
		string(v1alpha1.PhaseSuperseded), string(v1alpha1.PhaseContended), string(v1alpha1.PhaseProtected), string(v1alpha1.PhaseManaged), string(v1alpha1.PhaseRolledBack),
	},
	ofPolicy: {
		history.PlanMade, history.PlanApproved, history.PlanDone, history.PlanSuperseded, history.PlanExpired,
		history.ApprovalGiven, history.ApprovalCounts, history.ApprovalIgnored, history.ApprovalExpired, history.ApprovalWithdrawn,
		history.Halted, history.HaltEnded, history.Stopped, history.Suspended, history.Resumed,
		history.CommitTaken, history.CommitRefused, history.CommitTakenBack,
	},
	ofMember: {history.Joined, history.Changed, history.Left},
	ofScope: {
		aggregate.Unknown.String(), aggregate.NotServed.String(), aggregate.Forbidden.String(), aggregate.Syncing.String(), aggregate.Synced.String(),
		aggregate.Partial.String(), aggregate.Stale.String(), aggregate.OverBudget.String(), history.Removed,
	},
	ofObject: {history.Created, history.Changed, history.Deleted},
}

// compiler compiles one rule, and keeps its first error.
type compiler struct {
	at  string // of the rule
	err error
}

func (c *compiler) fail(field, format string, args ...any) {
	if c.err == nil {
		c.err = &FieldError{c.at + field, fmt.Sprintf(format, args...)}
	}
}

// rule returns a rule, and the types of the records that it may match.
func (c *compiler) rule(r *Rule) (*rule, []typeIndex) {
	types := c.types(r.Types)
	c.transitions(types, r.Transitions)
	for i, s := range r.Severities {
		if all := policy.Severities(); !slices.Contains(all, s) {
			c.fail(fmt.Sprintf("severities[%d]", i), "%q is not one of %s", s, strings.Join(all, ", "))
		}
	}
	return &rule{
		transitions: literals(r.Transitions), severities: literals(r.Severities), kinds: c.kinds(r.Kinds),
		policies: c.patterns("policies", r.Policies, false), namespaces: c.patterns("namespaces", r.Namespaces, true),
		members: c.patterns("members.names", r.Members.Names, false), labels: c.labels(r.Members.Labels),
	}, types
}

func (c *compiler) types(names []string) (types []typeIndex) {
	for t := range typeCount {
		if len(names) == 0 || slices.Contains(names, typeNames[t]) {
			types = append(types, t)
		}
	}
	for i, name := range names {
		if !slices.Contains(typeNames[:], name) {
			c.fail(fmt.Sprintf("types[%d]", i), "%q is not one of %s", name, strings.Join(typeNames[:], ", "))
		}
	}
	return types
}

// transitions refuses what no record of these types has.
func (c *compiler) transitions(types []typeIndex, names []string) {
	for i, name := range names {
		if !slices.ContainsFunc(types, func(t typeIndex) bool { return slices.Contains(transitions[t], name) }) {
			var of []string
			for _, t := range types {
				of = append(of, typeNames[t])
			}
			c.fail(fmt.Sprintf("transitions[%d]", i), "%q is not a transition of %s", name, strings.Join(of, ", "))
		}
	}
}

// kinds returns the kinds; nil if they are all.
func (c *compiler) kinds(kinds []string) []pattern {
	for i, k := range kinds {
		if k != "*" && (k == "" || strings.ContainsAny(k, " */") || k[0] == '.') {
			c.fail(fmt.Sprintf("kinds[%d]", i), `%q is not a kind, such as Deployment.apps, or "*"`, k)
		}
	}
	if slices.Contains(kinds, "*") {
		return nil
	}
	return literals(kinds)
}

func (c *compiler) patterns(field string, list []string, empty bool) (out []pattern) {
	for i, text := range list {
		p, err := newPattern(text)
		switch at := fmt.Sprintf("%s[%d]", field, i); {
		case err != nil:
			c.fail(at, "%q: %v", text, err)
		case text == "" && !empty:
			c.fail(at, "it is empty")
		}
		out = append(out, p)
	}
	return out
}

// labels returns nil for a selector of everything.
func (c *compiler) labels(s *metav1.LabelSelector) labels.Selector {
	if s == nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		c.fail("members.labels", "%v", err)
		return nil
	}
	if selector.Empty() {
		return nil
	}
	return selector
}

// literals returns patterns of names that have no special characters.
func literals(names []string) (out []pattern) {
	for _, name := range names {
		out = append(out, pattern{literal, name})
	}
	return out
}
