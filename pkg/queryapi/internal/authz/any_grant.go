package authz

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"federator.dev/federator/pkg/queryapi/internal/panicgroup"
)

// AnyGrant reports whether the user may read anything at all in a member,
// <namespace>/<name>, with any verb. Errors are as those of Grants.
func (a *Authorizer) AnyGrant(ctx context.Context, u user.Info, member string) (bool, error) {
	visible, _, err := a.visible(ctx, u, []string{member}, verbs[:])
	return len(visible) > 0, err
}

// Visible returns those of members of which the user may list anything, in
// their order, and when that must be asked again, at the latest. A caller who may
// list nothing costs a question for every member and resource; that none is granted
// is therefore kept for AllowTTL.
func (a *Authorizer) Visible(ctx context.Context, u user.Info, members []string) (visible []string, until time.Time, err error) {
	return a.visible(ctx, u, members, verbs[:1])
}

func (a *Authorizer) visible(ctx context.Context, u user.Info, members, verbs []string) (visible []string, until time.Time, err error) {
	if a.unrestricted || len(members) == 0 {
		return slices.Clone(members), a.options.Now().Add(a.options.AllowTTL), nil
	}
	r := &anyGrantSearch{evaluation: a.newEvaluation(u), verbs: verbs, resources: sync.OnceValue(a.options.Resources)}
	all, err := r.any(ctx, attributes{}, "")
	if err != nil {
		return nil, time.Time{}, err
	}
	if all {
		return slices.Clone(members), r.validUntil(), nil
	}
	inNamespace := make(map[string]bool)
	for _, namespace := range hubNamespaces(members) {
		if inNamespace[namespace], err = r.any(ctx, attributes{namespace: namespace}, ""); err != nil {
			return nil, time.Time{}, err
		}
	}
	for _, member := range members {
		namespace, name := splitMember(member)
		ok := inNamespace[namespace]
		if !ok {
			if ok, err = r.any(ctx, attributes{namespace: namespace, name: name}, member); err != nil {
				return nil, time.Time{}, err
			}
		}
		if !ok {
			if ok, err = r.anyInMember(ctx, member); err != nil {
				return nil, time.Time{}, err
			}
		}
		if ok {
			visible = append(visible, member)
		}
	}
	return visible, r.validUntil(), nil
}

// anyInMember asks the member itself: for all namespaces, then for each.
func (r *anyGrantSearch) anyInMember(ctx context.Context, member string) (bool, error) {
	if r.a.options.MemberReviewer == nil || !r.membersMayReview() {
		return false, nil
	}
	found := false
	err := r.withMemberTimeout(ctx, func(ctx context.Context) (err error) {
		for _, namespace := range append([]string{""}, r.a.options.Namespaces(member)...) {
			if found, err = r.any(ctx, attributes{member: member, namespace: namespace}, member); found || err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// anyGrantSearch is a round that looks for any grant with one of the verbs on one of the
// resources.
type anyGrantSearch struct {
	*evaluation
	verbs     []string
	resources func() []Resource
}

// wildcard stands for every resource, in wildcard grants.
const wildcard = "*"

// any reports whether one of the resources is granted with one of the verbs,
// within what q says: of those that several members have and those that only one
// has, if it is this one. Wildcard grants are found first; the first grant ends it.
func (r *anyGrantSearch) any(ctx context.Context, q attributes, member string) (bool, error) {
	q.caller = r.caller
	whole := q.noneAllowedKey(r.verbs)
	if ans, ok := r.a.cached(ctx, whole); ok {
		return r.record(ans), nil
	}
	began := r.a.options.Now()
	resources := r.resources()
	questions := make([]attributes, 0, (len(resources)+1)*len(r.verbs))
	for _, verb := range r.verbs {
		q.verb = verb
		q.resource = schema.GroupResource{Resource: wildcard}
		questions = append(questions, q)
	}
	for _, verb := range r.verbs {
		for _, known := range resources {
			if known.OnlyMember == "" || known.OnlyMember == member {
				q.verb, q.resource = verb, known.GroupResource
				questions = append(questions, q)
			}
		}
	}
	found, err := r.anyAllowed(ctx, questions)
	if err != nil || found {
		return found, err
	}
	now := r.a.options.Now()
	ans := decision{requested: began, latency: now.Sub(began), ttl: r.a.options.AllowTTL}
	r.a.cache.add(whole, ans)
	return r.record(ans), nil
}

// noneAllowedKey stands for all questions with one of the verbs at the place of q. That none
// is allowed is kept beside their answers: no resource has no name.
func (q attributes) noneAllowedKey(verbs []string) attributes {
	return attributes{caller: q.caller, member: q.member, namespace: q.namespace, name: q.name, verb: strings.Join(verbs, ",")}
}

// forgetNoneAllowed drops that nothing is allowed where q is: what can be read can be
// seen to be there.
func (a *Authorizer) forgetNoneAllowed(q attributes) {
	for _, verbs := range [][]string{verbs[:], verbs[:1]} {
		a.cache.remove(q.noneAllowedKey(verbs))
	}
}

// anyAllowed asks until one answer allows.
func (r *anyGrantSearch) anyAllowed(ctx context.Context, questions []attributes) (bool, error) {
	var missing []attributes
	for _, q := range questions {
		ans, ok := r.a.cached(ctx, q)
		if !ok {
			missing = append(missing, q)
		} else if ans.allowed {
			return r.record(ans), nil
		}
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	g, within := panicgroup.WithContext(within, max(1, r.a.options.Parallel/callerShare))
	var found atomic.Bool
	for _, q := range missing {
		if within.Err() != nil {
			break
		}
		g.Go(func() error {
			if within.Err() != nil {
				return within.Err()
			}
			ans, err := r.a.decide(within, r.user, q)
			if err == nil && ans.allowed {
				r.record(ans)
				found.Store(true)
				cancel()
			}
			return err
		})
	}
	err := g.Wait()
	if found.Load() {
		return true, nil
	}
	return false, err
}
