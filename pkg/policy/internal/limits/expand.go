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
// doubles with every step.
func Check(modules map[string]*ast.Module) ast.Errors {
	var errs ast.Errors
	for _, m := range modules {
		for _, r := range m.Rules {
			ast.WalkRules(r, func(r *ast.Rule) bool {
				if CheckBody(r.Body) != nil {
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

// CheckBody is Check for a query that has been compiled.
func CheckBody(body ast.Body) error {
	x := expansion{values: map[ast.Var]*ast.Term{}, sizes: map[ast.Var]int{}}
	ast.WalkExprs(body, func(e *ast.Expr) bool {
		if !e.IsEquality() && !e.IsAssignment() {
			return false
		}
		a, b := e.Operand(0), e.Operand(1)
		if v, ok := a.Value.(ast.Var); ok {
			x.values[v] = b
		}
		if v, ok := b.Value.(ast.Var); ok {
			x.values[v] = a
		}
		return false
	})
	for v := range x.values {
		if x.of(v) > MaxExpansion {
			return fmt.Errorf("%w: variables expand to more than %d terms", ErrLimit, MaxExpansion)
		}
	}
	return nil
}

type expansion struct {
	values map[ast.Var]*ast.Term // what equalities bind variables to
	sizes  map[ast.Var]int       // terms that they stand for; 1 while being found out
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
