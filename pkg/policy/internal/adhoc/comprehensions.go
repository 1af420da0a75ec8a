package adhoc

import (
	"crypto/rand"
	"errors"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/types"
)

// comprehensionCounter counts what comprehensions hold while a query runs, which
// neither reads, builtins nor results account for. Their heads go through a function
// that counts them: [x | ...] becomes [y | ...; y = counted(0, x)]. An element costs
// two to three times what it costs in OPA alone (BenchmarkQueryComprehension), as OPA
// has no hook for it.
type comprehensionCounter struct {
	store          *store
	name           string          // of the function: no query can contain it
	comprehensions []comprehension // in the order of their numbers
	failed         error           // why counting ended the query
}

// comprehension is the accounting of one comprehension.
type comprehension struct {
	counted      ast.Set // nil: an array, or several sets or objects, each of which has its own
	elementBytes int64   // bytes of an element's slot
}

// position is where a term is in a query.
type position struct{ row, col int }

func positionOf(t *ast.Term) position {
	if t.Location == nil {
		return position{}
	}
	return position{t.Location.Row, t.Location.Col}
}

// countComprehensions rewrites the comprehensions of a query, and returns nil if there
// are none. An indexed comprehension has one result for each value of its outer
// variables, and OPA keeps them all.
func countComprehensions(body ast.Body, indexed map[position]bool, store *store) *comprehensionCounter {
	k := &comprehensionCounter{store: store, name: "federator_" + rand.Text()}
	ast.WalkTerms(body, func(t *ast.Term) bool {
		distinct := comprehension{ast.NewSet(), 2 * (fieldBytes + slotBytes)}
		if indexed[positionOf(t)] {
			distinct.counted = nil
		}
		switch c := t.Value.(type) {
		case *ast.ArrayComprehension:
			c.Term = k.countHead(&c.Body, c.Term, comprehension{nil, elementBytes})
		case *ast.SetComprehension:
			c.Term = k.countHead(&c.Body, c.Term, distinct)
		case *ast.ObjectComprehension:
			key, value := k.newVariable(), k.newVariable()
			pair := k.countHead(&c.Body, ast.ArrayTerm(c.Key, c.Value), distinct)
			k.appendExpr(&c.Body, ast.Equality.Expr(ast.ArrayTerm(key, value), pair))
			c.Key, c.Value = key, value
		}
		return false
	})
	if len(k.comprehensions) == 0 {
		return nil
	}
	return k
}

// countHead makes a body count a head, and returns the term that replaces the head.
func (k *comprehensionCounter) countHead(body *ast.Body, head *ast.Term, p comprehension) *ast.Term {
	out := k.newVariable()
	call := ast.NewTerm(ast.Ref{ast.VarTerm(k.name)})
	k.appendExpr(body, &ast.Expr{Terms: []*ast.Term{call, ast.IntNumberTerm(len(k.comprehensions)), head, out}})
	k.comprehensions = append(k.comprehensions, p)
	return out
}

func (k *comprehensionCounter) appendExpr(body *ast.Body, e *ast.Expr) {
	e.Location = (*body)[len(*body)-1].Location
	body.Append(e)
}

func (k *comprehensionCounter) newVariable() *ast.Term {
	return ast.VarTerm("federator_" + rand.Text())
}

// function is the builtin that counts heads.
func (k *comprehensionCounter) function() func(*rego.Rego) {
	return rego.Function2(&rego.Function{Name: k.name, Decl: types.NewFunction(types.Args(types.N, types.A), types.A)},
		func(_ rego.BuiltinContext, of, head *ast.Term) (*ast.Term, error) {
			n, ok := of.Value.(ast.Number)
			i, whole := n.Int()
			if !ok || !whole {
				return nil, rego.NewHaltError(errors.New("no such comprehension"))
			}
			own, err := k.count(k.comprehensions[i], head)
			if err != nil {
				k.failed = err
				return nil, rego.NewHaltError(err)
			}
			return own, nil
		})
}

// count counts a head that its comprehension does not have yet, and returns a copy that
// the comprehension may hold.
func (k *comprehensionCounter) count(p comprehension, head *ast.Term) (*ast.Term, error) {
	if p.counted != nil && p.counted.Contains(head) {
		return k.store.known.clone(head), nil
	}
	if err := k.store.chargeElement(head, p.elementBytes); err != nil {
		return nil, err
	}
	head = k.store.known.clone(head)
	if p.counted != nil {
		p.counted.Add(head)
	}
	return head, nil
}

// err is why the query ended, if its comprehensions hold too much. A nil counter has
// none.
func (k *comprehensionCounter) err() error {
	if k == nil {
		return nil
	}
	return k.failed
}
