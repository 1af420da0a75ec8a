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

// attributes is one question about one caller. The hub is asked where member is
// "", and namespace and name are the Cluster's; else the member is, and
// namespace is one of its own.
type attributes struct {
	caller          [sha256.Size]byte
	member          string
	verb            string
	resource        schema.GroupResource
	namespace, name string
}

// clone returns the question with names that keep no more alive than themselves: those
// that a client writes are parts of its request.
func (q attributes) clone() attributes {
	q.member, q.namespace, q.name = strings.Clone(q.member), strings.Clone(q.namespace), strings.Clone(q.name)
	q.resource.Group, q.resource.Resource = strings.Clone(q.resource.Group), strings.Clone(q.resource.Resource)
	return q
}

// decision is what was said, when it was asked for, and for how long it counts since.
type decision struct {
	allowed      bool
	requested    time.Time
	latency, ttl time.Duration
}

func (ans decision) expires() time.Time { return ans.requested.Add(ans.ttl) }

type notBeforeKey struct{}

// WithDecisionsSince returns a context within which what was asked for before a time, which is
// not to come, is asked again.
func WithDecisionsSince(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, notBeforeKey{}, at)
}

// freshEnough reports whether an answer is new enough within a context.
func (ans decision) freshEnough(ctx context.Context) bool {
	since, _ := ctx.Value(notBeforeKey{}).(time.Time)
	return !ans.requested.Before(since)
}

// callerDigest returns a digest of everything that a review says of a user. The
// order of groups and extra keys makes no difference.
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

// evaluation is the work of one call: what it asks, and how long that holds.
type evaluation struct {
	a       *Authorizer
	user    user.Info
	caller  [sha256.Size]byte
	started time.Time

	mu       sync.Mutex
	expires  time.Time // when the first of the answers used expires
	reviewed interval  // of the answers used
}

func (a *Authorizer) newEvaluation(u user.Info) *evaluation {
	return &evaluation{a: a, user: u, caller: callerDigest(u), started: a.options.Now()}
}

// minReevaluation is the least time between two rounds of a caller that comes back when
// its grants expire: answers expire one by one.
const minReevaluation = time.Second

// validUntil is when the round must be repeated: when an answer that it rests on
// expires, but not at once, and never later than maxTTL from now.
func (r *evaluation) validUntil() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	soon := r.started.Add(min(minReevaluation, r.a.options.AllowTTL, r.a.options.DenyTTL))
	if r.expires.Before(soon) {
		return soon
	}
	return r.expires
}

func (r *evaluation) record(ans decision) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if expires := ans.expires(); r.expires.IsZero() || expires.Before(r.expires) {
		r.expires = expires
	}
	r.reviewed.include(ans.requested, ans.requested.Add(ans.latency))
	return ans.allowed
}

func (r *evaluation) allowed(ctx context.Context, q attributes) (bool, error) {
	q.caller = r.caller
	if ans, ok := r.a.cached(ctx, q); ok {
		return r.record(ans), nil
	}
	ans, err := r.a.decide(ctx, r.user, q)
	if err != nil {
		return false, err
	}
	return r.record(ans), nil
}

// allowedAll asks n questions, those without a kept answer in parallel. The first
// failure ends it; what was answered until then is returned, too.
func (r *evaluation) allowedAll(ctx context.Context, parallel, n int, at func(int) attributes) ([]bool, error) {
	allowed := make([]bool, n)
	g, ctx := panicgroup.WithContext(ctx, parallel)
	for i := range n {
		q := at(i)
		q.caller = r.caller
		if ans, ok := r.a.cached(ctx, q); ok {
			allowed[i] = r.record(ans)
			continue
		}
		g.Go(func() error {
			ans, err := r.a.decide(ctx, r.user, q)
			if err == nil {
				allowed[i] = r.record(ans)
			}
			return err
		})
	}
	return allowed, g.Wait()
}

// cached returns an answer that is still good.
func (a *Authorizer) cached(ctx context.Context, q attributes) (decision, bool) {
	ans, ok := a.cache.get(q)
	if !ok || !ans.freshEnough(ctx) {
		return decision{}, false
	}
	a.metrics.cached.Inc()
	return ans, true
}

