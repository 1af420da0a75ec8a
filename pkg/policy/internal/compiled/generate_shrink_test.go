package compiled_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/compiled"
)

// difference is a program that both evaluators disagree about.
type difference struct {
	sources

	world            world
	strict, indexing bool
	verdict          verdict
}

func (d *difference) String() string {
	mode := "lenient"
	if d.strict {
		mode = "strict"
	}
	if d.indexing {
		mode += ", with indexing"
	}
	reads := fmt.Sprintf("--- reads\n%v\n%v", documentsOf(d.verdict.got.reads), documentsOf(d.verdict.want.reads))
	return fmt.Sprintf("%s (%s)\n%s\n--- query\n%s\n--- input\n%v\n--- data\n%v\n--- compiled\n%v %v\n--- topdown\n%v %v\n%s\n",
		d.verdict.why, mode, strings.Join(d.modules, "\n---\n"), d.queries[0], d.world.input, d.world.data,
		d.verdict.got.solutions, d.verdict.got.err, d.verdict.want.solutions, d.verdict.want.err, reads)
}

// shrinkSteps bounds how many smaller programs are tried.
const shrinkSteps = 3000

// shrink removes what the difference does not need.
func (d *difference) shrink(t testing.TB, m *compiled.Machine) *difference {
	s := &shrinker{t: t, m: m, best: d, steps: shrinkSteps}
	for s.pass() {
	}
	return s.best
}

type shrinker struct {
	t     testing.TB
	m     *compiled.Machine
	best  *difference
	steps int
}

// try keeps a smaller difference, if it still is one.
func (s *shrinker) try(d difference) bool {
	if s.steps--; s.steps < 0 {
		return false
	}
	c, err := d.compile()
	if err != nil {
		return false
	}
	p, err := newProgram(c, d.queries[0], d.strict, d.indexing)
	if err != nil || p.refused != nil {
		return false
	}
	v := p.ask(s.t.Context(), s.m, d.world)
	if v.outcome != different || v.why != s.best.verdict.why || s.best.verdict.want.err == nil && v.want.err != nil {
		return false
	}
	d.verdict = v
	s.best = &d
	return true
}

// pass tries all removals once, and reports whether one was kept.
func (s *shrinker) pass() bool {
	smaller := false
	for i := range s.best.modules {
		for n := 0; s.steps > 0; {
			text, ok := removal(s.best.modules[i], n)
			if !ok {
				break
			}
			d := *s.best
			d.modules = append([]string(nil), d.modules...)
			d.modules[i] = text
			if text == s.best.modules[i] || text == "" || !s.try(d) {
				n++
				continue
			}
			smaller = true
		}
	}
	return s.documents() || smaller
}

// documents removes parts of the input and of the data.
func (s *shrinker) documents() bool {
	smaller := false
	for n := 0; s.steps > 0; {
		v, ok := withoutPart(s.best.world.input, n)
		if !ok {
			break
		}
		d := *s.best
		d.world.input = v
		if s.try(d) {
			smaller = true
		} else {
			n++
		}
	}
	for n := 0; s.steps > 0; {
		v, ok := withoutPart(s.best.world.data, n)
		if !ok {
			break
		}
		d := *s.best
		d.world.data = v
		if s.try(d) {
			smaller = true
		} else {
			n++
		}
	}
	return smaller
}

// withoutPart returns a document without its part n; ok is false if it has fewer.
func withoutPart(v ast.Value, n int) (ast.Value, bool) {
	c := cutter{at: n}
	x := c.cut(v)
	return x, c.at < 0
}

type cutter struct{ at int }

func (c *cutter) cut(v ast.Value) ast.Value {
	switch v := v.(type) {
	case ast.Object:
		o := ast.NewObject()
		v.Foreach(func(k, t *ast.Term) {
			if c.at--; c.at == -1 {
				return
			}
			o.Insert(k, ast.NewTerm(c.cut(t.Value)))
		})
		return o
	case *ast.Array:
		var list []*ast.Term
		v.Foreach(func(t *ast.Term) {
			if c.at--; c.at == -1 {
				return
			}
			list = append(list, ast.NewTerm(c.cut(t.Value)))
		})
		return ast.NewArray(list...)
	}
	return v
}

