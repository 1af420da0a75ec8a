package compiled

import (
	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/value"
)

// link makes the code of an expression that next follows. The expression is compiled
// before what follows it is, because of what it binds, and linked after.
type link func(next code) code

// chain is the expressions of links one after another.
func chain(links []link) link {
	if len(links) == 1 {
		return links[0]
	}
	return func(next code) code {
		for i := len(links) - 1; i >= 0; i-- {
			next = links[i](next)
		}
		return next
	}
}

// body compiles the expressions of a body, in the order that OPA's compiler gave them.
func (s *scope) body(b ast.Body) link {
	links := make([]link, 0, len(b))
	for _, e := range b {
		links = append(links, s.expr(e))
	}
	return chain(links)
}

func (s *scope) expr(e *ast.Expr) link {
	if e.Location != nil {
		s.location = e.Location
	}
	if len(e.With) > 0 {
		s.unsupported(nil, "with")
	}
	if e.Negated {
		positive := *e
		positive.Negated = false
		return s.not(ast.Body{&positive})
	}
	switch t := e.Terms.(type) {
	case *ast.Term:
		return s.condition(t)
	case []*ast.Term:
		if e.IsEquality() && len(t) == 3 {
			return s.unify(t[1], t[2])
		}
		return s.call(t)
	case *ast.Every:
		return s.every(t)
	case *ast.Not:
		return s.not(t.Body)
	case *ast.LogicalAnd:
		return chain([]link{s.operand(t.Lhs), s.operand(t.Rhs)})
	case *ast.LogicalOr:
		return s.or(t)
	case *ast.SomeDecl:
		return func(next code) code { return next }
	}
	s.unsupported(nil, "an expression of type %T", e.Terms)
	return nil
}

// condition is a term by itself: it holds for each value but false.
func (s *scope) condition(t *ast.Term) link {
	if f, ok := s.ground(t); ok {
		return holds(f)
	}
	slot := s.function.slot()
	each := s.each(t, slot)
	return func(next code) code {
		return each(func(m *Machine, fr frame) signal {
			if fr[slot].IsFalse() {
				return more
			}
			return next(m, fr)
		})
	}
}

// holds goes on if an expression has a value other than false.
func holds(f expr) link {
	return func(next code) code {
		return func(m *Machine, fr frame) signal {
			v := f(m, fr)
			if !v.Defined() {
				return m.none()
			}
			if v.IsFalse() {
				return more
			}
			return next(m, fr)
		}
	}
}

// search compiles a body of which it is asked only whether it has a solution. With first it
// ends at the first; without, all solutions are looked for, as topdown does: they may fail.
func (s *scope) search(b ast.Body, first bool) func(m *Machine, fr frame) (found, failed bool) {
	n := s.nested()
	slot := n.function.slot()
	answer := more
	if first || n.cannotFail(b) {
		answer = stop
	}
	run := n.body(b)(func(_ *Machine, fr frame) signal {
		fr[slot] = value.True
		return answer
	})
	return func(m *Machine, fr frame) (found, failed bool) {
		fr[slot] = value.False
		if run(m, fr) == halt {
			return false, true
		}
		return fr[slot].IsTrue(), false
	}
}

// not holds if a body has no solution.
func (s *scope) not(b ast.Body) link { return whether(s.search(b, false), false) }

// operand holds if a body has a solution.
func (s *scope) operand(b ast.Body) link { return whether(s.search(b, true), true) }

func (s *scope) or(t *ast.LogicalOr) link {
	left, right := s.search(t.Lhs, true), s.search(t.Rhs, true)
	return whether(func(m *Machine, fr frame) (found, failed bool) {
		if found, failed = left(m, fr); found || failed {
			return found, failed
		}
		return right(m, fr)
	}, true)
}

// whether goes on if a search finds something, or if it finds nothing.
func whether(search func(m *Machine, fr frame) (found, failed bool), want bool) link {
	return func(next code) code {
		return func(m *Machine, fr frame) signal {
			found, failed := search(m, fr)
			switch {
			case failed:
				return halt
			case found != want:
				return more
			}
			return next(m, fr)
		}
	}
}

