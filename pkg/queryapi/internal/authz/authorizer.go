package authz

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Group is the API group that grants on the hub are written for.
const Group = "members.federator.dev"

// verbs are those that can be granted.
var verbs = [...]string{"list", "get", "watch"}

// Reviewer creates SubjectAccessReviews on the hub, as client-go's
// SubjectAccessReviewInterface does.
type Reviewer interface {
	Create(context.Context, *authorizationv1.SubjectAccessReview, metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// MemberReviewer asks a member, <namespace>/<name>, whether it allows what a review
// describes.
type MemberReviewer interface {
	Review(ctx context.Context, member string, review *authorizationv1.SubjectAccessReview) (bool, error)
}

// Options configure an Authorizer. Reviewer and Resources are required.
type Options struct {
	Reviewer Reviewer

	// MemberReviewer, where set, reviews what the hub does not grant.
	MemberReviewer MemberReviewer
	// UserPrefix is put before names of users and groups in reviews on members.
	// Required with MemberReviewer; it may not begin with "system:".
	UserPrefix string
	// Namespaces returns the namespaces of a member, which are reviewed one by one
	// where the member denies access to all. Required with MemberReviewer.
	Namespaces func(member string) []string

	// Resources returns the resources that AnyGrant and Visible review. Required.
	Resources func() []Resource

	// AllowTTL is how long a decision that allows is cached, at most 30 s; 0 means
	// 20 s. DenyTTL is the same for one that denies; 0 means 10 s.
	AllowTTL, DenyTTL time.Duration
	// Parallel bounds the reviews in flight, on the hub and on all members; a
	// quarter of them may be one caller's. 0 means 64.
	Parallel int
	// CacheSize bounds the cached decisions, of which each generation has half; 0 means
	// 65,536, some 20 MB.
	CacheSize int
	// Timeout bounds one review; 0 means 5 s.
	Timeout time.Duration
	// Now is the clock; nil means time.Now.
	Now     func() time.Time
	Metrics prometheus.Registerer // nil: not exported
}

// Resource is one that can be granted.
type Resource struct {
	schema.GroupResource

	// OnlyMember is the one member that has it, "" where several do. It is reviewed for
	// this member alone: a grant for a namespace or for the fleet allows it there, too,
	// and a member that invents any number of resources causes no reviews of others.
	OnlyMember string
}

// maxTTL is the longest that a revoked grant may be honoured.
const maxTTL = 30 * time.Second

func (o Options) validated() (Options, error) {
	if o.Reviewer == nil {
		return o, errors.New("authz: a Reviewer is required")
	}
	if o.Resources == nil {
		return o, errors.New("authz: Resources is required")
	}
	if o.MemberReviewer != nil && (o.UserPrefix == "" || o.Namespaces == nil) {
		return o, errors.New("authz: MemberReviewer requires UserPrefix and Namespaces")
	}
	if strings.HasPrefix(o.UserPrefix, "system:") {
		return o, fmt.Errorf("authz: user prefix %q would make callers system users of members", o.UserPrefix)
	}
	o.AllowTTL = orDefault(o.AllowTTL, 20*time.Second)
	o.DenyTTL = orDefault(o.DenyTTL, 10*time.Second)
	o.Timeout = orDefault(o.Timeout, 5*time.Second)
	o.Parallel = orDefault(o.Parallel, 64)
	o.CacheSize = orDefault(o.CacheSize, 1<<16)
	if o.Now == nil {
		o.Now = time.Now
	}
	for name, ttl := range map[string]time.Duration{"AllowTTL": o.AllowTTL, "DenyTTL": o.DenyTTL} {
		if ttl < 0 || ttl > maxTTL {
			return o, fmt.Errorf("authz: %s is %v; it must be between 0 and %v", name, ttl, maxTTL)
		}
	}
	if o.Timeout < 0 || o.Parallel < 0 || o.CacheSize < 0 {
		return o, errors.New("authz: limits must not be negative")
	}
	return o, nil
}

func orDefault[T comparable](value, standard T) T {
	var zero T
	if value == zero {
		return standard
	}
	return value
}

// Authorizer determines what callers may read. Its methods are safe for concurrent use.
type Authorizer struct {
	unrestricted bool // every caller may read everything
	options      Options
	limiter      *limiter
	cache        *decisionCache
	inflight     inflightReviews
	unresponsive unresponsiveMembers
	metrics      *metrics
}

// New returns an Authorizer that uses reviews.
func New(o Options) (*Authorizer, error) {
	o, err := o.validated()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, fmt.Errorf("authz: %w", err)
	}
	return &Authorizer{
		options: o,
		limiter: newLimiter(o.Parallel),
		cache:   newDecisionCache(o.CacheSize, max(o.AllowTTL, o.DenyTTL), o.Now),
		metrics: m,
	}, nil
}

// Unrestricted returns an Authorizer that grants everything to every caller, without
// reviews: for a server of one user on their own machine.
func Unrestricted() *Authorizer {
	return &Authorizer{unrestricted: true, options: Options{AllowTTL: maxTTL, Now: time.Now}}
}

// Grants returns what the user may read of a resource with a verb: in one member, or,
// where member is "", in each of members, <namespace>/<name>. A namespace other than ""
// limits reviews on members to it; the hub grants whole members. Resource "*" is all that there is and will be, which
// only the hub grants. See WithDecisionsSince.
// Errors are *apierrors.StatusError or the context's: nothing is granted on an error.
func (a *Authorizer) Grants(ctx context.Context, u user.Info, verb string, gr schema.GroupResource, members []string, member, namespace string) (*Grants, error) {
	return a.grants(ctx, u, verb, gr, members, member, namespace, false)
}

// ClusterScopedGrants is Grants for a cluster-scoped resource, which a grant in one of a
// member's namespaces does not include.
func (a *Authorizer) ClusterScopedGrants(ctx context.Context, u user.Info, verb string, gr schema.GroupResource, members []string, member string) (*Grants, error) {
	return a.grants(ctx, u, verb, gr, members, member, "", true)
}

func (a *Authorizer) grants(ctx context.Context, u user.Info, verb string, gr schema.GroupResource, members []string, member, namespace string, clusterScoped bool) (*Grants, error) {
	if a.unrestricted {
		return Everything(a.options.Now().Add(a.options.AllowTTL)), nil
	}
	if member != "" {
		members = []string{member}
	}
	e := a.newEvaluation(u)
	if tooLong(gr, member, namespace) {
		return NewGrants(nil, e.validUntil()), nil
	}
	all, err := e.allowed(ctx, attributes{verb: verb, resource: gr})
	if err != nil {
		return nil, err
	}
	if all {
		return e.withReviewTimes(Everything(e.validUntil())), nil
	}
	memberGrants := make(map[string]MemberGrant, len(members))
	granted, err := e.reviewHubNamespaces(ctx, verb, gr, members)
	if err != nil {
		return nil, err
	}
	rest := make([]string, 0, len(members))
	for _, m := range members {
		if ns, _ := splitMember(m); granted[ns] {
			memberGrants[m] = MemberGrant{All: true}
		} else {
			rest = append(rest, m)
		}
	}
	rest, err = e.reviewMemberNames(ctx, verb, gr, rest, memberGrants)
	if err != nil {
		return nil, err
	}
	if gr.Resource != wildcard { // that of a member's own RBAC would be of one group only
		if err := e.reviewOnMembers(ctx, verb, gr, rest, namespace, clusterScoped, memberGrants); err != nil {
			return nil, err
		}
	}
	return e.withReviewTimes(NewGrants(memberGrants, e.validUntil())), nil
}

// withReviewTimes records in grants when the decisions were made that they follow from.
func (e *evaluation) withReviewTimes(g *Grants) *Grants {
	e.mu.Lock()
	defer e.mu.Unlock()
	g.reviewed = e.reviewed
	return g
}

// HubAllows reports whether the user may do what a verb says with a resource of the hub itself, in all of
// its namespaces. Errors are those of Grants.
func (a *Authorizer) HubAllows(ctx context.Context, u user.Info, verb string, gr schema.GroupResource, name string) (bool, error) {
	if a.unrestricted {
		return true, nil
	}
	if len(name) > maxNameLength {
		return false, nil
	}
	return a.newEvaluation(u).allowed(ctx, attributes{own: true, verb: verb, resource: gr, name: name})
}

// maxNameLength bounds the name of a group, resource or namespace, in bytes; that of a
// member is two of them.
const maxNameLength = 253

// tooLong reports whether a name is longer than any valid one, so that nothing can be
// granted. It spares the hub, and keeps the keys of the cache small.
func tooLong(gr schema.GroupResource, member, namespace string) bool {
	return max(len(gr.Group), len(gr.Resource), len(namespace), len(member)/2) > maxNameLength
}

// reviewHubNamespaces returns which hub namespaces of the members are granted.
func (e *evaluation) reviewHubNamespaces(ctx context.Context, verb string, gr schema.GroupResource, members []string) (map[string]bool, error) {
	namespaces := hubNamespaces(members)
	allowed, err := e.allowedAll(ctx, e.a.options.Parallel, len(namespaces), func(i int) attributes {
		return attributes{verb: verb, resource: gr, namespace: namespaces[i]}
	})
	if err != nil {
		return nil, err
	}
	granted := make(map[string]bool)
	for i, ok := range allowed {
		if ok {
			granted[namespaces[i]] = true
		}
	}
	return granted, nil
}

// reviewMemberNames reviews members by name and returns those that are not granted.
func (e *evaluation) reviewMemberNames(ctx context.Context, verb string, gr schema.GroupResource, members []string, memberGrants map[string]MemberGrant) ([]string, error) {
	allowed, err := e.allowedAll(ctx, e.a.options.Parallel, len(members), func(i int) attributes {
		namespace, name := splitMember(members[i])
		return attributes{verb: verb, resource: gr, namespace: namespace, name: name}
	})
	if err != nil {
		return nil, err
	}
	var rest []string
	for i, m := range members {
		if allowed[i] {
			memberGrants[m] = MemberGrant{All: true}
		} else {
			rest = append(rest, m)
		}
	}
	return rest, nil
}

// hubNamespaces returns the namespaces of members, each once, in order.
func hubNamespaces(members []string) []string {
	namespaces := make([]string, 0, len(members))
	for _, m := range members {
		ns, _ := splitMember(m)
		namespaces = append(namespaces, ns)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// splitMember returns the namespace and the name of a member's Cluster.
func splitMember(member string) (namespace, name string) {
	namespace, name, _ = strings.Cut(member, "/")
	return namespace, name
}
