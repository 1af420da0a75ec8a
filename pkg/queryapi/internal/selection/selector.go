package selection

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/flat"
)

// Selector selects objects of one kind. It is immutable.
type Selector struct {
	kind    aggregate.Kind
	empty   bool
	members labels.Selector // of virtual labels; nil: all
	byName  []test[aggregate.Member]
	labels  labels.Selector // of the objects' own; nil: all
	entries []test[aggregate.Object]
	terms   []bodyTerm
	keys    *flat.Keys // under which objects are served; nil: their own

	name, namespace string // that an object must have; "": any
	namePrefix      string
	contradicts     bool // the terms contradict each other
}

// test is a term that is evaluated without the body.
type test[T any] struct {
	of     func(T) string
	value  string
	negate bool
}

func (t test[T]) holds(of T) bool { return (t.of(of) == t.value) != t.negate }

func allHold[T any](tests []test[T], of T) bool {
	for _, t := range tests {
		if !t.holds(of) {
			return false
		}
	}
	return true
}

// bodyTerm is a term on the body.
type bodyTerm struct {
	paths  [][]string // the first with a value other than "" is used
	value  string
	absent string
	negate bool
	member string // the only one whose objects can match; "": any
	flat   bool   // it is on the object as it is served
}

// Bounds of one label selector: each requirement, and each of its values, is matched against
// every distinct set of labels.
const (
	maxRequirements = 100
	maxValues       = 1000 // of all requirements
)

// maxSlots bounds the paths of a selector: walker keeps them in one word.
const maxSlots = 64

// Compile parses a label selector and a field selector for a kind. Errors are 400
// *apierrors.StatusError that contain the parameter, the cause and its position.
func Compile(labelSelector, fieldSelector string, kind aggregate.Kind) (*Selector, error) {
	sel := &Selector{kind: kind}
	if err := sel.compile(labelSelector, fieldSelector, sel.compileField); err != nil {
		return nil, err
	}
	return sel, nil
}

// compile parses the selectors, and compiles each term on fields with a function.
func (sel *Selector) compile(labelSelector, fieldSelector string, compileField func(requirement) error) error {
	requirements, err := labels.ParseToRequirements(labelSelector)
	if err != nil {
		return badSelector("labelSelector", err)
	}
	if err := checkRequirements(requirements); err != nil {
		return badSelector("labelSelector", err)
	}
	sel.compileLabels(requirements)
	fields, err := parseFields(fieldSelector)
	if err != nil {
		return badSelector("fieldSelector", err)
	}
	slots := 0
	for _, q := range fields {
		if err := compileField(q); err != nil {
			return badSelector("fieldSelector", err)
		}
	}
	for _, t := range sel.terms {
		slots += len(t.paths)
	}
	if slots > maxSlots {
		return badSelector("fieldSelector", fmt.Errorf("it has more than %d paths", maxSlots))
	}
	sel.empty = len(requirements) == 0 && len(fields) == 0
	return nil
}

func checkRequirements(requirements []labels.Requirement) error {
	if n := len(requirements); n > maxRequirements {
		return fmt.Errorf("it has %d requirements, at most %d are allowed", n, maxRequirements)
	}
	values := 0
	for _, r := range requirements {
		values += r.Values().Len()
	}
	if values > maxValues {
		return fmt.Errorf("its requirements have %d values, at most %d are allowed", values, maxValues)
	}
	return nil
}

// badSelector is the error of a selector; it quotes a long text in part.
func badSelector(name string, err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("parameter %q: %s", name, clip.Text(err.Error(), 512)))
}

func (sel *Selector) compileLabels(requirements []labels.Requirement) {
	var member, own []labels.Requirement
	for _, r := range requirements {
		if IsMemberLabel(r.Key()) {
			member = append(member, r)
		} else {
			own = append(own, r)
		}
	}
	if len(member) > 0 {
		sel.members = labels.NewSelector().Add(member...)
	}
	if len(own) > 0 {
		sel.labels = labels.NewSelector().Add(own...)
	}
}

func (sel *Selector) compileField(q requirement) error {
	if len(q.path) > 1 && q.path[0] == "metadata" && q.path[1] == "managedFields" {
		return fmt.Errorf("metadata.managedFields is not in the index")
	}
	if of := memberField(q.path); of != nil {
		sel.byName = append(sel.byName, test[aggregate.Member]{of, q.value, q.negate})
		return nil
	}
	if of := entryField(q.path); of != nil {
		if !q.negate && q.value != "" && sel.narrowKey(q) {
			return nil
		}
		sel.entries = append(sel.entries, test[aggregate.Object]{of, q.value, q.negate})
		return nil
	}
	sel.terms = append(sel.terms, sel.bodyTerm(q))
	return nil
}

// bodyTerm compiles a term on the body.
func (sel *Selector) bodyTerm(q requirement) bodyTerm {
	t := bodyTerm{paths: [][]string{q.path}, value: q.value, negate: q.negate}
	if known, ok := aliases[sel.kind][strings.Join(q.path, ".")]; ok {
		t.absent = known.absent
		if known.paths != nil {
			t.paths = known.paths
		}
	}
	return t
}

