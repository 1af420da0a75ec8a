package external

import (
	"maps"
	"slices"

	"federator.dev/federator/pkg/policy/internal/value"
)

// Difference is how a document of a source differs.
type Difference struct {
	Source, Key string
	// Whole says that the source is there or not, unlike before, and nothing of a key.
	Whole bool
	// Shape says that it is there or not, or is an object or not, unlike before. Everything that was read of it differs.
	Shape bool
	// Fields are those that differ, of a document that is an object and was one.
	Fields []string
}

// Diff returns which contents differ, in order of source and key, and whether what is known of any does: that alone changes no
// evaluation.
func Diff(before, after *Documents) (list []Difference, knowledge bool) {
	names := map[string]bool{}
	for _, d := range []*Documents{before, after} {
		for name := range d.Sources() {
			names[name] = true
		}
	}
	knowledge = (before == nil) != (after == nil)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, is := before.of(name), after.of(name)
		if was == is {
			continue
		}
		if (was == nil) != (is == nil) {
			knowledge = true
			list = append(list, Difference{Source: name, Whole: true})
		}
		keys := map[string]bool{}
		for _, s := range []*source{was, is} {
			if s != nil {
				for key := range s.entries {
					keys[key] = true
				}
			}
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			a, b := was.entry(key), is.entry(key)
			knowledge = knowledge || a.Problem != b.Problem
			if d, differs := compare(a, b); differs {
				d.Source, d.Key = name, key
				list = append(list, d)
			}
		}
	}
	return list, knowledge
}

func (d *Documents) of(name string) *source {
	if d == nil {
		return nil
	}
	return d.sources[name]
}

var noEntry entry

func (s *source) entry(key string) *entry {
	if s == nil || s.entries[key] == nil {
		return &noEntry
	}
	return s.entries[key]
}

func compare(a, b *entry) (d Difference, differs bool) {
	if (a == &noEntry) != (b == &noEntry) { // of one that is there it may not be known that it is absent
		return Difference{Shape: true}, true
	}
	if (a.JSON == nil) == (b.JSON == nil) && a.digest == b.digest {
		return d, false
	}
	if shapeOf(a.value) != shapeOf(b.value) {
		return Difference{Shape: true}, true
	}
	if a.value.Kind() != value.Object {
		return d, true
	}
	fields := map[string]value.Value{}
	for i, pairs := 0, a.value.Pairs(); i < len(pairs); i += 2 {
		fields[pairs[i].Str()] = pairs[i+1]
	}
	for i, pairs := 0, b.value.Pairs(); i < len(pairs); i += 2 {
		name := pairs[i].Str()
		was, both := fields[name]
		if !both || !value.Equal(was, pairs[i+1]) {
			d.Fields = append(d.Fields, name)
		}
		delete(fields, name)
	}
	d.Fields = slices.AppendSeq(d.Fields, maps.Keys(fields))
	slices.Sort(d.Fields)
	return d, true
}

func shapeOf(v value.Value) int {
	switch {
	case !v.Defined():
		return 0
	case v.Kind() == value.Object:
		return 1
	}
	return 2
}
