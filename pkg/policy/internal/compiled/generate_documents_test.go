package compiled_test

import (
	"github.com/open-policy-agent/opa/v1/ast"
)

// Texts and numbers are few, so that those of programs and of documents meet.
var (
	texts   = []string{"a", "b", "c", "name", "n", "a", "b", "x y", "a.b", "", "é", "a,b", "7", "-1.5", "/a", "%v"}
	numbers = []string{"0", "1", "2", "3", "1", "2", "-1", "1.5", "-0.5", "10", "1e2", "1.0", "100", "9223372036854775807", "9223372036854775808", "12345678901234567890123", "0.1", "1e-3", "4294967296", "-9223372036854775808"}
	common  = []string{"a", "b", "c", "name", "n"}
)

// record is the type of the elements of lists of objects.
var record = &typ{kind: kObj, parts: []field{
	{"name", tStr}, {"n", tNum}, {"tags", tStrs}, {"labels", objOf(tStr, tStr)}, {"on", tBool},
}}

// shape is what documents have mostly.
var shape = inDocument(&typ{kind: kObj, parts: []field{
	{"s", tStr},
	{"n", tNum},
	{"b", tBool},
	{"strs", tStrs},
	{"nums", tNums},
	{"map", objOf(tStr, tNum)},
	{"labels", objOf(tStr, tStr)},
	{"items", arrOf(record)},
	{"by", objOf(tStr, record)},
	{"deep", objOf(tStr, objOf(tStr, tStr))},
	{"grid", arrOf(arrOf(tNum))},
	{"z", tAny},
	{"mixed", arrOf(tAny)},
}}).parts

// document returns a document of a shape, parts of which are missing or something else.
func (c *chooser) document() ast.Object {
	o := ast.NewObject()
	for _, f := range shape {
		if c.chance(10) {
			continue
		}
		o.Insert(ast.StringTerm(f.key), c.sample(f.typ, 3))
	}
	return o
}

// sample returns a JSON document of a type.
func (c *chooser) sample(t *typ, depth int) *ast.Term {
	if t.kind == kAny || c.chance(4) {
		t = c.randomType(min(depth-1, 2))
	}
	if t.parts != nil {
		o := ast.NewObject()
		for _, f := range t.parts {
			if !c.chance(15) {
				o.Insert(ast.StringTerm(f.key), c.sample(f.typ, depth-1))
			}
		}
		return ast.NewTerm(o)
	}
	switch t.kind {
	case kBool:
		return ast.BooleanTerm(c.chance(50))
	case kNum:
		return ast.MustParseTerm(pick(c, numbers))
	case kStr:
		return ast.StringTerm(pick(c, texts))
	case kArr, kSet:
		var list []*ast.Term
		for range c.intn(4) {
			list = append(list, c.sample(t.elems(), depth-1))
		}
		return ast.ArrayTerm(list...)
	case kObj:
		o := ast.NewObject()
		for range c.intn(4) {
			o.Insert(ast.StringTerm(pick(c, common)), c.sample(t.elems(), depth-1))
		}
		return ast.NewTerm(o)
	}
	return ast.NullTerm()
}
