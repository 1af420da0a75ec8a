package selection

import (
	"bytes"
	"encoding/json"
	"math/bits"

	"federator.dev/federator/pkg/queryapi/internal/scan"
)

// walker looks for the values of several paths in canonical JSON, in one pass.
// Sets of paths are bit masks. It belongs to one goroutine at a time.
type walker struct {
	body  []byte
	paths []slot
	found *Scratch // is told of scalars that are not null, as JSON has them
}

// slot is one path that a walker follows.
type slot struct {
	steps []string
}

// all is the mask of every path.
func (w *walker) all() uint64 { return 1<<len(w.paths) - 1 }

// walk visits the values of all paths. It reports false when the body is not
// canonical JSON as far as it was read.
func (w *walker) walk() bool { return w.value(0, 0, w.all()) >= 0 }

// value walks the value that starts at i, which the first depth steps of the
// wanted paths lead to. It returns the index after it, -1 when it is malformed.
func (w *walker) value(i, depth int, wanted uint64) int {
	b := w.body
	if i >= len(b) {
		return -1
	}
	if wanted == 0 {
		return scan.Value(b, i)
	}
	switch b[i] {
	case '{':
		return w.object(i, depth, wanted)
	case '[':
		return w.list(i, depth, wanted)
	}
	end := scan.Value(b, i)
	if end <= i {
		return -1
	}
	if b[i] == 'n' {
		return end
	}
	for m := wanted; m != 0; m &= m - 1 {
		if p := bits.TrailingZeros64(m); len(w.paths[p].steps) == depth {
			w.found.visit(p, b[i:end])
		}
	}
	return end
}

// list walks the elements of a list: a path leads to each of them.
func (w *walker) list(i, depth int, wanted uint64) int {
	b := w.body
	if i++; i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if i = w.value(i, depth, wanted); i < 0 || i >= len(b) {
			return -1
		}
		switch b[i] {
		case ']':
			return i + 1
		case ',':
			i++
		default:
			return -1
		}
	}
}

// object walks the members of an object.
func (w *walker) object(i, depth int, wanted uint64) int {
	b := w.body
	if i++; i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		key, at := scan.Key(b, i)
		if at < 0 {
			return -1
		}
		if i = w.value(at, depth+1, w.having(key, depth, wanted)); i < 0 || i >= len(b) {
			return -1
		}
		switch b[i] {
		case '}':
			return i + 1
		case ',':
			i++
		default:
			return -1
		}
	}
}

// having returns the wanted paths that have a key, with its quotes, as their
// step at depth.
func (w *walker) having(quoted []byte, depth int, wanted uint64) uint64 {
	if escaped(quoted) {
		key := text(quoted)
		quoted = append(append([]byte{'"'}, key...), '"')
	}
	key := quoted[1 : len(quoted)-1]
	var out uint64
	for m := wanted; m != 0; m &= m - 1 {
		p := bits.TrailingZeros64(m)
		if steps := w.paths[p].steps; depth < len(steps) && steps[depth] == string(key) {
			out |= 1 << p
		}
	}
	return out
}

func escaped(quoted []byte) bool { return bytes.IndexByte(quoted, '\\') >= 0 }

// text returns the text of a scalar: what is between a string's quotes, and
// anything else as it stands.
func text(v []byte) []byte {
	if v[0] != '"' {
		return v
	}
	if !escaped(v) {
		return v[1 : len(v)-1]
	}
	var s string
	if err := json.Unmarshal(v, &s); err != nil {
		return v[1 : len(v)-1]
	}
	return []byte(s)
}
