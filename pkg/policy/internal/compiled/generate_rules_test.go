package compiled_test

import (
	"fmt"
	"strings"
)

// module writes a module of a package, whose rules may use those of packages before it.
func (g *generator) module(pkg string, n int) string {
	g.pkg = pkg
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n", pkg)
	for i := range n {
		g.vars, g.block, g.exact = nil, 0, 0
		g.names = 0
		name := fmt.Sprintf("r%d", i)
		b.WriteString("\n")
		var r rule
		var text []string
		switch g.intn(10) {
		case 0, 1, 2:
			r, text = g.complete(name)
		case 3, 4:
			r, text = g.partialSet(name)
		case 5:
			r, text = g.partialObject(name)
		case 6, 7:
			r, text = g.general(name)
		default:
			r, text = g.functionRule(name)
		}
		for _, t := range text {
			b.WriteString(t)
			b.WriteString("\n")
		}
		r.pkg, r.name = pkg, name
		g.rules = append(g.rules, r)
	}
	return b.String()
}

const ruleDepth = 3

// body writes the body of a rule, and then with head what has the variables that it binds.
func (g *generator) body(head func() string) string {
	g.budget = 24
	return g.within(func() string {
		n := 1 + g.intn(3)
		body := strings.Join(g.expressions(n, ruleDepth), "\n\t")
		g.exact++
		text := head()
		g.exact--
		return text + " if {\n\t" + body + "\n}"
	})
}

// value writes the value of a rule: often one of few, so that definitions agree.
func (g *generator) value(t *typ) string {
	if g.chance(40) {
		return g.constant(t)
	}
	return g.expr(t, ruleDepth-1)
}

func (g *generator) complete(name string) (rule, []string) {
	t := g.randomType(2)
	var text []string
	if g.chance(25) {
		text = append(text, "default "+name+" := "+g.constant(t))
	}
	for range 1 + g.intn(3) {
		switch {
		case t.kind == kBool && g.chance(60):
			text = append(text, g.body(func() string { return name }))
		case g.chance(8):
			g.exact++
			g.budget = 24
			text = append(text, name+" := "+g.expr(t, ruleDepth))
			g.exact--
		default:
			text = append(text, g.chain(name, t))
		}
	}
	return rule{typ: t}, text
}

// chain writes a definition, sometimes with what else holds.
func (g *generator) chain(head string, t *typ) string {
	text := g.body(func() string { return head + " := " + g.value(t) })
	for g.chance(30) {
		text += " " + g.body(func() string { return "else := " + g.value(t) })
	}
	if g.chance(15) {
		g.exact++
		text += " else := " + g.value(t)
		g.exact--
	}
	return text
}

func (g *generator) partialSet(name string) (rule, []string) {
	t := g.randomType(1)
	var text []string
	for range 1 + g.intn(3) {
		if g.chance(8) {
			text = append(text, name+" contains "+g.constant(t))
			continue
		}
		text = append(text, g.body(func() string { return name + " contains " + g.expr(t, ruleDepth-1) }))
	}
	return rule{typ: setOf(t)}, text
}

func (g *generator) partialObject(name string) (rule, []string) {
	t := objOf(pick(&g.chooser, []*typ{tStr, tStr, tNum, tAny}), g.randomType(1))
	var text []string
	for range 1 + g.intn(3) {
		text = append(text, g.body(func() string { return name + "[" + g.headKey(t.key) + "] := " + g.value(t.elem) }))
	}
	return rule{typ: t}, text
}

// headKey writes a key in the head of a rule.
func (g *generator) headKey(t *typ) string {
	switch {
	case g.chance(25):
		return g.literal(&typ{kind: max(min(t.kind, kStr), kBool)}, 0)
	case g.chance(10):
		return g.expr(t, 1)
	}
	for range 3 {
		if len(g.vars) == 0 {
			break
		}
		v := pick(&g.chooser, g.vars)
		if v = g.vars[g.lookup(v.name)]; v.typ.fits(t) {
			return v.name
		}
	}
	return g.expr(t, 1)
}

