package limits_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/policy/internal/limits"
	"federator.dev/federator/test/seed"
)

// maxCall is the heap that one call may allocate, in bytes.
const maxCall = 256 << 20

// hostile are arguments near the limits and beyond them, of every type.
func hostile() []*ast.Term {
	var out []*ast.Term
	for _, s := range []string{
		"", "a", "%s", "%1000d", strings.Repeat("%[1]v", 1000), strings.Repeat("%999d", 900), strings.Repeat("%q", 1000),
		"1e999", "1e1000", "1e99999999", "999e-99999k", strings.Repeat("9", 250), strings.Repeat("9", 5000),
		"0.0.0.0/0", "::/0", "10.0.0.0/16", "fe80::/112", "2024-01-01T00:00:00Z", "MST", "RFC1123",
		"(x+x+)+y", "(a|a)*b", strings.Repeat("(a{0,900})", 4), strings.Repeat("(a?)", 900) + "b", strings.Repeat("(", 400) + strings.Repeat(")", 400),
		strings.Repeat("*a", 3), strings.Repeat("*a", 120), strings.Repeat("{a,b}", 50), strings.Repeat("{a,", 80), "[a-z]*",
		strings.Repeat("a", 100), strings.Repeat("a", 1400), strings.Repeat("a", 1<<16), strings.Repeat("a", 1<<18), strings.Repeat("a", 1<<20), strings.Repeat("a", 1<<23),
		strings.Repeat("é", 1<<10), strings.Repeat("é", 1<<19), strings.Repeat("%ff", 1<<14), strings.Repeat("&a=b", 1<<14),
		strings.Repeat("[", 1<<14), strings.Repeat("[", 1<<13) + strings.Repeat("]", 1<<13), strings.Repeat("{\"a\":", 1<<13),
		"[" + strings.Repeat("1,", 1<<16) + "1]", strings.Repeat("- a\n", 1<<13), "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n",
		strings.Repeat("\x00", 1<<12), "\xff\xfe", "-----BEGIN CERTIFICATE-----\n" + strings.Repeat("A", 1<<14) + "\n-----END CERTIFICATE-----",
	} {
		out = append(out, ast.StringTerm(s))
	}
	for _, n := range []string{"0", "-1", "1", "3", "100000", "1e999", "1e-999", "1e100000", "9223372036854775807", "-1.5", strings.Repeat("9", 999), strings.Repeat("9", 100000)} {
		out = append(out, ast.NumberTerm(json.Number(n)))
	}
	deep := ast.ArrayTerm(ast.IntNumberTerm(1), ast.StringTerm("a"))
	for range 60 {
		deep = ast.ArrayTerm(deep, deep)
	}
	nested := ast.ObjectTerm()
	for range 2000 {
		nested = ast.ObjectTerm(ast.Item(ast.StringTerm("a"), nested))
	}
	numbers, strs, object := ast.NewArray(), ast.NewArray(), ast.NewObject()
	strset, small := ast.NewSet(), ast.NewSet()
	for i := range 120_000 {
		t := ast.StringTerm(fmt.Sprintf("key-%d", i))
		if i < 99_000 {
			numbers = numbers.Append(ast.IntNumberTerm(i * 7919))
			strset.Add(t)
		}
		if i < 300 {
			small.Add(t)
		}
		strs = strs.Append(t)
		object.Insert(t, t)
	}
	copies := ast.NewArray()
	for range 30 {
		copies = copies.Append(ast.MustParseTerm(`{"op": "copy", "from": "/a", "path": "/a/a"}`))
	}
	cidrs := ast.NewArray()
	for i := range 9000 {
		cidrs = cidrs.Append(ast.StringTerm(fmt.Sprintf("10.%d.%d.0/24", i/250, i%250)))
	}
	return append(out, ast.NullTerm(), ast.BooleanTerm(true), deep, nested, ast.NewTerm(numbers), ast.NewTerm(strs),
		ast.NewTerm(strset), ast.NewTerm(small), ast.NewTerm(object), ast.NewTerm(copies), ast.NewTerm(cidrs),
		ast.ArrayTerm(), ast.ObjectTerm(), ast.NewTerm(ast.NewSet()),
		ast.ArrayTerm(ast.IntNumberTerm(0), ast.StringTerm("Local")), ast.SetTerm(ast.NewTerm(strset), ast.NewTerm(small)),
		ast.ArrayTerm(ast.NewTerm(numbers), ast.NewTerm(numbers)), ast.ObjectTerm(ast.Item(ast.StringTerm("a"), ast.NewTerm(numbers))),
		ast.ObjectTerm(ast.Item(ast.StringTerm("a"), ast.StringTerm(strings.Repeat("b", 1<<12)))))
}

