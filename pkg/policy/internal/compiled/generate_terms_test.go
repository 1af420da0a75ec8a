package compiled_test

import (
	"fmt"
	"strings"
)

// variable is what a term can begin with, and its type.
type variable struct {
	name  string
	typ   *typ
	block int // where it is declared; inner blocks may have another of that name
	words int // how often its name must be in its body, for it must be used
}

// rule is what programs can refer to.
type rule struct {
	pkg, name string
	typ       *typ
	args      []*typ // of a function
	function  bool
}

// generator writes one program.
type generator struct {
	chooser

	pkg    string
	rules  []rule
	vars   []variable
	block  int
	exact  int // > 0: where a variable that is not bound would be unsafe
	names  int
	budget int // of terms in one rule
}

var varNames = []string{"x", "y", "z", "k", "v", "i", "w", "e"}

// fresh returns a name for a new variable: sometimes that of one in an outer block, if that
// is not in the text that it is bound to.
func (g *generator) fresh(text string) string {
	for range 4 {
		name := pick(&g.chooser, varNames)
		at := g.lookup(name)
		if at < 0 || g.vars[at].block < g.block && g.chance(25) && !hasWord(text, name) {
			return name
		}
	}
	g.names++
	return fmt.Sprintf("x%d", g.names)
}

// unknown returns a name that no variable has.
func (g *generator) unknown() string {
	name := pick(&g.chooser, varNames)
	if g.lookup(name) < 0 {
		return name
	}
	g.names++
	return fmt.Sprintf("u%d", g.names)
}

func (g *generator) lookup(name string) int {
	for i := len(g.vars) - 1; i >= 0; i-- {
		if g.vars[i].name == name {
			return i
		}
	}
	return -1
}

func (g *generator) declare(name string, t *typ) {
	g.vars = append(g.vars, variable{name, t, g.block, 0})
}

// declareSome declares a variable that must be used beside its declaration.
func (g *generator) declareSome(name string, t *typ) {
	g.vars = append(g.vars, variable{name, t, g.block, 2})
}

// declareEvery declares a variable of every, which its body must use.
func (g *generator) declareEvery(name string, t *typ) {
	g.vars = append(g.vars, variable{name, t, g.block, 1})
}

// expressions writes the expressions of a body, and uses all variables that must be used.
func (g *generator) expressions(n, depth int) []string {
	list := g.statements(n, depth)
	text := strings.Join(list, ";")
	for _, v := range g.vars {
		if v.block == g.block && words(text, v.name) < v.words {
			list = append(list, fmt.Sprintf("%s != %s", v.name, g.constant(v.typ)))
		}
	}
	return list
}

func hasWord(text, name string) bool { return words(text, name) > 0 }

// words counts a name in a text.
func words(text, name string) (n int) {
	for i := 0; i < len(text); {
		at := strings.Index(text[i:], name)
		if at < 0 {
			break
		}
		at += i
		i = at + len(name)
		if (at == 0 || !inWord(text[at-1])) && (i == len(text) || !inWord(text[i])) {
			n++
		}
	}
	return n
}

func inWord(b byte) bool {
	return b == '_' || b == '.' || b == '"' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z'
}

// within writes what has variables of its own.
func (g *generator) within(write func() string) string {
	n := len(g.vars)
	g.block++
	text := write()
	g.block--
	g.vars = g.vars[:n]
	return text
}

// root returns where a reference can begin.
func (g *generator) root() (string, *typ) {
	switch n := g.intn(10); {
	case n < 4 && len(g.vars) > 0:
		v := pick(&g.chooser, g.vars)
		return v.name, g.vars[g.lookup(v.name)].typ
	case n < 7:
		if text, t := g.ruleRoot(); text != "" {
			return text, t
		}
	}
	f := pick(&g.chooser, shape)
	base := pick(&g.chooser, []string{"input", "input", "data.doc", "data.doc2"})
	if g.chance(2) {
		return base, &typ{kind: kObj, parts: shape}
	}
	return base + "." + f.key, f.typ
}

func (g *generator) ruleRoot() (string, *typ) {
	if len(g.rules) == 0 {
		return "", nil
	}
	r := pick(&g.chooser, g.rules)
	if r.function {
		return "", nil
	}
	return g.nameOf(r), r.typ
}

