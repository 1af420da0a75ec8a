package compiled

import (
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/value"
)

// start is where a reference begins: the value of its first elements, and those that are
// left.
type start struct {
	base expr
	rest ast.Ref
}

// head compiles the first elements of a reference. ok is false if they have variables that
// are not bound.
func (s *scope) head(ref ast.Ref) (h start, ok bool) {
	switch v := ref[0].Value.(type) {
	case ast.Var:
		switch {
		case v.Equal(ast.InputRootDocument.Value):
			return s.input(ref), true
		case v.Equal(ast.DefaultRootDocument.Value):
			return s.data(ref)
		}
		slot, bound := s.vars[v]
		if !bound {
			s.unsupported(ref[0].Location, "a reference from %s, which is not bound", v)
		}
		return start{func(_ *Machine, fr frame) value.Value { return fr[slot] }, ref[1:]}, true
	}
	s.unsupported(ref[0].Location, "a reference from a %s", ast.ValueName(ref[0].Value))
	return start{}, false
}

// input compiles the first elements of a reference below the input.
func (s *scope) input(ref ast.Ref) start {
	names := leading(ref[1:])
	if len(names) == 0 {
		return start{func(m *Machine, _ frame) value.Value { return m.input }, ref[1:]}
	}
	return start{s.path(names), ref[1+len(names):]}
}

// leading returns the names that a reference goes on with.
func leading(rest ast.Ref) (names []string) {
	for _, t := range rest {
		name, ok := t.Value.(ast.String)
		if !ok {
			break
		}
		names = append(names, string(name))
	}
	return names
}

// path compiles a path of names below the input, which is followed once an evaluation.
func (s *scope) path(names []string) expr {
	key := strings.Join(names, "\x00")
	id, known := s.paths[key]
	if !known {
		id = s.program.paths
		s.program.paths++
		s.paths[key] = id
	}
	find := func(m *Machine, _ frame) value.Value { return m.input }
	if len(names) > 1 {
		find, names = s.path(names[:1]), names[1:]
	}
	find = fields(find, names)
	return func(m *Machine, fr frame) value.Value {
		p := &m.paths[id]
		if !p.known {
			*p = memoized{true, find(m, fr)}
		}
		return p.value
	}
}

// groundRef compiles a reference that has at most one value.
func (s *scope) groundRef(ref ast.Ref) (expr, bool) {
	for _, t := range ref[1:] {
		if !s.stepIsBound(t) {
			return nil, false
		}
	}
	h, ok := s.head(ref)
	if !ok {
		return nil, false
	}
	return s.steps(h.base, h.rest), true
}

// stepIsBound reports whether an element of a reference is one value.
func (s *scope) stepIsBound(t *ast.Term) bool {
	if v, ok := t.Value.(ast.Var); ok {
		return s.bound(v)
	}
	if t.IsGround() {
		return true
	}
	_, ok := s.ground(t)
	return ok
}

// steps compiles elements of a reference all of which are bound.
func (s *scope) steps(base expr, rest ast.Ref) expr {
	for len(rest) > 0 {
		if names := leading(rest); len(names) > 0 {
			base, rest = fields(base, names), rest[len(names):]
		}
		if len(rest) == 0 {
			break
		}
		key, ok := s.ground(rest[0])
		if !ok {
			s.unsupported(rest[0].Location, "an element of a reference that is not bound")
		}
		base, rest = element(base, key), rest[1:]
	}
	return base
}

// fields follows the names of fields.
func fields(base expr, names []string) expr {
	if len(names) == 1 {
		name := names[0]
		return func(m *Machine, fr frame) value.Value {
			v := base(m, fr)
			if v.Kind() == value.Object {
				return v.Field(name)
			}
			if !v.IsCollection() {
				return value.Value{}
			}
			return v.Get(value.Text(name))
		}
	}
	return func(m *Machine, fr frame) value.Value {
		v := base(m, fr)
		for _, name := range names {
			switch {
			case v.Kind() == value.Object:
				v = v.Field(name)
			case v.IsCollection():
				v = v.Get(value.Text(name))
			default:
				return value.Value{}
			}
		}
		return v
	}
}

func element(base, key expr) expr {
	return func(m *Machine, fr frame) value.Value {
		v := base(m, fr)
		if !v.IsCollection() {
			return value.Value{}
		}
		k := key(m, fr)
		if !k.Defined() {
			return value.Value{}
		}
		return v.Get(k)
	}
}

// eachRef compiles a reference with variables that are not bound: code that binds them, and
// goes on with each value in a slot.
func (s *scope) eachRef(ref ast.Ref, slot int) link {
	h, ok := s.head(ref)
	if !ok {
		s.unsupported(ref[0].Location, "a reference whose rule is not known")
	}
	i := 0
	for i < len(h.rest) && s.stepIsBound(h.rest[i]) {
		i++
	}
	base := s.steps(h.base, h.rest[:i])
	if i == len(h.rest) {
		return store(base, slot)
	}
	return s.enumerate(base, h.rest[i], h.rest[i+1:], slot, s.isDocument(ast.NewTerm(ref)))
}

// enumerate goes on with all elements of a collection whose keys match a pattern. document
// says whether it is of a document.
func (s *scope) enumerate(base expr, pattern *ast.Term, rest ast.Ref, slot int, document bool) link {
	elem := slot
	if len(rest) > 0 {
		elem = s.function.slot()
	}
	key := s.function.slot()
	v, isVar := pattern.Value.(ast.Var)
	if isVar && v.IsWildcard() {
		key = -1
	}
	var links []link
	if isVar {
		if key < 0 {
			s.vars[v] = s.function.slot() // nothing reads it
		} else {
			s.vars[v] = key
		}
	} else {
		links = append(links, s.match(pattern, key))
	}
	links = append(links, s.follow(rest, elem, slot, document)...)
	return func(next code) code {
		for i := len(links) - 1; i >= 0; i-- {
			next = links[i](next)
		}
		return func(m *Machine, fr frame) signal {
			v := base(m, fr)
			if !v.Defined() {
				return m.none()
			}
			if !isVar && v.Kind() == value.Array {
				return more // as in topdown: elements of an array are found by variables
			}
			return forEach(m, fr, v, key, elem, next)
		}
	}
}

// follow compiles the rest of a reference from the value in a slot.
func (s *scope) follow(rest ast.Ref, from, slot int, document bool) []link {
	if len(rest) == 0 {
		return nil
	}
	base := func(_ *Machine, fr frame) value.Value { return fr[from] }
	i := 0
	for i < len(rest) && s.stepIsBound(rest[i]) {
		i++
	}
	steps := s.steps
	if document {
		steps = s.documentSteps
	}
	at := steps(base, rest[:i])
	if i == len(rest) {
		return []link{store(at, slot)}
	}
	return []link{s.enumerate(at, rest[i], rest[i+1:], slot, document)}
}