// narrowKey records a term that narrows the keys to search.
func (sel *Selector) narrowKey(q requirement) bool {
	var to *string
	switch q.path[1] {
	case "name":
		to = &sel.name
	case "namespace":
		to = &sel.namespace
	default:
		return false
	}
	if *to != "" && *to != q.value {
		sel.contradicts = true
	}
	*to = q.value
	return true
}

// Empty reports whether everything is selected.
func (sel *Selector) Empty() bool { return sel.empty }

// Name returns the name that every selected object has, "" when there is none.
func (sel *Selector) Name() string { return sel.name }

// WithNamePrefix returns the selector of those objects whose names also begin with a prefix.
func (sel *Selector) WithNamePrefix(prefix string) *Selector {
	out := *sel
	out.namePrefix, out.empty = prefix, sel.empty && prefix == ""
	return &out
}

// WithName returns the selector of those objects that have a name, too.
func (sel *Selector) WithName(name string) *Selector {
	out := *sel
	out.contradicts = sel.contradicts || sel.name != "" && sel.name != name || !strings.HasPrefix(name, sel.namePrefix)
	out.name, out.empty = name, false
	return &out
}

// MatchesMember reports whether objects of a member can be selected.
func (sel *Selector) MatchesMember(m aggregate.Member) bool {
	return (sel.members == nil || sel.members.Matches(memberLabels{&m})) && allHold(sel.byName, m)
}

// Query returns the query that finds the selected objects in a snapshot, and the residual to
// match on the objects that it yields. members are those that may be read, sorted; nil is
// all. namespace "" is all.
func (sel *Selector) Query(s *aggregate.Snapshot, members []string, namespace string) (aggregate.Query, *residual) {
	q := aggregate.Query{
		Kind: sel.kind, Members: sel.narrowMembers(s, members),
		Namespace: namespace, Name: sel.name, NamePrefix: sel.namePrefix, Labels: sel.labels,
	}
	if sel.namespace != "" {
		q.Namespace = sel.namespace
	}
	if sel.contradicts || namespace != "" && sel.namespace != "" && namespace != sel.namespace {
		q.Members = []string{}
	}
	rest := &residual{entries: sel.entries, keys: sel.keys}
	for _, t := range sel.terms {
		if name, ok := t.indexed(); ok && s.Indexed(sel.kind, name, q.Members) {
			if held, ok := q.Fields[name]; !ok || held == t.value {
				if q.Fields == nil {
					q.Fields = map[string]string{}
				}
				q.Fields[name] = t.value
				continue
			}
		}
		rest.add(t)
	}
	if len(rest.entries) == 0 && !rest.needsBody() {
		rest = nil
	}
	return q, rest
}

// narrowMembers returns those of members that the selector admits, nil when all.
func (sel *Selector) narrowMembers(s *aggregate.Snapshot, members []string) []string {
	if sel.members == nil && len(sel.byName) == 0 {
		return members
	}
	out := []string{}
	if members == nil {
		for m := range s.Members() {
			if sel.MatchesMember(m) {
				out = append(out, m.Name)
			}
		}
		return out
	}
	for _, name := range members {
		if m, ok := s.Member(name); ok && sel.MatchesMember(m) {
			out = append(out, name)
		}
	}
	return out
}

// fullResidual returns a residual with every term on fields, for objects that are not the
// result of a query.
func (sel *Selector) fullResidual() *residual {
	r := &residual{entries: sel.entries, keys: sel.keys}
	for _, t := range sel.terms {
		r.add(t)
	}
	return r
}

// Matcher matches objects that are not the result of a query, such as those of a watch. It
// is immutable.
type Matcher struct {
	sel  *Selector
	rest *residual
}

// Matcher returns the selector's matcher.
func (sel *Selector) Matcher() *Matcher { return &Matcher{sel, sel.fullResidual()} }

// Matches reports whether an object of a member matches the entire selector.
func (m *Matcher) Matches(member aggregate.Member, o aggregate.Object, scratch *Scratch) (bool, error) {
	sel := m.sel
	switch {
	case sel.contradicts,
		sel.name != "" && o.Name() != sel.name,
		!strings.HasPrefix(o.Name(), sel.namePrefix),
		sel.namespace != "" && o.Namespace() != sel.namespace,
		sel.labels != nil && !sel.labels.Matches(objectLabels{o}),
		!sel.MatchesMember(member):
		return false, nil
	}
	return m.rest.Match(o, scratch)
}

// indexed returns the declared field that can answer the term, if there is one: the index
// holds scalars whose JSON has no escapes, and nothing for absent fields.
func (t bodyTerm) indexed() (string, bool) {
	if t.negate || t.flat || len(t.paths) != 1 || t.value == t.absent || !verbatim(t.value) {
		return "", false
	}
	for _, step := range t.paths[0] {
		if strings.Contains(step, ".") {
			return "", false
		}
	}
	return strings.Join(t.paths[0], "."), true
}

// verbatim reports whether a text is not empty and needs no escapes in JSON.
func verbatim(s string) bool {
	return s != "" && !slices.ContainsFunc([]byte(s), func(c byte) bool {
		return c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&'
	})
}