// nameOf is how a rule is referred to from where the generator is.
func (g *generator) nameOf(r rule) string {
	if r.pkg == g.pkg && g.lookup(r.name) < 0 && g.chance(60) {
		return r.name
	}
	return "data." + r.pkg + "." + r.name
}

// read writes a reference to something of a type, "" if none was found.
func (g *generator) read(want *typ, depth int) string {
	if depth < -6 {
		return ""
	}
	for range 6 {
		text, t := g.root()
		for range 4 {
			if t.fits(want) && (t.kind != kAny || g.chance(60)) {
				return text
			}
			if t.kind == kAny && g.chance(50) || !t.collection() && t.kind != kAny {
				break
			}
			text, t = g.step(text, t, depth)
		}
	}
	return ""
}

// step goes from a term to one of its parts.
func (g *generator) step(text string, t *typ, depth int) (string, *typ) {
	switch {
	case len(t.parts) > 0 && t.kind == kObj:
		f := pick(&g.chooser, t.parts)
		return text + member(f.key), f.typ
	case len(t.parts) > 0:
		i := g.intn(len(t.parts))
		return fmt.Sprintf("%s[%d]", text, i), t.parts[i].typ
	case g.exact == 0 && g.chance(25):
		return text + "[_]", t.elems()
	case !t.loose && g.chance(85):
		if key := g.read(t.keys(), depth-2); key != "" && depth > -4 {
			return text + "[" + key + "]", t.elems()
		}
	case t.kind == kAny:
		return text + member(pick(&g.chooser, common)), tAny
	case t.kind == kArr && g.chance(60):
		return fmt.Sprintf("%s[%d]", text, g.intn(3)), t.elems()
	case t.kind == kObj && t.keys().kind == kStr && g.chance(50):
		return text + member(pick(&g.chooser, common)), t.elems()
	}
	if depth <= 0 {
		return text + "[" + g.constant(t.keys()) + "]", t.elems()
	}
	return text + "[" + g.expr(t.keys(), depth-1) + "]", t.elems()
}

func member(key string) string { return "[" + fmt.Sprintf("%q", key) + "]" }

// expr writes a term of a type.
func (g *generator) expr(t *typ, depth int) string {
	if g.budget--; g.budget < 0 {
		depth = min(depth, 0)
	}
	if t.kind == kAny {
		t = g.randomType(1)
	}
	if depth > 0 {
		switch n := g.intn(12); {
		case n < 2:
			if s := g.callBuiltin(t, depth); s != "" {
				return s
			}
		case n < 3:
			if s := g.callFunction(t, depth); s != "" {
				return s
			}
		case n < 6:
			if s := g.operation(t, depth); s != "" {
				return s
			}
		}
	}
	if g.chance(70) {
		if s := g.read(t, depth); s != "" {
			return s
		}
	}
	return g.literal(t, depth)
}

// operation writes a term with what is particular to its type.
func (g *generator) operation(t *typ, depth int) string {
	switch t.kind {
	case kNum:
		return g.arithmetic(depth)
	case kBool:
		return "(" + g.comparison(depth) + ")"
	case kStr:
		if g.chance(50) {
			return g.template(depth)
		}
	case kArr, kObj:
		return g.comprehension(t, depth)
	case kSet:
		if g.chance(50) {
			return g.comprehension(t, depth)
		}
		op := pick(&g.chooser, []string{"|", "&", "-"})
		return fmt.Sprintf("(%s %s %s)", g.expr(t, depth-1), op, g.expr(t, depth-1))
	}
	return ""
}

func (g *generator) arithmetic(depth int) string {
	op := pick(&g.chooser, []string{"+", "-", "*", "/", "%", "+", "-"})
	return fmt.Sprintf("(%s %s %s)", g.expr(tNum, depth-1), op, g.expr(tNum, depth-1))
}

// template writes a string with terms in it.
func (g *generator) template(depth int) string {
	var b strings.Builder
	b.WriteString(`$"t`)
	g.exact++
	for range 1 + g.intn(2) {
		b.WriteString(" {")
		b.WriteString(g.expr(tAny, min(depth-1, 1)))
		b.WriteString("}")
	}
	g.exact--
	b.WriteString(`"`)
	return b.String()
}