// every holds if a body has a solution for each element of a domain.
func (s *scope) every(t *ast.Every) link {
	domain, ok := s.ground(t.Domain)
	if !ok {
		s.unsupported(t.Domain.Location, "every over a domain that is not one value")
	}
	n := s.nested()
	slot := n.function.slot()
	all := n.function.slot()
	links := make([]link, 0, 2)
	keys := func(next code) code { return next }
	elem := n.function.slot()
	key := -1
	if t.Key != nil {
		if v, ok := t.Key.Value.(ast.Var); ok {
			if _, bound := n.vars[v]; !bound {
				key = n.bind(v)
			}
		}
		if key < 0 {
			key = n.function.slot()
			keys = n.match(t.Key, key)
		}
	}
	links = append(links, keys, n.match(t.Value, elem))
	search := n.search(t.Body, true)
	one := chain(links)(func(m *Machine, fr frame) signal {
		if fr[all].IsFalse() {
			return more
		}
		found, failed := search(m, fr)
		if failed {
			return halt
		}
		if !found {
			fr[all] = value.False
		}
		return more
	})
	return func(next code) code {
		return func(m *Machine, fr frame) signal {
			v := domain(m, fr)
			if !v.IsCollection() {
				return m.none()
			}
			fr[slot], fr[all] = v, value.True
			if forEach(m, fr, v, key, elem, one) == halt {
				return halt
			}
			if fr[all].IsFalse() {
				return more
			}
			return next(m, fr)
		}
	}
}

// forEach runs code for the elements of a collection. key is -1 where it is not wanted.
func forEach(m *Machine, fr frame, v value.Value, key, elem int, next code) signal {
	if v.IsLoose() {
		return m.fail(errOrder)
	}
	switch v.Kind() {
	case value.Array:
		for i, x := range v.Elems() {
			if m.tick() {
				return halt
			}
			if key >= 0 {
				fr[key] = value.Int(i)
			}
			fr[elem] = x
			if c := next(m, fr); c != more {
				return c
			}
		}
	case value.Object:
		pairs := v.Pairs()
		for i := 0; i < len(pairs); i += 2 {
			if m.tick() {
				return halt
			}
			if key >= 0 {
				fr[key] = pairs[i]
			}
			fr[elem] = pairs[i+1]
			if c := next(m, fr); c != more {
				return c
			}
		}
	case value.Set:
		for _, x := range v.Elems() {
			if m.tick() {
				return halt
			}
			if key >= 0 {
				fr[key] = x
			}
			fr[elem] = x
			if c := next(m, fr); c != more {
				return c
			}
		}
	}
	return more
}

// cannotFail reports whether a body can neither have an error nor read data: whether all of
// its solutions are looked for makes no difference then.
func (s *scope) cannotFail(b ast.Body) bool {
	for _, e := range b {
		switch t := e.Terms.(type) {
		case *ast.Term:
			if !pureTerm(t) {
				return false
			}
		case []*ast.Term:
			if !infallible[t[0].Value.String()] {
				return false
			}
			for _, arg := range t[1:] {
				if !pureTerm(arg) {
					return false
				}
			}
		default:
			return false
		}
	}
	return true
}

// infallible are builtins that have a result whatever their arguments.
var infallible = map[string]bool{ast.Equality.Name: true}

// pureTerm reports whether a term has neither comprehensions nor references into data.
func pureTerm(t *ast.Term) bool {
	pure := true
	ast.WalkTerms(t, func(t *ast.Term) bool {
		switch v := t.Value.(type) {
		case *ast.ArrayComprehension, *ast.SetComprehension, *ast.ObjectComprehension, ast.Call:
			pure = false
		case ast.Ref:
			if v[0].Equal(ast.DefaultRootDocument) {
				pure = false
			}
		}
		return !pure
	})
	return pure
}
