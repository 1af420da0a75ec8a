package limits

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
)

// MaxExpansion is how many terms the variables of one rule may stand for.
const MaxExpansion = MaxElements

// Check finds rules of compiled modules whose local variables expand beyond
// MaxExpansion: OPA writes a variable that stands for a composite out at every
// place that uses it, without a builtin and without looking whether the evaluation
// has been cancelled, so that a := [1, 1]; b := [a, a]; c := [b, b] and so on
// doubles with every step, and so do calls of f(x) := [x, x].
func Check(modules map[string]*ast.Module) ast.Errors {
	var errs ast.Errors
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

// CheckBody is Check for a query that has been compiled and calls no functions.
func CheckBody(body ast.Body) error { return checkBody(body, &calls{}) }

func checkBody(body ast.Body, calls *calls) error {
	x := expand(body, calls)
	for v := range x.values {
		if x.of(v) > MaxExpansion {
			return fmt.Errorf("%w: variables expand to more than %d terms", ErrLimit, MaxExpansion)
		}
	}
	for v := range x.calls {
		if x.of(v) > MaxExpansion {
			return fmt.Errorf("%w: variables expand to more than %d terms", ErrLimit, MaxExpansion)
		}
	}
	return nil
}

// expand finds what the variables of a body stand for.
func expand(body ast.Body, calls *calls) *expansion {
	x := &expansion{values: map[ast.Var]*ast.Term{}, sizes: map[ast.Var]int{}, calls: map[ast.Var]*ast.Expr{}, within: calls}
	ast.WalkExprs(body, func(e *ast.Expr) bool {
		switch operands := e.Operands(); {
		case e.IsEquality() || e.IsAssignment():
			a, b := operands[0], operands[1]
			if v, ok := a.Value.(ast.Var); ok {
				x.values[v] = b
			}
			if v, ok := b.Value.(ast.Var); ok {
				x.values[v] = a
			}
		case e.IsCall() && len(operands) > 0:
			if v, ok := operands[len(operands)-1].Value.(ast.Var); ok && len(calls.functions[e.Operator().String()]) > 0 {
				x.calls[v] = e
			}
		}
		return false
	})
	return x
}

// calls are the functions of a set and how far they expand, by the sizes of their
// arguments. There is no recursion in Rego.
type calls struct {
	functions map[string][]*ast.Rule
	known     map[string]int
}

// size returns how many terms the result of a call stands for.
func (c *calls) size(name string, args []int) int {
	key := fmt.Sprint(name, args)
	if n, ok := c.known[key]; ok {
		return n
	}
	most := 1
	for _, r := range c.functions[name] {
		x := expand(r.Body, c)
		for i, arg := range r.Head.Args {
			if v, ok := arg.Value.(ast.Var); ok && i < len(args) {
				x.sizes[v] = args[i]
			}
		}
		if r.Head.Value != nil {
			most = max(most, x.of(r.Head.Value.Value))
		}
	}
	c.known[key] = most
	return most
}

type expansion struct {
	values map[ast.Var]*ast.Term // what equalities bind variables to
	calls  map[ast.Var]*ast.Expr // of functions, by their output
	sizes  map[ast.Var]int       // terms that they stand for; 1 while being found out
	within *calls
}

// call returns how many terms the result of a call stands for.
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
		if n, ok := x.sizes[v]; ok {
			return n
		}
		x.sizes[v] = 1
		if t, ok := x.values[v]; ok {
			x.sizes[v] = x.of(t.Value)
		}
		if e, ok := x.calls[v]; ok {
			x.sizes[v] = max(x.sizes[v], x.call(e))
		}
		return x.sizes[v]
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
