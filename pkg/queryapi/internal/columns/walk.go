package columns

import (
	"federator.dev/federator/internal/canonjson"
)

// walker finds the values of a tree of paths in one pass over canonical JSON.
type walker struct {
	canonjson.Reader
	body   []byte
	values [][][]byte // by slot; they are parts of body
}

// walk sets the values.
func (w *walker) walk(body []byte, paths *node) {
	for i := range w.values {
		w.values[i] = w.values[i][:0]
	}
	w.body, w.Reader = body, canonjson.NewReader(body)
	w.value(paths)
	if w.End() != nil { // which the index does not hold
		for i := range w.values {
			w.values[i] = w.values[i][:0]
		}
	}
}

// value walks the next value, which is at a node.
func (w *walker) value(n *node) {
	from := w.Pos()
	if w.Peek() == 'n' {
		w.Skip()
		return
	}
	w.elements(n)
	for _, slot := range n.whole {
		w.values[slot] = append(w.values[slot], w.body[from:w.Pos()])
	}
}

// elements walks the next value and, where it is a list, all that is in it.
func (w *walker) elements(n *node) {
	switch w.Peek() {
	case '{':
		if len(n.below) == 0 {
			w.Skip()
			return
		}
		for more := w.Open('{'); more; more = w.Next('}') {
			if below := n.at(w.Key()); below != nil {
				w.value(below)
			} else {
				w.Skip()
			}
		}
	case '[':
		if len(n.below) == 0 && len(n.each) == 0 {
			w.Skip()
			return
		}
		for more := w.Open('['); more; more = w.Next(']') {
			w.elements(n)
		}
	case 'n':
		w.Skip()
	default:
		scalar := w.Value()
		if scalar == nil {
			return
		}
		for _, slot := range n.each {
			w.values[slot] = append(w.values[slot], scalar)
		}
	}
}

// at returns the node of a key below n, nil if there is none.
func (n *node) at(key []byte, escaped bool) *node {
	if escaped {
		s, err := canonjson.Unquote(key)
		if err != nil {
			return nil
		}
		key = []byte(s)
	}
	for _, b := range n.below {
		if b.key == string(key) {
			return b
		}
	}
	return nil
}
