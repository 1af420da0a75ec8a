package authz

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"federator.dev/federator/pkg/queryapi/internal/panicgroup"
)

// attributes are what one SubjectAccessReview is about, and the key of its decision.
// Where member is "" it goes to the hub, and namespace and name are those of a Cluster;
// else it goes to the member, and namespace is one of the member's.
type attributes struct {
	caller          [sha256.Size]byte
	member          string
	own             bool // resource is one of the hub's own, and not of the members
	verb            string
	resource        schema.GroupResource
	namespace, name string
}

// clone returns attributes with strings of their own: those that a client sends are
// slices of its request, which a cached key would keep in memory.
func (attrs attributes) clone() attributes {
	attrs.member, attrs.namespace, attrs.name = strings.Clone(attrs.member), strings.Clone(attrs.namespace), strings.Clone(attrs.name)
	attrs.resource.Group, attrs.resource.Resource = strings.Clone(attrs.resource.Group), strings.Clone(attrs.resource.Resource)
	return attrs
}

// decision is the result of a review, when it was requested, and how long it is valid
// from then.
type decision struct {
	allowed      bool
	requested    time.Time
	latency, ttl time.Duration
}

func (d decision) expires() time.Time { return d.requested.Add(d.ttl) }

type notBeforeKey struct{}

// WithDecisionsSince returns a context that ignores cached decisions which were requested
// before a time, which is not in the future.
func WithDecisionsSince(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, notBeforeKey{}, at)
}

// freshEnough reports whether a decision is recent enough for a context.
func (d decision) freshEnough(ctx context.Context) bool {
	since, _ := ctx.Value(notBeforeKey{}).(time.Time)
	return !d.requested.Before(since)
}

// callerDigest returns a digest of everything that a review contains about a user,
// whatever the order of groups and extra keys.
func callerDigest(u user.Info) (id [sha256.Size]byte) {
	h := sha256.New()
	hashString(h, u.GetName())
	hashString(h, u.GetUID())
	hashStrings(h, slices.Sorted(slices.Values(u.GetGroups())))
	extra := u.GetExtra()
	hashInt(h, len(extra))
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		hashString(h, key)
		hashStrings(h, extra[key])
	}
	h.Sum(id[:0])
	return id
}

func hashInt(h hash.Hash, n int) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	h.Write(b[:])
}

func hashString(h hash.Hash, s string) {
	hashInt(h, len(s))
	h.Write([]byte(s))
}

func hashStrings(h hash.Hash, list []string) {
	hashInt(h, len(list))
	for _, s := range list {
		hashString(h, s)
	}
}

// evaluation determines the grants of one call: the decisions that it uses, and how long
// these are valid.
type evaluation struct {
	a       *Authorizer
	user    user.Info
	caller  [sha256.Size]byte
	started time.Time

	mu       sync.Mutex
	expires  time.Time // when the first of the decisions used expires
	reviewed interval  // of the decisions used
}

func (a *Authorizer) newEvaluation(u user.Info) *evaluation {
	return &evaluation{a: a, user: u, caller: callerDigest(u), started: a.options.Now()}
}

// minReevaluation is the minimum time between two evaluations of a caller that renews its
// grants when they expire: decisions expire one by one.
const minReevaluation = time.Second

// validUntil is when the evaluation must be repeated: when a decision that it used
// expires, but not at once, and never later than maxTTL from now.
func (e *evaluation) validUntil() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	soon := e.started.Add(min(minReevaluation, e.a.options.AllowTTL, e.a.options.DenyTTL))
	if e.expires.Before(soon) {
		return soon
	}
	return e.expires
}

func (e *evaluation) record(d decision) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if expires := d.expires(); e.expires.IsZero() || expires.Before(e.expires) {
		e.expires = expires
	}
	e.reviewed.include(d.requested, d.requested.Add(d.latency))
	return d.allowed
}

func (e *evaluation) allowed(ctx context.Context, attrs attributes) (bool, error) {
	attrs.caller = e.caller
	if d, ok := e.a.cached(ctx, attrs); ok {
		return e.record(d), nil
	}
	d, err := e.a.decide(ctx, e.user, attrs)
	if err != nil {
		return false, err
	}
	return e.record(d), nil
}

// allowedAll returns n decisions; those that are not cached are reviewed in parallel. The
// first failure ends it; what was decided until then is returned, too.
func (e *evaluation) allowedAll(ctx context.Context, parallel, n int, at func(int) attributes) ([]bool, error) {
	allowed := make([]bool, n)
	g, ctx := panicgroup.WithContext(ctx, parallel)
	for i := range n {
		attrs := at(i)
		attrs.caller = e.caller
		if d, ok := e.a.cached(ctx, attrs); ok {
			allowed[i] = e.record(d)
			continue
		}
		g.Go(func() error {
			d, err := e.a.decide(ctx, e.user, attrs)
			if err == nil {
				allowed[i] = e.record(d)
			}
			return err
		})
	}
	return allowed, g.Wait()
}

