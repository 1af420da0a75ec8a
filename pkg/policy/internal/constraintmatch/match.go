package constraintmatch

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

const wildcard = "*"

// Object is what a Match asks of an object.
type Object struct {
	Group, Kind  string
	Version      string // not read by a Match, nor is Resource
	Resource     string // such as "pods"; "": not known
	Namespace    string // "": cluster-scoped
	Name         string
	GenerateName string // only read if Match.ReadsGenerateName
	Labels       labels.Labels
	Generated    bool // by expansion, of an object that has a template in it
	// Manifest says that it is matched as "gator test" does: whatever is in no namespace is in one without a name and
	// without labels, and what is in a Namespace that is not there is asked for that first.
	Manifest bool
}

// IsNamespace reports whether the object is a Namespace.
func (o *Object) IsNamespace() bool { return o.Kind == "Namespace" && o.Group == "" }

// Match is a compiled spec.match. The zero value matches every object.
type Match struct {
	kinds             []kinds
	scope             scope
	namespaces        []glob
	excluded          []glob
	name              *glob
	labels            labels.Selector // nil: all
	namespaceSelector labels.Selector // nil: all
	source            source
}

type scope uint8

const (
	anyScope scope = iota
	clusterScope
	namespacedScope
)

type source uint8

const (
	anySource source = iota
	original
	generated
)

// kinds is one entry of match.kinds. Empty lists select everything.
type kinds struct{ groups, kinds []string }

func has(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }

// SelectsKind reports whether an object of the kind may match.
func (m *Match) SelectsKind(group, kind string) bool {
	if len(m.kinds) == 0 {
		return true
	}
	for i := range m.kinds {
		if k := &m.kinds[i]; has(k.kinds, kind) && has(k.groups, group) {
			return true
		}
	}
	return false
}

// A KindPattern is a kind that a Match selects. An empty Group is the core group.
type KindPattern struct {
	Group, Kind       string
	AnyGroup, AnyKind bool
}

// Kinds returns what SelectsKind selects: one pattern for each pair of an entry.
func (m *Match) Kinds() []KindPattern {
	if len(m.kinds) == 0 {
		return []KindPattern{{AnyGroup: true, AnyKind: true}}
	}
	var out []KindPattern
	for _, k := range m.kinds {
		groups, kinds := k.groups, k.kinds
		if len(groups) == 0 {
			groups = []string{wildcard}
		}
		if len(kinds) == 0 {
			kinds = []string{wildcard}
		}
		for _, kind := range kinds {
			for _, group := range groups {
				p := KindPattern{Group: group, Kind: kind, AnyGroup: group == wildcard, AnyKind: kind == wildcard}
				if p.AnyGroup {
					p.Group = ""
				}
				if p.AnyKind {
					p.Kind = ""
				}
				if !slices.Contains(out, p) {
					out = append(out, p)
				}
			}
		}
	}
	return out
}

// Static reports whether all parts match that ask the object alone. It is the whole
// answer unless ReadsNamespace.
func (m *Match) Static(o *Object) bool {
	return m.SelectsKind(o.Group, o.Kind) && m.selectsScope(o) && m.selectsNamespace(o) &&
		(m.labels == nil || m.labels.Matches(o.Labels)) && m.selectsOwnLabels(o) &&
		(o.Manifest && m.ReadsNamespace(o) || m.Named(o))
}

// Named reports whether name and source match. Of a Manifest that ReadsNamespace it is asked
// once the Namespace matches.
func (m *Match) Named(o *Object) bool {
	return m.selectsName(o) && (m.source == anySource || (m.source == generated) == o.Generated)
}

// selectsOwnLabels reports whether namespaceSelector selects what has no other Namespace.
func (m *Match) selectsOwnLabels(o *Object) bool {
	switch {
	case m.namespaceSelector == nil:
		return true
	case o.IsNamespace():
		return m.namespaceSelector.Matches(o.Labels)
	}
	return !o.Manifest || o.Namespace != "" || m.namespaceSelector.Matches(labels.Set{})
}

// ReadsNamespace reports whether the answer depends on the labels of the object's Namespace.
func (m *Match) ReadsNamespace(o *Object) bool {
	return m.namespaceSelector != nil && o.Namespace != "" && !o.IsNamespace()
}

// Namespace reports whether namespaceSelector selects a Namespace with these labels.
func (m *Match) Namespace(of labels.Labels) bool {
	return m.namespaceSelector == nil || m.namespaceSelector.Matches(of)
}

// ByLabels reports whether the Match depends on labels of objects.
func (m *Match) ByLabels() bool { return m.labels != nil }

// ByNamespaceLabels reports whether the Match depends on labels of Namespaces.
func (m *Match) ByNamespaceLabels() bool { return m.namespaceSelector != nil }

// ReadsGenerateName reports whether Object.GenerateName can decide: where the name
// alone does not match, and the pattern is open at its end.
func (m *Match) ReadsGenerateName(o *Object) bool {
	return m.name != nil && m.name.openTail && !m.name.matches(o.Name)
}

func (m *Match) selectsScope(o *Object) bool {
	switch m.scope {
	case clusterScope:
		return o.Namespace == "" && !o.Manifest || o.IsNamespace()
	case namespacedScope:
		return (o.Namespace != "" || o.Manifest) && !o.IsNamespace()
	default:
		return true
	}
}

// selectsNamespace reports whether namespaces and excludedNamespaces select an object.
func (m *Match) selectsNamespace(o *Object) bool {
	namespace := o.Namespace
	if o.IsNamespace() {
		namespace = o.Name
	} else if namespace == "" && !o.Manifest {
		return true
	}
	return (len(m.namespaces) == 0 || anyMatches(m.namespaces, namespace)) && !anyMatches(m.excluded, namespace)
}

func (m *Match) selectsName(o *Object) bool {
	return m.name == nil || m.name.matches(o.Name) || m.name.openTail && m.name.matches(o.GenerateName)
}

// glob is a string with an asterisk at either end or none.
type glob struct {
	text                string
	openStart, openTail bool
}

func parseGlob(s string) glob {
	g := glob{text: s, openStart: strings.HasPrefix(s, wildcard), openTail: strings.HasSuffix(s, wildcard)}
	if g.openStart {
		g.text = strings.TrimPrefix(g.text, wildcard)
	}
	if g.openTail {
		g.text = strings.TrimSuffix(g.text, wildcard)
	}
	return g
}

func (g *glob) matches(s string) bool {
	switch {
	case g.openStart && g.openTail:
		return strings.Contains(s, g.text)
	case g.openStart:
		return strings.HasSuffix(s, g.text)
	case g.openTail:
		return strings.HasPrefix(s, g.text)
	default:
		return s == g.text
	}
}

func anyMatches(globs []glob, s string) bool {
	for i := range globs {
		if globs[i].matches(s) {
			return true
		}
	}
	return false
}
