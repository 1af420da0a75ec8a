package authz_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"federator.dev/federator/pkg/queryapi/internal/authz"
)

// TestAuthorizer_WithDecisionsSinceIgnoresOlderDecisions: a caller that needs newer decisions than those cached, or
// in flight for others, causes one more review for all.
func TestAuthorizer_WithDecisionsSinceIgnoresOlderDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var allowed atomic.Bool
		var reviews atomic.Int64
		began := time.Now()
		a := newAuthorizer(t, authz.Options{Reviewer: hubFunc(func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
			may := allowed.Load()
			reviews.Add(1)
			time.Sleep(time.Second)
			return may, nil
		})})
		grants := func(ctx context.Context) *authz.Grants {
			g, err := a.Grants(ctx, ann, "list", resources[0], nil, "", "")
			if err != nil {
				t.Error(err)
			}
			return g
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			g := grants(t.Context())
			if first, last := g.ReviewTimes(); !g.Empty() || !first.Equal(began) || !last.Equal(began.Add(time.Second)) {
				t.Errorf("none %t, requested at %v, answered at %v", g.Empty(), first, last)
			}
		})
		synctest.Wait()
		allowed.Store(true)
		time.Sleep(time.Millisecond)
		newer := authz.WithDecisionsSince(t.Context(), time.Now())
		wg.Go(func() {
			if !grants(newer).Everything() {
				t.Error("a decision counts that was requested before")
			}
		})
		wg.Wait()
		if !grants(newer).Everything() || !grants(t.Context()).Everything() || reviews.Load() != 2 {
			t.Errorf("the hub received %d reviews, want two", reviews.Load())
		}
	})
}
