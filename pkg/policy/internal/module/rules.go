package module

import (
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"
)

// countAssignments counts how often values are assigned to the variables of a rule. A
// variable with two assignments is compared; one that equals another and has no
// assignment of its own is an alias.
func (a *analysis) countAssignments(r *ast.Rule) {
	give := func(t *ast.Term) {
		if v, ok := t.Value.(ast.Var); ok {
			a.assignments[variable{r, v}]++
		}
		a.assignPattern(r, t)
	}
	var aliases [][2]ast.Var
	for b := r; b != nil; b = b.Else {
		for _, arg := range b.Head.Args {
			if b == r {
				give(arg)
			} else {
				a.assignPattern(r, arg)
			}
		}
		visit := ast.NewGenericVisitor(func(x any) bool {
			switch x := x.(type) {
			case *ast.Rule:
				return x != b // an else is the next b
			case *ast.Every:
				if x.Key != nil {
					give(x.Key)
				}
				give(x.Value)
			case *ast.Expr:
				aliases = a.countExpr(r, x, give, aliases)
			case ast.Call:
				a.countCall(x, give)
			}
			return false
		})
		visit.Walk(b)
	}
	for _, pair := range aliases {
		x, y := variable{r, pair[0]}, variable{r, pair[1]}
		a.assigned[x], a.assigned[y] = true, true
		switch {
		case a.assignments[x] == 0:
			a.assignments[x] = 1
		case a.assignments[y] == 0:
			a.assignments[y] = 1
		default:
			a.assignments[x]++
			a.assignments[y]++
		}
	}
}

func (a *analysis) countExpr(r *ast.Rule, e *ast.Expr, give func(*ast.Term), aliases [][2]ast.Var) [][2]ast.Var {
	terms, ok := e.Terms.([]*ast.Term)
	switch {
	case !ok:
	case e.IsEquality() && len(terms) == 3:
		x, xVar := terms[1].Value.(ast.Var)
		y, yVar := terms[2].Value.(ast.Var)
		if xVar && yVar {
			return append(aliases, [2]ast.Var{x, y})
		}
		for _, t := range terms[1:] {
			if _, ref := t.Value.(ast.Ref); !ref {
				give(t)
			}
		}
	default:
		a.countCall(terms, give)
	}
	return aliases
}

// countCall counts what the result of a call is unified with.
func (a *analysis) countCall(terms []*ast.Term, give func(*ast.Term)) {
	operator, ok := terms[0].Value.(ast.Ref)
	if !ok {
		return
	}
	var arity int
	if b := ast.BuiltinMap[operator.String()]; b != nil {
		arity = b.Decl.Arity()
	} else {
		arity = a.l.compilerOf(a.p).GetArity(operator)
	}
	if arity >= 0 && len(terms)-1 > arity {
		give(terms[arity+1])
	}
}

// assignPattern notes the variables of a pattern.
func (a *analysis) assignPattern(r *ast.Rule, t *ast.Term) {
	ast.WalkVars(t, func(v ast.Var) bool {
		a.assigned[variable{r, v}] = true
		return false
	})
}

// consistent reports whether the rules that define the value of r cannot conflict,
// whatever they read: each has at most one value, and no two hold for the same input
// and arguments. Of other rules the values are compared.
func (s ruleScope) consistent(r *ast.Rule) bool {
	if known, ok := s.l.consistent[r]; ok {
		return known
	}
	group := s.group(r)
	ok := len(group) <= maxGroup
	if !ok {
		group = []*ast.Rule{r}
	}
	for i, x := range group {
		ok = ok && !iterates(x)
		for _, y := range group[:i] {
			ok = ok && exclusive(x, y)
		}
	}
	for _, x := range group {
		s.l.consistent[x] = ok
	}
	return ok
}

// maxGroup is how many rules of one value are compared with each other.
const maxGroup = 32

// group returns the rules, except defaults, that define the same value as r.
func (s ruleScope) group(r *ast.Rule) []*ast.Rule {
	var group []*ast.Rule
	pkg, _ := packageName(r.Module.Package)
	for _, x := range s.l.packages[pkg].byName[name(r.Head.Ref()[0])] {
		if !x.Default && x.Head.Ref().Equal(r.Head.Ref()) {
			group = append(group, x)
		}
	}
	if len(group) == 0 {
		group = append(group, r) // a default
	}
	return group
}

// iterates reports whether a body can hold in more than one way. Iteration within
// comprehensions, every and not stays there.
func iterates(r *ast.Rule) bool {
	for b := r; b != nil; b = b.Else {
		for _, e := range b.Body {
			if e.Negated {
				continue
			}
			if terms, ok := e.Terms.([]*ast.Term); ok {
				if builtin := ast.BuiltinMap[terms[0].String()]; builtin != nil && builtin.Relation {
					return true
				}
			}
			if exprIterates(e) {
				return true
			}
		}
	}
	return false
}

