package fleetdoc

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/mask"
)

// Parts are parts of what is known of a member: each is read, and changes, by itself.
type Parts uint8

// The parts of a member, by the names of their fields.
const (
	Labels Parts = 1 << iota
	Annotations
	Paused
	Conditions
	Topology
	Version
	APIs
	AllParts Parts = 1<<iota - 1
)

// Fields are the parts by name.
var Fields = map[string]Parts{
	"labels": Labels, "annotations": Annotations, "paused": Paused, "conditions": Conditions,
	"topology": Topology, "version": Version, "apis": APIs,
}

// PartsOf returns the parts of a member that a mask reads.
func PartsOf(m *mask.Mask) (p Parts) {
	for name, part := range Fields {
		if m.Child(name) != nil {
			p |= part
		}
	}
	return p
}

// Changed returns the parts that differ.
func Changed(a, b *aggregate.Member) (p Parts) {
	for part, same := range map[Parts]bool{
		Labels:      slices.Equal(a.Labels, b.Labels),
		Annotations: slices.Equal(a.Cluster.Annotations, b.Cluster.Annotations),
		Paused:      a.Cluster.Paused == b.Cluster.Paused,
		Conditions:  slices.Equal(a.Cluster.Conditions, b.Cluster.Conditions),
		Topology:    a.Cluster.Class == b.Cluster.Class && a.Cluster.Version == b.Cluster.Version,
		Version:     a.Version == b.Version,
		APIs:        slices.Equal(a.APIs, b.APIs),
	} {
		if !same {
			p |= part
		}
	}
	return p
}

// Differ reports whether what a mask reads of two members differs, of the parts that do.
func Differ(a, b *aggregate.Member, parts Parts, m *mask.Mask) bool {
	for name, part := range Fields {
		reads := m.Child(name)
		if parts&part == 0 || reads == nil {
			continue
		}
		switch {
		case reads.All:
			return true
		case part == Labels:
			if readsAny(reads, DifferingLabels(a.Labels, b.Labels)) {
				return true
			}
		case part == Annotations:
			if readsAny(reads, DifferingLabels(a.Cluster.Annotations, b.Cluster.Annotations)) {
				return true
			}
		case part == Conditions:
			for key, fields := range DifferingConditions(a.Cluster.Conditions, b.Cluster.Conditions) {
				if of := reads.Child(key); of != nil && (slices.Contains(fields, "type") || slices.ContainsFunc(fields, func(f string) bool { return of.Child(f) != nil })) {
					return true
				}
			}
		default:
			return true
		}
	}
	return false
}

func readsAny(m *mask.Mask, keys []string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return m.Child(k) != nil })
}

// DifferingLabels returns the keys under which labels or annotations differ.
func DifferingLabels(a, b []aggregate.Label) (keys []string) {
	differ(a, b, func(x aggregate.Label) string { return x.Key }, func(key string, _, _ aggregate.Label) { keys = append(keys, key) })
	return keys
}

// DifferingConditions returns the types of the conditions that differ, and the fields that do.
func DifferingConditions(a, b []aggregate.Condition) map[string][]string {
	out := map[string][]string{}
	differ(a, b, func(x aggregate.Condition) string { return x.Type }, func(key string, x, y aggregate.Condition) {
		was, is := conditionFields(&x), conditionFields(&y)
		for i := range was {
			if was[i] != is[i] || x.Type != y.Type { // of one that appeared or vanished, all do
				out[key] = append(out[key], was[i][0])
			}
		}
	})
	return out
}

// differ calls found for each key under which two lists differ; one that a list does not have is zero there.
func differ[T comparable](a, b []T, keyOf func(T) string, found func(key string, a, b T)) {
	was := make(map[string]T, len(a))
	for _, x := range a {
		was[keyOf(x)] = x
	}
	for _, y := range b {
		key := keyOf(y)
		if x := was[key]; x != y {
			found(key, x, y)
		}
		delete(was, key)
	}
	for key, x := range was {
		var none T
		found(key, x, none)
	}
}

