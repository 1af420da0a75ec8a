package compiled

import (
	"errors"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/value"
)

// ground compiles a term that has at most one value where it is: its variables are bound.
func (s *scope) ground(t *ast.Term) (expr, bool) {
	if c := constant(t); c.Defined() {
		return func(*Machine, frame) value.Value { return c }, true
	}
	switch v := t.Value.(type) {
	case ast.Var:
		slot, ok := s.vars[v]
		if !ok {
			return nil, false
		}
		return func(_ *Machine, fr frame) value.Value { return fr[slot] }, true
	case ast.Ref:
		return s.groundRef(v)
	case *ast.Array:
		return s.groundArray(v)
	case ast.Object:
		return s.groundObject(v)
	case ast.Set:
		return s.groundSet(v)
	case *ast.ArrayComprehension, *ast.SetComprehension, *ast.ObjectComprehension:
		return s.comprehension(t), true
	case ast.Call:
		s.unsupported(t.Location, "a call within a term")
	}
	return nil, false
}

// all compiles terms that have at most one value each.
func (s *scope) all(n int, at func(i int) *ast.Term) ([]expr, bool) {
	list := make([]expr, n)
	for i := range list {
		var ok bool
		if list[i], ok = s.ground(at(i)); !ok {
			return nil, false
		}
	}
	return list, true
}

// compute evaluates expressions into elems, and reports whether all have values.
func compute(m *Machine, fr frame, list []expr, elems []value.Value) bool {
	for i, f := range list {
		if elems[i] = f(m, fr); !elems[i].Defined() {
			return false
		}
	}
	return true
}

func (s *scope) groundArray(a *ast.Array) (expr, bool) {
	list, ok := s.all(a.Len(), a.Elem)
	return func(m *Machine, fr frame) value.Value {
		elems := m.arena.Alloc(len(list))
		if !compute(m, fr, list, elems) {
			return value.Value{}
		}
		return value.ArrayOf(elems)
	}, ok
}

func (s *scope) groundSet(a ast.Set) (expr, bool) {
	terms := a.Slice()
	list, ok := s.all(len(terms), func(i int) *ast.Term { return terms[i] })
	plugged := s.plugged
	return func(m *Machine, fr frame) value.Value {
		elems := m.arena.Alloc(len(list))
		if !compute(m, fr, list, elems) {
			return value.Value{}
		}
		loose := !plugged && !inOrder(elems, 1)
		v := m.arena.Set(elems)
		if loose {
			v = v.Loose()
		}
		return v
	}, ok
}

func (s *scope) groundObject(o ast.Object) (expr, bool) {
	keys := o.Keys()
	list, ok := s.all(2*len(keys), func(i int) *ast.Term {
		if i%2 == 0 {
			return keys[i/2]
		}
		return o.Get(keys[i/2])
	})
	sorted := true // as OPA's keys are, if they are constant
	for i, k := range keys {
		sorted = sorted && constant(k).Defined() && (i == 0 || value.Compare(constant(keys[i-1]), constant(k)) < 0)
	}
	plugged := s.plugged
	return func(m *Machine, fr frame) value.Value {
		pairs := m.arena.Alloc(len(list))
		if !compute(m, fr, list, pairs) {
			return value.Value{}
		}
		if sorted {
			return value.ObjectOf(pairs)
		}
		loose := !plugged && !inOrder(pairs, 2)
		v, ok := m.arena.Object(pairs)
		if !ok || v.Len() < len(keys) {
			m.err = errConflict // topdown knows which is kept
			return value.Value{}
		}
		if loose {
			v = v.Loose()
		}
		return v
	}, ok
}

// errOrder is the error of going through a set or an object that is not written in order.
var errOrder = errors.New("a set or an object that is not written in order")

// inOrder reports whether each nth element is greater than the one before.
func inOrder(elems []value.Value, n int) bool {
	for i := n; i < len(elems); i += n {
		if value.Compare(elems[i-n], elems[i]) >= 0 {
			return false
		}
	}
	return true
}

// each compiles a term of any number of values: code that goes on with each in a slot.
func (s *scope) each(t *ast.Term, slot int) link {
	if f, ok := s.ground(t); ok {
		return store(f, slot)
	}
	ref, ok := t.Value.(ast.Ref)
	if !ok {
		s.unsupported(t.Location, "%s with variables that are not bound", ast.ValueName(t.Value))
	}
	return s.eachRef(ref, slot)
}

// store goes on with a value in a slot.
func store(f expr, slot int) link {
	return func(next code) code {
		return func(m *Machine, fr frame) signal {
			v := f(m, fr)
			if !v.Defined() {
				return m.none()
			}
			fr[slot] = v
			return next(m, fr)
		}
	}
}
