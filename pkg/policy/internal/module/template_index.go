package module

import (
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
)

// Index says by what a template looks for objects of data.inventory: Body gives Key its
// values for one object, input.object. A lookup by a value finds at least the objects that
// give it.
type Index struct {
	Name  string // as that of a view, which policies cannot have
	Kinds []aggregate.Kind
	Body  ast.Body
	Key   ast.Var
}

// Names of what a rewritten reference to data.inventory reads, and of the builtin that
// encodes what is known of it.
const (
	LookupRoot    = "inventory_at"
	LookupBuiltin = "federator.inventory_at"
)

// Modes of a lookup, besides the name of an index.
const (
	LookupPath   = ""       // what is known of the path
	LookupExists = "exists" // whether there is anything: one object at most
)

// indexer rewrites the references of a template to data.inventory. What is known when one
// is evaluated goes first, where a store sees it: a constant kind below variable
// namespaces, a name below a variable version, and, of objects that are compared with a
// value, the value. Comparisons stay: a lookup only leaves out what cannot match.
type indexer struct {
	l    *loader
	p    *Package
	pure map[*ast.Rule]bool
	made int // variables
}

// index rewrites the rules of a template.
func (l *loader) index(p *Package) {
	x := &indexer{l: l, p: p, pure: map[*ast.Rule]bool{}}
	for _, r := range p.rules {
		for b := r; b != nil; b = b.Else {
			bound := map[ast.Var]bool{}
			for _, arg := range b.Head.Args {
				addVars(bound, arg)
			}
			b.Body = x.body(b.Body, bound)
		}
	}
}

func addVars(to map[ast.Var]bool, x any) {
	for v := range varsOf(x) {
		to[v] = true
	}
}

// varsOf returns the variables of an expression outside closures, documents aside.
func varsOf(x any) map[ast.Var]bool {
	visit := ast.NewVarVisitor().WithParams(ast.VarVisitorParams{SkipClosures: true, SkipRefCallHead: true})
	visit.Walk(x)
	out := map[ast.Var]bool{}
	for v := range visit.Vars() {
		if v != ast.DefaultRootDocument.Value && v != ast.InputRootDocument.Value {
			out[v] = true
		}
	}
	return out
}

func within(vars, of map[ast.Var]bool) bool {
	for v := range vars {
		if !of[v] {
			return false
		}
	}
	return true
}

// body rewrites the expressions of a body. bound grows by what each of them binds.
func (x *indexer) body(b ast.Body, bound map[ast.Var]bool) ast.Body {
	var out []*ast.Expr
	for i, e := range b {
		if len(e.With) == 0 {
			out = append(out, x.expr(b, i, bound)...)
		}
		out = append(out, e)
		if !e.Negated {
			addVars(bound, e)
		}
	}
	return ast.NewBody(out...)
}

// expr rewrites the references of one expression, and returns what is to be evaluated
// before it.
func (x *indexer) expr(b ast.Body, i int, bound map[ast.Var]bool) []*ast.Expr {
	e := b[i]
	var before []*ast.Expr
	rewrite := func(t *ast.Term) {
		if r, ok := t.Value.(ast.Ref); ok && len(r) > 3 && r[0].Equal(ast.DefaultRootDocument) && name(r[1]) == "inventory" {
			more, to := x.ref(b, i, r, bound)
			before, t.Value = append(before, more...), to
		}
	}
	switch t := e.Terms.(type) {
	case *ast.Term:
		rewrite(t)
	case []*ast.Term:
		for _, arg := range t[1:] {
			rewrite(arg)
		}
	}
	return before
}

// path is a reference to data.inventory by its steps.
type inventoryRef struct {
	section                           string
	namespace, apiVersion, kind, name *ast.Term
	whole                             bool        // it names one object
	within                            []*ast.Term // the steps below that
}

