package compiled

import (
	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/value"
)

// unify compiles a = b. A reference is evaluated before what it is unified with, as in
// topdown: the left one first.
func (s *scope) unify(a, b *ast.Term) link {
	if isRef(b) && !isRef(a) {
		a, b = b, a
	}
	if v, ok := a.Value.(ast.Var); ok && !s.bound(v) {
		if _, also := b.Value.(ast.Var); !also || s.bound(b.Value.(ast.Var)) {
			a, b = b, a
		}
	}
	if f, ok := s.ground(a); ok {
		if kind := kindOf(b); kind != value.Undefined && kindOf(a) == value.Undefined && !s.isDocument(a) {
			return s.assign(onlyOf(f, kind), b)
		}
		return s.assign(f, b)
	}
	if isRef(a) {
		slot := s.function.slot()
		each := s.each(a, slot)
		return chain([]link{each, s.match(b, slot)})
	}
	if f, ok := s.ground(b); ok {
		return s.assign(f, a)
	}
	return s.unifyParts([][2]*ast.Term{{a, b}})
}

// onlyOf has the values that topdown evaluates a comprehension of a kind for: to the others
// it cannot be equal. A set is compared with any. For a document it evaluates every
// comprehension.
func onlyOf(f expr, kind value.Kind) expr {
	return func(m *Machine, fr frame) value.Value {
		v := f(m, fr)
		if k := v.Kind(); k != kind && k != value.Set {
			return value.Value{}
		}
		return v
	}
}

