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
	if a.open || len(members) == 0 {
		return slices.Clone(members), a.options.Now().Add(a.options.AllowTTL), nil
	}
	r := &search{round: a.round(u), verbs: verbs, resources: sync.OnceValue(a.options.Resources)}
	all, err := r.any(ctx, question{}, "")
	if err != nil {
		return nil, time.Time{}, err
	}
	if all {
		return slices.Clone(members), r.until(), nil
	}
	inNamespace := make(map[string]bool)
	for _, namespace := range hubNamespaces(members) {
		if inNamespace[namespace], err = r.any(ctx, question{namespace: namespace}, ""); err != nil {
			return nil, time.Time{}, err
		}
	}
	for _, member := range members {
		namespace, name := split(member)
		ok := inNamespace[namespace]
		if !ok {
			if ok, err = r.any(ctx, question{namespace: namespace, name: name}, member); err != nil {
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
	return visible, r.until(), nil
}

// anyInMember asks the member itself: for all namespaces, then for each.
func (r *search) anyInMember(ctx context.Context, member string) (bool, error) {
	if r.a.options.Members == nil || !r.mayAskMembers() {
		return false, nil
	}
	found := false
	err := r.patiently(ctx, func(ctx context.Context) (err error) {
		for _, namespace := range append([]string{""}, r.a.options.Namespaces(member)...) {
			if found, err = r.any(ctx, question{member: member, namespace: namespace}, member); found || err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// search is a round that looks for any grant with one of the verbs on one of the
// resources.
type search struct {
	*round
	verbs     []string
	resources func() []Resource
}

// anything stands for every resource, in wildcard grants.
const anything = "*"

// any reports whether one of the resources is granted with one of the verbs,
// within what q says: of those that several members have and those that only one
// has, if it is this one. Wildcard grants are found first; the first grant ends it.
func (r *search) any(ctx context.Context, q question, member string) (bool, error) {
	q.caller = r.caller
	whole := q.whole(r.verbs)
	if ans, ok := r.a.kept(ctx, whole); ok {
		return r.use(ans), nil
	}
	began := r.a.options.Now()
	resources := r.resources()
	questions := make([]question, 0, (len(resources)+1)*len(r.verbs))
	for _, verb := range r.verbs {
		q.verb = verb
		q.resource = schema.GroupResource{Resource: anything}
		questions = append(questions, q)
	}
	for _, verb := range r.verbs {
		for _, known := range resources {
			if known.Only == "" || known.Only == member {
				q.verb, q.resource = verb, known.GroupResource
				questions = append(questions, q)
			}
		}
	}
	found, err := r.first(ctx, questions)
	if err != nil || found {
		return found, err
	}
	now := r.a.options.Now()
	ans := answer{asked: began, took: now.Sub(began), lasts: r.a.options.AllowTTL}
	r.a.answers.add(whole, ans)
	return r.use(ans), nil
}

// whole stands for all questions with one of the verbs at the place of q. That none
// is allowed is kept beside their answers: no resource has no name.
func (q question) whole(verbs []string) question {
	return question{caller: q.caller, member: q.member, namespace: q.namespace, name: q.name, verb: strings.Join(verbs, ",")}
}

// forgetNothing drops that nothing is allowed where q is: what can be read can be
// seen to be there.
func (a *Authorizer) forgetNothing(q question) {
	for _, verbs := range [][]string{verbs[:], verbs[:1]} {
		a.answers.remove(q.whole(verbs))
	}
}

// first asks until one answer allows.
func (r *search) first(ctx context.Context, questions []question) (bool, error) {
	var missing []question
	for _, q := range questions {
		ans, ok := r.a.kept(ctx, q)
		if !ok {
			missing = append(missing, q)
		} else if ans.allowed {
			return r.use(ans), nil
		}
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	g, within := panicgroup.WithContext(within, max(1, r.a.options.Parallel/share))
	var found atomic.Bool
	for _, q := range missing {
		if within.Err() != nil {
			break
		}
		g.Go(func() error {
			if within.Err() != nil {
				return within.Err()
			}
			ans, err := r.a.find(within, r.user, q)
			if err == nil && ans.allowed {
				r.use(ans)
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
