package adhoc

import (
	"crypto/rand"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
)

// rowReader converts the results of a query as they are generated, within limits: a
// query that has too many rows ends there.
type rowReader struct {
	store *store
	body  ast.Body

	// Rows are counted by an additional expression, whose value no query can contain.
	// A single expression that has a value is left alone, since with a second one the
	// rows in which it is false would be dropped. Its values are counted instead: each
	// row has one, and one for each variable.
	marker string
	perRow int
	rows   int
	values int
}

// newRowReader prepares a query that has been checked.
func newRowReader(store *store, query string) (*rowReader, error) {
	body, err := ast.ParseBody(query)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrQuery, err)
	}
	a := &rowReader{store: store, body: body, perRow: 1}
	if len(body) == 1 && givesValue(body[0]) {
		vars := body.Vars(ast.VarVisitorParams{SkipClosures: true, SkipRefCallHead: true})
		for v := range vars {
			if !v.IsWildcard() && !v.IsGenerated() {
				a.perRow++
			}
		}
		return a, nil
	}
	a.marker = "federator_" + rand.Text()
	more := ast.Assign.Expr(ast.VarTerm(a.marker), ast.StringTerm(a.marker))
	more.Location = &ast.Location{Text: []byte(a.marker)}
	a.body.Append(more)
	return a, nil
}

// givesValue reports whether each row has the value of an expression.
func givesValue(e *ast.Expr) bool {
	if e.Negated || e.IsAssignment() || e.IsEquality() {
		return false
	}
	switch terms := e.Terms.(type) {
	case *ast.Term:
		return true
	case []*ast.Term:
		f := ast.BuiltinMap[e.Operator().String()]
		return f != nil && f.Decl.Result() != nil && f.Decl.Arity() == len(terms)-1
	}
	return false
}

func (a *rowReader) tooMany() error {
	return fmt.Errorf("%w: more than %d rows", ErrLimit, a.store.opts.MaxRows)
}

func (a *rowReader) generate(t *ast.Term, _ *rego.EvalContext) (any, error) {
	if a.marker == "" {
		if a.values++; a.values > a.store.opts.MaxRows*a.perRow {
			return nil, a.tooMany()
		}
	} else if s, ok := t.Value.(ast.String); ok && string(s) == a.marker {
		if a.rows++; a.rows > a.store.opts.MaxRows {
			return nil, a.tooMany()
		}
		return nil, nil
	}
	// It is held until the answer has been written, in addition to what it is made of.
	if err := a.store.chargeMemory(t.Value); err != nil {
		return nil, err
	}
	v, err := ast.JSONWithOpt(t.Value, ast.JSONOpt{SortSets: true})
	return cloneJSON(v), err
}

// row is a solution of the query, without the marker.
func (a *rowReader) row(r rego.Result) Row {
	delete(r.Bindings, a.marker)
	row := Row{Bindings: r.Bindings, Values: make([]any, 0, len(r.Expressions))}
	for _, e := range r.Expressions {
		if a.marker == "" || e.Text != a.marker {
			row.Values = append(row.Values, e.Value)
		}
	}
	return row
}
