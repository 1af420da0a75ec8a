package compiled

import (
	"errors"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/policy/internal/limits"
	"federator.dev/federator/pkg/policy/internal/value"
)

// call compiles a call whose operator is terms[0]. One more argument than the operator has
// is what its result is unified with; without, it must not be false.
func (s *scope) call(terms []*ast.Term) link {
	ref, ok := terms[0].Value.(ast.Ref)
	if !ok {
		s.unsupported(terms[0].Location, "a call of what has no name")
	}
	if ref[0].Equal(ast.DefaultRootDocument) {
		return s.callRule(ref, terms[1:])
	}
	name := ref.String()
	decl, impl := s.builtin(name)
	if impl == nil {
		s.unsupported(terms[0].Location, "builtin %s", name)
	}
	arity := decl.Decl.Arity()
	if name == ast.WalkBuiltin.Name {
		return s.walk(terms[1:])
	}
	if decl.Relation {
		s.unsupported(terms[0].Location, "builtin %s", name)
	}
	if decl.Decl.Result() == nil {
		arity = len(terms) - 1
	}
	if name == ast.Member.Name || name == ast.MemberWithKey.Name {
		s.program.misindexed = s.program.misindexed || s.mixes(terms[arity])
	}
	if len(terms)-1 == arity {
		if compare, ok := comparisons[name]; ok {
			return s.compare(name, compare, terms[1], terms[2])
		}
	}
	args, ok := s.plugging().all(min(arity, len(terms)-1), func(i int) *ast.Term { return terms[i+1] })
	if !ok {
		s.unsupported(terms[0].Location, "an argument of %s that is not bound", name)
	}
	f := s.callBuiltin(name, decl, impl, args, terms[1:])
	if len(terms)-1 > arity {
		return s.assign(f, terms[arity+1])
	}
	return holds(f) // one without a result is true
}

// mixes reports whether a collection is written with variables in it, or is a variable that the
// rule may have made of one that is.
func (s *scope) mixes(t *ast.Term) bool {
	switch t.Value.(type) {
	case *ast.Array, ast.Set, ast.Object:
		return !t.IsGround()
	case ast.Var:
		if s.rule == nil {
			return false
		}
		found := false
		ast.WalkExprs(s.rule, func(e *ast.Expr) bool {
			if e.IsEquality() {
				for _, side := range e.Operands() {
					if _, isVar := side.Value.(ast.Var); !isVar && s.mixes(side) {
						found = true
					}
				}
			}
			return found
		})
		return found
	}
	return false
}

// builtin returns a builtin as topdown finds it.
func (s *scope) builtin(name string) (*ast.Builtin, topdown.BuiltinFunc) {
	if decl, ok := ast.BuiltinMap[name]; ok {
		if f := topdown.GetBuiltin(name); f != nil {
			return decl, f
		}
	}
	if b := s.options.Builtins[name]; b != nil {
		return b.Decl, b.Func
	}
	return nil, nil
}

// comparisons are the builtins that compare two values.
var comparisons = map[string]func(c int) bool{
	ast.Equal.Name:         func(c int) bool { return c == 0 },
	ast.NotEqual.Name:      func(c int) bool { return c != 0 },
	ast.LessThan.Name:      func(c int) bool { return c < 0 },
	ast.LessThanEq.Name:    func(c int) bool { return c <= 0 },
	ast.GreaterThan.Name:   func(c int) bool { return c > 0 },
	ast.GreaterThanEq.Name: func(c int) bool { return c >= 0 },
}

// compare compiles a comparison as a condition.
func (s *scope) compare(name string, holds func(int) bool, a, b *ast.Term) link {
	f, okA := s.plugging().ground(a)
	g, okB := s.plugging().ground(b)
	if !okA || !okB {
		s.unsupported(a.Location, "an argument of %s that is not bound", name)
	}
	decl, impl := s.builtin(name)
	slow := s.callBuiltin(name, decl, impl, []expr{f, g}, []*ast.Term{a, b})
	equality, want := name == ast.Equal.Name || name == ast.NotEqual.Name, name == ast.Equal.Name
	if c := constant(b); equality && c.Defined() && !c.IsCollection() {
		return is(f, c, want)
	}
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
			var ok bool
			switch {
			case v.IsCollection() && w.IsCollection(): // they may be large
				x := slow(m, fr)
				if !x.Defined() {
					return m.none()
				}
				ok = x.IsTrue()
			case equality:
				ok = value.Equal(v, w) == want
			default:
				ok = holds(value.Compare(v, w))
			}
			if !ok {
				return more
			}
			return next(m, fr)
		}
	}
}

// is compiles a comparison with a constant that is a scalar: whether it is equal, or is not.
func is(f expr, c value.Value, want bool) link {
	return func(next code) code {
		return func(m *Machine, fr frame) signal {
			v := f(m, fr)
			if !v.Defined() {
				return m.none()
			}
			if value.Equal(v, c) != want {
				return more
			}
			return next(m, fr)
		}
	}
}

