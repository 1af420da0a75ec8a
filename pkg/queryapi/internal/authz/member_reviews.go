package authz

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/queryapi/internal/panicgroup"
)

// unresponsiveMembers are members of which a review has timed out: they grant nothing for as long as
// that answer is kept, without being asked. Else whoever has a question about each of
// their namespaces, of which they may invent thousands, would wait for every one.
type unresponsiveMembers struct {
	mu    sync.Mutex
	until map[string]time.Time // by member
}

func (s *unresponsiveMembers) add(member string, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil {
		s.until = map[string]time.Time{}
	}
	s.until[member] = until
}

func (s *unresponsiveMembers) has(member string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, noted := s.until[member]
	if noted && !now.Before(until) {
		delete(s.until, member)
		return false
	}
	return noted
}

// withMemberTimeout asks one member many questions for as long as two may take. What it has not
// answered by then it does not grant.
func (r *evaluation) withMemberTimeout(ctx context.Context, ask func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, 2*r.a.options.Timeout)
	defer cancel()
	err := ask(within)
	if ctx.Err() == nil && errors.Is(within.Err(), context.DeadlineExceeded) {
		return nil
	}
	return err
}

// reviewOnMembers asks members themselves: for all namespaces, then, unless a resource has
// none, for the one of the request or for each that the member has.
func (r *evaluation) reviewOnMembers(ctx context.Context, verb string, gr schema.GroupResource, members []string, namespace string, clusterScoped bool, reaches map[string]MemberGrant) error {
	if r.a.options.MemberReviewer == nil || !r.membersMayReview() || len(members) == 0 {
		return nil
	}
	all, err := r.allowedAll(ctx, r.a.options.Parallel, len(members), func(i int) attributes {
		return attributes{member: members[i], verb: verb, resource: gr}
	})
	if err != nil {
		return err
	}
	var rest []string
	for i, m := range members {
		if all[i] {
			reaches[m] = MemberGrant{All: true}
		} else {
			rest = append(rest, m)
		}
	}
	if clusterScoped {
		return nil
	}
	// A few members at a time, each in a part of the caller's lane.
	at := min(callerShare, max(1, len(rest)))
	parallel := max(1, r.a.limiter.perCaller/at)
	var mu sync.Mutex
	g, ctx := panicgroup.WithContext(ctx, at)
	for _, m := range rest {
		g.Go(func() error {
			namespaces := []string{namespace}
			if namespace == "" {
				namespaces = r.a.options.Namespaces(m)
			}
			return r.withMemberTimeout(ctx, func(ctx context.Context) error {
				allowed, err := r.allowedAll(ctx, parallel, len(namespaces), func(i int) attributes {
					return attributes{member: m, verb: verb, resource: gr, namespace: namespaces[i]}
				})
				var reach MemberGrant
				for i, ok := range allowed {
					if ok {
						reach.Namespaces = append(reach.Namespaces, namespaces[i])
					}
				}
				mu.Lock()
				defer mu.Unlock()
				reaches[m] = reach
				return err
			})
		})
	}
	return g.Wait()
}