// MemberDocument has the given parts of a member.
func MemberDocument(m *aggregate.Member, parts Parts) ast.Value {
	return ast.NewObject(memberItems(m, parts)...)
}

// MemberTerm is MemberDocument with the member's name, as input.member is.
func MemberTerm(m *aggregate.Member, parts Parts) *ast.Term {
	return ast.ObjectTerm(append(memberItems(m, parts), ast.Item(ast.InternedTerm("name"), ast.StringTerm(m.Name)))...)
}

func memberItems(m *aggregate.Member, parts Parts) [][2]*ast.Term {
	items := make([][2]*ast.Term, 0, len(Fields)+1)
	for name, part := range Fields {
		if parts&part == 0 {
			continue
		}
		if v := MemberField(m, name); v != nil {
			items = append(items, ast.Item(ast.InternedTerm(name), ast.NewTerm(v)))
		}
	}
	return items
}

// MemberField is a field of MemberDocument, nil for one that it does not have.
func MemberField(m *aggregate.Member, field string) ast.Value {
	switch field {
	case "apis":
		return apis(m)
	case "labels":
		return pairs(m.Labels)
	case "annotations":
		return pairs(m.Cluster.Annotations)
	case "paused":
		return ast.Boolean(m.Cluster.Paused)
	case "conditions":
		return conditions(m.Cluster.Conditions)
	case "topology":
		return topology(&m.Cluster)
	case "version":
		return ast.String(m.Version)
	}
	return nil
}

// Size estimates the bytes of JSON of a member's parts.
func Size(m *aggregate.Member, parts Parts) int {
	n := len(m.Name)
	if parts&Labels != 0 {
		n += sizeOf(m.Labels)
	}
	if parts&Annotations != 0 {
		n += sizeOf(m.Cluster.Annotations)
	}
	if parts&Conditions != 0 {
		for _, c := range m.Cluster.Conditions {
			n += 2*len(c.Type) + len(c.Status) + len(c.Reason) + len(c.Message) + len(c.Since)
		}
	}
	if parts&APIs != 0 {
		for _, a := range m.APIs {
			n += len(a)
		}
	}
	return n
}

func sizeOf(list []aggregate.Label) (n int) {
	for _, l := range list {
		n += len(l.Key) + len(l.Value)
	}
	return n
}

func apis(m *aggregate.Member) ast.Value {
	apis := make([]*ast.Term, 0, len(m.APIs))
	for _, a := range m.APIs {
		apis = append(apis, ast.StringTerm(a))
	}
	return ast.NewArray(apis...)
}

func pairs(list []aggregate.Label) ast.Value {
	items := make([][2]*ast.Term, 0, len(list))
	for _, l := range list {
		items = append(items, ast.Item(ast.StringTerm(l.Key), ast.StringTerm(l.Value)))
	}
	return ast.NewObject(items...)
}

// conditions are by type, and each has its type, so that they can be looked up and
// iterated over as those of the Cluster.
func conditions(list []aggregate.Condition) ast.Value {
	items := make([][2]*ast.Term, 0, len(list))
	for i := range list {
		c := &list[i]
		fields := make([][2]*ast.Term, 0, 5)
		for _, f := range conditionFields(c) {
			if f[1] != "" || f[0] == "status" {
				fields = append(fields, ast.Item(ast.InternedTerm(f[0]), ast.StringTerm(f[1])))
			}
		}
		items = append(items, ast.Item(ast.StringTerm(c.Type), ast.ObjectTerm(fields...)))
	}
	return ast.NewObject(items...)
}

func conditionFields(c *aggregate.Condition) [5][2]string {
	return [5][2]string{{"type", c.Type}, {"status", c.Status}, {"reason", c.Reason}, {"message", c.Message}, {"lastTransitionTime", c.Since}}
}

// topology is nil for a Cluster that has none.
func topology(c *aggregate.Cluster) ast.Value {
	if c.Class == "" && c.Version == "" {
		return nil
	}
	return ast.NewObject(
		ast.Item(ast.InternedTerm("class"), ast.StringTerm(c.Class)),
		ast.Item(ast.InternedTerm("version"), ast.StringTerm(c.Version)),
	)
}