func parseInventoryRef(r ast.Ref) (p inventoryRef, ok bool) {
	p.section = name(r[2])
	if _, constant := r[2].Value.(ast.String); !constant || p.section != "cluster" && p.section != "namespace" {
		return p, false
	}
	steps := []**ast.Term{&p.namespace, &p.apiVersion, &p.kind, &p.name}
	if p.section == "cluster" {
		steps = steps[1:]
	}
	for i, t := range r[3:] {
		if i == len(steps) {
			p.within = r[3+i:]
			break
		}
		*steps[i] = t
	}
	p.whole = p.name != nil
	return p, true
}

// ref rewrites one reference of the expression i.
func (x *indexer) ref(b ast.Body, i int, r ast.Ref, bound map[ast.Var]bool) ([]*ast.Expr, ast.Ref) {
	p, ok := parseInventoryRef(r)
	if !ok {
		return nil, r
	}
	e := b[i]
	known := func(t *ast.Term) bool { return t != nil && t.IsGround() || t != nil && within(varsOf(t), bound) }
	mode, value := LookupPath, ast.NullTerm()
	if v, ok := assignedTo(e, r); ok && p.whole && !e.Negated {
		if name, of := x.find(b, i, p, v, bound); of != nil {
			mode, value = name, of
		}
	}
	if t, ok := e.Terms.(*ast.Term); ok && p.section == "cluster" && len(r) == 5 && known(p.apiVersion) && known(p.kind) && t.Value.Compare(r) == 0 {
		mode = LookupExists
	}
	var before []*ast.Expr
	steps := []*ast.Term{ast.StringTerm(mode)}
	open, useful := false, mode != LookupPath
	for _, t := range []*ast.Term{p.namespace, p.apiVersion, p.kind, p.name} {
		if !known(t) {
			steps = append(steps, ast.NullTerm())
			open = open || t != nil
			continue
		}
		steps = append(steps, x.plain(t, e.Location, &before))
		useful = useful || open
	}
	if !known(p.name) && (p.namespace == nil || !known(p.namespace)) && (mode == LookupPath || mode == LookupExists && p.section != "cluster") {
		x.p.WideReads = append(x.p.WideReads, newFinding(SeverityWarning, "wide-inventory", e.Location,
			"%s is read for every object of its kinds in the member: a change of one evaluates all again that read it", clip(r.String())))
	}
	if !useful {
		return nil, r
	}
	x.made++
	at := ast.VarTerm(fmt.Sprintf("__federator%d__", x.made))
	at.Location = e.Location
	encode := &ast.Expr{Location: e.Location, Generated: true, Terms: []*ast.Term{
		ast.NewTerm(ast.MustParseRef(LookupBuiltin)), ast.ArrayTerm(append(steps, x.plain(value, e.Location, &before))...), at,
	}}
	to := append(ast.Ref{ast.DefaultRootDocument, ast.StringTerm(LookupRoot), at}, r[2:]...)
	return append(before, encode), to
}

// plain is a term as it may stand in an array of what was compiled: evaluation would not
// resolve a reference there.
func (x *indexer) plain(t *ast.Term, loc *ast.Location, before *[]*ast.Expr) *ast.Term {
	if _, isRef := t.Value.(ast.Ref); !isRef {
		return t.Copy()
	}
	x.made++
	v := ast.VarTerm(fmt.Sprintf("__federator%d__", x.made))
	v.Location = loc
	resolve := ast.Equality.Expr(v, t.Copy())
	resolve.Location, resolve.Generated = loc, true
	*before = append(*before, resolve)
	return v.Copy()
}

// assignedTo returns the variable that an expression gives the value of a reference.
func assignedTo(e *ast.Expr, r ast.Ref) (ast.Var, bool) {
	t, ok := e.Terms.([]*ast.Term)
	if !ok || !e.IsEquality() || len(t) != 3 {
		return "", false
	}
	for i, side := range t[1:] {
		v, isVar := t[2-i].Value.(ast.Var)
		if isVar && side.Value.Compare(r) == 0 {
			return v, true
		}
	}
	return "", false
}

