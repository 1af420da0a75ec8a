package compiled

import (
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	_ "federator.dev/federator/pkg/policy/internal/limits" // whose guards are not to be circumvented
	"federator.dev/federator/pkg/policy/internal/value"
	"federator.dev/federator/test/seed"
)

// byOPA calls OPA's implementation, with the guard of limits. The result is undefined where
// it has none.
func byOPA(name string, args []*ast.Term) (v value.Value, err error) {
	err = topdown.GetBuiltin(name)(topdown.BuiltinContext{}, args, func(t *ast.Term) error {
		v = value.Of(nil, t.Value)
		return nil
	})
	return v, err
}

func termsOf(args []value.Value) []*ast.Term {
	terms := make([]*ast.Term, len(args))
	for i, v := range args {
		terms[i] = v.Term()
	}
	return terms
}

// differs reports where a native gives another value than OPA's implementation does, and
// whether it gives any. Values that are equal and written in other ways are others.
func differs(t *testing.T, a *value.Arena, name string, args []value.Value) (done bool) {
	t.Helper()
	terms := termsOf(args)
	got, done := callNative(a, name, args)
	if !done {
		return false
	}
	want, err := byOPA(name, terms)
	switch {
	case err != nil:
		t.Errorf("%s(%v) = %v, with OPA the error %v", name, terms, got.AST(), err)
	case !got.Defined() || !want.Defined() || !same(got, want):
		t.Errorf("%s(%v) = %v, with OPA %v", name, terms, got.AST(), want.AST())
	}
	for i, v := range args {
		if !same(v, value.Of(nil, terms[i].Value)) {
			t.Errorf("%s(%v) changed its argument %d to %v", name, terms, i, v.AST())
		}
	}
	return true
}

// same reports whether values are equal in all their parts, and are written alike.
func same(x, y value.Value) bool {
	if x.Kind() != y.Kind() {
		return false
	}
	var p, q []value.Value
	switch x.Kind() {
	case value.Array, value.Set:
		p, q = x.Elems(), y.Elems()
	case value.Object:
		p, q = x.Pairs(), y.Pairs()
	case value.Number:
		return x.Str() == y.Str()
	default:
		return value.Equal(x, y)
	}
	return slices.EqualFunc(p, q, same)
}

func TestNatives_DoWhatOPADoes(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	var arena value.Arena
	for _, name := range slices.Sorted(nativeNames()) {
		const calls = 3000
		done := 0
		for i := range calls {
			a := &arena
			if i%8 == 0 {
				a = nil
			}
			if differs(t, a, name, arguments(name, r)) {
				done++
			}
			if t.Failed() {
				return
			}
			arena.Reset()
		}
		if done < calls/20 {
			t.Errorf("%s: %d of %d calls were done", name, done, calls)
		}
	}
}

func FuzzNatives(f *testing.F) {
	names := slices.Sorted(nativeNames())
	for i := range names {
		f.Add(uint8(i), []byte("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a"))
	}
	f.Fuzz(func(t *testing.T, i uint8, data []byte) {
		name := names[int(i)%len(names)]
		var a value.Arena
		differs(t, &a, name, arguments(name, &dataDice{data: data}))
	})
}

// machine has the caches of the natives that keep patterns.
var machine Machine

func callNative(a *value.Arena, name string, args []value.Value) (value.Value, bool) {
	if f := natives[name]; f != nil {
		return f(a, args)
	}
	return matchers[name](&machine, args)
}

func nativeNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range natives {
			if !yield(name) {
				return
			}
		}
		for name := range matchers {
			if !yield(name) {
				return
			}
		}
	}
}

