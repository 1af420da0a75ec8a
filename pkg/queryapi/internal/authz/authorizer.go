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

// Verbs are those that can be granted.
var verbs = [...]string{"list", "get", "watch"}

// Reviewer asks the hub. client-go's SubjectAccessReviewInterface is one.
type Reviewer interface {
	Create(context.Context, *authorizationv1.SubjectAccessReview, metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// MemberReviewer asks a member, named <namespace>/<name>, whether it would
// allow what the review describes.
type MemberReviewer interface {
	Review(ctx context.Context, member string, review *authorizationv1.SubjectAccessReview) (bool, error)
}

// Options configure an Authorizer. Reviews is required.
type Options struct {
	Reviewer Reviewer

	// MemberReviewer, where set, is asked for what the hub does not grant.
	MemberReviewer MemberReviewer
	// UserPrefix comes before names of users and groups in what members are
	// asked. Required with Members; it may not begin with "system:".
	UserPrefix string
	// Namespaces names the namespaces of a member that are asked for one by
	// one where all are denied by the member. Required with Members.
	Namespaces func(member string) []string

	// Resources names the resources that AnyGrant and Visible ask about. Required.
	Resources func() []Resource

	// AllowTTL is how long an answer that allows is kept, at most 30 s; 0 means
	// 20 s. DenyTTL is the same for one that denies; 0 means 10 s.
	AllowTTL, DenyTTL time.Duration
	// Parallel bounds the questions in flight, to the hub and to all members;
	// a quarter of them may be one caller's. 0 means 64.
	Parallel int
	// CacheSize bounds the answers kept, at most half of which are of one time to live; 0
	// means 65,536, some 20 MB.
	CacheSize int
	// Timeout bounds one question; 0 means 5 s.
	Timeout time.Duration
	// Now is the clock; nil means time.Now.
	Now     func() time.Time
	Metrics prometheus.Registerer // nil: not exported
}

// Resource is one that can be granted.
type Resource struct {
	schema.GroupResource

	// OnlyMember is the one member that has it, "" where several do. What nobody else has
	// is asked about for this member alone: a grant for all of a namespace or of the
	// fleet allows it there, too, and resources without end that one member invents
	// multiply nobody's questions.
	OnlyMember string
}

// maxTTL is the longest that a revoked grant may be honoured.
const maxTTL = 30 * time.Second

func (o Options) validated() (Options, error) {
	if o.Reviewer == nil {
		return o, errors.New("access: a hub to ask is required")
	}
	if o.Resources == nil {
		return o, errors.New("access: the resources that can be granted are required")
	}
	if o.MemberReviewer != nil && (o.UserPrefix == "" || o.Namespaces == nil) {
		return o, errors.New("access: asking members takes a prefix for users, and their namespaces")
	}
	if strings.HasPrefix(o.UserPrefix, "system:") {
		return o, fmt.Errorf("access: prefix %q would make callers part of the members' own system", o.UserPrefix)
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
			return o, fmt.Errorf("access: %s is %v; it must be between 0 and %v", name, ttl, maxTTL)
		}
	}
	if o.Timeout < 0 || o.Parallel < 0 || o.CacheSize < 0 {
		return o, errors.New("access: bounds may not be negative")
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

// Authorizer answers what callers may read. Its methods are safe for
// concurrent use.
type Authorizer struct {
	unrestricted bool // everybody may read everything
	options      Options
	limiter      *limiter
	cache        *decisionCache
	inflight     inflightReviews
	unresponsive unresponsiveMembers
	metrics      *metrics
}

// New returns an Authorizer that asks.
func New(o Options) (*Authorizer, error) {
	o, err := o.validated()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	return &Authorizer{
		options: o,
		limiter: newLimiter(o.Parallel),
		cache:   newDecisionCache(o.CacheSize, max(o.AllowTTL, o.DenyTTL), o.Now),
		metrics: m,
	}, nil
}

// Unrestricted returns an Authorizer that grants everything to everybody and
// asks nobody: for a server of one user on his own machine.
func Unrestricted() *Authorizer {
	return &Authorizer{unrestricted: true, options: Options{AllowTTL: maxTTL, Now: time.Now}}
}

// Grants returns what the user may read of a resource with a verb: in one
// member, or, where member is "", in each of members, whose names are
// <namespace>/<name>. A namespace other than "" spares questions to members
// about others; the hub grants whole members. See AskedSince. Errors are *apierrors.StatusError
// or the context's: nothing is granted on an error.
func (a *Authorizer) Grants(ctx context.Context, u user.Info, verb string, gr schema.GroupResource, members []string, member, namespace string) (*Grants, error) {
	return a.grants(ctx, u, verb, gr, members, member, namespace, false)
}

// ClusterScopedGrants is Grants for a resource without namespaces: what is granted in one of a
// member's namespaces says nothing about it, and is not asked for.
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
	r := a.newEvaluation(u)
	if tooLong(gr, member, namespace) {
		return NewGrants(nil, r.validUntil()), nil
	}
	all, err := r.allowed(ctx, attributes{verb: verb, resource: gr})
	if err != nil {
		return nil, err
	}
	if all {
		return r.withReviewTimes(Everything(r.validUntil())), nil
	}
	reaches := make(map[string]MemberGrant, len(members))
	granted, err := r.reviewHubNamespaces(ctx, verb, gr, members)
	if err != nil {
		return nil, err
	}
	rest := make([]string, 0, len(members))
	for _, m := range members {
		if ns, _ := splitMember(m); granted[ns] {
			reaches[m] = MemberGrant{All: true}
		} else {
			rest = append(rest, m)
		}
	}
	rest, err = r.reviewMemberNames(ctx, verb, gr, rest, reaches)
	if err != nil {
		return nil, err
	}
	if err := r.reviewOnMembers(ctx, verb, gr, rest, namespace, clusterScoped, reaches); err != nil {
		return nil, err
	}
	return r.withReviewTimes(NewGrants(reaches, r.validUntil())), nil
}

// withReviewTimes has grants say which answers the round has used.
func (r *evaluation) withReviewTimes(g *Grants) *Grants {
	r.mu.Lock()
	defer r.mu.Unlock()
	g.reviewed = r.reviewed
	return g
}

// maxNameLength is how long a name of a group, resource or namespace can be, in bytes; that
// of a member is two of them.
const maxNameLength = 253

// tooLong reports whether nobody can be granted what is asked, since there is none of
// such a name. It spares the hub, and what is kept of its answers is small.
func tooLong(gr schema.GroupResource, member, namespace string) bool {
	return max(len(gr.Group), len(gr.Resource), len(namespace), len(member)/2) > maxNameLength
}

// reviewHubNamespaces asks for the hub namespaces that hold the members.
func (r *evaluation) reviewHubNamespaces(ctx context.Context, verb string, gr schema.GroupResource, members []string) (map[string]bool, error) {
	namespaces := hubNamespaces(members)
	allowed, err := r.allowedAll(ctx, r.a.options.Parallel, len(namespaces), func(i int) attributes {
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

// reviewMemberNames asks for members by name and returns those that are not granted.
func (r *evaluation) reviewMemberNames(ctx context.Context, verb string, gr schema.GroupResource, members []string, reaches map[string]MemberGrant) ([]string, error) {
	allowed, err := r.allowedAll(ctx, r.a.options.Parallel, len(members), func(i int) attributes {
		namespace, name := splitMember(members[i])
		return attributes{verb: verb, resource: gr, namespace: namespace, name: name}
	})
	if err != nil {
		return nil, err
	}
	var rest []string
	for i, m := range members {
		if allowed[i] {
			reaches[m] = MemberGrant{All: true}
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