// find looks for a comparison of what follows from an object alone with what is bound. It
// returns the name of its index, and the value to look for.
func (x *indexer) find(b ast.Body, i int, p inventoryRef, v ast.Var, bound map[ast.Var]bool) (string, *ast.Term) {
	if bound[v] {
		return "", nil
	}
	d := &derivation{x: x, bound: bound, derived: map[ast.Var]bool{v: true}}
	for again := true; again; {
		again = false
		for j, e := range b {
			if j == i || e.Negated || len(e.With) > 0 || slices.Contains(d.chain, e) {
				continue
			}
			if key, value := d.compares(e); value != nil {
				return x.add(p, v, d, key), value
			}
			if d.derives(e) {
				d.chain = append(d.chain, e)
				again = true
			}
		}
	}
	return "", nil
}

// derivation is what follows from one object: variables, and the expressions that give
// them their values, in order.
type derivation struct {
	x              *indexer
	bound, derived map[ast.Var]bool
	chain          []*ast.Expr
}

// of reports whether a term follows from the object: a variable that does, or a reference
// into one. Steps that are bound otherwise count as any.
func (d *derivation) of(t *ast.Term) bool {
	switch v := t.Value.(type) {
	case ast.Var:
		return d.derived[v]
	case ast.Ref:
		head, ok := v[0].Value.(ast.Var)
		return ok && d.derived[head]
	}
	return false
}

// free reports whether a term is a variable that nothing else binds.
func (d *derivation) free(t *ast.Term) (ast.Var, bool) {
	v, ok := t.Value.(ast.Var)
	return v, ok && !d.derived[v] && !d.bound[v]
}

// compares returns the two sides of a comparison: what follows from the object, and what
// is bound without it.
func (d *derivation) compares(e *ast.Expr) (key, value *ast.Term) {
	t, ok := e.Terms.([]*ast.Term)
	if !ok || !e.IsEquality() || len(t) != 3 {
		return nil, nil
	}
	for i, side := range t[1:] {
		other := t[2-i]
		switch other.Value.(type) {
		case ast.Var, ast.Ref:
		default:
			continue // a constant selects too much to be worth an index
		}
		vars := varsOf(other)
		if r, ok := other.Value.(ast.Ref); ok && (!r[0].Equal(ast.InputRootDocument) || len(vars) > 0) {
			continue
		}
		if d.of(side) && len(vars) <= 1 && within(vars, d.bound) {
			return side, other
		}
	}
	return nil, nil
}

// derives reports whether an expression gives a variable a value that follows from the
// object alone.
func (d *derivation) derives(e *ast.Expr) bool {
	t, ok := e.Terms.([]*ast.Term)
	if !ok {
		return false
	}
	if e.IsEquality() && len(t) == 3 {
		for i, side := range t[1:] {
			if v, free := d.free(t[2-i]); free && d.of(side) {
				d.derived[v] = true
				return true
			}
		}
		return false
	}
	if len(t) < 3 || len(t) != 2+d.x.arity(t[0]) || !d.x.isPure(t[0]) {
		return false
	}
	result, free := d.free(t[len(t)-1])
	if !free {
		return false
	}
	for _, arg := range t[1 : len(t)-1] {
		if !d.of(arg) && !ast.IsConstant(arg.Value) {
			return false
		}
	}
	d.derived[result] = true
	return true
}

// arity is the number of a function's parameters; with one term more, a call gives that
// one its result.
func (x *indexer) arity(operator *ast.Term) int {
	if b := ast.BuiltinMap[operator.String()]; b != nil {
		return b.Decl.Arity()
	}
	r, _ := operator.Value.(ast.Ref)
	return x.p.Compiler.GetArity(r)
}

// isPure reports whether a function reads nothing but its arguments.
func (x *indexer) isPure(operator *ast.Term) bool {
	r, ok := operator.Value.(ast.Ref)
	if !ok {
		return false
	}
	if b := ast.BuiltinMap[r.String()]; b != nil {
		return !b.Nondeterministic && !b.Relation
	}
	return x.pureFunction(r)
}