// assign unifies a value with a term.
func (s *scope) assign(f expr, t *ast.Term) link {
	if c := constant(t); c.Defined() {
		return is(f, c, true)
	}
	if g, ok := s.ground(t); ok {
		return func(next code) code {
			return func(m *Machine, fr frame) signal {
				v := f(m, fr)
				if !v.Defined() {
					return m.none()
				}
				w := g(m, fr)
				if !w.Defined() {
					return m.none()
				}
				if !value.Equal(v, w) {
					return more
				}
				return next(m, fr)
			}
		}
	}
	var slot int
	then := link(nil)
	if v, ok := t.Value.(ast.Var); ok {
		slot = s.bind(v)
	} else {
		slot = s.function.slot()
		then = s.match(t, slot)
	}
	return func(next code) code {
		if then != nil {
			next = then(next)
		}
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

// unifyParts unifies terms neither of which is one value, part by part: those first that
// bind the variables of others.
func (s *scope) unifyParts(todo [][2]*ast.Term) link {
	var links []link
	for len(todo) > 0 {
		var later [][2]*ast.Term
		for _, p := range todo {
			a, b := p[0], p[1]
			x, xVar := a.Value.(ast.Var)
			y, yVar := b.Value.(ast.Var)
			_, okA := s.ground(a)
			_, okB := s.ground(b)
			switch {
			case xVar && yVar && x == y:
			case okA || okB || isRef(a) || isRef(b):
				links = append(links, s.unify(a, b))
			default:
				parts, can := split(a, b)
				if !can {
					later = append(later, p)
					continue
				}
				if parts == nil {
					return never
				}
				links = append(links, s.unifyParts(parts))
			}
		}
		if len(later) == len(todo) {
			s.unsupported(todo[0][0].Location, "unification of what is not known")
		}
		todo = later
	}
	if len(links) == 0 {
		return func(next code) code { return next }
	}
	return chain(links)
}

// never is an expression that does not hold.
func never(code) code { return func(*Machine, frame) signal { return more } }

// split returns the parts of two composites that are unified, nil if they never are equal.
// can is false if one has no parts.
func split(a, b *ast.Term) (parts [][2]*ast.Term, can bool) {
	switch x := a.Value.(type) {
	case *ast.Array:
		y, ok := b.Value.(*ast.Array)
		if !ok {
			return nil, isComposite(b)
		}
		if x.Len() != y.Len() {
			return nil, true
		}
		parts = [][2]*ast.Term{}
		for i := range x.Len() {
			parts = append(parts, [2]*ast.Term{x.Elem(i), y.Elem(i)})
		}
		return parts, true
	case ast.Object:
		y, ok := b.Value.(ast.Object)
		if !ok {
			return nil, isComposite(b)
		}
		if x.Len() != y.Len() {
			return nil, true
		}
		parts = [][2]*ast.Term{}
		for _, k := range x.Keys() {
			if !constant(k).Defined() {
				return nil, false
			}
			other := y.Get(k)
			if other == nil {
				for _, k := range y.Keys() {
					if !constant(k).Defined() {
						return nil, false
					}
				}
				return nil, true
			}
			parts = append(parts, [2]*ast.Term{x.Get(k), other})
		}
		return parts, true
	}
	return nil, false
}

func isComposite(t *ast.Term) bool {
	switch t.Value.(type) {
	case *ast.Array, ast.Object:
		return true
	}
	return false
}

func isRef(t *ast.Term) bool {
	_, ok := t.Value.(ast.Ref)
	return ok
}

func (s *scope) bound(v ast.Var) bool {
	_, ok := s.vars[v]
	return ok
}

// match unifies the value in a slot with a pattern.
func (s *scope) match(pattern *ast.Term, slot int) link {
	if v, ok := pattern.Value.(ast.Var); ok && !s.bound(v) {
		s.vars[v] = slot // it is the same value
		return func(next code) code { return next }
	}
	if c := constant(pattern); c.Defined() {
		return func(next code) code {
			return func(m *Machine, fr frame) signal {
				if !value.Equal(fr[slot], c) {
					return more
				}
				return next(m, fr)
			}
		}
	}
	if f, ok := s.ground(pattern); ok {
		return func(next code) code {
			return func(m *Machine, fr frame) signal {
				v := f(m, fr)
				if !v.Defined() {
					return m.none()
				}
				if !value.Equal(fr[slot], v) {
					return more
				}
				return next(m, fr)
			}
		}
	}
	switch p := pattern.Value.(type) {
	case ast.Ref:
		other := s.function.slot()
		return chain([]link{s.each(pattern, other), func(next code) code {
			return func(m *Machine, fr frame) signal {
				if !value.Equal(fr[slot], fr[other]) {
					return more
				}
				return next(m, fr)
			}
		}})
	case *ast.Array:
		return s.matchArray(p, slot)
	case ast.Object:
		return s.matchObject(p, slot)
	}
	s.unsupported(pattern.Location, "a pattern of type %s", ast.ValueName(pattern.Value))
	return nil
}

func (s *scope) matchArray(p *ast.Array, slot int) link {
	n := p.Len()
	slots := make([]int, n)
	links := []link{func(next code) code {
		return func(m *Machine, fr frame) signal {
			v := fr[slot]
			if v.Kind() != value.Array || v.Len() != n {
				return more
			}
			for i, x := range v.Elems() {
				fr[slots[i]] = x
			}
			return next(m, fr)
		}
	}}
	for i := range n {
		slots[i] = s.function.slot()
		links = append(links, s.match(p.Elem(i), slots[i]))
	}
	return chain(links)
}

func (s *scope) matchObject(p ast.Object, slot int) link {
	n := p.Len()
	var links []link
	for _, k := range p.Keys() {
		key, ok := s.ground(k)
		if !ok || n > 1 && !constant(k).Defined() { // two keys might be one
			s.unsupported(k.Location, "an object whose keys are not known")
		}
		elem := s.function.slot()
		links = append(links, func(next code) code {
			return func(m *Machine, fr frame) signal {
				v := fr[slot]
				if v.Kind() != value.Object || v.Len() != n {
					return more
				}
				name := key(m, fr)
				if !name.Defined() {
					return m.none()
				}
				if fr[elem] = v.Get(name); !fr[elem].Defined() {
					return more
				}
				return next(m, fr)
			}
		}, s.match(p.Get(k), elem))
	}
	return chain(links)
}
