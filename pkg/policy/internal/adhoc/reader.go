package adhoc

import (
	"iter"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
)

// Reader says what the caller may read. Its methods are called often, from one
// goroutine at a time.
type Reader interface {
	// MayReadObjects reports whether the objects of a kind in one namespace of a member
	// may be listed; namespace is "" for objects that have none.
	MayReadObjects(member string, kind aggregate.Kind, namespace string) bool
	// MayReadScope reports whether it may be known that a member has the kind.
	MayReadScope(member string, kind aggregate.Kind) bool
	// MayReadMember reports whether the member, its labels, version and APIs may be known, and
	// of its Cluster the topology, whether it is paused, and the conditions without messages.
	MayReadMember(member string) bool
	// MayReadClusters reports whether annotations and messages of conditions of the members'
	// Clusters may be known, too.
	MayReadClusters() bool
	// MayReadSource reports whether external documents of a source may be read.
	MayReadSource(source string) bool
}

// Everything is a Reader of everything.
type Everything struct{}

// MayReadObjects returns true.
func (Everything) MayReadObjects(string, aggregate.Kind, string) bool { return true }

// MayReadScope returns true.
func (Everything) MayReadScope(string, aggregate.Kind) bool { return true }

// MayReadMember returns true.
func (Everything) MayReadMember(string) bool { return true }

// MayReadClusters returns true.
func (Everything) MayReadClusters() bool { return true }

// MayReadSource returns true.
func (Everything) MayReadSource(string) bool { return true }

// Views are the views that a query can read, of one revision.
type Views interface {
	// Names yields packages and the names of their views.
	Names() iter.Seq2[string, string]
	// Keys yields the keys of a view, in order.
	Keys(pkg, view string) iter.Seq[string]
	// Entries yields the entries of a key, by ref, then value.
	Entries(pkg, view, key string) iter.Seq2[aggregate.Ref, ast.Value]
}
