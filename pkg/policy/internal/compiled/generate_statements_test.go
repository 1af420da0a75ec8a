package compiled_test

import (
	"fmt"
	"strings"
)

// statements writes expressions of a body, each of which may use what those before it bind.
func (g *generator) statements(n, depth int) []string {
	var list []string
	for range n {
		list = append(list, g.statement(depth))
	}
	return list
}

// statement writes one expression of a body.
func (g *generator) statement(depth int) string {
	depth = max(depth, 0)
	if depth == 0 && g.chance(40) {
		return g.someIn(depth)
	}
	switch g.intn(24) {
	case 0, 1, 2:
		return g.define(depth)
	case 3, 4, 5, 6:
		return g.someIn(depth)
	case 7, 8:
		return g.someRef(depth)
	case 9:
		return g.unifyParts(depth)
	case 10:
		return g.destructure(depth)
	case 11, 12:
		return g.negation(depth)
	case 13:
		return g.every(depth)
	case 14:
		return g.join(depth)
	case 15:
		return g.indexed(depth)
	case 16:
		return g.walkStatement(depth)
	case 17:
		return g.outCall(depth)
	case 18:
		return g.truth(depth)
	case 19:
		return g.ruleElements(depth)
	}
	return g.comparison(depth)
}

// define binds a variable to a term.
func (g *generator) define(depth int) string {
	t := g.randomType(2)
	if g.chance(20) {
		name := g.unknown()
		text := fmt.Sprintf("%s = %s", name, g.expr(t, depth))
		g.declare(name, t)
		return text
	}
	text := g.expr(t, depth)
	name := g.fresh(text)
	g.declare(name, t)
	return fmt.Sprintf("%s := %s", name, text)
}

// domain writes a collection and returns its type.
func (g *generator) domain(depth int) (string, *typ) {
	for range 4 {
		text, t := g.root()
		for range 2 {
			if t.collection() && (len(t.parts) == 0 || g.chance(20)) && g.chance(70) {
				return text, t
			}
			if t.collection() {
				text, t = g.step(text, t, depth)
			}
		}
	}
	t := pick(&g.chooser, []*typ{tStrs, tNums, setOf(tStr), objOf(tStr, tNum), arrOf(tStrs)})
	if s := g.read(t, depth); s != "" {
		return s, t
	}
	return "input.items", shape[7].typ
}

// someIn iterates over a collection.
func (g *generator) someIn(depth int) string {
	text, t := g.domain(depth)
	if g.chance(15) {
		return g.somePattern(text, t)
	}
	name := g.fresh(text)
	if !g.chance(40) {
		g.declareSome(name, t.elems())
		return fmt.Sprintf("some %s in %s", name, text)
	}
	if g.chance(15) {
		g.declareSome(name, t.elems())
		return fmt.Sprintf("some %s, %s in %s", g.constant(t.keys()), name, text)
	}
	if g.chance(20) {
		g.declareSome(name, t.keys())
		return fmt.Sprintf("some %s, _ in %s", name, text)
	}
	g.declareSome(name, t.keys())
	elem := g.fresh(text)
	for elem == name {
		elem = fmt.Sprintf("x%d", g.names)
		g.names++
	}
	g.declareSome(elem, t.elems())
	return fmt.Sprintf("some %s, %s in %s", name, elem, text)
}

// somePattern iterates over the elements that match a pattern.
func (g *generator) somePattern(text string, t *typ) string {
	n := len(g.vars)
	p := g.pattern(t.elems(), true)
	for i := range g.vars[n:] {
		g.vars[n+i].words = 2
	}
	return fmt.Sprintf("some %s in %s", p, text)
}

// pattern writes a pattern, and declares its variables.
func (g *generator) pattern(t *typ, top bool) string {
	switch {
	case !top && g.chance(25):
		return g.constant(t)
	case !top && g.chance(10):
		return "_"
	case !top && g.chance(50) || !t.collection() || t.kind == kSet:
		name := g.unknown()
		g.declare(name, t)
		return name
	case len(t.parts) > 0 && t.kind == kObj:
		var list []string
		for _, f := range t.parts[:1+g.intn(len(t.parts))] {
			list = append(list, fmt.Sprintf("%q: %s", f.key, g.pattern(f.typ, false)))
		}
		return "{" + strings.Join(list, ", ") + "}"
	case t.kind == kObj:
		return fmt.Sprintf("{%s: %s}", g.constant(tStr), g.pattern(t.elems(), false))
	}
	a, b := g.pattern(t.elems(), false), g.pattern(t.elems(), false)
	return pick(&g.chooser, []string{"[" + a + ", " + b + "]", "[" + a + "]"})
}

