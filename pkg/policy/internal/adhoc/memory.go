package adhoc

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Heap sizes, in bytes, of the parts of OPA's values, rounded up to allocation sizes.
const (
	termBytes    = 24 + 16 // with the header of a string or number
	arrayBytes   = 96
	elementBytes = 32            // of a growing array: a pointer, as much spare capacity, and the array before
	objectBytes  = 96 + 48 + 144 // with a map of eight
	fieldBytes   = 32 + 8        // an element, and its slot in the sorted keys
	slotBytes    = 48            // of a map of more than eight, half empty
	shortNumber  = 64            // shorter ones are not counted
)

// heapSize is an upper bound on what a value holds on the heap; ok is false once that
// exceeds a limit. What is referenced in several places counts in each, as it does in
// JSON, except for known values.
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

// roundUp is about what is allocated for so many bytes of text.
func roundUp(n int) int64 { return int64(n+15) &^ 15 }

// knownValues are arrays, objects and sets that have been counted, by identity. A nil
// map has none.
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

// add adds a value and everything within it.
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

// clone returns a value that shares memory with known values only: builtins return
// substrings and subarrays, which keep the originals alive.
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

// cloneJSON copies the strings of a result, which may be substrings of what it is made
// of.
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

// chargeMemory counts what a query holds in memory: what it has read, what its
// comprehensions hold and builtins have created, and its result.
func (s *store) chargeMemory(v ast.Value) error { return s.charge(ast.NewTerm(v), 0, nil) }

// chargeElement counts an element of a comprehension, which may consist of known
// values, and the bytes of its slot.
func (s *store) chargeElement(t *ast.Term, place int64) error { return s.charge(t, place, s.known) }

// Hold implements limits.MemoryCounter: it counts what a builtin has created, except
// for known values.
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

// Release implements limits.MemoryCounter.
func (s *store) Release(n int64) { s.bytesHeld -= n }

func (s *store) charge(t *ast.Term, more int64, known knownValues) error {
	limit := 2 * s.opts.MaxRead
	n, ok := heapSize(t, known, limit-s.bytesHeld-more)
	if s.bytesHeld += n + more; !ok || s.bytesHeld > limit {
		return fmt.Errorf("%w: what it reads, builds and returns takes more than %d bytes of memory", ErrLimit, limit)
	}
	return nil
}