// call calls a builtin with arguments of the right number, whatever their types.
// It returns what the call took and allocated.
func call(b *ast.Builtin, args []*ast.Term) (took time.Duration, allocated uint64, err error) {
	f := topdown.GetBuiltin(b.Name)
	bctx := topdown.BuiltinContext{Context: context.Background(), Cancel: topdown.NewCancel(), Location: ast.NewLocation(nil, "f", 1, 1)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	err = f(bctx, args, func(*ast.Term) error { return nil })
	took = time.Since(start)
	runtime.ReadMemStats(&after)
	return took, after.TotalAlloc - before.TotalAlloc, err
}

func TestCapabilities_NoBuiltinOutgrowsItsArguments(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	terms := hostile()
	calls, refused := 0, 0
	var slowest time.Duration
	var slow string
	for _, b := range limits.Capabilities().Builtins {
		if topdown.GetBuiltin(b.Name) == nil {
			continue // evaluated by topdown itself
		}
		arity := b.Decl.Arity()
		for i := range min(len(terms)*arity, 80) {
			args := make([]*ast.Term, arity)
			for j := range args {
				args[j] = terms[r.IntN(len(terms))]
			}
			if arity > 0 {
				args[i%arity] = terms[(i/arity)%len(terms)]
			}
			took, allocated, err := call(b, args)
			calls++
			if errors.Is(err, limits.ErrLimit) {
				refused++
			}
			if allocated > maxCall {
				t.Errorf("%s(%.200v) allocated %d MiB", b.Name, describe(args), allocated>>20)
			}
			if took > slowest {
				slowest, slow = took, fmt.Sprintf("%s(%s)", b.Name, describe(args))
			}
		}
	}
	t.Logf("%d calls, %d refused; the slowest took %v: %.300s", calls, refused, slowest, slow)
	if refused == 0 {
		t.Error("no call was refused")
	}
}

// describe names arguments without writing them out.
func describe(args []*ast.Term) string {
	var out []string
	for _, a := range args {
		switch v := a.Value.(type) {
		case ast.String:
			out = append(out, fmt.Sprintf("%.30q of %d bytes", string(v), len(v)))
		case ast.Number:
			out = append(out, fmt.Sprintf("%.30s", string(v)))
		case interface{ Len() int }:
			out = append(out, fmt.Sprintf("%s of %d", ast.ValueName(a.Value), v.Len()))
		default:
			out = append(out, ast.ValueName(a.Value))
		}
	}
	return strings.Join(out, ", ")
}

func FuzzBuiltins(f *testing.F) {
	terms := hostile()
	names := limits.Capabilities().Builtins
	for i := range names {
		f.Add(uint16(i), uint64(i), "a", 3)
	}
	f.Fuzz(func(t *testing.T, builtin uint16, seed uint64, s string, repeat int) {
		b := names[int(builtin)%len(names)]
		if topdown.GetBuiltin(b.Name) == nil {
			return
		}
		r := rand.New(rand.NewPCG(seed, 0))
		args := make([]*ast.Term, b.Decl.Arity())
		for i := range args {
			args[i] = terms[r.IntN(len(terms))]
			if r.IntN(2) == 0 {
				n := min(max(repeat, 1), 1+(1<<20)/(len(s)+1))
				args[i] = ast.StringTerm(strings.Repeat(s, n))
			}
		}
		took, allocated, _ := call(b, args)
		if allocated > maxCall {
			t.Errorf("%s(%s) allocated %d MiB", b.Name, describe(args), allocated>>20)
		}
		if took > 20*time.Second { // a call that has no end, rather than a slow machine
			t.Errorf("%s(%s) took %v", b.Name, describe(args), took)
		}
	})
}
