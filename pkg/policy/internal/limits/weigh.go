package limits

import "github.com/open-policy-agent/opa/v1/ast"

// weight is the size of values as a tree. A value that is referenced in several places
// counts in each: that is what walking it costs.
type weight struct {
	elements, text int // text: approximate bytes of JSON
}

// add adds a value and reports whether the weight is still within the limits; it
// stops where it is not, so it takes bounded time.
func (w *weight) add(v ast.Value) bool {
	w.elements++
	switch v := v.(type) {
	case ast.String:
		w.text += len(v) + 3
	case ast.Number:
		w.text += len(v) + 1
	case *ast.Array:
		w.text += 3
		for i := 0; i < v.Len() && w.fits(); i++ {
			w.add(v.Elem(i).Value)
		}
	case ast.Set:
		w.text += 3
		if w.elements+v.Len() > MaxElements {
			w.elements += v.Len() // before it is sorted
			break
		}
		v.Until(func(t *ast.Term) bool { return !w.add(t.Value) })
	case ast.Object:
		w.text += 3
		if w.elements+v.Len() > MaxElements {
			w.elements += v.Len()
			break
		}
		v.Until(func(k, t *ast.Term) bool { return !w.add(k.Value) || !w.add(t.Value) })
	default:
		w.text += 6
	}
	return w.fits()
}

func (w *weight) fits() bool { return w.elements <= MaxElements && w.text <= MaxText }

func (w *weight) exceeded() *Error {
	if e := within("elements", w.elements, MaxElements); e != nil {
		return e
	}
	return within("bytes of text", w.text, MaxText)
}

// weighed limits what arguments hold together, nested values included.
func weighed(positions ...int) guard {
	return func(args []*ast.Term) *Error {
		var w weight
		for _, i := range positions {
			if !w.add(args[i].Value) {
				break
			}
		}
		return w.exceeded()
	}
}

// compared limits what is compared: two scalars always fit, and so do a scalar and
// anything else.
func compared(args []*ast.Term) *Error {
	if scalar(args[0].Value) || scalar(args[1].Value) {
		return digits(args)
	}
	if args[0].Value == args[1].Value {
		return nil
	}
	// Comparing ends with the shorter side.
	var a weight
	if a.add(args[0].Value) {
		return nil
	}
	var b weight
	b.add(args[1].Value)
	return b.exceeded()
}

// sought limits values that are compared with each element of a collection.
func sought(what, where int) guard {
	return func(args []*ast.Term) *Error {
		switch v := args[what].Value.(type) {
		case ast.Number:
			if len(v) > 4 {
				return within("digits compared", product(digitsOf(string(v)), length(args[where].Value)), 32*MaxElements)
			}
		case *ast.Array, ast.Object, ast.Set:
			return weighed(what, where)(args)
		}
		return nil
	}
}

func scalar(v ast.Value) bool {
	switch v.(type) {
	case *ast.Array, ast.Object, ast.Set:
		return false
	}
	return true
}

// length is the number of elements of a collection, or of bytes of a string.
func length(v ast.Value) int {
	switch v := v.(type) {
	case ast.String:
		return len(v)
	case interface{ Len() int }:
		return v.Len()
	}
	return 0
}

// summed limits the elements that collections have together, not what they nest.
func summed(positions ...int) guard {
	return func(args []*ast.Term) *Error {
		n := 0
		for _, i := range positions {
			n += length(args[i].Value)
		}
		return within("elements", n, MaxElements)
	}
}

// nested limits the elements that the members of a collection have together.
func nested(args []*ast.Term) *Error {
	n := 0
	each(args[0].Value, func(v ast.Value) bool {
		n += 1 + length(v)
		return n <= MaxElements
	})
	return within("elements", n, MaxElements)
}

// each calls f with the members of an array or set, or with v itself where it is
// neither, until f reports false.
func each(v ast.Value, f func(ast.Value) bool) {
	switch v := v.(type) {
	case *ast.Array:
		v.Until(func(t *ast.Term) bool { return !f(t.Value) })
	case ast.Set:
		if v.Len() > MaxElements {
			f(v) // not worth sorting
			return
		}
		v.Until(func(t *ast.Term) bool { return !f(t.Value) })
	default:
		f(v)
	}
}

// paired limits comparisons of each member of one argument with each of another.
func paired(a, b int) guard {
	return func(args []*ast.Term) *Error {
		count := func(v ast.Value) int {
			if scalar(v) {
				return 1
			}
			return length(v)
		}
		return within("pairs", product(count(args[a].Value), count(args[b].Value)), MaxPairs)
	}
}

// all is the first of several guards that refuses.
func all(gs ...guard) guard {
	return func(args []*ast.Term) *Error {
		for _, g := range gs {
			if e := g(args); e != nil {
				return e
			}
		}
		return nil
	}
}

// Size estimates the bytes of a value as JSON, and reports whether they are within a
// limit. It stops soon after exceeding it, so that a value that expands without end
// takes bounded time.
func Size(v ast.Value, limit int) (int, bool) {
	size := 0
	var walk func(v ast.Value) bool
	walk = func(v ast.Value) bool {
		switch v := v.(type) {
		case ast.String:
			size += len(v) + 3
		case ast.Number:
			size += len(v) + 1
		case *ast.Array:
			size += 3
			return size <= limit && !v.Until(func(t *ast.Term) bool { return !walk(t.Value) })
		case ast.Set:
			size += 3
			return size+v.Len() <= limit && !v.Until(func(t *ast.Term) bool { return !walk(t.Value) })
		case ast.Object:
			size += 3
			return size+v.Len() <= limit && !v.Until(func(k, t *ast.Term) bool { return !walk(k.Value) || !walk(t.Value) })
		default:
			size += 6
		}
		return size <= limit
	}
	ok := walk(v)
	return size, ok
}
