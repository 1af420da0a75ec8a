package selection

import (
	"bytes"
	"math/bits"

	"federator.dev/federator/internal/canonjson"
)

// walker searches canonical JSON for the values of several paths, in one pass. Sets of paths
// are bit masks. It belongs to one goroutine at a time.
type walker struct {
	canonjson.Reader
	paths []slot
	found *Scratch // receives scalars that are not null, as they are in JSON
}

// slot is one path that a walker searches.
type slot struct {
	steps []string
}

// walk visits the values of all paths, as far as the body is canonical JSON.
func (w *walker) walk() { w.value(0, 1<<len(w.paths)-1) }

// value walks the next value, which is at the first depth steps of the wanted paths.
func (w *walker) value(depth int, wanted uint64) {
	if wanted == 0 {
		w.Skip()
		return
	}
	switch w.Peek() {
	case '{':
		for more := w.Open('{'); more; more = w.Next('}') {
			key, escaped := w.Key()
			w.value(depth+1, w.having(key, escaped, depth, wanted))
		}
		return
	case '[': // a path matches each element
		for more := w.Open('['); more; more = w.Next(']') {
			w.value(depth, wanted)
		}
		return
	case 'n':
		w.Skip()
		return
	}
	scalar := w.Value()
	if scalar == nil {
		return
	}
	for m := wanted; m != 0; m &= m - 1 {
		if p := bits.TrailingZeros64(m); len(w.paths[p].steps) == depth {
			w.found.visit(p, scalar)
		}
	}
}

// having returns those of the wanted paths whose step at depth is a key.
func (w *walker) having(key []byte, escaped bool, depth int, wanted uint64) uint64 {
	if escaped {
		key = unquote(key)
	}
	var out uint64
	for m := wanted; m != 0; m &= m - 1 {
		p := bits.TrailingZeros64(m)
		if steps := w.paths[p].steps; depth < len(steps) && steps[depth] == string(key) {
			out |= 1 << p
		}
	}
	return out
}

// text returns the text of a scalar: the content of a string without its quotes, anything
// else unchanged.
func text(v []byte) []byte {
	if v[0] != '"' {
		return v
	}
	if v = v[1 : len(v)-1]; bytes.IndexByte(v, '\\') >= 0 {
		return unquote(v)
	}
	return v
}

// unquote decodes the escapes in the content of a string, which is left unchanged where they
// are malformed.
func unquote(raw []byte) []byte {
	s, err := canonjson.Unquote(raw)
	if err != nil {
		return raw
	}
	return []byte(s)
}
