package authz

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/queryapi/internal/panicgroup"
)

// unresponsiveMembers are those where a review has timed out: they grant nothing for
// DenyTTL, without another review. Else a caller would wait for a timeout in each of
// their namespaces, of which a member may invent thousands.
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
	until, ok := s.until[member]
	if ok && !now.Before(until) {
		delete(s.until, member)
		return false
	}
	return ok
}

// withMemberTimeout limits all reviews of one member to twice Options.Timeout. What is not
// decided by then is not granted.
func (e *evaluation) withMemberTimeout(ctx context.Context, review func(context.Context) error) error {
	reviewCtx, cancel := context.WithTimeout(ctx, 2*e.a.options.Timeout)
	defer cancel()
	err := review(reviewCtx)
	if ctx.Err() == nil && errors.Is(reviewCtx.Err(), context.DeadlineExceeded) {
		return nil
	}
	return err
}

// reviewOnMembers has members review access: to all namespaces, then, for a namespaced
// resource, to that of the request or to each that the member has.
func (e *evaluation) reviewOnMembers(ctx context.Context, verb string, gr schema.GroupResource, members []string, namespace string, clusterScoped bool, grants map[string]MemberGrant) error {
	if e.a.options.MemberReviewer == nil || !e.membersMayReview() || len(members) == 0 {
		return nil
	}
	all, err := e.allowedAll(ctx, e.a.options.Parallel, len(members), func(i int) attributes {
		return attributes{member: members[i], verb: verb, resource: gr}
	})
	if err != nil {
		return err
	}
	var rest []string
	for i, m := range members {
		if all[i] {
			grants[m] = MemberGrant{All: true}
		} else {
			rest = append(rest, m)
		}
	}
	if clusterScoped {
		return nil
	}
	// A few members at a time, which share the caller's slots.
	parallelMembers := min(callerShare, max(1, len(rest)))
	parallel := max(1, e.a.limiter.perCaller/parallelMembers)
	var mu sync.Mutex
	g, ctx := panicgroup.WithContext(ctx, parallelMembers)
	for _, m := range rest {
		g.Go(func() error {
			namespaces := []string{namespace}
			if namespace == "" {
				namespaces = e.a.options.Namespaces(m)
			}
			return e.withMemberTimeout(ctx, func(ctx context.Context) error {
				allowed, err := e.allowedAll(ctx, parallel, len(namespaces), func(i int) attributes {
					return attributes{member: m, verb: verb, resource: gr, namespace: namespaces[i]}
				})
				var grant MemberGrant
				for i, ok := range allowed {
					if ok {
						grant.Namespaces = append(grant.Namespaces, namespaces[i])
					}
				}
				mu.Lock()
				defer mu.Unlock()
				grants[m] = grant
				return err
			})
		})
	}
	return g.Wait()
}
