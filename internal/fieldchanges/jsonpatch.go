package fieldchanges

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Operation is an operation of a JSON patch (RFC 6902).
type Operation struct {
	Op    string
	Path  string
	From  string
	Value any
}

// Bounds of a patch, whose copies of copies could be of any size.
const (
	maxOperations = 1000
	maxCopies     = 100
	maxValues     = 200_000 // that a copy leads to
)

// ParsePatch parses a JSON patch.
func ParsePatch(text []byte) ([]Operation, error) {
	var raw []struct {
		Op, Path, From string
		Value          json.RawMessage
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("it is not a JSON patch: %w", err)
	}
	if len(raw) > maxOperations {
		return nil, fmt.Errorf("it has %d operations, at most %d are read", len(raw), maxOperations)
	}
	out := make([]Operation, len(raw))
	copies := 0
	for i, r := range raw {
		if r.Op == "copy" {
			copies++
		}
		if copies > maxCopies {
			return nil, fmt.Errorf("it has more than %d copies", maxCopies)
		}
		out[i] = Operation{Op: r.Op, Path: r.Path, From: r.From}
		if r.Value != nil {
			value, err := Decode(r.Value)
			if err != nil {
				return nil, err
			}
			out[i].Value = value
		} else if r.Op == "add" || r.Op == "replace" || r.Op == "test" {
			return nil, fmt.Errorf("operation %d has no value", i)
		}
	}
	return out, nil
}

// Patch returns a value after a JSON patch, or an error where the patch does not fit.
func Patch(value any, patch []Operation) (any, error) {
	for i, o := range patch {
		next, err := o.Do(value)
		if err != nil {
			return nil, fmt.Errorf("operation %d, %s %s: %w", i, o.Op, o.Path, err)
		}
		value = next
	}
	return value, nil
}

var errMissing = errors.New("there is no such field")

// Do returns a value after the operation.
func (o Operation) Do(value any) (any, error) {
	path, err := parsePointer(o.Path)
	if err != nil {
		return nil, err
	}
	switch o.Op {
	case "add":
		return edit(value, path, put(o.Value, true))
	case "replace":
		return edit(value, path, put(o.Value, false))
	case "remove":
		return edit(value, path, remove)
	case "test":
		found, err := get(value, path)
		if err == nil && !equalJSON(found, o.Value) {
			err = errors.New("the value is another")
		}
		return value, err
	case "move", "copy":
		from, err := parsePointer(o.From)
		if err != nil {
			return nil, err
		}
		moved, err := get(value, from)
		if err != nil {
			return nil, err
		}
		if o.Op == "move" {
			if len(path) > len(from) && slices.Equal(path[:len(from)], from) {
				return nil, errors.New("a value cannot move into itself")
			}
			if value, err = edit(value, from, remove); err != nil {
				return nil, err
			}
		}
		value, err = edit(value, path, put(moved, true))
		if left := maxValues; o.Op == "copy" && err == nil && !fits(value, &left) {
			err = fmt.Errorf("the object has more than %d values after it", maxValues)
		}
		return value, err
	}
	return nil, fmt.Errorf("%q is no operation", o.Op)
}

// equalJSON reports whether two values are the same; numbers by their value.
func equalJSON(a, b any) bool {
	x, isNumber := a.(json.Number)
	y, toNumber := b.(json.Number)
	if isNumber && toNumber {
		f, errA := x.Float64()
		g, errB := y.Float64()
		return x == y || errA == nil && errB == nil && f == g
	}
	return reflect.DeepEqual(a, b)
}

func parsePointer(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	if text[0] != '/' {
		return nil, errors.New("the path does not begin with a slash")
	}
	steps := strings.Split(text[1:], "/")
	for i, s := range steps {
		steps[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(s)
	}
	return steps, nil
}

// fits reports whether a value has at most so many values, and subtracts them.
func fits(value any, left *int) bool {
	if *left--; *left < 0 {
		return false
	}
	switch in := value.(type) {
	case map[string]any:
		for _, v := range in {
			if !fits(v, left) {
				return false
			}
		}
	case []any:
		for _, v := range in {
			if !fits(v, left) {
				return false
			}
		}
	}
	return true
}

func get(value any, path []string) (any, error) {
	for _, step := range path {
		switch in := value.(type) {
		case map[string]any:
			next, ok := in[step]
			if !ok {
				return nil, errMissing
			}
			value = next
		case []any:
			i, err := position(step, len(in)-1)
			if err != nil {
				return nil, err
			}
			value = in[i]
		default:
			return nil, errMissing
		}
	}
	return value, nil
}

// position parses a position in a list, up to a last one.
func position(step string, last int) (int, error) {
	i, err := strconv.Atoi(step)
	if err != nil || i < 0 || i > last || strconv.Itoa(i) != step {
		return 0, errMissing
	}
	return i, nil
}

// An editor changes what is at a step of an object or list, which it may change.
type editor struct {
	root   func() (any, error)
	object func(in map[string]any, field string) error
	list   func(in []any, step string) ([]any, error)
}

// edit returns a value with a change at a path.
func edit(value any, path []string, e editor) (any, error) {
	if len(path) == 0 {
		return e.root()
	}
	step := path[0]
	switch in := value.(type) {
	case map[string]any:
		out := maps.Clone(in)
		if len(path) == 1 {
			return out, e.object(out, step)
		}
		inner, ok := in[step]
		if !ok {
			return nil, errMissing
		}
		next, err := edit(inner, path[1:], e)
		out[step] = next
		return out, err
	case []any:
		out := slices.Clone(in)
		if len(path) == 1 {
			return e.list(out, step)
		}
		i, err := position(step, len(in)-1)
		if err != nil {
			return nil, err
		}
		out[i], err = edit(in[i], path[1:], e)
		return out, err
	}
	return nil, errMissing
}

// put adds a value, or replaces one.
func put(value any, isNew bool) editor {
	return editor{
		root: func() (any, error) { return value, nil },
		object: func(in map[string]any, field string) error {
			if _, ok := in[field]; !ok && !isNew {
				return errMissing
			}
			in[field] = value
			return nil
		},
		list: func(in []any, step string) ([]any, error) {
			if isNew && step == "-" {
				return append(in, value), nil
			}
			last := len(in) - 1
			if isNew {
				last++
			}
			i, err := position(step, last)
			if err != nil {
				return nil, err
			}
			if isNew {
				return slices.Insert(in, i, value), nil
			}
			in[i] = value
			return in, nil
		},
	}
}

var remove = editor{
	root: func() (any, error) { return nil, errors.New("the whole object cannot be removed") },
	object: func(in map[string]any, field string) error {
		if _, ok := in[field]; !ok {
			return errMissing
		}
		delete(in, field)
		return nil
	},
	list: func(in []any, step string) ([]any, error) {
		i, err := position(step, len(in)-1)
		if err != nil {
			return nil, err
		}
		return slices.Delete(in, i, i+1), nil
	},
}
