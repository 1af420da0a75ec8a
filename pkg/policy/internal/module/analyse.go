package module

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
)

// analysis is the abstract evaluation of some rules of a package, and of what they
// call. It repeats until no source and no read is new.
type analysis struct {
	l         *loader
	p         *Package
	view      bool   // of a view: sees its object only
	what      string // for messages
	report    *findings
	wideReads findings

	input, members *source
	fleet          map[KindRef]*source // an object of a kind
	fleetReads     fleetReads

	rules       map[*ast.Rule]bool // that are reached; an else belongs to its rule
	order       []*ast.Rule
	vars        map[variable]sources
	results     map[*ast.Rule]sources // values of rules that have one
	made        map[any]*source       // by term
	assignments map[variable]int      // in how many places a variable is given a value
	assigned    map[variable]bool     // it is, patterns included, by more than a reference's step
	guards      map[string]bool       // what the subject's kind is compared with
	guarded     bool                  // it is compared with something

	location        *ast.Location // of the expression that is evaluated
	changed, gaveUp bool
	nodes           int
}

// variable is a variable of a rule, its else branches included.
type variable struct {
	rule *ast.Rule
	name ast.Var
}

// analyse evaluates the wanted rules of a package.
func (l *loader) analyse(p *Package, view string, wanted func(*ast.Rule) bool) *analysis {
	a := &analysis{
		l: l, p: p, view: view != "", what: view, report: &findings{},
		fleet: map[KindRef]*source{}, rules: map[*ast.Rule]bool{}, vars: map[variable]sources{}, results: map[*ast.Rule]sources{},
		made: map[any]*source{}, assignments: map[variable]int{}, assigned: map[variable]bool{}, guards: map[string]bool{},
	}
	a.fleetReads.init()
	a.input, a.members = a.newPlace(nil, nil), a.newPlace(nil, nil)
	for _, r := range p.rules {
		if wanted(r) {
			a.reach(r)
		}
	}
	for pass := 0; ; pass++ {
		a.changed = false
		// Each pass reports everything again: the last one counts.
		a.report.list, a.wideReads.list = nil, nil
		for i := 0; i < len(a.order); i++ { //nolint:intrange // it grows
			a.rule(a.order[i])
		}
		if l.work > maxWork {
			l.findings.errorAt("too-complex", p.modules[0].Package.Location, "the analysis of what package %s reads takes too long", p.Name)
			return a
		}
		if a.gaveUp = a.gaveUp || pass == maxPasses; a.gaveUp || !a.changed {
			break
		}
	}
	a.checkInput()
	for _, f := range a.report.sorted() {
		l.findings.add(f)
	}
	return a
}

// reach adds a rule, and counts the assignments of its variables.
func (a *analysis) reach(r *ast.Rule) {
	if a.rules[r] {
		return
	}
	a.rules[r], a.changed = true, true
	a.order = append(a.order, r)
	a.results[r] = sources{}
	a.countAssignments(r)
}

// rule evaluates a rule and its else branches.
func (a *analysis) rule(r *ast.Rule) {
	for b := r; b != nil; b = b.Else {
		s := ruleScope{a, r}
		a.location = b.Location
		s.body(b.Body)
		a.location = b.Location
		s.head(b)
	}
}

// ruleScope evaluates within one rule.
type ruleScope struct {
	*analysis
	rule *ast.Rule
}

// head accounts for the value of a rule's head.
func (s ruleScope) head(b *ast.Rule) {
	h := b.Head
	for _, t := range h.Ref()[1:] {
		s.markAllWhole(s.term(t))
	}
	if h.Key != nil {
		s.markAllWhole(s.term(h.Key))
	}
	if h.Value == nil {
		return
	}
	v := s.term(h.Value)
	if h.Key != nil || !constantRef(h.Ref()) {
		// Two values of one key contradict each other when they differ anywhere.
		s.markAllWhole(v)
		return
	}
	if !s.consistent(s.rule) {
		s.markAllWhole(v)
	}
	s.join(s.results[s.rule], v)
}

// body evaluates expressions.
func (s ruleScope) body(b ast.Body) {
	for _, e := range b {
		if s.l.work++; s.l.work > maxWork {
			return
		}
		s.expr(e)
	}
}

func (s ruleScope) expr(e *ast.Expr) {
	if e.Location != nil && e.Location.File != "" {
		s.location = e.Location
	}
	if len(e.With) > 0 {
		s.report.errorAt("with", e.Location, "with is for tests: it would hide what a policy reads")
	}
	switch t := e.Terms.(type) {
	case *ast.Term:
		s.term(t) // whether it is defined, and not false
	case *ast.Every:
		d := s.step(s.term(t.Domain), "", false, t.Domain.Location)
		if t.Key != nil {
			s.assign(t.Key, sources{})
		}
		s.assign(t.Value, d)
		s.body(t.Body)
	case []*ast.Term:
		if e.IsEquality() && len(t) == 3 {
			s.unify(t[1], t[2])
			s.guard(t[1], t[2], !e.Negated)
			return
		}
		s.call(t, e.Location)
	default:
		s.report.errorAt("syntax", e.Location, "%s is not supported: what it reads cannot be determined", clip(e.String()))
	}
}

