// Package fleetdoc builds the documents of data.fleet that the engine and ad-hoc queries
// have in common.
package fleetdoc

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"

	"federator.dev/federator/pkg/aggregate"
)

var ErrNotFound = &storage.Error{Code: storage.NotFoundErr, Message: "document does not exist"}

var refKeys = struct{ ref, value, member, kind, namespace, name *ast.Term }{
	ast.StringTerm("ref"), ast.StringTerm("value"),
	ast.StringTerm("member"), ast.StringTerm("kind"), ast.StringTerm("namespace"), ast.StringTerm("name"),
}

// EntryTerm is an entry of a view as policies see it.
func EntryTerm(ref, value *ast.Term) *ast.Term {
	return ast.ObjectTerm(ast.Item(refKeys.ref, ref), ast.Item(refKeys.value, value))
}

// RefTerm is a ref as policies see it.
func RefTerm(r *aggregate.Ref) *ast.Term {
	return ast.ObjectTerm(
		ast.Item(refKeys.kind, ast.StringTerm(string(r.Kind))),
		ast.Item(refKeys.member, ast.StringTerm(r.Member)),
		ast.Item(refKeys.name, ast.StringTerm(r.Name)),
		ast.Item(refKeys.namespace, ast.StringTerm(r.Namespace)),
	)
}
