package value

import (
	"cmp"
	"strconv"
	"strings"
	"unsafe"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Kind is the type of a Value. Kinds are in the order in which OPA compares types, but
// that both kinds of numbers compare by their value.
type Kind uint8

// The kinds. The zero Value is undefined.
const (
	Undefined Kind = iota
	Null
	Boolean
	Integer // a number whose text is that of an int64
	Number  // any other number, as it is written
	String
	Array
	Object
	Set
)

// Value is a value of Rego. The zero Value is undefined.
type Value struct {
	p    unsafe.Pointer // *byte of a String or Number, *Value of a collection
	n    int            // the Integer; 1 for true; the length of what p points to: bytes, elements, pairs
	kind Kind
	// loose says that OPA goes through the collection in another order: see Loose.
	loose bool
}

// Loose returns a set or an object that was written with variables, out of order: until OPA
// has replaced the variables it goes through the elements as they are written. It is equal
// to v in all else.
func (v Value) Loose() Value {
	v.loose = true
	return v
}

// IsLoose reports whether v was returned by Loose.
func (v Value) IsLoose() bool { return v.loose }

// Constants.
var (
	NullValue   = Value{kind: Null}
	True        = Value{kind: Boolean, n: 1}
	False       = Value{kind: Boolean}
	EmptyString = Value{kind: String}
	EmptyArray  = Value{kind: Array}
	EmptyObject = Value{kind: Object}
	EmptySet    = Value{kind: Set}
)

// Bool returns the Value of a boolean.
func Bool(b bool) Value {
	if b {
		return True
	}
	return False
}

// Int returns the Value of an integer.
func Int(n int) Value { return Value{kind: Integer, n: n} }

// Text returns the Value of a string, which it aliases.
func Text(s string) Value {
	return Value{kind: String, p: unsafe.Pointer(unsafe.StringData(s)), n: len(s)}
}

// bytesText is Text of bytes, which must not change while the Value is used.
func bytesText(b []byte) Value {
	return Value{kind: String, p: unsafe.Pointer(unsafe.SliceData(b)), n: len(b)}
}

// Numeral returns the Value of a JSON number, whose text it aliases.
func Numeral(s string) Value {
	if n, ok := canonicalInt(s); ok {
		return Int(n)
	}
	return Value{kind: Number, p: unsafe.Pointer(unsafe.StringData(s)), n: len(s)}
}

// canonicalInt reports whether s is the text that strconv writes of an int.
func canonicalInt(s string) (int, bool) {
	digits := s
	if digits != "" && digits[0] == '-' {
		digits = digits[1:]
	}
	if digits == "" || len(digits) > 19 || digits[0] == '0' && (len(digits) > 1 || len(s) > 1) {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// Kind returns the kind.
func (v Value) Kind() Kind { return v.kind }

// Defined reports whether v is a value at all.
func (v Value) Defined() bool { return v.kind != Undefined }

// IsFalse reports whether v is the boolean false: all else is true, where a condition is asked for.
func (v Value) IsFalse() bool { return v.kind == Boolean && v.n == 0 }

// IsTrue reports whether v is the boolean true.
func (v Value) IsTrue() bool { return v.kind == Boolean && v.n == 1 }

// IsNumber reports whether v is a number.
func (v Value) IsNumber() bool { return v.kind == Integer || v.kind == Number }

// IsCollection reports whether v has elements.
func (v Value) IsCollection() bool { return v.kind >= Array }

// Int returns an Integer.
func (v Value) Int() int { return v.n }

// Str returns the text of a String, which aliases what v does, or of a number.
func (v Value) Str() string {
	if v.kind == Integer {
		return strconv.Itoa(v.n)
	}
	return unsafe.String((*byte)(v.p), v.n)
}

// Len returns the number of elements or pairs of a collection.
func (v Value) Len() int { return v.n }

// Elems returns the elements of an Array or a Set, those in order. They must not be changed.
func (v Value) Elems() []Value { return unsafe.Slice((*Value)(v.p), v.n) }

// Pairs returns the keys of an Object, in order, each followed by its value. They must not be changed.
func (v Value) Pairs() []Value { return unsafe.Slice((*Value)(v.p), 2*v.n) }

// ArrayOf returns the array of elements, which it aliases.
func ArrayOf(elems []Value) Value {
	return Value{kind: Array, p: unsafe.Pointer(unsafe.SliceData(elems)), n: len(elems)}
}

// ObjectOf returns the object of keys and values in turn, which it aliases: they must be in
// order, without repetition.
func ObjectOf(pairs []Value) Value {
	return Value{kind: Object, p: unsafe.Pointer(unsafe.SliceData(pairs)), n: len(pairs) / 2}
}

// SetOf returns the set of elements, which it aliases: they must be in order, without repetition.
func SetOf(elems []Value) Value {
	return Value{kind: Set, p: unsafe.Pointer(unsafe.SliceData(elems)), n: len(elems)}
}

// order is the place of a kind among those that Compare tells apart.
func (v Value) order() Kind {
	if v.kind == Integer {
		return Number
	}
	return v.kind
}

// Compare compares as ast.Compare does.
func Compare(a, b Value) int {
	if a.kind == b.kind {
		switch a.kind {
		case Integer, Boolean:
			return cmp.Compare(a.n, b.n)
		case String:
			return strings.Compare(a.Str(), b.Str())
		case Array, Set:
			return compareAll(a.Elems(), b.Elems())
		case Object:
			return compareAll(a.Pairs(), b.Pairs())
		case Number:
			return ast.NumberCompare(ast.Number(a.Str()), ast.Number(b.Str()))
		}
		return 0
	}
	if c := cmp.Compare(a.order(), b.order()); c != 0 {
		return c
	}
	return ast.NumberCompare(ast.Number(a.Str()), ast.Number(b.Str()))
}

func compareAll(a, b []Value) int {
	for i := range min(len(a), len(b)) {
		if c := Compare(a[i], b[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

// Equal reports whether two values are equal.
func Equal(a, b Value) bool {
	if a.kind != b.kind {
		return a.IsNumber() && b.IsNumber() && Compare(a, b) == 0
	}
	switch a.kind {
	case String:
		return a.n == b.n && (a.p == b.p || a.Str() == b.Str())
	case Integer, Boolean:
		return a.n == b.n
	case Array, Set:
		return a.n == b.n && (a.p == b.p || equalAll(a.Elems(), b.Elems()))
	case Object:
		return a.n == b.n && (a.p == b.p || equalAll(a.Pairs(), b.Pairs()))
	case Number:
		return Compare(a, b) == 0
	}
	return true
}

func equalAll(a, b []Value) bool {
	for i := range a {
		if !Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// fewPairs is how many keys are compared in turn: their lengths differ mostly.
const fewPairs = 12

// Field returns the value of a key of an Object, undefined for anything else.
func (v Value) Field(name string) Value {
	if v.kind != Object {
		return Value{}
	}
	pairs := v.Pairs()
	if v.n <= fewPairs {
		for i := 0; i < len(pairs); i += 2 {
			if k := &pairs[i]; k.n == len(name) && k.kind == String && k.Str() == name {
				return pairs[i+1]
			}
		}
		return Value{}
	}
	return v.find(Text(name))
}

// find searches the keys of an object.
func (v Value) find(key Value) Value {
	pairs := v.Pairs()
	lo, hi := 0, v.n
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch c := Compare(pairs[2*mid], key); {
		case c == 0:
			return pairs[2*mid+1]
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return Value{}
}

// Get returns what a reference v[key] is: the element of an array, the value of a key of an
// object, or the element itself of a set. It is undefined if there is none.
func (v Value) Get(key Value) Value {
	switch v.kind {
	case Object:
		if key.kind == String {
			return v.Field(key.Str())
		}
		return v.find(key)
	case Array:
		i, ok := key.index()
		if ok && i >= 0 && i < v.n {
			return v.Elems()[i]
		}
	case Set:
		if v.Has(key) {
			return key
		}
	}
	return Value{}
}

// index is the int that a number is.
func (v Value) index() (int, bool) {
	switch v.kind {
	case Integer:
		return v.n, true
	case Number:
		return ast.Number(v.Str()).Int()
	}
	return 0, false
}

// Has reports whether a set has an element.
func (v Value) Has(elem Value) bool {
	if v.kind != Set {
		return false
	}
	elems := v.Elems()
	lo, hi := 0, len(elems)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch c := Compare(elems[mid], elem); {
		case c == 0:
			return true
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return false
}

// Find returns what is at a path below v, undefined if there is nothing: a step into an
// array is its index.
func (v Value) Find(path []string) Value {
	for _, step := range path {
		switch v.kind {
		case Object:
			v = v.Field(step)
		case Array:
			n, ok := canonicalInt(step)
			if !ok {
				return Value{}
			}
			v = v.Get(Int(n))
		default:
			return Value{}
		}
	}
	return v
}