// comparison writes a condition of two terms.
func (g *generator) comparison(depth int) string {
	switch g.intn(7) {
	case 0, 1:
		t := g.randomType(1)
		return fmt.Sprintf("%s %s %s", g.expr(t, depth-1), pick(&g.chooser, []string{"==", "!="}), g.expr(t, depth-1))
	case 2:
		t := g.randomType(0)
		return fmt.Sprintf("%s in %s", g.expr(t, depth-1), g.expr(pick(&g.chooser, []*typ{arrOf(t), setOf(t), objOf(tStr, t)}), depth-1))
	case 3:
		t := g.randomType(0)
		return fmt.Sprintf("(%s, %s in %s)", g.expr(tStr, depth-1), g.expr(t, depth-1), g.expr(objOf(tStr, t), depth-1))
	case 4: // of different types
		op := pick(&g.chooser, []string{"==", "!=", "<", ">", "<=", ">="})
		a, b := g.read(g.randomType(1), depth-1), g.read(g.randomType(1), depth-1)
		if a != "" && b != "" {
			return fmt.Sprintf("%s %s %s", a, op, b)
		}
	}
	t := pick(&g.chooser, []*typ{tNum, tStr, tNum, arrOf(tNum), setOf(tStr)})
	op := pick(&g.chooser, []string{"<", ">", "<=", ">=", "==", "!="})
	return fmt.Sprintf("%s %s %s", g.expr(t, depth-1), op, g.expr(t, depth-1))
}

// comprehension writes a comprehension of any kind.
func (g *generator) comprehension(t *typ, depth int) string {
	outer := g.exact
	g.exact = 0
	defer func() { g.exact = outer }()
	return g.within(func() string {
		body := strings.Join(g.expressions(1+g.intn(3), depth-1), "; ")
		g.exact = 1
		switch t.kind {
		case kArr:
			return fmt.Sprintf("[%s | %s]", g.expr(t.elems(), depth-1), body)
		case kSet:
			return fmt.Sprintf("{%s | %s}", g.expr(t.elems(), depth-1), body)
		}
		return fmt.Sprintf("{%s: %s | %s}", g.expr(t.keys(), depth-1), g.expr(t.elems(), depth-1), body)
	})
}

// literal writes a scalar, or a collection of terms.
func (g *generator) literal(t *typ, depth int) string {
	if len(t.parts) > 0 {
		return g.fixed(t, depth)
	}
	var list []string
	n := g.intn(4)
	if depth < 0 {
		n = 0
	}
	switch t.kind {
	case kBool:
		return pick(&g.chooser, []string{"true", "false"})
	case kNum:
		return pick(&g.chooser, numbers)
	case kStr:
		return fmt.Sprintf("%q", pick(&g.chooser, texts))
	case kArr:
		for range n {
			list = append(list, g.expr(t.elems(), depth-1))
		}
		return "[" + strings.Join(list, ", ") + "]"
	case kSet:
		for range n {
			list = append(list, g.expr(t.elems(), depth-1))
		}
		if n == 0 {
			return "set()"
		}
		return "{" + strings.Join(list, ", ") + "}"
	case kObj:
		return g.object(t, n, depth)
	}
	return "null"
}

func (g *generator) object(t *typ, n, depth int) string {
	var list []string
	for range n {
		key := g.literal(t.keys(), 0)
		if g.chance(30) {
			key = g.expr(t.keys(), depth-1)
		}
		list = append(list, key+": "+g.expr(t.elems(), depth-1))
	}
	return "{" + strings.Join(list, ", ") + "}"
}

// fixed writes a collection of fixed parts.
func (g *generator) fixed(t *typ, depth int) string {
	var list []string
	for _, f := range t.parts {
		text := g.expr(f.typ, depth-1)
		if t.kind == kObj {
			text = fmt.Sprintf("%q: %s", f.key, text)
		}
		list = append(list, text)
	}
	if t.kind == kObj {
		return "{" + strings.Join(list, ", ") + "}"
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// constant writes a term without variables and references.
func (g *generator) constant(t *typ) string {
	if t.kind == kAny {
		t = g.randomType(1)
	}
	switch {
	case len(t.parts) > 0:
		return "{}"
	case t.kind == kArr && g.chance(60):
		return "[" + g.constant(t.elems()) + "]"
	case t.kind == kArr:
		return "[]"
	case t.kind == kSet:
		return "{" + g.constant(t.elems()) + "}"
	case t.kind == kObj:
		return "{" + g.constant(t.keys()) + ": " + g.constant(t.elems()) + "}"
	}
	return g.literal(t, 0)
}