// callBuiltin compiles a call of a builtin that has at most one result.
func (s *scope) callBuiltin(name string, decl *ast.Builtin, impl topdown.BuiltinFunc, args []expr, terms []*ast.Term) expr {
	fast := nativeOf(name)
	slow := &builtin{location: s.location, impl: impl, void: decl.Decl.Result() == nil, lenient: s.options.Lenient, fixed: make([]*ast.Term, len(args))}
	for i := range args {
		if constant(terms[i]).Defined() {
			slow.fixed[i] = terms[i]
		}
	}
	return func(m *Machine, fr frame) value.Value {
		at := len(m.args)
		for _, f := range args {
			v := f(m, fr)
			if !v.Defined() {
				m.args = m.args[:at]
				return v
			}
			m.args = append(m.args, v)
		}
		operands := m.args[at:]
		m.args = m.args[:at]
		if fast != nil {
			if v, done := fast(m, operands); done {
				return v
			}
		}
		return slow.call(m, operands)
	}
}

var errNoResult = errors.New("a builtin has no result")

// builtin is OPA's implementation of one.
type builtin struct {
	location      *ast.Location // of the call
	impl          topdown.BuiltinFunc
	void, lenient bool
	fixed         []*ast.Term // the arguments that are constant
}

func (b *builtin) call(m *Machine, operands []value.Value) (out value.Value) {
	if m.tick() {
		return out
	}
	list := make([]*ast.Term, len(operands))
	for i, v := range operands {
		if list[i] = b.fixed[i]; list[i] == nil {
			list[i] = v.Term()
		}
	}
	m.bctx.Location = b.location
	err := b.impl(m.bctx, list, func(t *ast.Term) error {
		switch {
		case b.void:
			out = value.True
		case t == nil: // topdown panics
			m.err = errNoResult
		default:
			out = value.Of(&m.arena, t.Value)
		}
		return nil
	})
	if err != nil {
		out = value.Value{}
		halt, halted := errors.AsType[topdown.Halt](err)
		switch {
		case halted:
			m.err = halt.Err
		case !b.lenient:
			m.err = err
		}
	}
	if m.spent() {
		return value.Value{}
	}
	return out
}

// callRule compiles the call of a function that rules define.
func (s *scope) callRule(ref ast.Ref, terms []*ast.Term) link {
	node := s.ast.RuleTree
	for _, t := range ref {
		if node = node.Child(t.Value); node == nil {
			s.unsupported(ref[0].Location, "a call of %s, which is not known", ref)
		}
	}
	d := s.definition(node, ref)
	s.complete(d)
	if len(terms) < d.args {
		s.unsupported(ref[0].Location, "a call of %s with too few arguments", ref)
	}
	args, ok := s.all(d.args, func(i int) *ast.Term { return terms[i] })
	if !ok {
		s.unsupported(ref[0].Location, "an argument of %s that is not bound", ref)
	}
	if d.keep < 0 {
		d.keep = s.program.keyed
		s.program.keyed++
	}
	f := func(m *Machine, fr frame) value.Value { return d.call(m, fr, args) }
	if len(terms) > d.args {
		return s.assign(f, terms[d.args])
	}
	return holds(f)
}

// call calls a function.
func (d *definition) call(m *Machine, caller frame, args []expr) value.Value {
	fr := m.push(d.function.slots)
	fr[slotResult] = value.Value{}
	if !compute(m, caller, args, fr[slotArgs:slotArgs+d.args]) {
		m.pop(d.function.slots)
		return value.Value{}
	}
	keys := fr[slotArgs : slotArgs+d.args]
	at := mark(keys)
	v, known := m.keyed[d.keep].find(at, keys)
	if !known {
		v = d.solve(m, fr)
		if m.err == nil {
			m.keyed[d.keep].add(at, keys, v)
		}
	}
	m.pop(d.function.slots)
	return v
}

// walk compiles walk(x, [path, value]): all values within one, and where they are.
func (s *scope) walk(terms []*ast.Term) link {
	f, ok := s.ground(terms[0])
	if !ok || len(terms) != 2 {
		s.unsupported(terms[0].Location, "walk of what is not bound")
	}
	out := s.function.slot()
	match := s.match(terms[1], out)
	return func(next code) code {
		next = match(next)
		return func(m *Machine, fr frame) signal {
			v := f(m, fr)
			if !v.Defined() {
				return m.none()
			}
			n := 0
			return m.walk(fr, out, v, nil, &n, next)
		}
	}
}

func (m *Machine) walk(fr frame, out int, v value.Value, path []value.Value, n *int, next code) signal {
	if *n++; *n > limits.MaxElements {
		return m.fail(errLimit)
	}
	if m.tick() {
		return halt
	}
	fr[out] = m.arena.Array(m.arena.Array(path...), v)
	if c := next(m, fr); c != more {
		return c
	}
	below := func(key, x value.Value) signal {
		return m.walk(fr, out, x, append(path[:len(path):len(path)], key), n, next)
	}
	switch v.Kind() {
	case value.Array:
		for i, x := range v.Elems() {
			if c := below(value.Int(i), x); c != more {
				return c
			}
		}
	case value.Object:
		pairs := v.Pairs()
		for i := 0; i < len(pairs); i += 2 {
			if c := below(pairs[i], pairs[i+1]); c != more {
				return c
			}
		}
	case value.Set:
		for _, x := range v.Elems() {
			if c := below(x, x); c != more {
				return c
			}
		}
	}
	return more
}
