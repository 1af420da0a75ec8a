package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"federator.dev/federator/internal/canonjson"
	"federator.dev/federator/pkg/aggregate"
)

// Change is a field that differs. Before is not set where there was none, After where there is none.
type Change struct {
	// Path is that of the field as kubectl users write it: spec.replicas, metadata.labels[app.kubernetes.io/name],
	// status.conditions[Ready].status. Items of lists are called by their type, name or key, else by their position.
	Path   string          `json:"path"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// Cut says that a value was too long, and has only its beginning, as a string.
	Cut bool `json:"cut,omitempty"`
}

// SchemaName is the name of the component in OpenAPI, which clients generate code from.
func (Change) SchemaName() string { return "FieldTransition" }

// PathError is of a path of a field that cannot be recorded.
type PathError struct{ Path, Reason string }

func (e *PathError) Error() string { return fmt.Sprintf("field %q: %s", e.Path, e.Reason) }

// Bounds of what is recorded of one transition.
const (
	maxChanges = 256
	maxValue   = 1024 // bytes of a value
	maxPaths   = 64   // of a kind
	maxSteps   = 16
	maxPath    = 1024 // bytes of a path: of a longer one only that it has changed
)

// selection is a tree of the fields that are recorded of a kind.
type selection struct {
	whole bool // all below is recorded
	never bool // nothing is, whatever is above
	steps map[string]*selection
}

// valueFields are those of Secrets and ConfigMaps that have values: these are never recorded.
var valueFields = map[aggregate.Kind][]string{
	"Secret":    {"data", "stringData"},
	"ConfigMap": {"data", "binaryData"},
}

// lastApplied is the annotation that kubectl writes these values to, too.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// newSelection returns what is recorded of a kind: fields by their paths.
func newSelection(kind aggregate.Kind, paths []string) (*selection, error) {
	if len(paths) > maxPaths {
		return nil, &PathError{paths[maxPaths], fmt.Sprintf("a kind may have %d fields", maxPaths)}
	}
	root := &selection{}
	for _, path := range paths {
		steps, err := parsePath(path)
		if err != nil {
			return nil, err
		}
		if slices.Contains(valueFields[kind], steps[0]) {
			return nil, &PathError{path, fmt.Sprintf("values of a %s are never recorded", kind)}
		}
		root.at(steps).whole = true
	}
	if valueFields[kind] != nil {
		*root.at([]string{"metadata", "annotations", lastApplied}) = selection{never: true}
	}
	root.spread()
	return root, nil
}

// spread has all be recorded that is below what is.
func (s *selection) spread() {
	for _, next := range s.steps {
		next.whole = next.whole || s.whole
		next.spread()
	}
}

// at returns what is selected below some steps, which it makes.
func (s *selection) at(steps []string) *selection {
	for _, step := range steps {
		next := s.steps[step]
		if next == nil {
			if s.steps == nil {
				s.steps = map[string]*selection{}
			}
			next = &selection{}
			s.steps[step] = next
		}
		s = next
	}
	return s
}

// parsePath parses a path: names with dots between them, and in brackets what has dots itself, or names an item.
func parsePath(path string) (steps []string, err error) {
	for rest := path; rest != ""; {
		var step string
		switch {
		case rest[0] == '[':
			end := strings.IndexByte(rest, ']')
			if end < 0 {
				return nil, &PathError{path, "a bracket is not closed"}
			}
			step, rest = rest[1:end], rest[end+1:]
		default:
			if len(steps) > 0 {
				if rest[0] != '.' {
					return nil, &PathError{path, "a dot or bracket is missing behind " + strconv.Quote(steps[len(steps)-1])}
				}
				rest = rest[1:]
			}
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			step, rest = rest[:end], rest[end:]
		}
		if step == "" {
			return nil, &PathError{path, "a name is empty"}
		}
		if steps = append(steps, step); len(steps) > maxSteps {
			return nil, &PathError{path, fmt.Sprintf("it has more than %d names", maxSteps)}
		}
	}
	if len(steps) == 0 {
		return nil, &PathError{path, "it is empty"}
	}
	return steps, nil
}

// leaf is a recorded field of an object. It lives as long as the body and the walker's paths.
type leaf struct {
	path  []byte
	value []byte // JSON, of the walked body
}

// walker collects the recorded fields of one object after the other. It belongs to one goroutine.
type walker struct {
	path  []byte
	paths []byte // of the leafs
	out   []leaf
}

// fields returns all recorded fields of a body, by path. They live until the next call, and until the body changes.
func (w *walker) fields(body []byte, s *selection) []leaf {
	w.out, w.path, w.paths = w.out[:0], w.path[:0], w.paths[:0]
	r := canonjson.NewReader(body)
	w.value(&r, s)
	byPath := func(a, b leaf) int { return bytes.Compare(a.path, b.path) }
	if !slices.IsSortedFunc(w.out, byPath) {
		slices.SortStableFunc(w.out, byPath) // items of a list may have one name
	}
	return w.out
}

// value walks the next value, of which a selection is recorded.
func (w *walker) value(r *canonjson.Reader, s *selection) {
	switch r.Peek() {
	case '{':
		w.object(r, s)
	case '[':
		w.list(r, s)
	default:
		value := r.Value()
		if s.whole && r.Err() == nil {
			w.add(value)
		}
	}
}

func (w *walker) add(value []byte) {
	from := len(w.paths)
	w.paths = append(w.paths, w.path...) // earlier leafs keep what it was before it grew
	w.out = append(w.out, leaf{w.paths[from:len(w.paths):len(w.paths)], value})
}

// below returns what is recorded below a step: nil for nothing.
func (s *selection) below(step []byte) *selection {
	next := s.steps[string(step)]
	switch {
	case next == nil && s.whole:
		return everything
	case next != nil && next.never:
		return nil
	}
	return next
}

var everything = &selection{whole: true}

func (w *walker) object(r *canonjson.Reader, s *selection) {
	empty := true
	for more := r.Open('{'); more; more = r.Next('}') {
		empty = false
		key, escaped := r.Key()
		if escaped {
			text, err := canonjson.Unquote(key)
			if err != nil {
				r.Skip()
				continue
			}
			key = []byte(text)
		}
		next := s.below(key)
		if next == nil {
			r.Skip()
			continue
		}
		length := len(w.path)
		w.push(key)
		w.value(r, next)
		w.path = w.path[:length]
	}
	if empty && s.whole && r.Err() == nil {
		w.add([]byte("{}"))
	}
}

func (w *walker) list(r *canonjson.Reader, s *selection) {
	i := 0
	for more := r.Open('['); more; more = r.Next(']') {
		item := r.Value()
		if r.Err() != nil {
			return
		}
		name := identity(item)
		next := s
		if of := s.steps[string(name)]; of != nil && name != nil {
			next = of
		}
		length := len(w.path)
		w.path = append(w.path, '[')
		if name != nil {
			w.path = append(w.path, name...)
		} else {
			w.path = strconv.AppendInt(w.path, int64(i), 10)
		}
		w.path = append(w.path, ']')
		of := canonjson.NewReader(item)
		w.value(&of, next)
		w.path = w.path[:length]
		i++
	}
	if i == 0 && s.whole && r.Err() == nil {
		w.add([]byte("[]"))
	}
}

// identity returns what an item of a list is called, nil where it has no name.
func identity(item []byte) []byte {
	if len(item) == 0 || item[0] != '{' {
		return nil
	}
	for _, field := range [...]string{"type", "name", "key"} {
		value := canonjson.Get(item, field)
		if len(value) > 2 && value[0] == '"' && bytes.IndexByte(value, '\\') < 0 && len(value) <= 256 {
			return value[1 : len(value)-1]
		}
	}
	return nil
}

// push adds a step to the path.
func (w *walker) push(step []byte) {
	if plain(step) {
		if len(w.path) > 0 {
			w.path = append(w.path, '.')
		}
		w.path = append(w.path, step...)
		return
	}
	w.path = append(append(append(w.path, '['), step...), ']')
}

// plain reports whether a step needs no brackets.
func plain(step []byte) bool {
	return len(step) > 0 && bytes.IndexFunc(step, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}) < 0
}

// between returns how the recorded fields of two versions of an object differ, by path. What it returns shares no
// memory with them.
func between(before, after []leaf) (changes []Change, more int) {
	add := func(path, b, a []byte) {
		if len(changes) == maxChanges || len(path) > maxPath {
			more++
			return
		}
		c := Change{Path: string(path)}
		var cutBefore, cutAfter bool
		c.Before, cutBefore = clipped(b)
		c.After, cutAfter = clipped(a)
		c.Cut = cutBefore || cutAfter
		changes = append(changes, c)
	}
	for len(before) > 0 || len(after) > 0 {
		var path []byte
		if len(before) > 0 {
			path = before[0].path
		}
		if len(before) == 0 || len(after) > 0 && bytes.Compare(after[0].path, path) < 0 {
			path = after[0].path
		}
		b, a := run(before, path), run(after, path)
		before, after = before[len(b):], after[len(a):]
		if len(b) != 1 || len(a) != 1 {
			b, a = unlike(b, a)
		}
		for i := range max(len(b), len(a)) {
			switch {
			case i >= len(a):
				add(path, b[i].value, nil)
			case i >= len(b):
				add(path, nil, a[i].value)
			case !bytes.Equal(b[i].value, a[i].value):
				add(path, b[i].value, a[i].value)
			}
		}
	}
	return changes, more
}

// run returns the leafs at the beginning that have a path: several where items of a list have one name.
func run(of []leaf, path []byte) []leaf {
	n := 0
	for n < len(of) && bytes.Equal(of[n].path, path) {
		n++
	}
	return of[:n]
}

// unlike returns what of two sets of leafs of one path the other one does not have.
func unlike(before, after []leaf) (b, a []leaf) {
	if len(before) == 0 || len(after) == 0 {
		return before, after
	}
	values := make(map[string]int, len(after))
	for _, l := range after {
		values[string(l.value)]++
	}
	for _, l := range before {
		if values[string(l.value)] > 0 {
			values[string(l.value)]--
			continue
		}
		b = append(b, l)
	}
	for _, l := range slices.Backward(after) {
		if values[string(l.value)] > 0 {
			values[string(l.value)]--
			a = append(a, l)
		}
	}
	slices.Reverse(a)
	return b, a
}

// clipped returns a copy of a value, or of its beginning as a string.
func clipped(value []byte) (out json.RawMessage, cut bool) {
	if value == nil {
		return nil, false
	}
	if len(value) <= maxValue {
		return bytes.Clone(value), false
	}
	text, err := json.Marshal(strings.ToValidUTF8(string(value[:maxValue]), ""))
	if err != nil {
		return nil, true
	}
	return text, true
}
