package value_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/value"
)

var scalars = []string{
	`null`, `true`, `false`, `0`, `1`, `-1`, `12`, `1.5`, `1.50`, `1e2`, `100`, `1E-2`, `9223372036854775807`, `9223372036854775808`, `-0`, `0.0`,
	`""`, `"a"`, `"b"`, `"ab"`, `"\u00e9"`, `"a\"b\\c\n"`, `"<&>"`, `"\u2028"`, `"\u0000"`,
}

var parsed = func() (list []*ast.Term) {
	for _, s := range scalars {
		list = append(list, ast.MustParseTerm(s))
	}
	return list
}()

// random returns a random value, with sets and with keys of all types if rego is set.
func random(r *rand.Rand, depth int, rego bool) *ast.Term {
	n := 5
	if !rego {
		n = 4
	}
	switch k := r.IntN(n); {
	case depth == 0 || k < 2:
		return parsed[r.IntN(len(parsed))]
	case k == 2:
		var list []*ast.Term
		for range r.IntN(4) {
			list = append(list, random(r, depth-1, rego))
		}
		return ast.ArrayTerm(list...)
	case k == 3:
		o := ast.NewObject()
		for range r.IntN(16) {
			key := ast.StringTerm(fmt.Sprintf("k%d", r.IntN(20)))
			if rego && r.IntN(4) == 0 {
				key = random(r, 1, rego)
			}
			o.Insert(key, random(r, depth-1, rego))
		}
		return ast.NewTerm(o)
	}
	var list []*ast.Term
	for range r.IntN(4) {
		list = append(list, random(r, depth-1, rego))
	}
	return ast.SetTerm(list...)
}

// TestValue_IsWhatASTHas: values convert to and fro, and compare, are found and written as those of OPA.
func TestValue_IsWhatASTHas(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var a value.Arena
	for range 3000 {
		x, y := random(r, 3, true), random(r, 3, true)
		v, w := value.Of(&a, x.Value), value.Of(nil, y.Value)
		if v.AST().Compare(x.Value) != 0 || fmt.Sprint(v.AST()) != fmt.Sprint(x) {
			t.Fatalf("%v becomes %v", x, v.AST())
		}
		if got, want := sign(value.Compare(v, w)), sign(x.Value.Compare(y.Value)); got != want {
			t.Fatalf("%v and %v compare as %d, with OPA %d", x, y, got, want)
		}
		if value.Equal(v, w) != (x.Value.Compare(y.Value) == 0) {
			t.Fatalf("%v and %v: Equal is %t", x, y, value.Equal(v, w))
		}
		want, err := document.JSON(x.Value)
		got, err2 := v.JSON()
		if (err == nil) != (err2 == nil) || !bytes.Equal(got, want) {
			t.Fatalf("%v is written as %s (%v), by OPA as %s (%v)", x, got, err2, want, err)
		}
		if found, err := x.Value.Find(ast.Ref{y}); (err == nil) != v.Get(w).Defined() || err == nil && found.Compare(v.Get(w).AST()) != 0 {
			t.Fatalf("%v[%v] is %v, with OPA %v", x, y, v.Get(w).AST(), found)
		}
	}
}

func sign(n int) int { return min(1, max(-1, n)) }

// TestDecode_GivesWhatDocumentsHave: under any mask, with and without copies.
func TestDecode_GivesWhatDocumentsHave(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var a value.Arena
	for range 2000 {
		x, err := ast.JSON(random(r, 4, false).Value)
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		m := randomMask(r, 3)
		want, err := document.Value(body, m)
		a.Reset()
		got, err2 := value.Decode(&a, body, m)
		own, err3 := value.DecodeCopy(body, m)
		if (err == nil) != (err2 == nil) || (err == nil) != (err3 == nil) {
			t.Fatalf("%s: %v, %v, %v", body, err, err2, err3)
		}
		if err != nil {
			continue
		}
		text := fmt.Sprint(want)
		if fmt.Sprint(got.AST()) != text {
			t.Fatalf("%s under %v is %v, want %v", body, m, got.AST(), want)
		}
		clear(body)
		a.Reset()
		if fmt.Sprint(own.AST()) != text {
			t.Fatalf("the copy has changed with the body: %v, want %v", own.AST(), want)
		}
	}
}

