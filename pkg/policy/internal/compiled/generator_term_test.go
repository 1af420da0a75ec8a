package compiled_test

import (
	"fmt"
	"strings"
)

// keys are those of objects in programs, inputs and data.
var keys = []string{"a", "b", "c", "x", "k-1", "items"}

var (
	numerals = []string{
		"0", "1", "2", "1.0", "3", "-1", "10", "100", "1.5", "1.0", "1e2", "0.1", "-2.50", "1e-1",
		"12345678901234567890", "9223372036854775807", "9223372036854775808", "1e18", "0.30000000000000004",
	}
	words = []string{"a", "b", "c", "x", "", "k-1", "1", "aB c", "a/b", "10.0.0.0/8", "é%d"}
)

func (g *generator) document() string {
	fields := make([]string, 0, len(keys))
	for _, k := range keys {
		if !g.chance(4) {
			fields = append(fields, fmt.Sprintf("%q: %s", k, g.json(3)))
		}
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

// json is a random document.
func (g *generator) json(depth int) string {
	n := g.IntN(10)
	if depth == 0 {
		n = 6 + g.IntN(4)
	}
	switch {
	case n < 3:
		elems := make([]string, g.IntN(4))
		for i := range elems {
			elems[i] = g.json(depth - 1)
		}
		return "[" + strings.Join(elems, ", ") + "]"
	case n < 6:
		var fields []string
		for _, k := range keys {
			if g.chance(2) {
				fields = append(fields, fmt.Sprintf("%q: %s", k, g.json(depth-1)))
			}
		}
		return "{" + strings.Join(fields, ", ") + "}"
	case n == 6:
		return pick(g, []string{"true", "false", "null"})
	case n == 7:
		return g.numeral()
	}
	return fmt.Sprintf("%q", pick(g, words))
}

func (g *generator) numeral() string {
	if g.chance(3) {
		return pick(g, numerals)
	}
	return pick(g, numerals[:4])
}

// constant is a term without variables or references.
func (g *generator) constant(typ byte) string {
	switch typ {
	case text:
		return fmt.Sprintf("%q", pick(g, words))
	case number:
		return g.numeral()
	case list:
		return pick(g, []string{"[]", "[1]", `["a", 1]`, `["a", "b"]`, "[[1], []]"})
	case mapping:
		return pick(g, []string{"{}", `{"a": 1}`, `{"b": "a", "a": [1, 2]}`, `{1: "x"}`})
	case sets:
		return pick(g, []string{"set()", "{1}", `{"a", "b"}`, `{1, 1.0, "a"}`, "{[1], 2}"})
	case truth:
		return pick(g, []string{"true", "true", "false"})
	}
	return pick(g, []string{"null", "true", "1", `"a"`})
}

// term makes a term of a type.
func (g *generator) term(c *place, typ byte, depth int) string {
	if typ == anything && !g.chance(3) {
		switch g.IntN(3) {
		case 0:
			return g.ref(c, !c.closed && g.chance(3))
		case 1:
			if len(c.vars) > 0 {
				return pick(g, c.vars).name
			}
		}
		typ = pick(g, types)
	}
	if name := g.variableOf(c, typ); name != "" && g.chance(2) {
		return name
	}
	if depth <= 0 || c.depth > maxNested || g.chance(3) {
		if g.chance(3) {
			return g.opaque(c)
		}
		return g.constant(typ)
	}
	switch g.IntN(4) {
	case 0:
		if b := g.builtinOf(typ); b != nil {
			return g.builtin(c, b, depth-1)
		}
	case 1:
		if calls := g.functions(); len(calls) > 0 && g.chance(2) {
			return g.call(c, pick(g, calls), depth-1)
		}
	}
	return g.composite(c, typ, depth-1)
}

// opaque is a term whose type OPA does not know.
func (g *generator) opaque(c *place) string {
	if name := g.variableOf(c, anything); name != "" && g.chance(2) {
		return name
	}
	return pick(g, []string{"input", "input", "data.d", "data.e"}) + "." + pick(g, keys[:3])
}

func (g *generator) variableOf(c *place, typ byte) string {
	var names []string
	for _, v := range c.vars {
		if v.typ == typ || v.typ == anything && (typ == anything || g.chance(2)) {
			names = append(names, v.name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return pick(g, names)
}

func (g *generator) composite(c *place, typ byte, depth int) string {
	if typ == sets || typ == mapping { // no variable is bound in an element or a key
		c = c.inner()
		c.closed = true
	}
	switch typ {
	case text:
		return g.template(c, depth)
	case number:
		return fmt.Sprintf("(%s %s %s)", g.term(c, number, depth), pick(g, []string{"+", "-", "*", "/", "%"}), g.term(c, number, depth))
	case truth:
		return "(" + g.comparison(c) + ")"
	case list:
		if g.chance(2) {
			return g.comprehension(c, list, depth)
		}
		return fmt.Sprintf("[%s, %s]", g.term(c, anything, depth), g.term(c, anything, depth))
	case mapping:
		if g.chance(2) {
			return g.comprehension(c, mapping, depth)
		}
		if g.chance(4) {
			return fmt.Sprintf("{%s: %s, %s: 1}", g.term(c, text, depth), g.term(c, anything, depth), g.term(c, anything, 0))
		}
		return fmt.Sprintf(`{"a": %s, "x": %s}`, g.term(c, anything, depth), g.term(c, anything, depth))
	case sets:
		switch g.IntN(4) {
		case 0:
			return fmt.Sprintf("{%s, %s}", g.term(c, anything, depth), g.term(c, anything, depth))
		case 1:
			return fmt.Sprintf("(%s %s %s)", g.term(c, sets, depth), pick(g, []string{"|", "&", "-"}), g.term(c, sets, depth))
		}
		return g.comprehension(c, sets, depth)
	}
	return g.constant(typ)
}

// template is a template string.
func (g *generator) template(c *place, depth int) string {
	var inside string
	if len(c.vars) > 0 {
		inside = pick(g, c.vars).name
	} else {
		inside = g.ref(c, false)
	}
	if g.chance(3) {
		return fmt.Sprintf(`sprintf(%q, [%s, %s])`, pick(g, []string{"%v-%v", "%s %d", "%v", "%q %v %v", "%5.2f|%v"}), inside, g.term(c, anything, depth))
	}
	if strings.ContainsAny(inside, `"{}`) {
		return fmt.Sprintf(`concat("-", [%s, "b"])`, inside)
	}
	return fmt.Sprintf(`$"v {%s} w"`, inside)
}

func (g *generator) comprehension(c *place, typ byte, depth int) string {
	n := c.inner()
	n.closed = false
	body := g.body(n, 1+g.IntN(2))
	n.closed = true
	switch typ {
	case list:
		return fmt.Sprintf("[%s | %s]", g.term(n, anything, depth), body)
	case sets:
		return fmt.Sprintf("{%s | %s}", g.term(n, anything, depth), body)
	}
	return fmt.Sprintf("{%s: %s | %s}", g.term(n, anything, 0), g.term(n, anything, depth), body)
}

// functions are those that rules define.
func (g *generator) functions() []named {
	var list []named
	for _, n := range g.named {
		if n.kind == function {
			list = append(list, n)
		}
	}
	return list
}

func (g *generator) call(c *place, n named, depth int) string {
	args := make([]string, n.arity)
	for i := range args {
		args[i] = g.opaque(c)
		if g.chance(4) {
			args[i] = g.term(c, anything, depth)
		}
	}
	return fmt.Sprintf("%s(%s)", g.absolute(n), strings.Join(args, ", "))
}

// base is what a reference begins with.
func (g *generator) base(c *place) string {
	switch n := g.IntN(8); {
	case n == 0 && !c.closed:
		return "input"
	case n < 3:
		return "input." + pick(g, keys[:4])
	case n == 3:
		return pick(g, []string{"data.e.a", "data.e.b", "data.d." + pick(g, keys[:4])})
	case n == 4 || n == 5:
		var of []named
		for _, x := range g.named {
			if x.kind != function {
				of = append(of, x)
			}
		}
		if len(of) > 0 {
			return g.relative(c, pick(g, of))
		}
	case n == 6:
		if name := g.variableOf(c, anything); name != "" {
			return name
		}
	}
	return "input." + pick(g, keys[:4])
}

// relative names rules as a module may.
func (g *generator) relative(c *place, n named) string {
	switch {
	case n.library && !c.library && g.chance(2):
		return "lib." + n.name
	case n.library == c.library && g.chance(2):
		return n.name
	}
	return g.absolute(n)
}

// ref makes a reference. With binds it may have variables that it binds.
func (g *generator) ref(c *place, binds bool) string {
	binds = binds && !c.closed
	ref := g.base(c)
	steps := g.IntN(3)
	if binds {
		steps = 1 + g.IntN(2)
	}
	if g.isTyped(c, ref) && !g.chance(12) {
		return g.typedRef(c, ref, binds)
	}
	for range steps {
		switch n := g.IntN(9); {
		case binds && n < 2:
			ref += "[_]"
		case binds && n < 4:
			ref += "[" + g.newVar(c, anything) + "]"
		case binds && n == 4:
			ref += "[" + g.pattern(c, 1) + "]"
		case n < 6 && len(c.vars) > 0:
			ref += "[" + pick(g, c.vars).name + "]"
		case n == 6:
			ref += "[" + g.constant(pick(g, []byte{number, text, list})) + "]"
		case n == 7 && g.chance(2):
			ref += fmt.Sprintf("[%s]", g.term(c, anything, 0))
		default:
			ref += "." + pick(g, keys[:4])
		}
	}
	return ref
}

// isTyped reports whether OPA knows the type of what a reference begins with.
func (g *generator) isTyped(c *place, base string) bool {
	for _, v := range c.vars {
		if v.name == base {
			return v.typ != anything
		}
	}
	return !strings.HasPrefix(base, "input") && !strings.HasPrefix(base, "data.d") && !strings.HasPrefix(base, "data.e")
}

// typedRef refers to elements of the rules of a name as their type allows.
func (g *generator) typedRef(c *place, ref string, binds bool) string {
	name := ref[strings.LastIndexByte(ref, '.')+1:]
	for _, n := range g.named {
		if n.name != name || n.kind == complete {
			continue
		}
		key := g.variableOf(c, anything)
		switch {
		case binds && g.chance(3):
			key = "_"
		case binds && g.chance(3) && n.kind != nested:
			key = g.pattern(c, 1)
		case binds:
			key = g.newVar(c, anything)
		case key == "":
			return ref
		}
		ref += "[" + key + "]"
		if n.kind == nested && g.chance(2) {
			if binds {
				return ref + "[_]"
			}
			return ref + "." + pick(g, keys[:2])
		}
	}
	return ref
}
