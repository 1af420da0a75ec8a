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

// question is one question about one caller. The hub is asked where member is
// "", and namespace and name are the Cluster's; else the member is, and
// namespace is one of its own.
type question struct {
	caller          [sha256.Size]byte
	member          string
	verb            string
	resource        schema.GroupResource
	namespace, name string
}

// own returns the question with names that keep no more alive than themselves: those
// that a client writes are parts of its request.
func (q question) own() question {
	q.member, q.namespace, q.name = strings.Clone(q.member), strings.Clone(q.namespace), strings.Clone(q.name)
	q.resource.Group, q.resource.Resource = strings.Clone(q.resource.Group), strings.Clone(q.resource.Resource)
	return q
}

// answer is what was said, when it was asked for, and for how long it counts since.
type answer struct {
	allowed     bool
	asked       time.Time
	took, lasts time.Duration
}

func (ans answer) expires() time.Time { return ans.asked.Add(ans.lasts) }

type sinceKey struct{}

// AskedSince returns a context within which what was asked for before a time, which is
// not to come, is asked again.
func AskedSince(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, sinceKey{}, at)
}

// serves reports whether an answer is new enough within a context.
func (ans answer) serves(ctx context.Context) bool {
	since, _ := ctx.Value(sinceKey{}).(time.Time)
	return !ans.asked.Before(since)
}

// identify returns a digest of everything that a review says of a user. The
// order of groups and extra keys makes no difference.
func identify(u user.Info) (id [sha256.Size]byte) {
	h := sha256.New()
	text(h, u.GetName())
	text(h, u.GetUID())
	texts(h, slices.Sorted(slices.Values(u.GetGroups())))
	extra := u.GetExtra()
	number(h, len(extra))
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		text(h, key)
		texts(h, extra[key])
	}
	h.Sum(id[:0])
	return id
}

func number(h hash.Hash, n int) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	h.Write(b[:])
}

func text(h hash.Hash, s string) {
	number(h, len(s))
	h.Write([]byte(s))
}

func texts(h hash.Hash, list []string) {
	number(h, len(list))
	for _, s := range list {
		text(h, s)
	}
}

// round is the work of one call: what it asks, and how long that holds.
type round struct {
	a      *Authorizer
	user   user.Info
	caller [sha256.Size]byte
	began  time.Time

	mu     sync.Mutex
	oldest time.Time // when the first of the answers used expires
	rest   span      // of the answers used
}

func (a *Authorizer) round(u user.Info) *round {
	return &round{a: a, user: u, caller: identify(u), began: a.options.Now()}
}

// settle is the least time between two rounds of a caller that comes back when
// its grants expire: answers expire one by one.
const settle = time.Second

// until is when the round must be repeated: when an answer that it rests on
// expires, but not at once, and never later than maxTTL from now.
func (r *round) until() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	soon := r.began.Add(min(settle, r.a.options.AllowTTL, r.a.options.DenyTTL))
	if r.oldest.Before(soon) {
		return soon
	}
	return r.oldest
}

func (r *round) use(ans answer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if expires := ans.expires(); r.oldest.IsZero() || expires.Before(r.oldest) {
		r.oldest = expires
	}
	r.rest.with(ans.asked, ans.asked.Add(ans.took))
	return ans.allowed
}

func (r *round) ask(ctx context.Context, q question) (bool, error) {
	q.caller = r.caller
	if ans, ok := r.a.kept(ctx, q); ok {
		return r.use(ans), nil
	}
	ans, err := r.a.find(ctx, r.user, q)
	if err != nil {
		return false, err
	}
	return r.use(ans), nil
}

// askAll asks n questions, those without a kept answer in parallel. The first
// failure ends it; what was answered until then is returned, too.
func (r *round) askAll(ctx context.Context, parallel, n int, at func(int) question) ([]bool, error) {
	allowed := make([]bool, n)
	g, ctx := panicgroup.WithContext(ctx, parallel)
	for i := range n {
		q := at(i)
		q.caller = r.caller
		if ans, ok := r.a.kept(ctx, q); ok {
			allowed[i] = r.use(ans)
			continue
		}
		g.Go(func() error {
			ans, err := r.a.find(ctx, r.user, q)
			if err == nil {
				allowed[i] = r.use(ans)
			}
			return err
		})
	}
	return allowed, g.Wait()
}