func randomMask(r *rand.Rand, depth int) *mask.Mask {
	if depth == 0 || r.IntN(4) == 0 {
		return mask.Whole()
	}
	m := &mask.Mask{Fields: map[string]*mask.Mask{}}
	for range r.IntN(12) {
		m.Fields[fmt.Sprintf("k%d", r.IntN(20))] = randomMask(r, depth-1)
	}
	if r.IntN(2) == 0 {
		m.Elem = randomMask(r, depth-1)
	}
	return m
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"a":[1,"b",null,true],"c":{"d":1.5}}`, `[]`, `{"a":1,"a":2}`, `"\ud800"`, `{"b":1,"a":2}`, `01`, `[1,]`, `{"a":{"b":1,"c":2},"b":{},"c":[1],"d":"x"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		want, err := document.Value(body, mask.Whole())
		got, err2 := value.Decode(nil, body, mask.Whole())
		if (err == nil) != (err2 == nil) {
			t.Fatalf("%q: %v here, %v for document.Value", body, err2, err)
		}
		if err == nil && want.Compare(got.AST()) != 0 {
			t.Fatalf("%q is %v, want %v", body, got.AST(), want)
		}
		for _, m := range []*mask.Mask{{}, {Fields: map[string]*mask.Mask{"a": {}, "c": mask.Whole()}}, mask.Path(mask.Whole(), "a", "*", "b"), mask.Path(&mask.Mask{}, "a", "b")} {
			part, partErr := value.Decode(nil, body, m)
			if err != nil { // it may be malformed where the mask reads nothing
				continue
			}
			if want, err := document.Value(body, m); err != nil || partErr != nil || want.Compare(part.AST()) != 0 {
				t.Fatalf("%q under %v is %v, %v, want %v, %v", body, m, part.AST(), partErr, want, err)
			}
		}
	})
}

// TestMark_IsThatOfEqualValues: however they are written.
func TestMark_IsThatOfEqualValues(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	differ := 0
	for range 3000 {
		x, y := random(r, 3, true), random(r, 3, true)
		a, b := value.Of(nil, x.Value), value.Of(nil, y.Value)
		again := value.Of(nil, a.AST())
		if a.Mark() != again.Mark() {
			t.Fatalf("%v has two marks", a.AST())
		}
		if value.Equal(a, b) && a.Mark() != b.Mark() {
			t.Fatalf("%v and %v have two marks", a.AST(), b.AST())
		}
		if a.Mark() != b.Mark() {
			differ++
		}
	}
	if differ < 1000 {
		t.Errorf("marks of %d of 3000 pairs differ", differ)
	}
	for _, pair := range [][2]value.Value{
		{value.Int(1), value.Numeral("1.0")},
		{value.ArrayOf([]value.Value{value.Numeral("1e0")}), value.ArrayOf([]value.Value{value.Int(1)})},
		{value.Text("a long text of many bytes"), value.Text("a long text " + "of many bytes")},
		{value.SetOf([]value.Value{value.Int(1)}).Loose(), value.SetOf([]value.Value{value.Int(1)})},
		{value.ObjectOf([]value.Value{value.Text("a"), value.Int(1)}).Loose(), value.ObjectOf([]value.Value{value.Text("a"), value.Int(1)})},
	} {
		if value.Equal(pair[0], pair[1]) && pair[0].Mark() != pair[1].Mark() {
			t.Errorf("%v and %v have two marks", pair[0].AST(), pair[1].AST())
		}
	}
}