// TestNatives_LeaveWhatALimitRefuses has arguments that guards refuse, or would in a small
// multiple.
func TestNatives_LeaveWhatALimitRefuses(t *testing.T) {
	text := value.Text(strings.Repeat("a", maxNativeText+1))
	many := make([]value.Value, maxNativeElements+1)
	for i := range many {
		many[i] = value.Int(i)
	}
	array, set := value.ArrayOf(many), value.SetOf(many)
	deep := value.ArrayOf([]value.Value{value.Int(1), value.Int(2)})
	for range 60 {
		deep = value.ArrayOf([]value.Value{deep, deep})
	}
	object := value.ObjectOf([]value.Value{value.Text("a"), deep})
	short, one := value.Text("a"), value.ArrayOf([]value.Value{value.Text("a")})
	for _, c := range []struct {
		name string
		args []value.Value
	}{
		{"equal", []value.Value{deep, deep}},
		{"internal.member_2", []value.Value{deep, deep}},
		{"internal.member_3", []value.Value{value.Int(0), deep, deep}},
		{"max", []value.Value{deep}},
		{"sort", []value.Value{deep}},
		{"or", []value.Value{set, set}},
		{"array.concat", []value.Value{array, array}},
		{"object.union", []value.Value{object, object}},
		{"object.remove", []value.Value{object, one}},
		{"object.filter", []value.Value{object, one}},
		{"concat", []value.Value{text, value.ArrayOf([]value.Value{short, short})}},
		{"contains", []value.Value{text, short}},
		{"indexof", []value.Value{short, text}},
		{"split", []value.Value{value.Text(strings.Repeat(",", maxNativeElements+1)), value.Text(",")}},
		{"replace", []value.Value{value.Text(strings.Repeat("a", 1000)), short, value.Text(strings.Repeat("b", 1000))}},
		{"sprintf", []value.Value{value.Text("%v"), value.ArrayOf([]value.Value{deep})}},
		{"sprintf", []value.Value{value.Text("%v listens on 8080"), one}},
		{"sprintf", []value.Value{value.Text("%v*"), one}},
		{"regex.match", []value.Value{value.Text("(a{0,100}){0,100}"), short}},
		{"regex.match", []value.Value{value.Text(strings.Repeat("a", 500)), value.Text(strings.Repeat("a", 5000))}},
		{"glob.match", []value.Value{value.Text("*a*a*a*a*a*a*a*a"), value.NullValue, value.Text(strings.Repeat("a", 200))}},
		{"time.parse_rfc3339_ns", []value.Value{value.Text("2024-01-01T00:00:00." + strings.Repeat("0", 300) + "Z")}},
	} {
		if v, done := callNative(nil, c.name, c.args); done {
			t.Errorf("%s of what is large: %v", c.name, v.Kind())
		}
	}
}

// TestNatives_KeepNothingOfTheirArguments has patterns in buffers that are used again.
func TestNatives_KeepNothingOfTheirArguments(t *testing.T) {
	var m Machine
	buf, delimiter := []byte("^zq[ab]*$"), []byte("!")
	pattern := value.Text(unsafe.String(&buf[0], len(buf)))
	delimiters := value.ArrayOf([]value.Value{value.Text(unsafe.String(&delimiter[0], 1))})
	for _, done := range []bool{
		second(regexMatch(&m, []value.Value{pattern, value.Text("zqab")})),
		second(globMatch(&m, []value.Value{pattern, delimiters, value.Text("zqab")})),
	} {
		if !done {
			t.Error("left to OPA")
		}
	}
	for expr, re := range m.regexes {
		if unsafe.StringData(expr) == &buf[0] || re.Regexp != nil && unsafe.StringData(re.String()) == &buf[0] {
			t.Errorf("the cache keeps the text of %s", expr)
		}
	}
	for key, g := range m.globs {
		if unsafe.StringData(key.pattern) == &buf[0] || unsafe.StringData(key.delimiters) == &delimiter[0] || g != nil && unsafe.StringData(g.String()) == &buf[0] {
			t.Errorf("the cache keeps the text of %v", key)
		}
	}
}

func second[A, B any](_ A, b B) B { return b }

func TestPatternCache_IsBounded(t *testing.T) {
	var c patternCache[int, int]
	for i := range 3 * maxPatterns {
		c.put(i, i)
		if v, ok := c[i]; !ok || v != i {
			t.Fatalf("%d is not kept", i)
		}
	}
	if len(c) != maxPatterns {
		t.Errorf("%d patterns are kept", len(c))
	}
}
