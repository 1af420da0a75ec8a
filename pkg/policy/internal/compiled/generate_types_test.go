package compiled_test

import (
	"math/rand/v2"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"
)

// chooser makes the choices of a generator: by bytes while there are some, then at random.
type chooser struct {
	bytes []byte
	rand  *rand.Rand
}

func (c *chooser) intn(n int) int {
	if len(c.bytes) == 0 {
		return c.rand.IntN(n)
	}
	b := int(c.bytes[0])
	c.bytes = c.bytes[1:]
	return b % n
}

func (c *chooser) chance(percent int) bool { return c.intn(100) < percent }

func pick[T any](c *chooser, list []T) T { return list[c.intn(len(list))] }

type kind uint8

const (
	kAny kind = iota
	kNull
	kBool
	kNum
	kStr
	kArr
	kSet
	kObj
)

// typ is what a generator knows of a term.
type typ struct {
	kind  kind
	key   *typ // of an object
	elem  *typ // of a collection
	parts []field
	loose bool // OPA's compiler knows nothing of it: it is part of a document
}

// field is a part of an object or array that has a fixed number of them.
type field struct {
	key string // "": an element of an array
	typ *typ
}

var (
	tAny  = &typ{kind: kAny}
	tNull = &typ{kind: kNull}
	tBool = &typ{kind: kBool}
	tNum  = &typ{kind: kNum}
	tStr  = &typ{kind: kStr}
	tNums = arrOf(tNum)
	tStrs = arrOf(tStr)
)

func arrOf(elem *typ) *typ      { return &typ{kind: kArr, elem: elem} }
func setOf(elem *typ) *typ      { return &typ{kind: kSet, elem: elem} }
func objOf(key, elem *typ) *typ { return &typ{kind: kObj, key: key, elem: elem} }

// inDocument is a type, and those of its parts, of what is in a document.
func inDocument(t *typ) *typ {
	if t == nil || t.loose {
		return t
	}
	l := *t
	l.loose, l.key, l.elem, l.parts = true, inDocument(t.key), inDocument(t.elem), nil
	for _, f := range t.parts {
		l.parts = append(l.parts, field{f.key, inDocument(f.typ)})
	}
	return &l
}

func (t *typ) collection() bool { return t.kind >= kArr }

// keys is the type of the keys of a collection.
func (t *typ) keys() *typ {
	switch t.kind {
	case kArr:
		return tNum
	case kSet:
		return t.elem
	case kObj:
		if t.key != nil {
			return t.key
		}
		return tStr
	}
	return tAny
}

// elems is the type of the elements of a collection.
func (t *typ) elems() *typ {
	if t.elem == nil {
		return tAny
	}
	return t.elem
}

// fits reports whether a term of type t can stand where want is asked for.
func (t *typ) fits(want *typ) bool {
	switch {
	case t.kind == kAny || want.kind == kAny:
		return true
	case t.kind != want.kind:
		return false
	case t.elem == nil || want.elem == nil:
		return true
	}
	return t.elem.fits(want.elem) && (t.kind != kObj || t.keys().fits(want.keys()))
}

// randomType returns a type of limited depth.
func (c *chooser) randomType(depth int) *typ {
	n := 12
	if depth > 0 {
		n = 18
	}
	switch c.intn(n) {
	case 0, 1, 2, 3:
		return tNum
	case 4, 5, 6, 7, 8:
		return tStr
	case 9, 10:
		return tBool
	case 11:
		return tNull
	case 12, 13:
		return arrOf(c.randomType(depth - 1))
	case 14, 15:
		return setOf(c.randomType(depth - 1))
	}
	return objOf(pick(c, []*typ{tStr, tStr, tStr, tNum}), c.randomType(depth-1))
}

// typeOf is the type of an argument or a result of a builtin.
func (c *chooser) typeOf(t types.Type) *typ {
	switch t := t.(type) {
	case *types.NamedType:
		return c.typeOf(t.Type)
	case types.Null:
		return tNull
	case types.Boolean:
		return tBool
	case types.Number:
		return tNum
	case types.String:
		return tStr
	case types.Any:
		if len(t) > 0 {
			return c.typeOf(pick(c, t))
		}
	case *types.Set:
		return setOf(c.typeOf(t.Of()))
	case *types.Array:
		return c.arrayType(t)
	case *types.Object:
		return c.objectType(t)
	}
	return tAny
}

func (c *chooser) arrayType(t *types.Array) *typ {
	a := &typ{kind: kArr}
	for i := range t.Len() {
		a.parts = append(a.parts, field{typ: c.typeOf(t.Select(i))})
	}
	if a.parts == nil && t.Dynamic() != nil {
		a.elem = c.typeOf(t.Dynamic())
	}
	return a
}

func (c *chooser) objectType(t *types.Object) *typ {
	o := &typ{kind: kObj}
	for _, p := range t.StaticProperties() {
		key, ok := p.Key.(string)
		if ok {
			o.parts = append(o.parts, field{key, c.typeOf(p.Value)})
		}
	}
	if d := t.DynamicProperties(); o.parts == nil && d != nil {
		o.key, o.elem = c.typeOf(d.Key), c.typeOf(d.Value)
		if o.key.kind == kAny {
			o.key = tStr
		}
	}
	return o
}

// signature is a builtin that programs call.
type signature struct {
	name   string
	infix  string
	args   []types.Type
	result types.Type
}

func signatureOf(b *ast.Builtin) signature {
	return signature{b.Name, b.Infix, b.Decl.FuncArgs().Args, b.Decl.Result()}
}
