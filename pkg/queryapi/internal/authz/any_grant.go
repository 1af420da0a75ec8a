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
// <namespace>/<name>, with any verb. Errors are those of Grants.
func (a *Authorizer) AnyGrant(ctx context.Context, u user.Info, member string) (bool, error) {
	visible, _, err := a.visible(ctx, u, []string{member}, verbs[:])
	return len(visible) > 0, err
}

// Visible returns the members in which the user may list anything, in the given order,
// and when that expires. A caller who may list nothing costs a review for every member
// and resource; that nothing is allowed is therefore cached for AllowTTL.
func (a *Authorizer) Visible(ctx context.Context, u user.Info, members []string) (visible []string, until time.Time, err error) {
	return a.visible(ctx, u, members, verbs[:1])
}

func (a *Authorizer) visible(ctx context.Context, u user.Info, members, verbs []string) (visible []string, until time.Time, err error) {
	if a.unrestricted || len(members) == 0 {
		return slices.Clone(members), a.options.Now().Add(a.options.AllowTTL), nil
	}
	e := &anyGrantSearch{evaluation: a.newEvaluation(u), verbs: verbs, resources: sync.OnceValue(a.options.Resources)}
	all, err := e.any(ctx, attributes{}, "")
	if err != nil {
		return nil, time.Time{}, err
	}
	if all {
		return slices.Clone(members), e.validUntil(), nil
	}
	inNamespace := make(map[string]bool)
	for _, namespace := range hubNamespaces(members) {
		if inNamespace[namespace], err = e.any(ctx, attributes{namespace: namespace}, ""); err != nil {
			return nil, time.Time{}, err
		}
	}
	for _, member := range members {
		namespace, name := splitMember(member)
		ok := inNamespace[namespace]
		if !ok {
			if ok, err = e.any(ctx, attributes{namespace: namespace, name: name}, member); err != nil {
				return nil, time.Time{}, err
			}
		}
		if !ok {
			if ok, err = e.anyInMember(ctx, member); err != nil {
				return nil, time.Time{}, err
			}
		}
		if ok {
			visible = append(visible, member)
		}
	}
	return visible, e.validUntil(), nil
}

// anyInMember has the member review access: to all namespaces, then to each.
func (e *anyGrantSearch) anyInMember(ctx context.Context, member string) (bool, error) {
	if e.a.options.MemberReviewer == nil || !e.membersMayReview() {
		return false, nil
	}
	found := false
	err := e.withMemberTimeout(ctx, func(ctx context.Context) (err error) {
		for _, namespace := range append([]string{""}, e.a.options.Namespaces(member)...) {
			if found, err = e.any(ctx, attributes{member: member, namespace: namespace}, member); found || err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// anyGrantSearch is an evaluation that looks for any grant with one of the verbs on one of
// the resources.
type anyGrantSearch struct {
	*evaluation
	verbs     []string
	resources func() []Resource
}

// wildcard is every resource, in grants.
const wildcard = "*"

// any reports whether one of the resources is granted with one of the verbs,
// where attrs say: of resources that only one member has, if it is this one. Wildcard
// grants are tried first; the first grant ends it.
func (e *anyGrantSearch) any(ctx context.Context, attrs attributes, member string) (bool, error) {
	attrs.caller = e.caller
	key := attrs.noneAllowedKey(e.verbs)
	if d, ok := e.a.cached(ctx, key); ok {
		return e.record(d), nil
	}
	started := e.a.options.Now()
	resources := e.resources()
	candidates := make([]attributes, 0, (len(resources)+1)*len(e.verbs))
	for _, verb := range e.verbs {
		attrs.verb = verb
		attrs.resource = schema.GroupResource{Resource: wildcard}
		candidates = append(candidates, attrs)
	}
	for _, verb := range e.verbs {
		for _, known := range resources {
			if known.OnlyMember == "" || known.OnlyMember == member {
				attrs.verb, attrs.resource = verb, known.GroupResource
				candidates = append(candidates, attrs)
			}
		}
	}
	found, err := e.anyAllowed(ctx, candidates)
	if err != nil || found {
		return found, err
	}
	now := e.a.options.Now()
	d := decision{requested: started, latency: now.Sub(started), ttl: e.a.options.AllowTTL}
	e.a.cache.add(key, d)
	return e.record(d), nil
}

// noneAllowedKey is the key under which it is cached that none of the verbs is allowed on
// any resource. It does not collide with other attributes, whose resource has a name.
func (attrs attributes) noneAllowedKey(verbs []string) attributes {
	return attributes{caller: attrs.caller, member: attrs.member, namespace: attrs.namespace, name: attrs.name, verb: strings.Join(verbs, ",")}
}

// forgetNoneAllowed drops the cached decision that nothing is allowed, which an allowed
// review has just disproved.
func (a *Authorizer) forgetNoneAllowed(attrs attributes) {
	for _, verbs := range [][]string{verbs[:], verbs[:1]} {
		a.cache.remove(attrs.noneAllowedKey(verbs))
	}
}

// anyAllowed reviews until one decision allows.
func (e *anyGrantSearch) anyAllowed(ctx context.Context, candidates []attributes) (bool, error) {
	var missing []attributes
	for _, attrs := range candidates {
		d, ok := e.a.cached(ctx, attrs)
		if !ok {
			missing = append(missing, attrs)
		} else if d.allowed {
			return e.record(d), nil
		}
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	g, within := panicgroup.WithContext(within, max(1, e.a.options.Parallel/callerShare))
	var found atomic.Bool
	for _, attrs := range missing {
		if within.Err() != nil {
			break
		}
		g.Go(func() error {
			if within.Err() != nil {
				return within.Err()
			}
			d, err := e.a.decide(within, e.user, attrs)
			if err == nil && d.allowed {
				e.record(d)
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
