package policyquery

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/pkg/policy"
)

// Bounds of one query for violations.
const (
	defaultLimit = 500
	maxLimit     = 5000
	maxGroupBy   = 4
	maxGroups    = 10_000
)

// params are the parameters of Violations. Of a repeated parameter any value may match.
type params struct {
	policies, packages, severities, members, namespaces, kinds, states []string

	firstSeenSince time.Time // only subjects with a violation first seen then or later; zero: all
	sinceDuration  bool      // it was given as how long ago
	search         string    // in lower case

	exempt  string // "true": only subjects with exempt violations; "false": only those with others
	groupBy []string
	limit   int
	after   *cursor

	watch           bool
	resourceVersion string        // to watch from; "": start with the present violations
	timeout         time.Duration // of a watch; 0: none
}

// cursor is the position after the last item of a page.
type cursor struct {
	Policy  string  `json:"p"`
	Subject Subject `json:"s"`
}

func encodeCursor(name string, subject Subject) string {
	text, err := json.Marshal(cursor{name, subject})
	if err != nil {
		panic(err) // strings only
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// groupKeys are the values that findings can be grouped by.
var groupKeys = map[string]func(b policy.Binding, severity string, v *policy.Verdict) string{
	"policy":    func(b policy.Binding, _ string, _ *policy.Verdict) string { return b.Name },
	"package":   func(b policy.Binding, _ string, _ *policy.Verdict) string { return b.Package },
	"severity":  func(_ policy.Binding, severity string, _ *policy.Verdict) string { return severity },
	"member":    func(_ policy.Binding, _ string, v *policy.Verdict) string { return v.Subject.Ref.Member },
	"namespace": func(_ policy.Binding, _ string, v *policy.Verdict) string { return v.Subject.Ref.Namespace },
	"kind":      func(_ policy.Binding, _ string, v *policy.Verdict) string { return string(v.Subject.Ref.Kind) },
	"state":     func(_ policy.Binding, _ string, v *policy.Verdict) string { return v.State.String() },
}

// parseParams parses query parameters. Errors are 400.
func parseParams(values url.Values) (*params, error) {
	a := &params{limit: defaultLimit}
	for name, given := range values {
		i := slices.IndexFunc(parameters, func(p parameter) bool { return p.Name == name })
		switch {
		case i < 0:
			return nil, badParameter(name, "is not supported")
		case parameters[i].Repeated:
			*parameters[i].list(a) = given
		case len(given) > 1:
			return nil, badParameter(name, "is given more than once")
		default:
			if err := parameters[i].set(a, given[0]); err != nil {
				return nil, badParameter(name, err.Error())
			}
		}
	}
	return a, a.check()
}

func (a *params) check() error {
	switch {
	case a.watch && a.groupBy != nil:
		return badParameter("groupBy", "is not supported with watch")
	case a.watch && a.after != nil:
		return badParameter("continue", "is not supported with watch")
	case !a.watch && a.resourceVersion != "":
		return badParameter("resourceVersion", "requires watch: a list always has the newest verdicts")
	case a.resourceVersion != "" && a.sinceDuration:
		return badParameter("firstSeenSince", "must be a time with resourceVersion: what a duration selects changes with time")
	case !a.watch && a.timeout != 0:
		return badParameter("timeoutSeconds", "requires watch")
	}
	if len(a.groupBy) > maxGroupBy {
		return badParameter("groupBy", fmt.Sprintf("is given %d times, %d at most", len(a.groupBy), maxGroupBy))
	}
	if a.groupBy != nil && a.after != nil {
		return badParameter("continue", "is not supported with groupBy")
	}
	for _, p := range parameters {
		if !p.Repeated || p.Enum == nil {
			continue
		}
		for _, v := range *p.list(a) {
			if !slices.Contains(p.Enum, v) {
				return badParameter(p.Name, fmt.Sprintf("%q is not one of %s", v, strings.Join(p.Enum, ", ")))
			}
		}
	}
	return nil
}

func badParameter(name, why string) error {
	return apierrors.NewBadRequest("parameter " + name + " " + why)
}

// matches reports whether a value is in a list; an empty list matches any.
func matches(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }

// matchesBinding reports whether a binding is selected.
func (a *params) matchesBinding(b boundBinding) bool {
	return matches(a.policies, b.Name) && matches(a.packages, b.Package) && matches(a.severities, b.severity)
}

// matchesVerdict reports whether a verdict is selected, apart from its binding and member.
func (a *params) matchesVerdict(v *policy.Verdict) bool {
	ref := v.Subject.Ref
	if !matches(a.namespaces, ref.Namespace) || !matches(a.kinds, string(ref.Kind)) || !matches(a.states, v.State.String()) {
		return false
	}
	if !a.firstSeenSince.IsZero() && !a.seenSince(v) || a.search != "" && !a.found(v) {
		return false
	}
	if a.exempt == "" {
		return true
	}
	return slices.ContainsFunc(v.Violations, func(f policy.Violation) bool { return (f.Exempt != "") == (a.exempt == "true") })
}

// seenSince reports whether a violation was first seen at firstSeenSince or later.
func (a *params) seenSince(v *policy.Verdict) bool {
	for i := range v.Violations {
		if !v.FirstSeen.At(i).Before(a.firstSeenSince) {
			return true
		}
	}
	return false
}

// found reports whether the text that is searched for is in a verdict.
func (a *params) found(v *policy.Verdict) bool {
	in := func(text string) bool { return strings.Contains(strings.ToLower(text), a.search) }
	if in(v.Binding) || in(v.Subject.Ref.Namespace) || in(v.Subject.Ref.Name) || in(v.Subject.Key) || in(v.Message) {
		return true
	}
	return slices.ContainsFunc(v.Violations, func(f policy.Violation) bool { return in(f.Msg) })
}

// addToGroup counts a verdict in its group.
func (s *listing) addToGroup(b policy.Binding, severity string, v *policy.Verdict) {
	key := make([]string, len(s.groupBy))
	for i, by := range s.groupBy {
		key[i] = groupKeys[by](b, severity, v)
	}
	joined := strings.Join(key, "\x00")
	g := s.groups[joined]
	if g == nil {
		if len(s.groups) == maxGroups {
			s.result.Truncated = true
			return
		}
		if s.groups == nil {
			s.groups = map[string]*FindingGroup{}
		}
		g = &FindingGroup{Key: key}
		s.groups[joined] = g
	}
	g.Subjects++
	for _, f := range v.Violations {
		if f.Exempt != "" {
			g.Exempt++
		} else {
			g.Violations++
		}
	}
}

// sortedGroups returns the groups by descending number of violations, then by key.
func (s *listing) sortedGroups() []FindingGroup {
	var groups []FindingGroup
	for _, g := range s.groups {
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b FindingGroup) int {
		return cmp.Or(cmp.Compare(b.Violations, a.Violations), cmp.Compare(b.Subjects, a.Subjects), slices.Compare(a.Key, b.Key))
	})
	return groups
}