// someRef iterates by a reference with a variable.
func (g *generator) someRef(depth int) string {
	text, t := g.domain(depth)
	key := g.fresh(text)
	g.declareSome(key, t.keys())
	ref := fmt.Sprintf("%s[%s]", text, key)
	elem := t.elems()
	if elem.collection() && g.chance(50) {
		ref, elem = g.step(ref, elem, depth)
	}
	decl := "some " + key + "; "
	switch g.intn(5) {
	case 0:
		return decl + ref
	case 1:
		return fmt.Sprintf("%s%s == %s", decl, ref, g.expr(elem, depth-1))
	case 2:
		return fmt.Sprintf("%s%s = %s", decl, ref, g.constant(elem))
	case 3:
		name := g.fresh(ref)
		if name == key {
			return decl + ref
		}
		g.declare(name, elem)
		return fmt.Sprintf("%s%s := %s", decl, name, ref)
	}
	name := g.unknown()
	g.declare(name, elem)
	return fmt.Sprintf("%s%s = %s", decl, name, ref)
}

// unifyParts unifies composites that have variables on both sides.
func (g *generator) unifyParts(depth int) string {
	a, b := g.randomType(1), g.randomType(1)
	x := g.unknown()
	right := g.expr(a, depth-1)
	if g.chance(30) {
		g.declare(x, a)
		return fmt.Sprintf("%s = %s", "["+x+", "+g.constant(b)+"]", "["+right+", "+g.expr(b, depth-1)+"]")
	}
	other := g.expr(b, depth-1)
	g.declare(x, a)
	y := g.unknown()
	g.declare(y, b)
	switch g.intn(4) {
	case 0:
		return fmt.Sprintf("[%s, %s] = [%s, %s]", x, other, right, y)
	case 1:
		return fmt.Sprintf("[%s, [%s, 1]] = [%s, [%s, 1]]", x, y, right, other)
	case 2:
		return fmt.Sprintf(`{"a": %s, "b": %s} = {"a": %s, "b": %s}`, x, other, right, y)
	}
	return fmt.Sprintf(`{"a": [%s, _], "b": %s} = {"b": [%s], "a": [%s, %s]}`, x, y, other, right, y)
}

// destructure unifies a pattern with a term.
func (g *generator) destructure(depth int) string {
	text, t := g.domain(depth)
	if t.elems().collection() && g.chance(60) {
		text, t = text+"[_]", t.elems()
	}
	return fmt.Sprintf("%s = %s", g.pattern(t, true), text)
}

// negation writes a negated expression, or a negated body.
func (g *generator) negation(depth int) string {
	g.exact++
	defer func() { g.exact-- }()
	if g.chance(30) {
		if s := g.read(tAny, depth); s != "" {
			return "not " + s
		}
	}
	if g.chance(20) {
		if s := g.callBuiltin(tBool, depth); s != "" {
			return "not " + s
		}
	}
	return "not " + g.comparison(depth)
}

func (g *generator) every(depth int) string {
	text, t := g.domain(depth)
	exact := g.exact
	g.exact = 0
	defer func() { g.exact = exact }()
	return g.within(func() string {
		vars := g.fresh(text)
		if g.chance(50) {
			g.declareEvery(vars, t.keys())
			elem := g.fresh(text)
			if elem == vars {
				elem = "_"
			} else {
				g.declareEvery(elem, t.elems())
			}
			vars += ", " + elem
		} else {
			g.declareEvery(vars, t.elems())
		}
		return fmt.Sprintf("every %s in %s { %s }", vars, text, strings.Join(g.expressions(1+g.intn(2), depth-1), "; "))
	})
}

