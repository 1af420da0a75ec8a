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

// Bounds of one question about violations.
const (
	defaultLimit = 500
	maxLimit     = 5000
	maxGroupBy   = 4
	maxGroups    = 10_000
)

// asked are the parameters of Violations. What is given more than once may be any of
// them.
type asked struct {
	policies, packages, severities, members, namespaces, kinds, states []string

	exempt  string // "true": only subjects with exempt violations; "false": only with others
	groupBy []string
	limit   int
	after   *cursor

	watched bool
	version string        // to watch from; "": from what there is now
	timeout time.Duration // of a watch; 0: none given
}

// cursor is where a page ended.
type cursor struct {
	Policy  string  `json:"p"`
	Subject Subject `json:"s"`
}

func cursorOf(name string, subject Subject) string {
	text, err := json.Marshal(cursor{name, subject})
	if err != nil {
		panic(err) // strings only
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// groupers are what findings are grouped by.
var groupers = map[string]func(b policy.Binding, severity string, v *policy.Verdict) string{
	"policy":    func(b policy.Binding, _ string, _ *policy.Verdict) string { return b.Name },
	"package":   func(b policy.Binding, _ string, _ *policy.Verdict) string { return b.Package },
	"severity":  func(_ policy.Binding, severity string, _ *policy.Verdict) string { return severity },
	"member":    func(_ policy.Binding, _ string, v *policy.Verdict) string { return v.Subject.Ref.Member },
	"namespace": func(_ policy.Binding, _ string, v *policy.Verdict) string { return v.Subject.Ref.Namespace },
	"kind":      func(_ policy.Binding, _ string, v *policy.Verdict) string { return string(v.Subject.Ref.Kind) },
	"state":     func(_ policy.Binding, _ string, v *policy.Verdict) string { return v.State.String() },
}

// parseAsked reads parameters: those that are accepted. Errors are 400.
func parseAsked(values url.Values) (*asked, error) {
	a := &asked{limit: defaultLimit}
	for name, given := range values {
		i := slices.IndexFunc(accepted, func(p parameter) bool { return p.Name == name })
		switch {
		case i < 0:
			return nil, bad(name, "is not supported")
		case accepted[i].Many:
			*accepted[i].all(a) = given
		case len(given) > 1:
			return nil, bad(name, "is given more than once")
		default:
			if err := accepted[i].one(a, given[0]); err != nil {
				return nil, bad(name, err.Error())
			}
		}
	}
	return a, a.check()
}

func (a *asked) check() error {
	switch {
	case a.watched && a.groupBy != nil:
		return bad("groupBy", "is not for watches")
	case a.watched && a.after != nil:
		return bad("continue", "is not for watches")
	case !a.watched && a.version != "":
		return bad("resourceVersion", "is for watches: a list is of the newest verdicts")
	case !a.watched && a.timeout != 0:
		return bad("timeoutSeconds", "is for watches")
	}
	if len(a.groupBy) > maxGroupBy {
		return bad("groupBy", fmt.Sprintf("is given %d times, %d at most", len(a.groupBy), maxGroupBy))
	}
	if a.groupBy != nil && a.after != nil {
		return bad("continue", "is not for groups")
	}
	for _, p := range accepted {
		if !p.Many || p.Values == nil {
			continue
		}
		for _, v := range *p.all(a) {
			if !slices.Contains(p.Values, v) {
				return bad(p.Name, fmt.Sprintf("%q is none of %s", v, strings.Join(p.Values, ", ")))
			}
		}
	}
	return nil
}

func bad(name, why string) error {
	return apierrors.NewBadRequest("parameter " + name + " " + why)
}

// in reports whether a value is asked for: none given means any.
func in(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }

// asksFor reports whether findings of a binding are asked for.
func (a *asked) asksFor(b bound) bool {
	return in(a.policies, b.Name) && in(a.packages, b.Package) && in(a.severities, b.severity)
}

// wants reports whether a verdict is asked for, its binding and member aside.
func (a *asked) wants(v *policy.Verdict) bool {
	ref := v.Subject.Ref
	if !in(a.namespaces, ref.Namespace) || !in(a.kinds, string(ref.Kind)) || !in(a.states, v.State.String()) {
		return false
	}
	if a.exempt == "" {
		return true
	}
	return slices.ContainsFunc(v.Violations, func(f policy.Violation) bool { return (f.Exempt != "") == (a.exempt == "true") })
}

// count puts a verdict into its group.
func (s *search) count(b policy.Binding, severity string, v *policy.Verdict) {
	key := make([]string, len(s.groupBy))
	for i, by := range s.groupBy {
		key[i] = groupers[by](b, severity, v)
	}
	joined := strings.Join(key, "\x00")
	g := s.groups[joined]
	if g == nil {
		if len(s.groups) == maxGroups {
			s.answer.Truncated = true
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

// grouped returns the groups by falling count of violations, then by key.
func (s *search) grouped() []FindingGroup {
	var groups []FindingGroup
	for _, g := range s.groups {
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b FindingGroup) int {
		return cmp.Or(cmp.Compare(b.Violations, a.Violations), cmp.Compare(b.Subjects, a.Subjects), slices.Compare(a.Key, b.Key))
	})
	return groups
}
