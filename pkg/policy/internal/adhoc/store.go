package adhoc

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"

	"federator.dev/federator/pkg/policy/internal/fleetdoc"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/mask"
)

// store is the data of a query: what its Reader may read, built as it is read. It
// belongs to one evaluation.
type store struct {
	storage.PolicyNotSupported
	storage.TriggersNotSupported
	storage.WritesNotSupported

	opts      Options
	fleet     *fleetview.View
	mask      *mask.Mask  // of objects
	bytesRead int64       // bytes of JSON
	bytesHeld int64       // upper bound on the memory of what was read, created and returned
	known     knownValues // what has been read, if the query may hold it again
	body      []byte
	documents map[[2]string]bool // external ones that were read, by source and key
}

// transaction is the only transaction: nothing is written.
type transaction struct{}

func (transaction) ID() uint64 { return 1 }

// NewTransaction implements storage.Store.
func (s *store) NewTransaction(_ context.Context, params ...storage.TransactionParams) (storage.Transaction, error) {
	if slices.ContainsFunc(params, func(p storage.TransactionParams) bool { return p.Write }) {
		return nil, &storage.Error{Code: storage.WritesNotSupportedErr}
	}
	return transaction{}, nil
}

// Commit implements storage.Store.
func (s *store) Commit(context.Context, storage.Transaction) error { return nil }

// Abort implements storage.Store.
func (s *store) Abort(context.Context, storage.Transaction) {}

// Truncate implements storage.Store.
func (s *store) Truncate(context.Context, storage.Transaction, storage.TransactionParams, storage.Iterator) error {
	return &storage.Error{Code: storage.WritesNotSupportedErr}
}

// Read implements storage.Store. What may not be read does not exist.
func (s *store) Read(ctx context.Context, _ storage.Transaction, path storage.Path) (any, error) {
	if len(path) < 2 || path[0] != "fleet" {
		return nil, fleetdoc.ErrNotFound // compileQuery has refused whole documents
	}
	var v ast.Value
	var err error
	rest := path[2:]
	switch path[1] {
	case "objects":
		v, rest, err = s.objects(ctx, rest)
	case "by_name":
		v, rest, err = s.byName(ctx, rest)
	case "members":
		v, rest, err = s.members(rest)
	case "names":
		v = s.names()
	case "scopes":
		v, rest, err = s.scopes(rest)
	case "views":
		v, rest, err = s.views(ctx, rest)
	case "passed":
		v, rest, err = s.passed(rest)
	case "external":
		v, rest, err = s.external(rest)
	}
	if err != nil {
		return nil, err
	}
	if v = find(v, rest); v == nil {
		return nil, fleetdoc.ErrNotFound
	}
	s.known.add(ast.NewTerm(v))
	return v, nil
}

// chargeRead counts bytes that are read.
func (s *store) chargeRead(n int) error {
	if s.bytesRead += int64(n); s.bytesRead > s.opts.MaxRead {
		return fmt.Errorf("%w: it reads more than %d bytes", ErrLimit, s.opts.MaxRead)
	}
	return nil
}

func newTree(below []string) *fleetdoc.Tree[ast.Value] {
	return fleetdoc.NewTreeOf(below, func(names []string, values []ast.Value) ast.Value {
		items := make([][2]*ast.Term, 0, len(names))
		for i, name := range names {
			items = append(items, ast.Item(ast.StringTerm(name), ast.NewTerm(values[i])))
		}
		return ast.NewObject(items...)
	})
}

// find returns the value at a path below a value, or nil.
func find(v ast.Value, path []string) ast.Value {
	for _, step := range path {
		var t *ast.Term
		switch x := v.(type) {
		case ast.Object:
			t = x.Get(ast.StringTerm(step))
		case *ast.Array:
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < x.Len() {
				t = x.Elem(i)
			}
		}
		if t == nil {
			return nil
		}
		v = t.Value
	}
	return v
}