// join finds what two collections have in common.
func (g *generator) join(depth int) string {
	a, t := g.domain(depth)
	b, u := g.domain(depth)
	x := g.unknown()
	switch g.intn(3) {
	case 0:
		g.declare(x, t.keys())
		return fmt.Sprintf("%s[%s]; %s[%s]", a, x, b, x)
	case 1:
		g.declare(x, t.elems())
		return fmt.Sprintf("%s = %s[_]; %s[_] = %s", x, a, b, x)
	}
	g.declare(x, u.keys())
	return fmt.Sprintf("%s[_] = %s[%s]", a, b, x)
}

// indexed writes a comprehension in a loop, as OPA evaluates once for all its turns.
func (g *generator) indexed(depth int) string {
	a := pick(&g.chooser, []string{"input.items", "data.doc.items", "input.by", "data.doc2.by"})
	b := pick(&g.chooser, []string{"input.items", "data.doc.items", "input.by", "data.doc.by", "data.doc2.items"})
	f := pick(&g.chooser, []string{"name", "n", "on"})
	k, v := g.fresh("j1 j2"), pick(&g.chooser, shape[:6]).typ
	g.declare(k, tStr)
	x := g.fresh(k)
	if x == k {
		return fmt.Sprintf("%s := %s[_].%s", k, a, f)
	}
	head := pick(&g.chooser, []string{"[j1 | %s]", "{j1 | %s}", "{j1: j2 | %s}", "{j2 | %s}"})
	body := pick(&g.chooser, []string{"some j1, j2; %[1]s[j1].%[2]s == %[3]s; j2 = %[1]s[j1].n", "%[1]s[j1].%[2]s = %[3]s; j2 = j1", "some j1, j2 in %[1]s; j2.%[2]s == %[3]s", "some j2 in %[1]s; %[3]s = j2.%[2]s; j1 := j2.tags[_]"})
	body = fmt.Sprintf(body, b, f, k)
	if g.chance(40) {
		body += "; " + g.within(func() string { return g.comparison(min(depth, 1)) })
	}
	g.declare(x, &typ{kind: kAny, elem: v})
	return fmt.Sprintf("%s := %s[_].%s; %s := %s", k, a, f, x, fmt.Sprintf(head, body))
}

func (g *generator) walkStatement(depth int) string {
	text, _ := g.domain(depth)
	x, y := g.unknown(), ""
	g.declare(x, arrOf(tAny))
	y = g.unknown()
	g.declare(y, tAny)
	return fmt.Sprintf(pick(&g.chooser, []string{"walk(%s, [%s, %s])", "walk(%[1]s, [[_, %[2]s], %[3]s])", "[%[2]s, %[3]s] = walk(%[1]s)", "walk(%[1]s, [%[2]s, %[3]s]); %[3]s == %[2]s"}), text, x, y)
}

// outCall calls a function and unifies its result.
func (g *generator) outCall(depth int) string {
	t := g.randomType(1)
	s := g.callFunction(t, depth)
	if s == "" {
		s = g.callBuiltin(t, depth)
	}
	if g.chance(40) {
		return fmt.Sprintf("%s = %s", g.constant(t), s)
	}
	x := g.unknown()
	g.declare(x, t)
	return fmt.Sprintf("%s = %s", x, s)
}

// truth is a term by itself.
func (g *generator) truth(depth int) string {
	if s := g.callFunction(tAny, depth); s != "" && g.chance(40) {
		return s
	}
	if s := g.read(tAny, depth); s != "" {
		return s
	}
	return g.callBuiltin(tBool, depth)
}

// ruleElements iterates over what rules make, by keys that are bound or not.
func (g *generator) ruleElements(depth int) string {
	text, t := g.ruleRoot()
	if text == "" {
		return g.comparison(depth)
	}
	x := g.unknown()
	key := x
	if g.chance(40) {
		key = g.expr(t.keys(), depth-1)
	} else {
		g.declare(x, t.keys())
	}
	if key != x && g.chance(50) {
		return fmt.Sprintf("%s[%s]", text, key)
	}
	y := g.unknown()
	if t.elems().collection() && g.chance(60) {
		z := pick(&g.chooser, []string{"_", g.expr(t.elems().keys(), depth-1)})
		g.declare(y, t.elems().elems())
		return fmt.Sprintf("%s[%s][%s] = %s", text, key, z, y)
	}
	g.declare(y, t.elems())
	return fmt.Sprintf("%s[%s] = %s", text, key, y)
}
