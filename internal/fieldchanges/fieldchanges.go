package fieldchanges

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Change is a field that differs.
type Change struct {
	Path   string          `json:"path"`             // a JSON Pointer (RFC 6901); "" is the whole object
	Before json.RawMessage `json:"before,omitempty"` // not set where there was none
	After  json.RawMessage `json:"after,omitempty"`  // not set where there is none
	// Redacted says that the value is not held: neither side is set.
	Redacted bool `json:"redacted,omitempty"`
}

// Absent is the value of what there is not.
var Absent any = absent{}

type absent struct{}

// Decode decodes JSON.
func Decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("something follows the JSON")
	}
	return value, nil
}

// Between returns how one value differs from another, by path. Objects and lists are compared by field and
// position.
func Between(before, after any) []Change {
	var out []Change
	add(&out, "", before, after)
	return out
}

func add(out *[]Change, path string, before, after any) {
	if reflect.DeepEqual(before, after) {
		return
	}
	a, isObject := before.(map[string]any)
	b, toObject := after.(map[string]any)
	if isObject && toObject {
		for _, field := range fieldsOf(a, b) {
			add(out, path+"/"+escape(field), at(a, field), at(b, field))
		}
		return
	}
	x, isList := before.([]any)
	y, toList := after.([]any)
	if isList && toList {
		for i := range max(len(x), len(y)) {
			add(out, path+"/"+strconv.Itoa(i), item(x, i), item(y, i))
		}
		return
	}
	*out = append(*out, Change{Path: path, Before: encode(before), After: encode(after)})
}

func fieldsOf(a, b map[string]any) []string {
	return slices.Compact(slices.Sorted(func(yield func(string) bool) {
		for _, m := range []map[string]any{a, b} {
			for field := range m {
				if !yield(field) {
					return
				}
			}
		}
	}))
}

func at(object map[string]any, field string) any {
	if v, ok := object[field]; ok {
		return v
	}
	return Absent
}

func item(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return Absent
}

// encode returns a value as JSON, nil for Absent.
func encode(value any) json.RawMessage {
	if value == Absent {
		return nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil // it was decoded from JSON
	}
	return text
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

func escape(field string) string { return escaper.Replace(field) }

// Merge returns an object after a JSON merge patch (RFC 7386).
func Merge(object, patch any) any {
	fields, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out := map[string]any{}
	if before, ok := object.(map[string]any); ok {
		maps.Copy(out, before)
	}
	for field, value := range fields {
		if value == nil {
			delete(out, field)
		} else {
			out[field] = Merge(at(out, field), value)
		}
	}
	return out
}

// Apply returns about what an object is after applying a configuration to it: fields are merged, lists of named
// items by their names, and other lists are replaced. Which lists a server merges, and which fields it removes as
// its applier has applied them before, only it knows.
func Apply(object, config any) any {
	switch config := config.(type) {
	case map[string]any:
		out := map[string]any{}
		if before, ok := object.(map[string]any); ok {
			maps.Copy(out, before)
		}
		for field, value := range config {
			out[field] = Apply(at(out, field), value)
		}
		return out
	case []any:
		before, _ := object.([]any)
		if !named(before) || !named(config) {
			return config
		}
		out := slices.Clone(before)
		for _, value := range config {
			name := value.(map[string]any)["name"]
			i := slices.IndexFunc(out, func(x any) bool { return x.(map[string]any)["name"] == name })
			if i < 0 {
				out = append(out, value)
			} else {
				out[i] = Apply(out[i], value)
			}
		}
		return out
	}
	return config
}

// named reports whether all items of a list have a name.
func named(list []any) bool {
	return !slices.ContainsFunc(list, func(x any) bool {
		object, _ := x.(map[string]any)
		_, ok := object["name"].(string)
		return !ok
	})
}

// paths are some paths, and what is above them: a record may have a hundred thousand.
type paths struct{ given, above map[string]bool }

func newPaths(given []string) paths {
	p := paths{map[string]bool{}, map[string]bool{}}
	for _, path := range given {
		p.given[path] = true
		for path != "" {
			path = parent(path)
			if p.above[path] {
				break
			}
			p.above[path] = true
		}
	}
	return p
}

// related reports whether a path is one of them, or above or below one.
func (p paths) related(path string) bool {
	if p.above[path] {
		return true
	}
	for !p.given[path] {
		if path == "" {
			return false
		}
		path = parent(path)
	}
	return true
}

func parent(path string) string { return path[:strings.LastIndexByte(path, '/')] }

// leaves returns the paths of the values of a merge patch that are no objects, or empty ones.
func leaves(patch any) []string {
	var out []string
	var walk func(path string, value any)
	walk = func(path string, value any) {
		object, ok := value.(map[string]any)
		if !ok || len(object) == 0 {
			out = append(out, path)
			return
		}
		for _, field := range slices.Sorted(maps.Keys(object)) {
			walk(path+"/"+escape(field), object[field])
		}
	}
	walk("", patch)
	return out
}