// decide asks, or waits for whoever is asking the same already.
func (a *Authorizer) decide(ctx context.Context, u user.Info, q attributes) (decision, error) {
	if err := countReview(ctx); err != nil {
		return decision{}, err
	}
	ask := func() (decision, error) {
		if ans, ok := a.cached(ctx, q); ok { // of a flight that has just landed
			return ans, nil
		}
		asked := a.options.Now()
		allowed, err := a.review(ctx, u, q)
		if err != nil {
			return decision{}, err
		}
		ttl := a.options.DenyTTL
		if allowed {
			ttl = a.options.AllowTTL
		}
		// Counted from the question: the answer was true some time after it.
		now := a.options.Now()
		ans := decision{allowed: allowed, requested: asked, latency: now.Sub(asked), ttl: ttl}
		a.cache.add(q.clone(), ans)
		if allowed {
			a.forgetNoneAllowed(q)
		}
		return ans, nil
	}
	for {
		ans, shared, err := a.inflight.do(ctx, q, ask)
		if shared && err == nil && !ans.freshEnough(ctx) {
			continue // it was asked for before somebody else knew that it had to be
		}
		if shared {
			a.metrics.shared.Inc()
		}
		return ans, err
	}
}

// review asks the hub or a member, in the caller's lane.
func (a *Authorizer) review(ctx context.Context, u user.Info, q attributes) (bool, error) {
	if q.member != "" && a.unresponsive.has(q.member, a.options.Now()) {
		return false, nil
	}
	leave, err := a.limiter.acquire(ctx, u)
	if err != nil {
		return false, err
	}
	defer leave()
	within, cancel := context.WithTimeout(ctx, a.options.Timeout)
	defer cancel()
	began := time.Now()
	if q.member == "" {
		allowed, err := a.reviewHub(within, u, q)
		a.metrics.observe("hub", allowed, err, time.Since(began))
		if err != nil && ctx.Err() != nil {
			return false, ctx.Err()
		}
		return allowed, err
	}
	allowed, err := a.options.MemberReviewer.Review(within, q.member, memberReview(u, a.options.UserPrefix, q))
	a.metrics.observe("member", allowed, err, time.Since(began))
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if errors.Is(within.Err(), context.DeadlineExceeded) && err != nil {
		a.unresponsive.add(q.member, a.options.Now().Add(a.options.DenyTTL))
	}
	// A member that cannot say grants nothing; the others still do.
	return allowed && err == nil, nil
}

func (a *Authorizer) reviewHub(ctx context.Context, u user.Info, q attributes) (bool, error) {
	resource := q.resource.Resource
	if q.resource.Group != "" {
		resource += "." + q.resource.Group
	}
	extra := make(map[string]authorizationv1.ExtraValue, len(u.GetExtra()))
	for key, values := range u.GetExtra() {
		extra[key] = values
	}
	review, err := a.options.Reviewer.Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: Group, Resource: resource, Verb: q.verb, Namespace: q.namespace, Name: q.name,
			},
		},
	}, metav1.CreateOptions{})
	switch {
	case err == nil:
		return review.Status.Allowed && !review.Status.Denied, nil
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return false, apierrors.NewInternalError(fmt.Errorf("the hub refuses to review access: %w", err))
	}
	status := apierrors.NewServiceUnavailable("the hub cannot be asked who may read: " + failureReason(err))
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return false, status
}

// failureReason says in a word why the hub did not answer; the error itself may name
// addresses, which are the operator's business.
func failureReason(err error) string {
	if r := apierrors.ReasonForError(err); r != metav1.StatusReasonUnknown {
		return string(r)
	}
	return "no answer"
}

const systemPrefix = "system:"

// membersMayReview reports whether the caller is somebody to members: an identity
// of the hub's own system is not.
func (r *evaluation) membersMayReview() bool {
	return !strings.HasPrefix(r.user.GetName(), systemPrefix)
}

// memberReview describes the caller to a member: names prefixed, system:* groups
// left out, no UID and no extra, which mean nothing there.
func memberReview(u user.Info, prefix string, q attributes) *authorizationv1.SubjectAccessReview {
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
				Group: q.resource.Group, Resource: q.resource.Resource, Verb: q.verb, Namespace: q.namespace,
			},
		},
	}
}
