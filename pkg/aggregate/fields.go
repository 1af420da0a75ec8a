package aggregate

import (
	"bytes"
	"math/bits"
	"strings"

	"federator.dev/federator/internal/canonjson"
)

// fieldPath is a declared field, split: spec.nodeName is ["spec" "nodeName"].
type fieldPath struct {
	name  string
	steps []string
}

func splitFields(names []string) []fieldPath {
	out := make([]fieldPath, len(names))
	for i, n := range names {
		out[i] = fieldPath{name: n, steps: strings.Split(n, ".")}
	}
	return out
}

// maxFields bounds the declared fields of a kind.
const maxFields = 64

// fieldValues appends the declared fields that the body has as scalars, in one pass over it.
// A string's value is its text if it has no escapes; numbers, true and false are their JSON.
// Anything else (null, lists, objects) is not indexed, except that there was a list (see
// listed).
func fieldValues(dst []Label, body []byte, fields []fieldPath) []Label {
	w := fieldWalk{Reader: canonjson.NewReader(body), fields: fields, missing: 1<<len(fields) - 1}
	w.object(0, w.missing)
	for i := range fields {
		if s, ok := scalar(w.found[i]); ok {
			dst = append(dst, Label{Key: fields[i].name, Value: s})
		} else if w.lists&(1<<i) != 0 {
			dst = append(dst, Label{Key: fields[i].name, Value: listed})
		}
	}
	return dst
}

// listed is the value of a field whose path ends at a list or passes through one. No scalar
// has this value: in JSON its byte is escaped.
const listed = "\x00"

// fieldWalk searches several fields at once. Sets of fields are bit masks.
type fieldWalk struct {
	canonjson.Reader
	fields  []fieldPath
	missing uint64 // not found yet
	found   [maxFields][]byte
	lists   uint64 // end at a list, or pass through one
}

// object walks the next object, whose path is the first depth steps of the wanted fields,
// until no field is missing.
func (w *fieldWalk) object(depth int, wanted uint64) {
	for more := w.Open('{'); more; more = w.missing != 0 && w.Next('}') {
		key, _ := w.Key()
		w.value(depth+1, w.having(key, depth, wanted))
	}
}

// having returns those of the wanted fields whose step at depth is a key.
func (w *fieldWalk) having(key []byte, depth int, wanted uint64) uint64 {
	for m := wanted & w.missing; m != 0; m &= m - 1 {
		f := bits.TrailingZeros64(m)
		if steps := w.fields[f].steps; depth >= len(steps) || steps[depth] != string(key) {
			wanted &^= 1 << f
		}
	}
	return wanted & w.missing
}

// value walks the next value and records the wanted fields that end there.
func (w *fieldWalk) value(depth int, wanted uint64) {
	if wanted == 0 {
		w.Skip()
		return
	}
	var here uint64
	for m := wanted; m != 0; m &= m - 1 {
		if f := bits.TrailingZeros64(m); len(w.fields[f].steps) == depth {
			here |= 1 << f
		}
	}
	first := w.Peek()
	if first == '[' {
		w.lists |= wanted
	}
	var value []byte
	if deeper := wanted &^ here; deeper != 0 && first == '{' {
		w.object(depth, deeper)
	} else {
		value = w.Value()
	}
	for m := here; m != 0; m &= m - 1 {
		w.found[bits.TrailingZeros64(m)] = value
	}
	w.missing &^= wanted
}

func scalar(v []byte) (string, bool) {
	if len(v) == 0 {
		return "", false
	}
	switch c := v[0]; {
	case c == '"':
		if len(v) < 2 || bytes.IndexByte(v, '\\') >= 0 {
			return "", false
		}
		return string(v[1 : len(v)-1]), true
	case c == '{' || c == '[' || c == 'n':
		return "", false
	}
	return string(v), true
}
