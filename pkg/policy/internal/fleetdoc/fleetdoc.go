// Package fleetdoc builds the documents of data.fleet that the engine and ad-hoc queries
// have in common.
package fleetdoc

import (
	"github.com/open-policy-agent/opa/v1/storage"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/value"
)

var ErrNotFound = &storage.Error{Code: storage.NotFoundErr, Message: "document does not exist"}

// Entry is an entry of a view as policies see it.
func Entry(a *value.Arena, ref, v value.Value) value.Value {
	pairs := a.Alloc(4)
	pairs[0], pairs[1], pairs[2], pairs[3] = value.Text("ref"), ref, value.Text("value"), v
	return value.ObjectOf(pairs)
}

// Ref is a ref as policies see it.
func Ref(a *value.Arena, r *aggregate.Ref) value.Value {
	pairs := a.Alloc(8)
	pairs[0], pairs[1] = value.Text("kind"), value.Text(string(r.Kind))
	pairs[2], pairs[3] = value.Text("member"), value.Text(r.Member)
	pairs[4], pairs[5] = value.Text("name"), value.Text(r.Name)
	pairs[6], pairs[7] = value.Text("namespace"), value.Text(r.Namespace)
	return value.ObjectOf(pairs)
}