// unify evaluates a = b.
func (s ruleScope) unify(x, y *ast.Term) {
	from, to := s.term(x), s.term(y)
	_, xVar := x.Value.(ast.Var)
	_, yVar := y.Value.(ast.Var)
	switch {
	case xVar && yVar:
		s.assign(x, to)
		s.assign(y, from)
	case xVar:
		s.assign(x, to)
	case yVar:
		s.assign(y, from)
	default:
		// A comparison, or a pattern, whose variables get parts of what was read whole.
		s.markAllWhole(from)
		s.markAllWhole(to)
	}
}

// assign adds sources to a variable; if it has several values, these are compared.
func (s ruleScope) assign(t *ast.Term, from sources) {
	v, ok := t.Value.(ast.Var)
	if !ok {
		s.markAllWhole(from)
		s.markAllWhole(s.term(t))
		return
	}
	key := variable{s.rule, v}
	have := s.vars[key]
	if have == nil {
		have = sources{}
		s.vars[key] = have
	}
	s.join(have, from)
	if s.assignments[key] > 1 {
		s.markAllWhole(have)
	}
}

// term returns the sources of a term, and marks what evaluating it reads.
func (s ruleScope) term(t *ast.Term) sources {
	switch v := t.Value.(type) {
	case ast.Var:
		switch {
		case v.Equal(ast.InputRootDocument.Value):
			return sources{s.input: true}
		case v.Equal(ast.DefaultRootDocument.Value):
			return s.data(ast.Ref{t}, t.Location)
		}
		return s.vars[variable{s.rule, v}]
	case ast.Ref:
		return s.ref(v, t.Location)
	case ast.Call:
		return s.call(v, t.Location)
	case *ast.Array:
		n := s.valueSource(t)
		for i := range v.Len() {
			s.addMembers(n, s.term(v.Elem(i)))
		}
		return sources{n: true}
	case ast.Object:
		n := s.valueSource(t)
		v.Foreach(func(key, value *ast.Term) {
			s.markAllWhole(s.term(key))
			s.addMembers(n, s.term(value))
		})
		return sources{n: true}
	case ast.Set:
		// Equal members are one: all of them is compared.
		v.Foreach(func(m *ast.Term) { s.markAllWhole(s.term(m)) })
	case *ast.ArrayComprehension:
		s.body(v.Body)
		n := s.valueSource(t)
		s.addMembers(n, s.term(v.Term))
		return sources{n: true}
	case *ast.SetComprehension:
		s.body(v.Body)
		s.markAllWhole(s.term(v.Term))
	case *ast.ObjectComprehension:
		s.body(v.Body)
		s.markAllWhole(s.term(v.Key))
		s.markAllWhole(s.term(v.Value))
	case *ast.TemplateString:
		for _, p := range v.Parts {
			switch p := p.(type) {
			case *ast.Term:
				s.markAllWhole(s.term(p))
			case *ast.Expr:
				s.expr(p)
			}
		}
	}
	return sources{}
}

// valueSource returns the source of a term that constructs a value.
func (s ruleScope) valueSource(t *ast.Term) *source {
	n := s.made[t]
	if n == nil {
		n = &source{made: true, members: sources{}, loc: t.Location}
		s.made[t] = n
		s.changed = true
		if s.nodes++; s.nodes > maxNodes {
			s.gaveUp = true
		}
	}
	return n
}

// ref evaluates a reference.
func (s ruleScope) ref(r ast.Ref, loc *ast.Location) sources {
	if loc == nil || loc.File == "" {
		loc = s.location // a term that OPA generated
	}
	head := r[0]
	if head.Equal(ast.DefaultRootDocument) {
		return s.data(r, loc)
	}
	return s.steps(s.term(head), r[1:], loc)
}

// steps follows the steps of a reference from sources.
func (s ruleScope) steps(from sources, path []*ast.Term, loc *ast.Location) sources {
	for _, t := range path {
		key, constant := t.Value.(ast.String)
		if !constant {
			s.markAllWhole(s.term(t)) // as a key it is compared
			s.guardKey(t)
		}
		from = s.step(from, string(key), constant, loc)
	}
	return from
}

// checkInput reports reads of input that the subject does not have.
func (a *analysis) checkInput() {
	if a.p.Template != nil {
		return // what a review does not have is undefined, as it is in Gatekeeper
	}
	allowed, subject := inputOf(a.p, a.view)
	if a.input.whole || a.input.elem != nil {
		if a.view {
			a.report.errorAt("view-reads", a.where(a.input), "%s reads the whole input; a view sees input.ref and input.object only", a.what)
		}
	}
	for key, n := range a.input.fields {
		if !allowed[key] {
			code := "input"
			if a.view {
				code = "view-reads"
			}
			a.report.errorAt(code, n.loc, "input.%s: %s has no such input", clip(key), subject)
		}
	}
}

// where is the location of a whole read: that of the first read below, or of the
// package.
func (a *analysis) where(n *source) *ast.Location {
	if n.elem != nil && n.elem.loc != nil {
		return n.elem.loc
	}
	if len(a.order) > 0 {
		return a.order[0].Location
	}
	return a.p.modules[0].Package.Location
}

// inputOf returns the input of a package's subjects.
func inputOf(p *Package, view bool) (map[string]bool, string) {
	switch {
	case view:
		return map[string]bool{"ref": true, "object": true}, "a view"
	case p.Subject == MemberSubject:
		return map[string]bool{"member": true, "parameters": true}, "the subject member"
	case p.Subject == ViewSubject:
		return map[string]bool{"key": true, "entries": true, "parameters": true}, fmt.Sprintf("the subject view.%s", p.SubjectView)
	}
	return map[string]bool{"ref": true, "object": true, "member": true, "parameters": true}, "the subject object"
}
