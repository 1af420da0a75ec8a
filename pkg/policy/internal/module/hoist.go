package module

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// hoisted looks for calls within negated expressions of functions that can be
// undefined. OPA evaluates what is nested in "not f(g(x))" before the not, which
// therefore does not cover it: where g(x) is undefined, so is the rule.
func (l *linter) hoisted(p *Package) {
	for _, r := range p.rules {
		ast.WalkExprs(r, func(e *ast.Expr) bool {
			base := e.BaseCogeneratedExpr()
			if base == e || !base.Negated || e.Negated {
				return false
			}
			operator, ok := called(e)
			if !ok || total(l.set.Compiler, operator, 0) {
				return false
			}
			f := name(operator[len(operator)-1])
			l.warn("not-hoisted", base.Location, "%s(…) is evaluated before the not: where it is undefined, so is all of the rule, and the not does not hold; "+
				"give %s a default, or put what is negated into a function of its own", f, f)
			return false
		})
	}
}

// called returns the function, one of policies, that an expression calls for its
// value.
func called(e *ast.Expr) (ast.Ref, bool) {
	terms, ok := e.Terms.([]*ast.Term)
	if !ok {
		return nil, false
	}
	operator, ok := terms[0].Value.(ast.Ref)
	return operator, ok && operator.HasPrefix(ast.DefaultRootRef)
}

// maxTotal is how deep calls are followed to find out whether they have a value.
const maxTotal = 8

// partial are builtins that are undefined for arguments of the right type.
var partial = []string{ast.Max.Name, ast.Min.Name}

// total reports whether rules certainly give a value, whatever the arguments.
func total(c *ast.Compiler, ref ast.Ref, depth int) bool {
	rules := c.GetRulesExact(ref)
	return depth < maxTotal && slices.ContainsFunc(rules, func(r *ast.Rule) bool {
		if r.Default || r.Head.RuleKind() == ast.MultiValue {
			return true
		}
		if slices.ContainsFunc(r.Head.Args, func(t *ast.Term) bool { _, any := t.Value.(ast.Var); return !any }) {
			return false
		}
		for b := r; b != nil; b = b.Else {
			if !slices.ContainsFunc(b.Body, func(e *ast.Expr) bool { return !holds(c, e, depth) }) {
				return true
			}
		}
		return false
	})
}

// holds reports whether an expression certainly holds.
func holds(c *ast.Compiler, e *ast.Expr, depth int) bool {
	if e.Negated {
		return false
	}
	switch t := e.Terms.(type) {
	case *ast.Term:
		return t.Value.Compare(ast.Boolean(true)) == 0
	case []*ast.Term:
		operator, ok := t[0].Value.(ast.Ref)
		if !ok {
			return false
		}
		if e.IsEquality() {
			_, x := t[1].Value.(ast.Var)
			return x && defined(c, t[2], depth)
		}
		if f, ok := called(e); ok {
			return len(t)-1 > c.GetArity(f) && total(c, f, depth+1)
		}
		b := ast.BuiltinMap[operator.String()]
		return b != nil && !b.Relation && len(t)-1 > b.Decl.Arity() && !slices.Contains(partial, b.Name)
	}
	return false
}

// defined reports whether a term certainly has a value.
func defined(c *ast.Compiler, t *ast.Term, depth int) bool {
	switch v := t.Value.(type) {
	case ast.Ref:
		return v.HasPrefix(ast.DefaultRootRef) && v.IsGround() && total(c, v, depth+1)
	case *ast.ArrayComprehension, *ast.SetComprehension, *ast.ObjectComprehension:
		return true
	}
	found := true
	ast.WalkRefs(t, func(ast.Ref) bool {
		found = false
		return true
	})
	return found
}
