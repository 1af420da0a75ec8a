package limits

import (
	"context"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/types"
)

// MemoryCounter counts the values that builtins return for as long as a variable may
// hold them: OPA evaluates the rest of a query within each call.
type MemoryCounter interface {
	// Hold returns the size of a value, to be passed to Release, or an error that ends
	// the query.
	Hold(*ast.Term) (int64, error)
	Release(int64)
}

type counterKey struct{}

// WithMemoryCounter returns a context of an evaluation whose builtins report to a
// counter.
func WithMemoryCounter(ctx context.Context, h MemoryCounter) context.Context {
	return context.WithValue(ctx, counterKey{}, h)
}

// MakesValues reports whether a compiled body has a call that reports to a counter.
func MakesValues(body ast.Body) (found bool) {
	ast.WalkExprs(body, func(e *ast.Expr) bool {
		if e.IsCall() {
			b := ast.BuiltinMap[e.Operator().String()]
			found = found || b != nil && makes(b)
		}
		return found
	})
	return found
}

// makes reports whether a builtin returns more than small values and parts of its
// arguments.
func makes(b *ast.Builtin) bool {
	if guards[b.Name] == nil || b.Relation || b.Decl.Result() == nil {
		return false
	}
	switch b.Decl.Result().(type) {
	case types.Boolean, types.Number, types.Null:
		return false
	}
	return true
}

// counted makes a builtin report to the counter of its evaluation.
func counted(f topdown.BuiltinFunc) topdown.BuiltinFunc {
	return func(bctx topdown.BuiltinContext, args []*ast.Term, iter func(*ast.Term) error) error {
		if bctx.Context == nil {
			return f(bctx, args, iter)
		}
		h, ok := bctx.Context.Value(counterKey{}).(MemoryCounter)
		if !ok {
			return f(bctx, args, iter)
		}
		return f(bctx, args, func(out *ast.Term) error {
			n, err := h.Hold(out)
			defer h.Release(n)
			if err != nil {
				return topdown.Halt{Err: err}
			}
			return iter(out)
		})
	}
}
