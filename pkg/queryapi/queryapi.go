package queryapi

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
	"federator.dev/federator/pkg/queryapi/internal/queries"
)

// ServedResource is one resource at one version as members serve it, merged over the
// fleet.
type ServedResource = catalog.ServedResource

// Fleet tells of the members what the index does not hold. Its methods are
// called on every request, from many goroutines.
type Fleet interface {
	// Resources returns what members serve, and a channel that is closed when
	// that changes.
	Resources() ([]ServedResource, <-chan struct{})
	// LastContact returns when a member was last heard of a kind; the zero time when
	// it never was.
	LastContact(member string, kind aggregate.Kind) time.Time
}

// MemberReviewer asks a member, named <namespace>/<name>, whether it would
// allow what the review describes. It may be slow or fail: that grants nothing.
type MemberReviewer = authz.MemberReviewer

// Grants is what a caller may read of one resource: immutable, and good until
// its Until.
type Grants = authz.Grants

// MemberGrant is what a caller may read of one resource in one member.
type MemberGrant = authz.MemberGrant

// Caller is who asks a Question. What is not in his grants must not reach him:
// not as object, count, name or error.
type Caller interface {
	// User is who he is.
	User() user.Info
	// Grants returns what the caller may read of a kind with a verb (get, list or
	// watch) in the members of a snapshot, those that have left since, too: in each
	// by the grants of the resource that its objects were read under there. Errors are
	// *apierrors.StatusError or the context's.
	Grants(ctx context.Context, verb string, kind aggregate.Kind, at *aggregate.Snapshot) (*Grants, error)
	// GrantsIn is Grants in some of the members alone, by name: nobody is asked about
	// the others, unless there is a grant for all.
	GrantsIn(ctx context.Context, verb string, kind aggregate.Kind, at *aggregate.Snapshot, members []string) (*Grants, error)
	// Visible returns the members of a snapshot, in order, of which he may list
	// anything at all, and when that must be asked again, at the latest.
	Visible(ctx context.Context, at *aggregate.Snapshot) (members []string, until time.Time, err error)
}

// Query answers GET requests for /query/v1/<name>. The request is
// authenticated, audited and bounded in time by its context.
type Query interface {
	// Serve writes the answer, or returns an error before it has written
	// anything; one that is no *apierrors.StatusError becomes a 500 without
	// its text.
	Serve(w http.ResponseWriter, r *http.Request, caller Caller) error
}

// Describer is a Question that OpenAPI tells about, beside that there is one. It is
// asked once, when a Server is made.
type Describer interface {
	Query
	Describe() Operation
}

// Operation is what OpenAPI says of a Question.
type Operation = queries.Operation

// Parameter is one that a Question accepts in the query of a URL.
type Parameter = queries.Parameter

// Watchable is a Question that can be watched: requests with watch=true go to Watch.
// Others are refused them.
type Watchable interface {
	Query
	// Watch answers as long as it likes, until the request's context ends. It sets
	// deadlines for what it writes. It is Answer otherwise.
	Watch(w http.ResponseWriter, r *http.Request, caller Caller) error
}
