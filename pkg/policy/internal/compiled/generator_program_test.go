package compiled_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// program is modules, and queries of them, in parts that may be left out one by one.
type program struct {
	rules   []rule
	bodies  [][]string // the expressions of all bodies; a text refers to one by a rune
	queries []string
	inputs  []string
	data    string
}

// rule is a rule with its else branches.
type rule struct {
	library bool // of package lib, not of package p
	parts   []string
}

// firstBody is the rune that stands for the first body.
const firstBody = '\U000F0000'

// body keeps the expressions of a body, and returns what stands for it.
func (p *program) body(expressions []string) string {
	p.bodies = append(p.bodies, expressions)
	return string(firstBody + rune(len(p.bodies)-1))
}

// render writes a text with its bodies.
func (p *program) render(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < firstBody || int(r-firstBody) >= len(p.bodies) {
			b.WriteRune(r)
			continue
		}
		expressions := make([]string, 0, 4)
		for _, e := range p.bodies[r-firstBody] {
			expressions = append(expressions, p.render(e))
		}
		if len(expressions) == 0 {
			expressions = []string{"true"}
		}
		b.WriteString(strings.Join(expressions, "; "))
	}
	return b.String()
}

// modules are the texts of both modules.
func (p *program) modules() map[string]string {
	main, library := "package p\n\nimport data.lib\n", "package lib\n"
	for _, r := range p.rules {
		text := "\n" + p.render(strings.Join(r.parts, " ")) + "\n"
		if r.library {
			library += text
		} else {
			main += text
		}
	}
	return map[string]string{"p.rego": main, "lib.rego": library}
}

// without drops the rules that errors of OPA's compiler are in, and reports whether any is left.
func (p *program) without(errs ast.Errors) bool {
	wrong := map[string]bool{}
	for _, e := range errs {
		if e.Location != nil {
			wrong[fmt.Sprintf("%s:%d", e.Location.File, e.Location.Row)] = true
		}
	}
	kept := p.rules[:0:0]
	rows := map[bool]int{false: 5, true: 3} // of the next rule in each module
	for _, r := range p.rules {
		file := "p.rego"
		if r.library {
			file = "lib.rego"
		}
		if !wrong[fmt.Sprintf("%s:%d", file, rows[r.library])] {
			kept = append(kept, r)
		}
		rows[r.library] += 2
	}
	fewer := len(kept) < len(p.rules)
	p.rules = kept
	return fewer && len(kept) > 0
}

// compile compiles the modules, but for the rules that OPA refuses.
func (p *program) compile() (c *ast.Compiler, asGenerated bool, err error) {
	for asGenerated = true; ; asGenerated = false {
		if c, err = ast.CompileModules(p.modules()); err == nil {
			return c, asGenerated, nil
		}
		var errs ast.Errors
		if !errors.As(err, &errs) || !p.without(errs) {
			return nil, false, err
		}
	}
}

func (p *program) query(i int) string { return p.render(p.queries[i]) }

// clone returns a copy whose parts may be left out.
func (p *program) clone() *program {
	c := *p
	c.rules = slices.Clone(p.rules)
	for i := range c.rules {
		c.rules[i].parts = slices.Clone(p.rules[i].parts)
	}
	c.bodies = slices.Clone(p.bodies)
	return &c
}

// smaller yields programs with one part less.
func (p *program) smaller(yield func(*program) bool) {
	for i := range p.rules {
		c := p.clone()
		c.rules = slices.Delete(c.rules, i, i+1)
		if !yield(c) {
			return
		}
		for j := 1; j < len(p.rules[i].parts); j++ {
			c := p.clone()
			c.rules[i].parts = slices.Delete(c.rules[i].parts, j, j+1)
			if !yield(c) {
				return
			}
		}
	}
	for i := range p.bodies {
		for j := range p.bodies[i] {
			c := p.clone()
			c.bodies[i] = slices.Delete(slices.Clone(p.bodies[i]), j, j+1)
			if !yield(c) {
				return
			}
		}
	}
}

// kind is what the rules of a name define.
type kind int

const (
	complete kind = iota
	set
	object
	nested
	function
	kinds
)