// kept returns an answer that is still good.
func (a *Authorizer) kept(ctx context.Context, q question) (answer, bool) {
	ans, ok := a.answers.get(q)
	if !ok || !ans.serves(ctx) {
		return answer{}, false
	}
	a.metrics.kept.Inc()
	return ans, true
}

// find asks, or waits for whoever is asking the same already.
func (a *Authorizer) find(ctx context.Context, u user.Info, q question) (answer, error) {
	if err := spend(ctx); err != nil {
		return answer{}, err
	}
	ask := func() (answer, error) {
		if ans, ok := a.kept(ctx, q); ok { // of a flight that has just landed
			return ans, nil
		}
		asked := a.options.Now()
		allowed, err := a.review(ctx, u, q)
		if err != nil {
			return answer{}, err
		}
		ttl := a.options.DenyTTL
		if allowed {
			ttl = a.options.AllowTTL
		}
		// Counted from the question: the answer was true some time after it.
		now := a.options.Now()
		ans := answer{allowed: allowed, asked: asked, took: now.Sub(asked), lasts: ttl}
		a.answers.add(q.own(), ans)
		if allowed {
			a.forgetNothing(q)
		}
		return ans, nil
	}
	for {
		ans, shared, err := a.flights.do(ctx, q, ask)
		if shared && err == nil && !ans.serves(ctx) {
			continue // it was asked for before somebody else knew that it had to be
		}
		if shared {
			a.metrics.shared.Inc()
		}
		return ans, err
	}
}

// review asks the hub or a member, in the caller's lane.
func (a *Authorizer) review(ctx context.Context, u user.Info, q question) (bool, error) {
	if q.member != "" && a.aloof.is(q.member, a.options.Now()) {
		return false, nil
	}
	leave, err := a.lanes.enter(ctx, u)
	if err != nil {
		return false, err
	}
	defer leave()
	within, cancel := context.WithTimeout(ctx, a.options.Timeout)
	defer cancel()
	began := time.Now()
	if q.member == "" {
		allowed, err := a.reviewHub(within, u, q)
		a.metrics.reviewed("hub", allowed, err, time.Since(began))
		if err != nil && ctx.Err() != nil {
			return false, ctx.Err()
		}
		return allowed, err
	}
	allowed, err := a.options.Members.Review(within, q.member, memberReview(u, a.options.UserPrefix, q))
	a.metrics.reviewed("member", allowed, err, time.Since(began))
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if errors.Is(within.Err(), context.DeadlineExceeded) && err != nil {
		a.aloof.note(q.member, a.options.Now().Add(a.options.DenyTTL))
	}
	// A member that cannot say grants nothing; the others still do.
	return allowed && err == nil, nil
}

func (a *Authorizer) reviewHub(ctx context.Context, u user.Info, q question) (bool, error) {
	resource := q.resource.Resource
	if q.resource.Group != "" {
		resource += "." + q.resource.Group
	}
	extra := make(map[string]authorizationv1.ExtraValue, len(u.GetExtra()))
	for key, values := range u.GetExtra() {
		extra[key] = values
	}
	review, err := a.options.Reviews.Create(ctx, &authorizationv1.SubjectAccessReview{
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
	status := apierrors.NewServiceUnavailable("the hub cannot be asked who may read: " + reason(err))
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return false, status
}

// reason says in a word why the hub did not answer; the error itself may name
// addresses, which are the operator's business.
func reason(err error) string {
	if r := apierrors.ReasonForError(err); r != metav1.StatusReasonUnknown {
		return string(r)
	}
	return "no answer"
}

const system = "system:"

// mayAskMembers reports whether the caller is somebody to members: an identity
// of the hub's own system is not.
func (r *round) mayAskMembers() bool { return !strings.HasPrefix(r.user.GetName(), system) }

// memberReview describes the caller to a member: names prefixed, system:* groups
// left out, no UID and no extra, which mean nothing there.
func memberReview(u user.Info, prefix string, q question) *authorizationv1.SubjectAccessReview {
	var groups []string
	for _, group := range u.GetGroups() {
		if !strings.HasPrefix(group, system) {
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
