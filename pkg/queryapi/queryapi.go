package queryapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
	"federator.dev/federator/pkg/queryapi/internal/queries"
)

// ServedResource is a resource at one version as members serve it, merged over the fleet.
type ServedResource = catalog.ServedResource

// Fleet provides information on members that the index does not hold. Its methods are called
// on every request, from many goroutines.
type Fleet interface {
	// Resources returns what members serve, and a channel that is closed when
	// that changes.
	Resources() ([]ServedResource, <-chan struct{})
	// LastContact returns when a member last sent anything about a kind; the zero time
	// when it never did.
	LastContact(member string, kind aggregate.Kind) time.Time
}

// MemberReviewer performs a review in a member, <namespace>/<name>, and reports whether
// access is allowed. It may be slow or fail: that grants nothing.
type MemberReviewer = authz.MemberReviewer

// Grants are what a caller may read of one resource: immutable, and valid until they
// expire.
type Grants = authz.Grants

// MemberGrant is what a caller may read of one resource in one member.
type MemberGrant = authz.MemberGrant

// What Options.Health returns.
type (
	MemberHealth = queries.MemberHealth
	MemberBudget = queries.MemberBudget
	MemberError  = queries.MemberError
	MemberAudit  = queries.MemberAudit
	MemberLoss   = queries.MemberLoss
)

// Caller is the authenticated caller of a Query. Nothing outside the grants may reach a
// caller: not as object, count, name or error.
type Caller interface {
	// User returns the authenticated user.
	User() user.Info
	// Grants returns what the caller may read of a kind with a verb (get, list or
	// watch) in the members of a snapshot, including those that have left since: in
	// each by the grants of the resource that its objects were read under there. Errors
	// are *apierrors.StatusError or the context's.
	Grants(ctx context.Context, verb string, kind aggregate.Kind, at *aggregate.Snapshot) (*Grants, error)
	// GrantsIn is Grants in some of the members only, by name: the others are not
	// reviewed. Of kind "*" they are what was granted of everything.
	GrantsIn(ctx context.Context, verb string, kind aggregate.Kind, at *aggregate.Snapshot, members []string) (*Grants, error)
	// Visible returns the members of a snapshot, in order, in which the caller may list
	// anything at all, and when that expires.
	Visible(ctx context.Context, at *aggregate.Snapshot) (members []string, until time.Time, err error)
	// VisibleIn is Visible among some members only, by name: the others are not reviewed.
	VisibleIn(ctx context.Context, members []string) (visible []string, until time.Time, err error)
	// HubAllows reports whether the caller may do what a verb says with a resource of group
	// federator.dev on the hub, such as list actions, or of another group that it names, as "clusters.cluster.x-k8s.io" or "secrets." do.
	// Without a hub everything is allowed.
	// Errors are those of Grants.
	HubAllows(ctx context.Context, verb, resource string) (bool, error)
	// HubAllowsNamed is HubAllows of the one object of that name.
	HubAllowsNamed(ctx context.Context, verb, resource, name string) (bool, error)
}

// Query serves GET requests for /query/v1/<name>. Requests are authenticated, audited and
// bounded in time by their context.
type Query interface {
	// Serve writes the response, or returns an error before it has written anything; one
	// that is not an *apierrors.StatusError becomes a 500 without its text.
	Serve(w http.ResponseWriter, r *http.Request, caller Caller) error
}

// Poster is a Query that takes POST requests, too: for what is too large for a URL, and may take longer than
// other requests. Nothing is written by them.
type Poster interface {
	Query
	// MaxBody is how many bytes a request may have.
	MaxBody() int64
	// Post serves a request without a time limit, until the request's context ends. It reads the body first,
	// calls ReadDone, and sets its own write deadlines. Errors are as those of Serve.
	Post(w http.ResponseWriter, r *http.Request, caller Caller) error
}

// ReadDone ends the time that a client has for its request's body.
func ReadDone(w http.ResponseWriter) error {
	err := http.NewResponseController(w).SetReadDeadline(time.Time{})
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// Notifier is a Query that says when its answers may have changed, apart from a change of the
// caller's grants. Those of others may change with each commit of the index.
type Notifier interface {
	Query
	// Changes returns a channel that is closed at the next change. One that was returned before
	// an answer was made is closed by every change that the answer does not show.
	Changes() <-chan struct{}
}

// Describer is a Query that is described in OpenAPI. It is called once, when a Server is
// made.
type Describer interface {
	Query
	Describe() Operation
}

// Operation describes a Query in OpenAPI.
type Operation = queries.Operation

// Parameter describes a query parameter of a Query in OpenAPI.
type Parameter = queries.Parameter

// Watchable is a Query that can be watched: requests with watch=true go to Watch. Other
// queries refuse them.
type Watchable interface {
	Query
	// Watch is Serve without a time limit, until the request's context ends. It sets its
	// own write deadlines.
	Watch(w http.ResponseWriter, r *http.Request, caller Caller) error
}