// named is the rules of one name, which later rules refer to.
type named struct {
	name    string
	kind    kind
	library bool
	arity   int
	typ     byte
	style   int // of the heads of nested rules
}

// Types of terms. anything is a type that OPA does not know before it evaluates.
const (
	anything = '*'
	unknown  = '?' // OPA knows it, the generator does not
	text     = 's'
	number   = 'n'
	list     = 'a'
	mapping  = 'o'
	sets     = 'S'
	truth    = 'b'
)

var types = []byte{text, number, list, mapping, sets, truth}

// generator makes programs.
type generator struct {
	*rand.Rand
	program *program
	named   []named
	fresh   int
}

// variable is a variable that is bound.
type variable struct {
	name string
	typ  byte
}

// place is where a term is.
type place struct {
	library  bool
	vars     []variable
	declared []string // in this body
	somes    []string // declared in this body by some or every: each must be used
	closed   bool     // no variable may be bound here
	depth    int      // how many bodies it is in
}

// maxNested is how deep bodies are nested.
const maxNested = 5

func (c *place) inner() *place {
	return &place{library: c.library, vars: slices.Clone(c.vars), closed: c.closed, depth: c.depth + 1}
}

// generate makes a program from a source of random numbers.
func generate(source rand.Source) *program {
	g := &generator{Rand: rand.New(source), program: &program{}}
	for range 2 + g.IntN(6) {
		g.rulesOfOneName()
	}
	for range 3 {
		g.program.queries = append(g.program.queries, g.query())
	}
	for range 4 {
		g.program.inputs = append(g.program.inputs, g.document())
	}
	g.program.data = fmt.Sprintf(`{"d": %s, "e": {"a": %s, "b": %s}}`, g.document(), g.json(2), g.json(2))
	return g.program
}

// chance is true once in n times.
func (g *generator) chance(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g *generator, of []T) T { return of[g.IntN(len(of))] }

// rulesOfOneName adds the rules of one name.
func (g *generator) rulesOfOneName() {
	n := named{kind: kind(g.IntN(int(kinds))), library: len(g.named) < 2 && g.chance(3), typ: anything, style: g.IntN(5)}
	n.name = fmt.Sprintf("%c%d", "csonf"[n.kind], len(g.named))
	switch n.kind {
	case complete:
		n.typ = pick(g, types)
	case set:
		n.typ = sets
	case object, nested:
		n.typ = mapping
	case function:
		n.arity = 1 + g.IntN(2)
	}
	if n.kind != nested && g.chance(4) {
		g.fallback(n)
	}
	for range 1 + g.IntN(3) {
		g.add(n, g.rule(n)...)
	}
	g.named = append(g.named, n)
}

func (g *generator) add(n named, parts ...string) {
	g.program.rules = append(g.program.rules, rule{n.library, parts})
}

// fallback adds a default.
func (g *generator) fallback(n named) {
	switch n.kind {
	case complete:
		g.add(n, fmt.Sprintf("default %s := %s", n.name, g.constant(n.typ)))
	case function:
		g.add(n, fmt.Sprintf("default %s(%s) := %s", n.name, strings.Join(slices.Repeat([]string{"_"}, n.arity), ", "), g.constant(pick(g, types))))
	}
}

// rule makes one rule.
func (g *generator) rule(n named) []string {
	c := &place{library: n.library}
	switch n.kind {
	case complete:
		return g.branches(n, c, n.name, n.typ)
	case function:
		args := make([]string, n.arity)
		for i := range args {
			args[i] = g.parameter(c)
		}
		return g.branches(n, c, fmt.Sprintf("%s(%s)", n.name, strings.Join(args, ", ")), anything)
	}
	body := g.body(c, 1+g.IntN(4))
	c.closed = true
	var head string
	switch n.kind {
	case set:
		head = fmt.Sprintf("%s contains %s", n.name, g.term(c, anything, 1))
	case object:
		head = fmt.Sprintf("%s[%s] := %s", n.name, g.key(c), g.term(c, anything, 1))
	default:
		head = g.nestedHead(n, c)
	}
	return []string{fmt.Sprintf("%s if { %s }", head, body)}
}

