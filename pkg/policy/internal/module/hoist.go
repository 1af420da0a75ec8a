package module

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// hoisted finds what can be undefined within negated expressions: calls of functions,
// and references to the input. OPA evaluates what is nested in "not f(g(x))" or "not
// f(input.x)" before the not, which therefore does not cover it: where it is undefined,
// so is the rule.
func (l *linter) hoisted(p *Package) {
	for _, r := range p.rules {
		ast.WalkExprs(r, func(e *ast.Expr) bool {
			base := e.BaseCogeneratedExpr()
			if base == e || !base.Negated || e.Negated {
				return false
			}
			operator, ok := calledFunction(e)
			if !ok || alwaysDefined(l.set.Compiler, operator, 0) {
				return false
			}
			f := name(operator[len(operator)-1])
			l.warn("not-hoisted", base.Location, "%s(…) is evaluated before the not: where it is undefined, so is all of the rule, and the not does not hold; "+
				"give %s a default, or put what is negated into a function of its own", f, f)
			return false
		})
		for b := r; b != nil; b = b.Else {
			l.hoistedPaths(p, b.Body, nil)
		}
	}
}

// hoistedPaths finds references to the input in negated expressions of a body, and of
// nested bodies, where the body does not require them to be defined anyway.
func (l *linter) hoistedPaths(p *Package, body ast.Body, needed []ast.Ref) {
	needed = slices.Clone(needed)
	for _, e := range body {
		if !e.BaseCogeneratedExpr().Negated {
			needed = append(needed, evaluated(e)...)
		}
	}
	for _, e := range body {
		ast.WalkClosures(e, func(x any) bool {
			switch x := x.(type) {
			case *ast.ArrayComprehension:
				l.hoistedPaths(p, x.Body, needed)
			case *ast.SetComprehension:
				l.hoistedPaths(p, x.Body, needed)
			case *ast.ObjectComprehension:
				l.hoistedPaths(p, x.Body, needed)
			case *ast.Every:
				l.hoistedPaths(p, x.Body, needed)
			}
			return true
		})
		base := e.BaseCogeneratedExpr()
		if base == e || !base.Negated || e.Negated || !e.IsEquality() {
			continue
		}
		ref, ok := e.Operand(1).Value.(ast.Ref)
		if !ok || !ref.HasPrefix(ast.InputRootRef) || present(p, ref) ||
			slices.ContainsFunc(needed, func(n ast.Ref) bool { return n.HasPrefix(ref) }) {
			continue
		}
		path := ref.ConstantPrefix().String()
		l.warn("not-hoisted", base.Location, "%s is evaluated before the not: where it is undefined, so is all of the rule, and the not does not hold; "+
			"read it with object.get, or put what is negated into a rule of its own", path)
	}
}

// evaluated returns the references that an expression always evaluates.
func evaluated(e *ast.Expr) []ast.Ref {
	var found []ast.Ref
	v := ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.ArrayComprehension, *ast.SetComprehension, *ast.ObjectComprehension, ast.Body:
			return true
		case ast.Ref:
			found = append(found, x)
		}
		return false
	})
	v.Walk(e)
	return found
}

// present reports whether every input has the field of a reference.
func present(p *Package, ref ast.Ref) bool {
	path := make([]string, 0, len(ref))
	for _, t := range ref[1:] {
		s, ok := t.Value.(ast.String)
		if !ok {
			return false
		}
		path = append(path, string(s))
	}
	switch len(path) {
	case 0, 1:
		return true
	case 2:
		switch path[0] {
		case "object":
			return slices.Contains([]string{"apiVersion", "kind", "metadata"}, path[1])
		case "parameters":
			return p.Parameters.alwaysSet(path[1])
		}
		return path[0] == "ref" || path[0] == "member"
	}
	return slices.Equal(path, []string{"object", "metadata", "name"})
}

// calledFunction returns the function of a policy that an expression calls for its
// value.
func calledFunction(e *ast.Expr) (ast.Ref, bool) {
	terms, ok := e.Terms.([]*ast.Term)
	if !ok {
		return nil, false
	}
	operator, ok := terms[0].Value.(ast.Ref)
	return operator, ok && operator.HasPrefix(ast.DefaultRootRef)
}

// maxCallDepth is how deep calls are followed to decide whether they are always
// defined.
const maxCallDepth = 8

// partialBuiltins are builtins that are undefined for arguments of the right type.
var partialBuiltins = []string{ast.Max.Name, ast.Min.Name}

// alwaysDefined reports whether rules have a value whatever the arguments.
func alwaysDefined(c *ast.Compiler, ref ast.Ref, depth int) bool {
	rules := c.GetRulesExact(ref)
	return depth < maxCallDepth && slices.ContainsFunc(rules, func(r *ast.Rule) bool {
		if r.Default || r.Head.RuleKind() == ast.MultiValue {
			return true
		}
		if slices.ContainsFunc(r.Head.Args, func(t *ast.Term) bool { _, any := t.Value.(ast.Var); return !any }) {
			return false
		}
		for b := r; b != nil; b = b.Else {
			if !slices.ContainsFunc(b.Body, func(e *ast.Expr) bool { return !alwaysHolds(c, e, depth) }) {
				return true
			}
		}
		return false
	})
}

// alwaysHolds reports whether an expression always holds.
func alwaysHolds(c *ast.Compiler, e *ast.Expr, depth int) bool {
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
		if f, ok := calledFunction(e); ok {
			return len(t)-1 > c.GetArity(f) && alwaysDefined(c, f, depth+1)
		}
		b := ast.BuiltinMap[operator.String()]
		return b != nil && !b.Relation && len(t)-1 > b.Decl.Arity() && !slices.Contains(partialBuiltins, b.Name)
	}
	return false
}

// defined reports whether a term always has a value.
func defined(c *ast.Compiler, t *ast.Term, depth int) bool {
	switch v := t.Value.(type) {
	case ast.Ref:
		return v.HasPrefix(ast.DefaultRootRef) && v.IsGround() && alwaysDefined(c, v, depth+1)
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