// general writes rules whose heads are references.
func (g *generator) general(name string) (rule, []string) {
	t := g.randomType(1)
	forms := []func() string{
		func() string { return name + "[" + g.headKey(tStr) + "][" + g.headKey(tStr) + "] := " + g.value(t) },
		func() string { return name + ".a[" + g.headKey(tStr) + "].b := " + g.value(t) },
		func() string { return name + "[" + g.headKey(tStr) + "] contains " + g.value(t) },
		func() string { return name + ".a[" + g.headKey(tStr) + "] contains " + g.value(t) },
		func() string { return name + "[" + g.headKey(tStr) + "].a := " + g.value(t) },
		func() string {
			return name + "[" + g.headKey(tNum) + "][" + g.headKey(tStr) + "] contains " + g.value(t)
		},
		func() string { return name + ".a := " + g.value(t) },
		func() string { return name + ".b.c := " + g.value(t) },
		func() string { return name + ".c contains " + g.value(t) },
		func() string { return name + "[" + g.headKey(tStr) + "] := " + g.value(t) },
	}
	form := pick(&g.chooser, forms)
	var text []string
	for range 1 + g.intn(3) {
		if g.chance(20) {
			form = pick(&g.chooser, forms)
		}
		text = append(text, g.body(form))
	}
	return rule{typ: objOf(tStr, objOf(tStr, t))}, text
}

func (g *generator) functionRule(name string) (rule, []string) {
	r := rule{typ: g.randomType(1), function: true}
	for range g.intn(3) + 1 {
		r.args = append(r.args, g.randomType(1))
	}
	if g.chance(10) {
		r.args[0] = &typ{kind: kObj, parts: record.parts[:2]}
	}
	var text []string
	if g.chance(20) {
		text = append(text, "default "+name+"("+strings.Repeat("_, ", len(r.args)-1)+"_) := "+g.constant(r.typ))
	}
	for range 1 + g.intn(3) {
		text = append(text, g.within(func() string {
			g.block++ // that of the bodies: they may not have variables of these names
			head := name + "(" + strings.Join(g.parameters(r.args), ", ") + ")"
			g.block--
			if g.chance(12) {
				g.exact++
				defer func() { g.exact-- }()
				return head + " := " + g.expr(r.typ, ruleDepth-1)
			}
			if r.typ.kind == kBool && g.chance(50) {
				return g.body(func() string { return head })
			}
			return g.chain(head, r.typ)
		}))
	}
	return r, text
}

// parameters writes the parameters of a function: variables mostly.
func (g *generator) parameters(args []*typ) []string {
	var list []string
	for _, t := range args {
		switch {
		case g.chance(15):
			list = append(list, g.constant(t))
		case g.chance(8):
			list = append(list, "_")
		case t.collection() && g.chance(40):
			list = append(list, g.pattern(t, true))
		default:
			name := g.fresh("")
			for i := 0; g.lookup(name) >= 0; i++ {
				name = fmt.Sprintf("p%d", i)
			}
			g.declare(name, t)
			list = append(list, name)
		}
	}
	return list
}

// sources are the text of a program.
type sources struct {
	modules []string
	queries []string
}

// program writes modules and queries.
func (g *generator) program() (s sources) {
	s.modules = append(s.modules, g.module("p", 3+g.intn(3)))
	if g.chance(30) {
		s.modules = append(s.modules, g.module("q.sub", 1+g.intn(3)))
	}
	g.pkg = ""
	g.vars, g.exact, g.budget = nil, 1, 12
	for range 2 {
		s.queries = append(s.queries, g.query())
	}
	return s
}

// query asks for a rule, mostly the last: others are asked for by it.
func (g *generator) query() string {
	r := g.rules[len(g.rules)-1-g.intn(min(3, len(g.rules)))]
	name := "data." + r.pkg + "." + r.name
	switch {
	case r.function:
		var args []string
		for _, a := range r.args {
			args = append(args, g.expr(a, 1))
		}
		return fmt.Sprintf("%s(%s, q1)", name, strings.Join(args, ", "))
	case g.chance(4):
		return "q1 = data." + r.pkg
	case r.typ.collection() && g.chance(25):
		if r.typ.elems().collection() && g.chance(40) {
			return name + "[q1][q2] = q3"
		}
		return name + "[q1] = q2"
	case r.typ.collection() && g.chance(20):
		return fmt.Sprintf("q1 = %s[%s]", name, g.expr(r.typ.keys(), 1))
	case r.typ.collection() && g.chance(10):
		return fmt.Sprintf("%s[q1]; %s[q1] = q2", pick(&g.chooser, []string{"input.by", "data.doc.map", "input.strs"}), name)
	}
	return "q1 = " + name
}