// removal returns the text of a module without its part n, ok is false if it has fewer
// parts; "" stands for a part that cannot be removed.
func removal(text string, n int) (smaller string, ok bool) {
	m, err := ast.ParseModuleWithOpts("m.rego", text, ast.ParserOptions{RegoVersion: ast.RegoV1, Capabilities: parseCapabilities})
	if err != nil {
		return "", false
	}
	if n < len(m.Rules) {
		m.Rules = append(m.Rules[:n:n], m.Rules[n+1:]...)
		return m.String(), true
	}
	n -= len(m.Rules)
	r := remover{at: n}
	for _, rule := range m.Rules {
		r.rule(rule)
	}
	if r.at >= 0 {
		return "", false
	}
	return m.String(), true
}

// remover removes the part of a module that at counts down to.
type remover struct{ at int }

// here reports whether the part that is met now is to go.
func (r *remover) here() bool {
	r.at--
	return r.at == -1
}

func (r *remover) rule(rule *ast.Rule) {
	ast.WalkBodies(rule, func(b ast.Body) bool { return false })
	if rule.Else != nil {
		if r.here() {
			rule.Else = rule.Else.Else
			return
		}
		r.rule(rule.Else)
	}
	if !rule.Default {
		rule.Body = r.body(rule.Body)
	}
	if rule.Head.Value != nil && r.here() {
		rule.Head.Value = ast.InternedTerm(1)
	}
	r.terms(rule.Head.Value)
	r.terms(rule.Head.Key)
}

func (r *remover) body(b ast.Body) ast.Body {
	for i := range b {
		if r.here() {
			if len(b) == 1 {
				return ast.NewBody(ast.NewExpr(ast.BooleanTerm(true)))
			}
			return append(b[:i:i], b[i+1:]...)
		}
	}
	for _, e := range b {
		if e.Negated && r.here() {
			e.Negated = false
		}
		switch t := e.Terms.(type) {
		case *ast.Term:
			r.terms(t)
		case []*ast.Term:
			for _, x := range t[1:] {
				r.terms(x)
			}
		case *ast.Every:
			r.terms(t.Domain)
			t.Body = r.body(t.Body)
		case *ast.SomeDecl:
			for _, x := range t.Symbols {
				r.terms(x)
			}
		}
	}
	return b
}

// terms removes parts of a term, or puts a scalar in its place.
func (r *remover) terms(t *ast.Term) {
	if t == nil {
		return
	}
	switch v := t.Value.(type) {
	case *ast.ArrayComprehension:
		r.scalar(t)
		v.Body = r.body(v.Body)
		r.terms(v.Term)
	case *ast.SetComprehension:
		r.scalar(t)
		v.Body = r.body(v.Body)
		r.terms(v.Term)
	case *ast.ObjectComprehension:
		r.scalar(t)
		v.Body = r.body(v.Body)
		r.terms(v.Key)
		r.terms(v.Value)
	case ast.Call:
		r.scalar(t)
		for _, x := range v[1:] {
			if r.here() {
				t.Value = x.Value
				return
			}
		}
		for _, x := range v[1:] {
			r.terms(x)
		}
	case *ast.Array:
		r.scalar(t)
		for i := range v.Len() {
			if r.here() {
				t.Value = v.Elem(i).Value
				return
			}
		}
		v.Foreach(r.terms)
	case ast.Set:
		r.scalar(t)
		for _, x := range v.Slice() {
			if r.here() {
				t.Value = ast.NewSet(x)
				return
			}
		}
	case ast.Object:
		r.scalar(t)
		v.Foreach(func(k, x *ast.Term) {
			if r.here() {
				t.Value = ast.NewObject([2]*ast.Term{k, x})
			}
		})
	case ast.Ref:
		r.scalar(t)
	}
}

// scalar puts a scalar in the place of a term.
func (r *remover) scalar(t *ast.Term) {
	for _, v := range []ast.Value{ast.Number("1"), ast.String("a"), ast.Boolean(true)} {
		if r.here() {
			t.Value = v
			return
		}
	}
}
