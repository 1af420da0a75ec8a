package aggregate

import (
	"bytes"
	"math/bits"
	"strings"
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

// fieldValues appends the declared fields that the body has as scalars, in one
// pass over it. A string's value is its text where it has no escapes; numbers,
// true and false are as they stand. Anything else (null, lists, objects) is
// not indexed, but that there was a list is (see listed).
func fieldValues(dst []Label, body []byte, fields []fieldPath) []Label {
	w := fieldWalk{body: body, fields: fields, missing: 1<<len(fields) - 1}
	w.object(0, 0, w.missing)
	for i := range fields {
		if s, ok := scalar(w.found[i]); ok {
			dst = append(dst, Label{Key: fields[i].name, Value: s})
		} else if w.lists&(1<<i) != 0 {
			dst = append(dst, Label{Key: fields[i].name, Value: listed})
		}
	}
	return dst
}

// listed stands for the value of a field whose path leads to a list, or through
// one. No scalar is indexed as it: in JSON its byte is escaped.
const listed = "\x00"

// fieldWalk looks for several fields at once. Sets of fields are bit masks.
type fieldWalk struct {
	body    []byte
	fields  []fieldPath
	missing uint64 // not found yet
	found   [maxFields][]byte
	lists   uint64 // end at a list, or lead into one
}

// object walks the object that starts at i, whose path is the first depth steps
// of the wanted fields. It returns the index after it, -1 when there is no
// object, it does not end, or nothing is missing any more.
func (w *fieldWalk) object(i, depth int, wanted uint64) int {
	b := w.body
	if i >= len(b) || b[i] != '{' {
		return -1
	}
	for i++; i < len(b) && b[i] == '"'; i++ {
		end := skipString(b, i)
		if end < 0 || end >= len(b) || b[end] != ':' {
			return -1
		}
		if i = w.value(end+1, depth+1, w.having(b[i+1:end-1], depth, wanted)); i < 0 || w.missing == 0 {
			return -1
		}
		if i >= len(b) || b[i] != ',' {
			break
		}
	}
	if i >= len(b) || b[i] != '}' {
		return -1
	}
	return i + 1
}

// having returns the wanted fields that have a key as their step at depth.
func (w *fieldWalk) having(key []byte, depth int, wanted uint64) uint64 {
	for m := wanted & w.missing; m != 0; m &= m - 1 {
		f := bits.TrailingZeros64(m)
		if steps := w.fields[f].steps; depth >= len(steps) || steps[depth] != string(key) {
			wanted &^= 1 << f
		}
	}
	return wanted & w.missing
}

// value walks the value that starts at i and notes the wanted fields that end
// there. It returns the index after it, or -1.
func (w *fieldWalk) value(i, depth int, wanted uint64) int {
	if wanted == 0 {
		return skipValue(w.body, i)
	}
	var here uint64
	for m := wanted; m != 0; m &= m - 1 {
		if f := bits.TrailingZeros64(m); len(w.fields[f].steps) == depth {
			here |= 1 << f
		}
	}
	if i < len(w.body) && w.body[i] == '[' {
		w.lists |= wanted
	}
	var end int
	if deeper := wanted &^ here; deeper != 0 && i < len(w.body) && w.body[i] == '{' {
		if end = w.object(i, depth, deeper); end < 0 {
			return -1
		}
	} else if end = skipValue(w.body, i); end < 0 {
		return -1
	}
	for m := here; m != 0; m &= m - 1 {
		w.found[bits.TrailingZeros64(m)] = w.body[i:end]
	}
	w.missing &^= wanted
	return end
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

// skipString returns the index after the string that starts at i, -1 when it
// does not end.
func skipString(b []byte, i int) int {
	for i++; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		slashes := 0
		for j := i - 1; b[j] == '\\'; j-- {
			slashes++
		}
		if slashes%2 == 0 {
			return i + 1
		}
	}
}

// skipValue returns the index after the JSON value that starts at i, -1 when
// it does not end.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i < 0 {
				return -1
			}
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return -1
}
