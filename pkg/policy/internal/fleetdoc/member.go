package fleetdoc

import (
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/value"
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
func MemberDocument(m *aggregate.Member, parts Parts) value.Value {
	return object(memberPairs(m, parts))
}

// MemberInput is MemberDocument with the member's name, as input.member is.
func MemberInput(m *aggregate.Member, parts Parts) value.Value {
	return object(append(memberPairs(m, parts), value.Text("name"), value.Text(m.Name)))
}

// object is the object of keys that are all different.
func object(pairs []value.Value) value.Value {
	v, _ := (*value.Arena)(nil).Object(pairs)
	return v
}

func memberPairs(m *aggregate.Member, parts Parts) []value.Value {
	pairs := make([]value.Value, 0, 2*len(Fields)+2)
	for name, part := range Fields {
		if parts&part == 0 {
			continue
		}
		if v := MemberField(m, name); v.Defined() {
			pairs = append(pairs, value.Text(name), v)
		}
	}
	return pairs
}

// MemberField is a field of MemberDocument, undefined for one that it does not have.
func MemberField(m *aggregate.Member, field string) value.Value {
	switch field {
	case "apis":
		return texts(m.APIs)
	case "labels":
		return labels(m.Labels)
	case "annotations":
		return labels(m.Cluster.Annotations)
	case "paused":
		return value.Bool(m.Cluster.Paused)
	case "conditions":
		return conditions(m.Cluster.Conditions)
	case "topology":
		return topology(&m.Cluster)
	case "version":
		return value.Text(m.Version)
	}
	return value.Value{}
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

func texts(list []string) value.Value {
	elems := make([]value.Value, 0, len(list))
	for _, s := range list {
		elems = append(elems, value.Text(s))
	}
	return value.ArrayOf(elems)
}

func labels(list []aggregate.Label) value.Value {
	pairs := make([]value.Value, 0, 2*len(list))
	for _, l := range list {
		pairs = append(pairs, value.Text(l.Key), value.Text(l.Value))
	}
	return object(pairs)
}

// conditions are by type, and each has its type, so that they can be looked up and
// iterated over as those of the Cluster.
func conditions(list []aggregate.Condition) value.Value {
	pairs := make([]value.Value, 0, 2*len(list))
	for i := range list {
		c := &list[i]
		fields := make([]value.Value, 0, 10)
		for _, f := range conditionFields(c) {
			if f[1] != "" || f[0] == "status" {
				fields = append(fields, value.Text(f[0]), value.Text(f[1]))
			}
		}
		pairs = append(pairs, value.Text(c.Type), object(fields))
	}
	return object(pairs)
}

func conditionFields(c *aggregate.Condition) [5][2]string {
	return [5][2]string{{"type", c.Type}, {"status", c.Status}, {"reason", c.Reason}, {"message", c.Message}, {"lastTransitionTime", c.Since}}
}

// topology is undefined for a Cluster that has none.
func topology(c *aggregate.Cluster) value.Value {
	if c.Class == "" && c.Version == "" {
		return value.Value{}
	}
	return value.ObjectOf([]value.Value{value.Text("class"), value.Text(c.Class), value.Text("version"), value.Text(c.Version)})
}