// cached returns a decision that has not expired.
func (a *Authorizer) cached(ctx context.Context, attrs attributes) (decision, bool) {
	d, ok := a.cache.get(attrs)
	if !ok || !d.freshEnough(ctx) {
		return decision{}, false
	}
	a.metrics.cached.Inc()
	return d, true
}

// decide has a review done, or waits for an identical one in flight.
func (a *Authorizer) decide(ctx context.Context, u user.Info, attrs attributes) (decision, error) {
	if err := countReview(ctx); err != nil {
		return decision{}, err
	}
	reviewOnce := func() (decision, error) {
		if d, ok := a.cached(ctx, attrs); ok { // of a review that has just finished
			return d, nil
		}
		requested := a.options.Now()
		allowed, err := a.review(ctx, u, attrs)
		if err != nil {
			return decision{}, err
		}
		ttl := a.options.DenyTTL
		if allowed {
			ttl = a.options.AllowTTL
		}
		// The TTL counts from the request: the decision was made some time after it.
		now := a.options.Now()
		d := decision{allowed: allowed, requested: requested, latency: now.Sub(requested), ttl: ttl}
		a.cache.add(attrs.clone(), d)
		if allowed && !attrs.own {
			a.forgetNoneAllowed(attrs)
		}
		return d, nil
	}
	for {
		d, shared, err := a.inflight.do(ctx, attrs, reviewOnce)
		if shared && err == nil && !d.freshEnough(ctx) {
			continue // that review was requested too early for this context
		}
		if shared {
			a.metrics.shared.Inc()
		}
		return d, err
	}
}

// review creates a review on the hub or a member, in one of the caller's slots.
func (a *Authorizer) review(ctx context.Context, u user.Info, attrs attributes) (bool, error) {
	if attrs.member != "" && a.unresponsive.has(attrs.member, a.options.Now()) {
		return false, nil
	}
	release, err := a.limiter.acquire(ctx, u)
	if err != nil {
		return false, err
	}
	defer release()
	within, cancel := context.WithTimeout(ctx, a.options.Timeout)
	defer cancel()
	began := time.Now()
	if attrs.member == "" {
		allowed, err := a.reviewHub(within, u, attrs)
		a.metrics.observe("hub", allowed, err, time.Since(began))
		if err != nil && ctx.Err() != nil {
			return false, ctx.Err()
		}
		return allowed, err
	}
	allowed, err := a.options.MemberReviewer.Review(within, attrs.member, memberReview(u, a.options.UserPrefix, attrs))
	a.metrics.observe("member", allowed, err, time.Since(began))
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if errors.Is(within.Err(), context.DeadlineExceeded) && err != nil {
		a.unresponsive.add(attrs.member, a.options.Now().Add(a.options.DenyTTL))
	}
	// A member whose review fails grants nothing; the others still do.
	return allowed && err == nil, nil
}

func (a *Authorizer) reviewHub(ctx context.Context, u user.Info, attrs attributes) (bool, error) {
	group, resource := Group, attrs.resource.Resource
	switch {
	case attrs.own:
		group = attrs.resource.Group
	case attrs.resource.Group != "":
		resource += "." + attrs.resource.Group
	}
	extra := make(map[string]authorizationv1.ExtraValue, len(u.GetExtra()))
	for key, values := range u.GetExtra() {
		extra[key] = values
	}
	review, err := a.options.Reviewer.Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: group, Resource: resource, Verb: attrs.verb, Namespace: attrs.namespace, Name: attrs.name,
			},
		},
	}, metav1.CreateOptions{})
	switch {
	case err == nil:
		return review.Status.Allowed && !review.Status.Denied, nil
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return false, apierrors.NewInternalError(fmt.Errorf("the hub refused a SubjectAccessReview: %w", err))
	}
	status := apierrors.NewServiceUnavailable("the hub did not answer a SubjectAccessReview: " + failureReason(err))
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return false, status
}

// failureReason is why the review failed, without the error itself: it may contain
// addresses, which are not for callers.
func failureReason(err error) string {
	if e := apierrors.ReasonForError(err); e != metav1.StatusReasonUnknown {
		return string(e)
	}
	return "no answer"
}

const systemPrefix = "system:"

// membersMayReview reports whether members may review the caller: system
// identities of the hub mean something else there.
func (e *evaluation) membersMayReview() bool {
	return !strings.HasPrefix(e.user.GetName(), systemPrefix)
}

// memberReview is the review that a member gets: names prefixed, system:* groups
// left out, no UID and no extra, which mean nothing there.
func memberReview(u user.Info, prefix string, attrs attributes) *authorizationv1.SubjectAccessReview {
	var groups []string
	for _, group := range u.GetGroups() {
		if !strings.HasPrefix(group, systemPrefix) {
			groups = append(groups, prefix+group)
		}
	}
	return &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: prefix + u.GetName(), Groups: groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: attrs.resource.Group, Resource: attrs.resource.Resource, Verb: attrs.verb, Namespace: attrs.namespace,
			},
		},
	}
}
