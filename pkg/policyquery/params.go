package policyquery

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"iter"
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
	orderBy string // "": as orderPolicy
	limit   int
	after   *cursor

	part bool // of what several processes answer together

	watch           bool
	resourceVersion string        // to watch from; "": start with the present violations
	timeout         time.Duration // of a watch; 0: none
}

// Orders of lists.
const (
	orderPolicy   = "policy"
	orderSeverity = "severity"
)

// cursor is the position after the last item of a page.
type cursor struct {
	Policy  string  `json:"p"`
	Subject Subject `json:"s"`
	// Order is a digest of what the order by severity follows from, in another one of which the position means
	// nothing; "" is of a list by policy.
	Order string `json:"o,omitempty"`
}

func (c cursor) encode() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings only
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func decodeCursor(text string) (*cursor, bool) {
	c := &cursor{}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return c, err == nil && json.Unmarshal(raw, c) == nil && c.Policy != ""
}

var errOrderChanged = apierrors.NewResourceExpired("the policies of the first page, or their severities, have changed, or continue is of a list with other parameters: list again")

// boundBinding is a binding with the severities of its versions in effect, each once: first that of the one which speaks
// for the policy.
type boundBinding struct {
	policy.Binding
	severities []string
}

// boundIn yields the bindings of a state, by name, with their packages as rules call them.
func boundIn(s *policy.State) iter.Seq[boundBinding] {
	return func(yield func(boundBinding) bool) {
		for b, severity := range s.Bindings() {
			b.Package = s.Package(b.Name).Path()
			bound := boundBinding{b, []string{severity}}
			for p := range s.Packages(b.Name) {
				if !slices.Contains(bound.severities, p.Severity) {
					bound.severities = append(bound.severities, p.Severity)
				}
			}
			if !yield(bound) {
				return
			}
		}
	}
}

// lists reports whether findings of a severity are listed with this binding.
func (b *boundBinding) lists(severity string) bool { return slices.Contains(b.severities, severity) }

// inOrder returns the bindings that are selected, in the order of the list.
func (a *params) inOrder(s *policy.State) (selected []boundBinding) {
	for bound := range boundIn(s) {
		switch {
		case !a.matchesBinding(bound):
		case a.orderBy != orderSeverity:
			selected = append(selected, bound)
		default: // versions may have different ones
			for _, severity := range bound.severities {
				selected = append(selected, boundBinding{bound.Binding, []string{severity}})
			}
		}
	}
	if a.orderBy == orderSeverity {
		slices.SortStableFunc(selected, func(x, y boundBinding) int { // they are by name
			return cmp.Compare(slices.Index(severities, y.severities[0]), slices.Index(severities, x.severities[0]))
		})
	}
	return selected
}

// orderDigest is a digest of the order of bindings, where it may change while a list is read: by a severity, one
// that has not been listed could come before what has, and would be in no page. Policies and their severities are
// no secret: every caller may list them.
func (a *params) orderDigest(selected []boundBinding, scope readScope) string {
	if a.orderBy != orderSeverity {
		return ""
	}
	sum := fnv.New64a()
	for _, b := range selected {
		_, _ = io.WriteString(sum, b.Name+"\x00"+b.severities[0]+"\x00") // never fails
		if b.Next == nil || a.part {                                     // other processes have other members
			continue
		}
		for _, member := range scope.membersOf(b.Name) { // where its versions are in effect
			_, _ = io.WriteString(sum, member+"\x00"+scope.state.PackageIn(b.Name, member).Severity+"\x00")
		}
	}
	return fmt.Sprintf("%016x", sum.Sum64())
}

// from returns how many of the selected bindings come before the position where the page begins.
func (a *params) from(selected []boundBinding, order string, s *policy.State) (int, error) {
	switch {
	case a.after == nil:
		return 0, nil
	case a.after.Order != order:
		return 0, errOrderChanged
	case a.orderBy != orderSeverity: // the policy may have gone
		n, _ := slices.BinarySearchFunc(selected, a.after.Policy, func(b boundBinding, name string) int { return strings.Compare(b.Name, name) })
		return n, nil
	}
	n := slices.IndexFunc(selected, func(b boundBinding) bool {
		return b.Name == a.after.Policy && b.lists(s.PackageIn(b.Name, a.after.Subject.Member).Severity)
	})
	if n < 0 {
		return 0, errOrderChanged
	}
	return n, nil
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
	case a.watch && a.orderBy != "":
		return badParameter("orderBy", "is not supported with watch: events are in the order of changes")
	case a.groupBy != nil && a.orderBy != "":
		return badParameter("orderBy", "is not supported with groupBy: groups are ordered by their violations")
	case a.after != nil && (a.after.Order != "") != (a.orderBy == orderSeverity):
		return badParameter("continue", "is of a list in another order")
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

// matchesBinding reports whether a binding is selected, by the severity of any version.
func (a *params) matchesBinding(b boundBinding) bool {
	return matches(a.policies, b.Name) && matches(a.packages, b.Package) && slices.ContainsFunc(b.severities, func(s string) bool { return matches(a.severities, s) })
}

// matchesVerdict reports whether a verdict is selected, apart from its binding and member.
func (a *params) matchesVerdict(v *policy.Verdict) bool {
	ref := v.Subject.Ref
	if !matches(a.namespaces, ref.Namespace) || !matches(a.kinds, string(ref.Kind)) || !matches(a.states, v.State.String()) {
		return false
	}
	if a.search != "" && !a.found(v) {
		return false
	}
	if a.exempt == "" && a.firstSeenSince.IsZero() {
		return true
	}
	for i := range v.Violations {
		if a.matchesViolation(v, i) {
			return true
		}
	}
	return false
}

// matchesViolation reports whether a violation of a verdict is selected: by exempt and firstSeenSince.
func (a *params) matchesViolation(v *policy.Verdict, i int) bool {
	return (a.exempt == "" || (v.Violations[i].Exempt != "") == (a.exempt == "true")) &&
		(a.firstSeenSince.IsZero() || !v.FirstSeen.At(i).Before(a.firstSeenSince))
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
	switch v.State {
	case policy.Unknown:
		g.Unknown++
	case policy.Error:
		g.Errors++
	}
	for i := range v.Violations {
		switch {
		case !s.matchesViolation(v, i):
		case v.Violations[i].Exempt != "":
			g.Exempt++
		default:
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