func (x *indexer) pureFunction(r ast.Ref) bool {
	rules := x.p.Compiler.GetRulesExact(r)
	for _, rule := range rules {
		if known, ok := x.pure[rule]; ok {
			if !known {
				return false
			}
			continue
		}
		x.pure[rule] = true // recursion is refused by the compiler
		pure := true
		ast.WalkRefs(rule, func(of ast.Ref) bool {
			switch {
			case of[0].Equal(ast.InputRootDocument):
				pure = false
			case of[0].Equal(ast.DefaultRootDocument) && !of.Equal(rule.Ref()):
				pure = pure && x.pureFunction(of)
			}
			return !pure
		})
		ast.WalkTerms(rule, func(t *ast.Term) bool {
			pure = pure && !t.Equal(ast.InputRootDocument)
			return !pure
		})
		x.pure[rule] = pure
		if !pure {
			return false
		}
	}
	return len(rules) > 0
}

// add makes an index, or finds the same one.
func (x *indexer) add(p inventoryRef, object ast.Var, d *derivation, key *ast.Term) string {
	of := ast.InputRootRef.Append(ast.StringTerm("object")).Concat(p.within).Copy()
	body := []*ast.Expr{d.open(ast.Equality.Expr(ast.VarTerm(string(object)), ast.NewTerm(of)))}
	for _, e := range d.chain {
		body = append(body, d.open(e.Copy()))
	}
	const result = ast.Var("__federator_key__")
	body = append(body, d.open(ast.Equality.Expr(ast.VarTerm(string(result)), key.Copy())))
	ix := Index{Body: ast.NewBody(body...), Key: result}
	apiVersion, kind := constantOf(p.apiVersion), constantOf(p.kind)
	for _, k := range x.p.inventoryKinds(apiVersion, kind) {
		ix.Kinds = append(ix.Kinds, k.Kind)
	}
	for _, other := range x.p.Indexes {
		if slices.Equal(other.Kinds, ix.Kinds) && other.Body.Equal(ix.Body) {
			return other.Name
		}
	}
	ix.Name = fmt.Sprintf("$%d", len(x.p.Indexes))
	x.p.Indexes = append(x.p.Indexes, ix)
	return ix.Name
}

// open makes steps that are bound elsewhere any step.
func (d *derivation) open(e *ast.Expr) *ast.Expr {
	ast.WalkTerms(e, func(t *ast.Term) bool {
		r, ok := t.Value.(ast.Ref)
		if !ok {
			return false
		}
		for i, step := range r[1:] {
			if v, isVar := step.Value.(ast.Var); isVar && d.bound[v] {
				d.x.made++
				r[i+1] = ast.VarTerm(fmt.Sprintf("__federator%d__", d.x.made))
			}
		}
		return false
	})
	return e
}

func constantOf(t *ast.Term) string {
	if t == nil {
		return ""
	}
	s, _ := t.Value.(ast.String)
	return string(s)
}

// inventoryKinds returns the kinds that a path below data.inventory can reach, with the
// version that it names.
func (p *Package) inventoryKinds(apiVersion, kind string) []KindRef {
	group, version, _ := strings.Cut(apiVersion, "/")
	if version == "" {
		group, version = "", apiVersion
	}
	if apiVersion != "" && kind != "" {
		return []KindRef{{Kind: aggregate.MakeKind(kind, group), Version: version}}
	}
	var out []KindRef
	for _, k := range p.Template.Synced {
		one := KindRef{Kind: aggregate.MakeKind(k.Kind, k.Group), Version: version}
		if (kind == "" || kind == k.Kind) && (apiVersion == "" || group == k.Group) && !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	if len(out) == 0 && kind != "" {
		// The groups that constraints name for it, and that which every cluster has.
		for _, k := range p.Kinds {
			if name, _ := k.Kind.Split(); name == kind {
				out = append(out, KindRef{Kind: k.Kind})
			}
		}
		group, known := builtinGroup(kind)
		if one := (KindRef{Kind: aggregate.MakeKind(kind, group)}); known && !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out
}
