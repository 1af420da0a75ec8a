package objects

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"federator.dev/federator/internal/clip"
)

// Bounds of what Diff shows.
const (
	maxLines     = 100
	maxLineBytes = 256
)

// Diff returns what a change does, a line for each field: "- spec.replicas: 1", and
// "+ spec.replicas: 3". Either object may be nil. Where values are withheld, it says which of them
// change, and no value; of others too long ones are truncated.
func Diff(before, after map[string]any, withheld bool) string {
	if after == nil {
		return "- the object\n"
	}
	d := &differ{}
	if withheld {
		d.withheld(before, after)
	}
	d.value("", anyOf(normalize(before, withheld)), anyOf(normalize(after, withheld)))
	if d.omitted > 0 {
		d.lines = append(d.lines, fmt.Sprintf("  and %d more lines", d.omitted))
	}
	if len(d.lines) == 0 {
		return ""
	}
	return strings.Join(d.lines, "\n") + "\n"
}

// anyOf returns an object as a value: that of no object is nil.
func anyOf(object map[string]any) any {
	if object == nil {
		return nil
	}
	return object
}

type differ struct {
	lines   []string
	omitted int
}

func (d *differ) add(sign, path, text string) {
	if len(d.lines) == maxLines {
		d.omitted++
		return
	}
	d.lines = append(d.lines, clip.Line(sign+" "+path+": "+text, maxLineBytes))
}

func (d *differ) value(path string, a, b any) {
	if reflect.DeepEqual(a, b) {
		return
	}
	before, wasMap := a.(map[string]any)
	after, isMap := b.(map[string]any)
	if wasMap && isMap || wasMap && b == nil || a == nil && isMap {
		d.fields(path, before, after)
		return
	}
	old, wasList := a.([]any)
	list, isList := b.([]any)
	if wasList && isList && len(old) == len(list) {
		for i := range list {
			d.value(fmt.Sprintf("%s[%d]", path, i), old[i], list[i])
		}
		return
	}
	if a != nil {
		d.add("-", path, text(a))
	}
	if b != nil {
		d.add("+", path, text(b))
	}
}

func (d *differ) fields(path string, before, after map[string]any) {
	switch { // an empty one appears, or is gone
	case before == nil && len(after) == 0:
		d.add("+", path, "{}")
	case after == nil && len(before) == 0:
		d.add("-", path, "{}")
	}
	for _, field := range fieldsOf(before, after) {
		d.value(join(path, field), before[field], after[field])
	}
}

// withheld adds the names of values that change.
func (d *differ) withheld(before, after map[string]any) {
	for _, field := range []string{"data", "stringData", "binaryData"} {
		a, _ := before[field].(map[string]any)
		b, _ := after[field].(map[string]any)
		for _, key := range fieldsOf(a, b) {
			old, had := a[key]
			now, has := b[key]
			if had && has && !reflect.DeepEqual(old, now) {
				d.add("~", join(field, key), "another value, which is not shown")
			}
		}
	}
}

func fieldsOf(a, b map[string]any) []string {
	names := map[string]bool{}
	for field := range a {
		names[field] = true
	}
	for field := range b {
		names[field] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// join appends a field to a path. A name with dots is quoted.
func join(path, field string) string {
	if strings.ContainsAny(field, ".[]\" ") {
		return fmt.Sprintf("%s[%q]", path, field)
	}
	return strings.TrimPrefix(path+"."+field, ".")
}

func text(value any) string {
	b, err := json.Marshal(value)
	if err != nil {
		panic("objects: decoded JSON cannot be encoded: " + err.Error())
	}
	return string(b)
}
