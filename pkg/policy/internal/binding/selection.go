package binding

import (
	"path"
	"slices"

	"federator.dev/federator/pkg/policy/internal/value"
	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// Selection is a compiled Binding.
type Selection struct {
	members, visibility memberSelection
	tolerate            *memberSelection
	Kinds               []aggregate.Kind
	namespaces          []string
	Labels              labels.Selector // nil: all
	exemptions          []exemption
	constraint          objectMatch // nil: no constraint
	Params              value.Value
	Generated           bool // subjects are what expansion makes, to a constraint
	Manifests           bool // subjects are matched as "gator test" does
}

type memberSelection struct {
	names  []string
	labels labels.Selector
}

type exemption struct {
	members           memberSelection
	namespaces, names []string
	labels            labels.Selector
	reason            string
}

// matchesAny reports whether one of the patterns matches; no patterns match everything.
func matchesAny(patterns []string, s string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, s) // check has validated the pattern
		return ok
	})
}

func (m *memberSelection) all() bool { return len(m.names) == 0 && m.labels == nil }

func (m *memberSelection) has(member aggregate.Member) bool {
	return matchesAny(m.names, member.Name) && (m.labels == nil || m.labels.Matches(labelList(member.Labels)))
}

// labelList is a labels.Labels.
type labelList []aggregate.Label

func (l labelList) Lookup(key string) (string, bool) {
	for _, label := range l {
		if label.Key == key {
			return label.Value, true
		}
	}
	return "", false
}

func (l labelList) Has(key string) bool { _, ok := l.Lookup(key); return ok }

func (l labelList) Get(key string) string { v, _ := l.Lookup(key); return v }

// selectsRef reports whether the match selects a ref, whatever its labels.
func (s *Selection) selectsRef(kind aggregate.Kind, namespace string) bool {
	return (len(s.Kinds) == 0 || slices.Contains(s.Kinds, kind)) && matchesAny(s.namespaces, namespace)
}

// SelectsKind reports whether the match may select objects of a kind.
func (s *Selection) SelectsKind(k aggregate.Kind) bool {
	if s.constraint != nil {
		if kind, group := k.Split(); !s.constraint.SelectsKind(group, kind) {
			return false
		}
	}
	return len(s.Kinds) == 0 || slices.Contains(s.Kinds, k)
}

// Selects reports whether the match selects an object.
func (s *Selection) Selects(o aggregate.Object) bool {
	return s.selectsRef(o.Ref().Kind, o.Namespace()) && (s.Labels == nil || s.Labels.Matches(labelList(o.Labels()))) &&
		(s.constraint == nil || s.matches(o))
}

// ByLabels reports whether the selection depends on labels of objects.
func (s *Selection) ByLabels() bool {
	return s.Labels != nil || s.constraint != nil && (s.constraint.ByLabels() || s.constraint.ByNamespaceLabels()) || slices.ContainsFunc(s.exemptions, func(e exemption) bool { return e.labels != nil })
}

// ByMembers reports whether exemptions depend on labels of members.
func (s *Selection) ByMembers() bool {
	return slices.ContainsFunc(s.exemptions, func(e exemption) bool { return e.members.labels != nil })
}

// Exempt returns the reason why a subject is exempt, or "".
func (s *Selection) Exempt(kind module.SubjectKind, subject verdict.Subject, o aggregate.Object, member aggregate.Member) string {
	name := subject.Ref.Name
	switch kind {
	case module.ViewSubject:
		name = subject.Key
	case module.MemberSubject:
		name = member.Name
	}
	for _, e := range s.exemptions {
		of := e.members.all() || member.Name != "" && e.members.has(member)
		in := len(e.namespaces) == 0 || !o.IsZero() && matchesAny(e.namespaces, subject.Ref.Namespace)
		labelled := e.labels == nil || !o.IsZero() && e.labels.Matches(labelList(o.Labels()))
		if of && in && labelled && matchesAny(e.names, name) {
			return e.reason
		}
	}
	return ""
}

// MemberSet is a set of the members of a snapshot. Immutable.
type MemberSet struct {
	ID    uint32 // equal for sets that are equal in every snapshot
	all   bool
	names map[string]bool
}

func (m *MemberSet) Has(member string) bool { return m.all || m.names[member] }

func (m *memberSelection) of(s *fleetview.View, id uint32) MemberSet {
	if m.all() {
		return MemberSet{all: true}
	}
	names := map[string]bool{}
	for member := range s.Members() {
		if m.has(member) {
			names[member.Name] = true
		}
	}
	return MemberSet{ID: id, names: names}
}

// MemberSets returns the members of a snapshot that a binding selects, sees and tolerates.
func (s *Selection) MemberSets(snapshot *fleetview.View, id uint32) (selected, visible, tolerated MemberSet) {
	tolerated = MemberSet{names: map[string]bool{}}
	if s.tolerate != nil {
		tolerated = s.tolerate.of(snapshot, id)
	}
	return s.members.of(snapshot, id), s.visibility.of(snapshot, id), tolerated
}

// EntryCounts reports whether the binding selects an object's entries in a view.
func (s *Selection) EntryCounts(ref *aggregate.Ref, snapshot *fleetview.View, selected, visible *MemberSet) bool {
	if !selected.Has(ref.Member) || !visible.Has(ref.Member) || !s.selectsRef(ref.Kind, ref.Namespace) {
		return false
	}
	if s.Labels == nil {
		return true
	}
	o, ok := snapshot.Get(*ref)
	return ok && s.Labels.Matches(labelList(o.Labels()))
}
