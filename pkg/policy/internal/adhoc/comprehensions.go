package adhoc

import (
	"crypto/rand"
	"errors"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/types"
)

// keeper counts what comprehensions keep while a query runs: that grows there without
// being read, made by a builtin, or answered. Their heads go through a function that
// counts them: [x | ...] becomes [y | ...; y = kept(0, x)]. An element costs two to three
// times what it costs in OPA alone (BenchmarkQueryComprehension), since OPA asks nobody
// else.
type keeper struct {
	store  *store
	name   string    // of the function, which no query can have
	parts  []keeping // of each comprehension
	failed error     // why kept ended the query
}

// keeping is what a comprehension has.
type keeping struct {
	has   ast.Set // nil: an array, or several sets or objects, each of which has its own
	place int64   // bytes that an element takes there
}

// spot is where something stands in a query.
type spot struct{ row, col int }

func spotOf(t *ast.Term) spot {
	if t.Location == nil {
		return spot{}
	}
	return spot{t.Location.Row, t.Location.Col}
}

// keepOf rewrites the comprehensions of a query, and returns nil if there are none. OPA
// makes one result of those that are indexed for each value of what is outside of them,
// and keeps them all.
func keepOf(body ast.Body, indexed map[spot]bool, store *store) *keeper {
	k := &keeper{store: store, name: "federator_" + rand.Text()}
	ast.WalkTerms(body, func(t *ast.Term) bool {
		distinct := keeping{ast.NewSet(), 2 * (fieldBytes + slotBytes)}
		if indexed[spotOf(t)] {
			distinct.has = nil
		}
		switch c := t.Value.(type) {
		case *ast.ArrayComprehension:
			c.Term = k.kept(&c.Body, c.Term, keeping{nil, elementBytes})
		case *ast.SetComprehension:
			c.Term = k.kept(&c.Body, c.Term, distinct)
		case *ast.ObjectComprehension:
			key, value := k.variable(), k.variable()
			pair := k.kept(&c.Body, ast.ArrayTerm(c.Key, c.Value), distinct)
			k.add(&c.Body, ast.Equality.Expr(ast.ArrayTerm(key, value), pair))
			c.Key, c.Value = key, value
		}
		return false
	})
	if len(k.parts) == 0 {
		return nil
	}
	return k
}

// kept has a body count a head, and returns what stands for the head then.
func (k *keeper) kept(body *ast.Body, head *ast.Term, p keeping) *ast.Term {
	out := k.variable()
	call := ast.NewTerm(ast.Ref{ast.VarTerm(k.name)})
	k.add(body, &ast.Expr{Terms: []*ast.Term{call, ast.IntNumberTerm(len(k.parts)), head, out}})
	k.parts = append(k.parts, p)
	return out
}

func (k *keeper) add(body *ast.Body, e *ast.Expr) {
	e.Location = (*body)[len(*body)-1].Location
	body.Append(e)
}

func (k *keeper) variable() *ast.Term { return ast.VarTerm("federator_" + rand.Text()) }

// function is what counts heads.
func (k *keeper) function() func(*rego.Rego) {
	return rego.Function2(&rego.Function{Name: k.name, Decl: types.NewFunction(types.Args(types.N, types.A), types.A)},
		func(_ rego.BuiltinContext, of, head *ast.Term) (*ast.Term, error) {
			n, ok := of.Value.(ast.Number)
			i, whole := n.Int()
			if !ok || !whole {
				return nil, rego.NewHaltError(errors.New("kept of no comprehension"))
			}
			own, err := k.count(k.parts[i], head)
			if err != nil {
				k.failed = err
				return nil, rego.NewHaltError(err)
			}
			return own, nil
		})
}

// count counts a head that its comprehension does not have yet, and returns what it may
// keep of it.
func (k *keeper) count(p keeping, head *ast.Term) (*ast.Term, error) {
	if p.has != nil && p.has.Contains(head) {
		return k.store.known.own(head), nil
	}
	if err := k.store.keep(head, p.place); err != nil {
		return nil, err
	}
	head = k.store.known.own(head)
	if p.has != nil {
		p.has.Add(head)
	}
	return head, nil
}

// err is why the query ended, if what it keeps is too much. Nil keeps nothing.
func (k *keeper) err() error {
	if k == nil {
		return nil
	}
	return k.failed
}
