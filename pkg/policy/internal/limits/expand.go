package limits

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
)

// MaxExpansion is how many terms the variables of one rule may expand to.
const MaxExpansion = MaxElements

// Check finds rules of compiled modules whose local variables expand beyond
// MaxExpansion. OPA expands a variable that is bound to a composite wherever it is
// used, without a builtin and without checking for cancellation, so that a := [1, 1]; b
// := [a, a]; c := [b, b] and so on doubles with every step, and so do calls of f(x) :=
// [x, x].
func Check(modules map[string]*ast.Module) ast.Errors {
	var errs ast.Errors
	// calls are the functions of a set and how far they expand, by the sizes of their
	// arguments. There is no recursion in Rego.
	calls := calls{functions: map[string][]*ast.Rule{}, known: map[string]int{}}
	for _, m := range modules {
		for _, r := range m.Rules {
			ast.WalkRules(r, func(r *ast.Rule) bool {
				if len(r.Head.Args) > 0 {
					name := m.Package.Path.Extend(r.Head.Ref()).String()
					calls.functions[name] = append(calls.functions[name], r)
				}
				return false
			})
		}
	}
	for _, m := range modules {
		for _, r := range m.Rules {
			ast.WalkRules(r, func(r *ast.Rule) bool {
				if checkBody(r.Body, &calls) != nil {
					errs = append(errs, ast.NewError(ast.CompileErr, r.Location,
						"%s: variables expand to more than %d terms", r.Head.Ref(), MaxExpansion))
				}
				return false
			})
		}
	}
	errs.Sort()
	return errs
}

// CheckBody is Check for a compiled query that calls no functions of policies.
func CheckBody(body ast.Body) error { return checkBody(body, &calls{}) }

func checkBody(body ast.Body, calls *calls) error {
	x := expand(body, calls)
	for _, v := range x.vars {
		if x.of(v) > MaxExpansion {
			return fmt.Errorf("%w: variables expand to more than %d terms", ErrLimit, MaxExpansion)
		}
	}
	return nil
}

// expand finds what the variables of a body expand to.
func expand(body ast.Body, calls *calls) *expansion {
	x := &expansion{same: map[ast.Var]ast.Var{}, values: map[ast.Var][]ast.Value{}, calls: map[ast.Var][]*ast.Expr{}, sizes: map[ast.Var]int{}, within: calls}
	ast.WalkExprs(body, func(e *ast.Expr) bool {
		switch operands := e.Operands(); {
		case e.IsEquality() || e.IsAssignment():
			x.unify(operands[0].Value, operands[1].Value)
		case e.IsCall() && len(operands) > 0 && len(calls.functions[e.Operator().String()]) > 0:
			if v, ok := operands[len(operands)-1].Value.(ast.Var); ok {
				x.vars = append(x.vars, v)
				x.calls[v] = append(x.calls[v], e)
			}
		}
		return false
	})
	for v, of := range x.values { // to the representative
		if first := x.first(v); first != v {
			x.values[first] = append(x.values[first], of...)
			delete(x.values, v)
		}
	}
	for v, of := range x.calls {
		if first := x.first(v); first != v {
			x.calls[first] = append(x.calls[first], of...)
			delete(x.calls, v)
		}
	}
	return x
}

// calls are the functions of a set and how far they expand, by the sizes of their
// arguments. There is no recursion in Rego.
type calls struct {
	functions map[string][]*ast.Rule
	known     map[string]int
}

// size returns how many terms the result of a call expands to.
func (c *calls) size(name string, args []int) int {
	key := fmt.Sprint(name, args)
	if n, ok := c.known[key]; ok {
		return n
	}
	maximum := 1
	for _, r := range c.functions[name] {
		x := expand(r.Body, c)
		for i, arg := range r.Head.Args {
			if i >= len(args) {
				break
			}
			ast.WalkVars(arg, func(v ast.Var) bool { // each may be bound to the entire argument
				x.sizes[x.first(v)] = max(x.sizes[x.first(v)], args[i])
				return false
			})
		}
		if r.Head.Value != nil {
			maximum = max(maximum, x.of(r.Head.Value.Value))
		}
	}
	c.known[key] = maximum
	return maximum
}

// expansion is what the variables of a body expand to. Variables that equal each other
// are one, in whatever order they are visited.
type expansion struct {
	vars   []ast.Var               // in the order of the body
	same   map[ast.Var]ast.Var     // the representative of a variable; absent: itself
	values map[ast.Var][]ast.Value // what equalities bind variables to
	calls  map[ast.Var][]*ast.Expr // of functions, by their output
	sizes  map[ast.Var]int         // terms that they expand to; 1 while being computed
	within *calls
}

// first returns the variable that represents all that equal one.
func (x *expansion) first(v ast.Var) ast.Var {
	for next, ok := x.same[v]; ok; next, ok = x.same[v] {
		v = next
	}
	return v
}

// unify records an equality, and those of the parts of composites.
func (x *expansion) unify(a, b ast.Value) {
	v, isVar := a.(ast.Var)
	w, isVarToo := b.(ast.Var)
	switch {
	case isVar && isVarToo:
		x.vars = append(x.vars, v, w)
		if v, w = x.first(v), x.first(w); v != w {
			x.same[v] = w
		}
	case isVar:
		x.vars = append(x.vars, v)
		x.values[v] = append(x.values[v], b)
	case isVarToo:
		x.unify(b, a)
	default:
		x.unifyParts(a, b)
	}
}

func (x *expansion) unifyParts(a, b ast.Value) {
	switch a := a.(type) {
	case *ast.Array:
		if b, ok := b.(*ast.Array); ok && a.Len() == b.Len() {
			for i := range a.Len() {
				x.unify(a.Elem(i).Value, b.Elem(i).Value)
			}
		}
	case ast.Object:
		if b, ok := b.(ast.Object); ok {
			a.Foreach(func(k, t *ast.Term) {
				if other := b.Get(k); other != nil {
					x.unify(t.Value, other.Value)
				}
			})
		}
	}
}

// call returns how many terms the result of a call expands to.
func (x *expansion) call(e *ast.Expr) int {
	operands := e.Operands()
	args := make([]int, len(operands)-1)
	for i := range args {
		args[i] = x.of(operands[i].Value)
	}
	return x.within.size(e.Operator().String(), args)
}

func (x *expansion) of(v ast.Value) int {
	switch v := v.(type) {
	case ast.Var:
		v = x.first(v)
		if n, ok := x.sizes[v]; ok {
			return n
		}
		x.sizes[v] = 1
		n := 1
		for _, value := range x.values[v] {
			n = max(n, x.of(value))
		}
		for _, e := range x.calls[v] {
			n = max(n, x.call(e))
		}
		x.sizes[v] = n
		return n
	case ast.Ref: // a part of what its head expands to
		return x.of(v[0].Value)
	case *ast.Array:
		n := 1
		v.Foreach(func(t *ast.Term) { n = min(n+x.of(t.Value), 1<<40) })
		return n
	case ast.Set:
		n := 1
		v.Foreach(func(t *ast.Term) { n = min(n+x.of(t.Value), 1<<40) })
		return n
	case ast.Object:
		n := 1
		v.Foreach(func(k, t *ast.Term) { n = min(n+x.of(k.Value)+x.of(t.Value), 1<<40) })
		return n
	}
	return 1
}
