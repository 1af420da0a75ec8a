// Package fleetdoc builds the documents of data.fleet that the engine and ad-hoc queries
// have in common.
package fleetdoc

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"

	"federator.dev/federator/pkg/aggregate"
)

func MemberDocument(m aggregate.Member) ast.Value {
	return ast.NewObject(
		ast.Item(ast.InternedTerm("apis"), ast.NewTerm(apis(m))),
		ast.Item(ast.InternedTerm("labels"), LabelsTerm(m)),
		ast.Item(ast.InternedTerm("version"), ast.StringTerm(m.Version)),
	)
}

// MemberField is a field of MemberDocument, nil for one that it does not have.
func MemberField(m aggregate.Member, field string) ast.Value {
	switch field {
	case "apis":
		return apis(m)
	case "labels":
		return LabelsTerm(m).Value
	case "version":
		return ast.String(m.Version)
	}
	return nil
}

func apis(m aggregate.Member) ast.Value {
	apis := make([]*ast.Term, 0, len(m.APIs))
	for _, a := range m.APIs {
		apis = append(apis, ast.StringTerm(a))
	}
	return ast.NewArray(apis...)
}

func LabelsTerm(m aggregate.Member) *ast.Term {
	labels := make([][2]*ast.Term, 0, len(m.Labels))
	for _, l := range m.Labels {
		labels = append(labels, ast.Item(ast.StringTerm(l.Key), ast.StringTerm(l.Value)))
	}
	return ast.ObjectTerm(labels...)
}

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
