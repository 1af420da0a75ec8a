package value

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Of returns the Value of a ground ast.Value, undefined for nil and for what is no value:
// a variable, a reference, a comprehension. It aliases the strings of v.
func Of(a *Arena, v ast.Value) Value {
	switch v := v.(type) {
	case ast.Null:
		return NullValue
	case ast.Boolean:
		return Bool(bool(v))
	case ast.Number:
		return Numeral(string(v))
	case ast.String:
		return Text(string(v))
	case *ast.Array:
		elems := a.Alloc(v.Len())
		for i := range elems {
			if elems[i] = Of(a, v.Elem(i).Value); !elems[i].Defined() {
				return Value{}
			}
		}
		return ArrayOf(elems)
	case ast.Set:
		list := v.Slice() // in order
		elems := a.Alloc(len(list))
		for i := range elems {
			if elems[i] = Of(a, list[i].Value); !elems[i].Defined() {
				return Value{}
			}
		}
		return SetOf(elems)
	case ast.Object:
		pairs := a.Alloc(2 * v.Len())[:0]
		ok := true
		v.Foreach(func(k, t *ast.Term) { // in order
			key, x := Of(a, k.Value), Of(a, t.Value)
			ok = ok && key.Defined() && x.Defined()
			pairs = append(pairs, key, x)
		})
		if !ok {
			return Value{}
		}
		return ObjectOf(pairs)
	}
	return Value{}
}

// AST returns the ast.Value, nil for what is undefined. It shares no memory with v.
func (v Value) AST() ast.Value {
	if t := v.Term(); t != nil {
		return t.Value
	}
	return nil
}

// Term returns the ast.Term, nil for what is undefined. It shares no memory with v.
func (v Value) Term() *ast.Term {
	switch v.kind {
	case Null:
		return ast.InternedNullTerm
	case Boolean:
		return ast.InternedTerm(v.n == 1)
	case Integer:
		if v.n >= -1 && v.n <= 512 {
			return ast.InternedTerm(v.n)
		}
		return ast.NewTerm(ast.Number(json.Number(strconv.Itoa(v.n))))
	case Number:
		return ast.NewTerm(ast.Number(json.Number(strings.Clone(v.Str()))))
	case String:
		return ast.StringTerm(strings.Clone(v.Str()))
	case Array:
		return ast.ArrayTerm(terms(v.Elems())...)
	case Set:
		return ast.SetTerm(terms(v.Elems())...)
	case Object:
		pairs := v.Pairs()
		items := make([][2]*ast.Term, v.n)
		for i := range items {
			items[i] = [2]*ast.Term{pairs[2*i].Term(), pairs[2*i+1].Term()}
		}
		return ast.ObjectTerm(items...)
	}
	return nil
}

func terms(elems []Value) []*ast.Term {
	list := make([]*ast.Term, len(elems))
	for i := range elems {
		list[i] = elems[i].Term()
	}
	return list
}