func exprIterates(e *ast.Expr) bool {
	found := false
	visit := ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.ArrayComprehension, *ast.SetComprehension, *ast.ObjectComprehension, *ast.Every:
			return true
		case ast.Ref:
			for _, t := range x[1:] {
				_, isVar := t.Value.(ast.Var)
				found = found || isVar || !t.IsGround()
			}
		}
		return found
	})
	visit.Walk(e)
	return found
}

// exclusive reports whether two rules never hold at once: they compare the same value
// with different constants.
func exclusive(x, y *ast.Rule) bool {
	if x.Else != nil || y.Else != nil {
		return false
	}
	constants := comparedConstants(x)
	for subject, c := range comparedConstants(y) {
		if other, ok := constants[subject]; ok && other.Compare(c) != 0 {
			return true
		}
	}
	return false
}

// comparedConstants returns what a rule compares with scalar constants; parameters are
// named by their position.
func comparedConstants(r *ast.Rule) map[string]ast.Value {
	out := map[string]ast.Value{}
	params := map[ast.Var]ast.Var{}
	for i, arg := range r.Head.Args {
		place := ast.Var("$" + strconv.Itoa(i))
		switch v := arg.Value.(type) {
		case ast.Var:
			params[v] = place
		default:
			if ast.IsScalar(v) {
				out[string(place)] = v
			}
		}
	}
	for _, e := range r.Body {
		terms, ok := e.Terms.([]*ast.Term)
		if !ok || e.Negated || len(terms) != 3 || !e.IsEquality() && terms[0].String() != ast.Equal.Name {
			continue
		}
		for i, t := range terms[1:] {
			if !ast.IsScalar(t.Value) {
				continue
			}
			if subject, ok := subjectOf(terms[2-i], params); ok {
				out[subject] = t.Value
			}
		}
	}
	return out
}

// subjectOf names what is compared in the same way for all rules.
func subjectOf(t *ast.Term, params map[ast.Var]ast.Var) (string, bool) {
	switch v := t.Value.(type) {
	case ast.Var:
		place, ok := params[v]
		return string(place), ok
	case ast.Ref:
		if !v[1:].IsGround() {
			return "", false
		}
		head, ok := v[0].Value.(ast.Var)
		if !ok {
			return "", false
		}
		if place, ok := params[head]; ok {
			return string(place) + v[1:].String(), true
		}
		if head.Equal(ast.InputRootDocument.Value) {
			return v.String(), true
		}
	}
	return "", false
}

// guard notes what the subject's kind is compared with, or only that it is compared.
func (s ruleScope) guard(x, y *ast.Term, equal bool) {
	for _, pair := range [][2]*ast.Term{{x, y}, {y, x}} {
		if v, alias := pair[1].Value.(ast.Var); alias && s.assignments[variable{s.rule, v}] == 1 || !s.ofKind(pair[0]) {
			continue
		}
		s.guarded = true
		if c, ok := pair[1].Value.(ast.String); ok && equal {
			s.guards[string(c)] = true
		} else {
			s.guards["*"] = true
		}
	}
}

// guardKey notes that the subject's kind is used as a key.
func (s ruleScope) guardKey(t *ast.Term) {
	if s.ofKind(t) {
		s.guards["*"], s.guarded = true, true
	}
}

// guardSet notes that the subject's kind is looked up in a collection.
func (s ruleScope) guardSet(x, of *ast.Term) {
	if !s.ofKind(x) {
		return
	}
	s.guarded = true
	each := func(t *ast.Term) {
		if c, ok := t.Value.(ast.String); ok {
			s.guards[string(c)] = true
		} else {
			s.guards["*"] = true
		}
	}
	switch v := of.Value.(type) {
	case ast.Set:
		v.Foreach(each)
	case *ast.Array:
		v.Foreach(each)
	default:
		s.guards["*"] = true
	}
}

// ofKind reports whether a term is the kind of the subject.
func (s ruleScope) ofKind(t *ast.Term) bool {
	if r, ok := t.Value.(ast.Ref); ok && r[0].Equal(ast.DefaultRootDocument) {
		return false
	}
	if t.Value.IsGround() && ast.IsScalar(t.Value) {
		return false
	}
	from := s.term(t)
	for _, document := range []string{"ref", "object"} {
		if d := s.input.fields[document]; d != nil && d.fields["kind"] != nil && from[d.fields["kind"]] {
			return true
		}
	}
	return false
}
