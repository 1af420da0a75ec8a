package adhoc

import (
	"iter"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
)

// Reader says what the caller may read. Its methods are called often, from one
// goroutine at a time.
type Reader interface {
	// Objects reports whether the objects of a kind in one namespace of a member
	// may be listed; namespace is "" for objects that have none.
	Objects(member string, kind aggregate.Kind, namespace string) bool
	// Scope reports whether it may be known that a member has the kind.
	Scope(member string, kind aggregate.Kind) bool
	// Member reports whether the member, its labels, version and APIs may be known.
	Member(member string) bool
}

// Everything is a Reader of everything.
type Everything struct{}

// Objects returns true.
func (Everything) Objects(string, aggregate.Kind, string) bool { return true }

// Scope returns true.
func (Everything) Scope(string, aggregate.Kind) bool { return true }

// Member returns true.
func (Everything) Member(string) bool { return true }

// Views are the views that a query can read, of one revision.
type Views interface {
	// Names yields packages and the names of their views.
	Names() iter.Seq2[string, string]
	// Keys yields the keys of a view, in order.
	Keys(pkg, view string) iter.Seq[string]
	// Entries yields the entries of a key, by ref, then value.
	Entries(pkg, view, key string) iter.Seq2[aggregate.Ref, ast.Value]
}
