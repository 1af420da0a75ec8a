package adhoc

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Sizes on the heap, in bytes, of what OPA's values are made of, rounded up to what is
// allocated for them.
const (
	termBytes    = 24 + 16 // with the header of a string or number
	arrayBytes   = 96
	elementBytes = 32            // of an array that grows: a pointer and as much room, and what it had before
	objectBytes  = 96 + 48 + 144 // with a map of eight
	fieldBytes   = 32 + 8        // an element, and its place among the sorted
	slotBytes    = 48            // of a map of more than eight, half empty
	shortNumber  = 64            // what a query has room for of those is small
)

// heapSize estimates from above what a value holds on the heap; ok is false once that is
// more than a limit. What is there in many places counts in each, as it does when it
// becomes JSON, but for what is known.
func heapSize(t *ast.Term, known knownValues, limit int64) (n int64, ok bool) {
	var walk func(t *ast.Term) bool
	walk = func(t *ast.Term) bool {
		n += termBytes
		if known.has(t) {
			return n <= limit
		}
		switch v := t.Value.(type) {
		case ast.String:
			n += roundUp(len(v))
		case ast.Number:
			n += roundUp(len(v))
		case *ast.Array:
			n += arrayBytes + 16*int64(v.Len())
			return n <= limit && !v.Until(func(t *ast.Term) bool { return !walk(t) })
		case ast.Set:
			n += objectBytes + (fieldBytes+slotBytes)*int64(v.Len())
			return n <= limit && !v.Until(func(t *ast.Term) bool { return !walk(t) })
		case ast.Object:
			n += objectBytes + fieldBytes*int64(v.Len())
			if v.Len() > 8 {
				n += slotBytes * int64(v.Len())
			}
			return n <= limit && !v.Until(func(k, t *ast.Term) bool { return !walk(k) || !walk(t) })
		}
		return n <= limit
	}
	ok = walk(t)
	return n, ok
}

// roundUp is what is allocated for so many bytes of text, about.
func roundUp(n int) int64 { return int64(n+15) &^ 15 }

// knownValues are arrays, objects and sets that have been counted, by what they point to. Nil
// knows none.
type knownValues map[any]struct{}

func (k knownValues) has(t *ast.Term) (has bool) {
	if k == nil {
		return false
	}
	switch v := t.Value.(type) {
	case *ast.Array, ast.Object, ast.Set:
		_, has = k[v]
	}
	return has
}

// add makes all that a value is made of known.
func (k knownValues) add(t *ast.Term) {
	if k == nil || k.has(t) {
		return
	}
	switch v := t.Value.(type) {
	case *ast.Array:
		k[v] = struct{}{}
		v.Foreach(k.add)
	case ast.Set:
		k[v] = struct{}{}
		v.Foreach(k.add)
	case ast.Object:
		k[v] = struct{}{}
		v.Foreach(func(key, t *ast.Term) {
			k.add(key)
			k.add(t)
		})
	}
}

// clone returns a value that keeps nothing but itself in memory, and what is known: builtins
// give parts of texts and arrays, which share what all of it is made of.
func (k knownValues) clone(t *ast.Term) *ast.Term {
	if k.has(t) {
		return t
	}
	switch v := t.Value.(type) {
	case ast.String:
		return ast.StringTerm(strings.Clone(string(v)))
	case ast.Number:
		return ast.NewTerm(ast.Number(strings.Clone(string(v))))
	case *ast.Array:
		list := make([]*ast.Term, 0, v.Len())
		v.Foreach(func(t *ast.Term) { list = append(list, k.clone(t)) })
		return ast.ArrayTerm(list...)
	case ast.Set:
		list := make([]*ast.Term, 0, v.Len())
		v.Foreach(func(t *ast.Term) { list = append(list, k.clone(t)) })
		return ast.SetTerm(list...)
	case ast.Object:
		list := make([][2]*ast.Term, 0, v.Len())
		v.Foreach(func(key, t *ast.Term) { list = append(list, ast.Item(k.clone(key), k.clone(t))) })
		return ast.ObjectTerm(list...)
	}
	return t
}

// cloneJSON is own of what an answer has, which shares its texts with what it is made of.
func cloneJSON(v any) any {
	switch v := v.(type) {
	case string:
		return strings.Clone(v)
	case json.Number:
		return json.Number(strings.Clone(string(v)))
	case []any:
		for i := range v {
			v[i] = cloneJSON(v[i])
		}
	case map[string]any:
		own := make(map[string]any, len(v))
		for key, x := range v {
			own[strings.Clone(key)] = cloneJSON(x)
		}
		return own
	}
	return v
}

// chargeMemory counts what a query holds in memory: what it has read, what its comprehensions
// keep and builtins have made, and its answer.
func (s *store) chargeMemory(v ast.Value) error { return s.charge(ast.NewTerm(v), 0, nil) }

// chargeElement counts what a comprehension keeps, which may be made of what has been read, and
// so many bytes for its place there.
func (s *store) chargeElement(t *ast.Term, place int64) error { return s.charge(t, place, s.known) }

// Hold implements limits.Holder: what a builtin has made, but for what has been read.
func (s *store) Hold(t *ast.Term) (int64, error) {
	switch v := t.Value.(type) {
	case ast.Boolean, ast.Null:
		return 0, nil
	case ast.Number:
		if len(v) <= shortNumber {
			return 0, nil
		}
	}
	before := s.bytesHeld
	err := s.charge(t, 0, s.known)
	return s.bytesHeld - before, err
}

// Release implements limits.Holder.
func (s *store) Release(n int64) { s.bytesHeld -= n }

func (s *store) charge(t *ast.Term, more int64, known knownValues) error {
	most := 2 * s.opts.MaxRead
	n, ok := heapSize(t, known, most-s.bytesHeld-more)
	if s.bytesHeld += n + more; !ok || s.bytesHeld > most {
		return fmt.Errorf("%w: what it reads, makes and answers takes more than %d bytes of memory", ErrLimit, most)
	}
	return nil
}
