package compiled_test

import (
	"fmt"
	"strings"
)

// body makes a body, and returns what stands for it.
func (g *generator) body(c *place, n int) string { return g.program.body(g.expressions(c, n)) }

func (g *generator) expressions(c *place, n int) []string {
	var list []string
	for range n {
		list = append(list, g.expression(c)...)
	}
	for _, v := range c.somes {
		if !g.uses(list, v) {
			list = append(list, g.use(c, v))
		}
	}
	c.somes = nil
	return list
}

// uses reports whether a variable that expressions declare is used by them.
func (g *generator) uses(list []string, v string) bool {
	n := 0
	for _, e := range list {
		for _, word := range strings.FieldsFunc(g.program.render(e), notInName) {
			if word == v {
				n++
			}
		}
	}
	return n > 1
}

func notInName(r rune) bool {
	return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// use is an expression that uses a variable.
func (g *generator) use(c *place, v string) string {
	switch g.IntN(4) {
	case 0:
		return fmt.Sprintf("%s != %s", v, g.constant(text))
	case 1:
		return fmt.Sprintf("is_%s(%s)", pick(g, []string{"string", "number", "object"}), v)
	case 2:
		return fmt.Sprintf("%s == %s", v, g.opaque(c))
	}
	return fmt.Sprintf("%s := [%s]", g.newVar(c, list), v)
}

// some binds a variable that must be used.
func (g *generator) some(c *place) string {
	v := g.newVar(c, anything)
	c.somes = append(c.somes, v)
	return v
}

// expression makes an expression, with those that it needs before it.
func (g *generator) expression(c *place) []string {
	if c.depth > maxNested {
		return []string{fmt.Sprintf("%s = %s", g.newVar(c, anything), g.constant(number))}
	}
	switch g.IntN(20) {
	case 0, 1, 2:
		typ := g.anyType()
		t := g.term(c, typ, 2)
		if typ == anything {
			typ = unknown
		}
		return []string{fmt.Sprintf("%s := %s", g.newVar(c, typ), t)}
	case 3, 4, 5:
		return []string{g.member(c)}
	case 6, 7:
		return []string{g.unification(c)}
	case 8, 9:
		return []string{g.comparison(c)}
	case 10:
		return []string{"not " + g.condition(c)}
	case 11:
		return []string{g.every(c)}
	case 12:
		return []string{g.ref(c, true)}
	case 13:
		return []string{g.predicate(c)}
	case 14:
		return []string{fmt.Sprintf("%s in %s", g.term(c, anything, 1), g.collection(c))}
	case 15:
		return []string{g.walk(c)}
	case 16:
		return g.join(c)
	case 17:
		ref := g.ref(c, true)
		return []string{fmt.Sprintf("%s = %s", g.newVar(c, anything), ref)}
	case 18:
		return g.negatedBody(c)
	}
	return []string{g.condition(c)}
}

func (g *generator) anyType() byte {
	if g.chance(2) {
		return anything
	}
	return pick(g, types)
}

// member is a declaration of variables for the elements of a collection.
func (g *generator) member(c *place) string {
	domain := g.collection(c)
	switch g.IntN(5) {
	case 0, 1:
		return fmt.Sprintf("some %s in %s", g.some(c), domain)
	case 2, 3:
		return fmt.Sprintf("some %s, %s in %s", g.some(c), g.some(c), domain)
	}
	if g.chance(2) {
		return fmt.Sprintf("some %q, %s in %s", pick(g, keys), g.some(c), domain)
	}
	return fmt.Sprintf("some [%s, %s] in %s", g.some(c), g.some(c), domain)
}

// collection is a term that mostly has elements.
func (g *generator) collection(c *place) string {
	if g.chance(3) {
		return g.term(c, pick(g, []byte{list, mapping, sets}), 1)
	}
	return g.ref(c, false)
}

// pattern is a term of variables that are not bound yet, and of others.
func (g *generator) pattern(c *place, depth int) string {
	switch n := g.IntN(8); {
	case n < 3 || depth == 0:
		return g.newVar(c, anything)
	case n == 3:
		return "_"
	case n == 4:
		return g.constant(pick(g, types[:2]))
	case n < 7:
		elems := make([]string, 1+g.IntN(2))
		for i := range elems {
			elems[i] = g.pattern(c, depth-1)
		}
		return "[" + strings.Join(elems, ", ") + "]"
	}
	return fmt.Sprintf("{%q: %s}", pick(g, keys), g.pattern(c, depth-1))
}

func (g *generator) unification(c *place) string {
	right := g.opaque(c)
	if !g.chance(3) {
		right = g.ref(c, g.chance(2))
	}
	if g.chance(5) { // variables on both sides
		left := fmt.Sprintf("[%s, %s]", g.term(c, anything, 0), g.term(c, anything, 0))
		x, y := g.opaque(c), g.term(c, anything, 0)
		a, b := g.newVar(c, anything), g.newVar(c, anything)
		if g.chance(2) {
			return fmt.Sprintf("[[%s, %s], %s] = [%s, %s]", a, b, a, left, x)
		}
		return fmt.Sprintf(`{"a": %s, "b": %s} = {"a": %s, "b": %s}`, a, y, left, b)
	}
	left := g.pattern(c, 2)
	if g.chance(4) {
		left, right = right, left
	}
	return fmt.Sprintf("%s = %s", left, right)
}

func (g *generator) comparison(c *place) string {
	op := pick(g, []string{"==", "==", "!=", "<", "<=", ">", ">="})
	a, b := g.opaque(c), g.term(c, anything, 0)
	if g.chance(2) {
		a, b = b, a
	}
	return fmt.Sprintf("%s %s %s", a, op, b)
}

// condition is an expression that binds nothing.
func (g *generator) condition(c *place) string {
	n := c.inner()
	n.closed = true
	switch g.IntN(5) {
	case 0:
		return g.ref(n, false)
	case 1:
		return g.comparison(n)
	case 2:
		return fmt.Sprintf("%s in %s", g.term(n, anything, 1), g.collection(n))
	case 3:
		if calls := g.functions(); len(calls) > 0 {
			return g.call(n, pick(g, calls), 1)
		}
	}
	return g.predicate(n)
}

func (g *generator) every(c *place) string {
	domain := g.collection(c)
	n := c.inner()
	head := g.some(n)
	if g.chance(2) {
		head += ", " + g.some(n)
	}
	return fmt.Sprintf("every %s in %s { %s }", head, domain, g.body(n, 1+g.IntN(2)))
}

// negatedBody is a condition that no element of a collection has a property.
func (g *generator) negatedBody(c *place) []string {
	n := c.inner()
	t := g.comprehension(n, sets, 1)
	return []string{fmt.Sprintf("not %s = %s", t, g.opaque(c))}
}

func (g *generator) walk(c *place) string {
	t := g.ref(c, false)
	if g.chance(4) {
		return fmt.Sprintf("walk(%s, [%s, %s])", t, g.newVar(c, list), g.term(c, anything, 0))
	}
	if g.chance(4) {
		return fmt.Sprintf("walk(%s, [_, %s])", t, g.newVar(c, anything))
	}
	return fmt.Sprintf("walk(%s, [%s, %s])", t, g.newVar(c, list), g.newVar(c, anything))
}

// join is a comprehension over a collection for each element of another: OPA has an index
// for it.
func (g *generator) join(c *place) []string {
	first := g.base(c)
	outer, key := g.newVar(c, anything), g.newVar(c, anything)
	first = fmt.Sprintf("%s = %s[%s]", outer, first, key)
	if g.chance(2) {
		first += "." + pick(g, keys[:4])
	}
	n := c.inner()
	n.closed = false
	e := pick(g, []string{"input.a", "input.b", "data.d.a", "data.e.a", "data.d.items"})
	inner := g.newVar(n, anything)
	condition := pick(g, []string{
		fmt.Sprintf("%s[%s].%s = %s", e, inner, pick(g, keys[:4]), outer),
		fmt.Sprintf("%s[%s] = %s", e, inner, outer),
		fmt.Sprintf("%s[_][%s] = %s", e, inner, outer),
	})
	body := append([]string{condition}, g.expressions(n, g.IntN(2))...)
	n.closed = true
	b := g.program.body(body)
	shape := pick(g, []string{"[%s | %s]", "{%s | %s}"})
	closure := fmt.Sprintf(shape, g.term(n, anything, 0), b)
	if g.chance(3) {
		closure = fmt.Sprintf("{%s: %s | %s}", inner, g.term(n, anything, 0), b)
	}
	return []string{first, fmt.Sprintf("%s = %s", g.newVar(c, anything), closure)}
}