// nestedHead makes one of the heads that rules of a name may have beside each other.
func (g *generator) nestedHead(n named, c *place) string {
	leaf := g.term(c, anything, 1)
	switch n.style {
	case 0:
		return fmt.Sprintf("%s[%s] contains %s", n.name, g.key(c), leaf)
	case 1:
		return fmt.Sprintf("%s[%s][%s] := %s", n.name, g.key(c), g.key(c), leaf)
	case 2:
		if g.chance(2) {
			return fmt.Sprintf("%s.b contains %s", n.name, leaf)
		}
		return fmt.Sprintf("%s.a[%s].b := %s", n.name, g.key(c), leaf)
	case 3:
		return fmt.Sprintf("%s[%s].%s := %s", n.name, g.key(c), pick(g, keys[:2]), leaf)
	}
	return fmt.Sprintf("%s[%s][%s] contains %s", n.name, g.key(c), g.key(c), leaf)
}

// key is the key of a rule: a variable, mostly.
func (g *generator) key(c *place) string {
	if len(c.vars) > 0 && !g.chance(4) {
		return pick(g, c.vars).name
	}
	return g.constant(pick(g, []byte{text, text, number, list}))
}

// branches makes a rule with one value, and its else branches.
func (g *generator) branches(n named, c *place, head string, typ byte) []string {
	var parts []string
	for i := 0; i == 0 || i < 3 && g.chance(3); i++ {
		branch := c.inner()
		branch.declared = slices.Clone(c.declared)
		body := g.body(branch, 1+g.IntN(3))
		branch.closed = true
		if typ == truth && g.chance(2) {
			typ = 0
		}
		value := ""
		if typ != 0 {
			value = ":= " + g.term(branch, typ, 1)
		}
		if g.chance(4) {
			value = ":= " + g.constant(g.typeOr(typ))
		}
		start := head
		if i > 0 {
			start = "else"
		}
		parts = append(parts, fmt.Sprintf("%s %s if { %s }", start, value, body))
	}
	return parts
}

func (g *generator) typeOr(typ byte) byte {
	if typ == 0 || typ == anything {
		return truth
	}
	return typ
}

// parameter is an argument of a function's head.
func (g *generator) parameter(c *place) string {
	switch g.IntN(8) {
	case 0:
		return g.constant(pick(g, types[:2]))
	case 1:
		return "_"
	case 2:
		return fmt.Sprintf("[%s, %s]", g.newVar(c, anything), g.newVar(c, anything))
	case 3:
		return fmt.Sprintf("{%q: %s}", pick(g, keys), g.newVar(c, anything))
	case 4:
		return fmt.Sprintf("[%s, %s]", g.newVar(c, anything), g.constant(number))
	}
	return g.newVar(c, anything)
}

// newVar binds a variable, which may hide one of an outer body.
func (g *generator) newVar(c *place, typ byte) string {
	name := pick(g, []string{"x", "y", "z", "w", "k", "v"})
	visible := slices.ContainsFunc(c.vars, func(v variable) bool { return v.name == name })
	if slices.Contains(c.declared, name) || visible && (len(c.declared) > 0 || g.chance(2)) {
		g.fresh++
		name = fmt.Sprintf("%s%d", name, g.fresh)
	}
	c.declared = append(c.declared, name)
	c.vars = slices.DeleteFunc(c.vars, func(v variable) bool { return v.name == name })
	c.vars = append(c.vars, variable{name, typ})
	return name
}

// query makes a query, of later rules mostly.
func (g *generator) query() string {
	n := g.named[max(g.IntN(len(g.named)), g.IntN(len(g.named)))]
	c := &place{}
	ref := g.absolute(n)
	if n.kind == function {
		return fmt.Sprintf("q = %s", g.call(c, n, 1))
	}
	switch g.IntN(6) {
	case 0:
		return fmt.Sprintf("%s[k] = q", ref)
	case 1:
		return fmt.Sprintf("q = %s[%s]", ref, g.constant(pick(g, types[:2])))
	case 2:
		return ref
	case 3:
		return g.program.body(g.expressions(c, 1+g.IntN(3)))
	}
	return "q = " + ref
}

func (g *generator) absolute(n named) string {
	if n.library {
		return "data.lib." + n.name
	}
	return "data.p." + n.name
}
