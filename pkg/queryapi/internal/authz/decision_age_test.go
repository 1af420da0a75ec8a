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

// TestAuthorizer_WithDecisionsSinceIgnoresOlderDecisions: whoever needs newer answers than those that are kept, or
// that others wait for already, has the hub asked again, once for all.
func TestAuthorizer_WithDecisionsSinceIgnoresOlderDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var allowed atomic.Bool
		var asked atomic.Int64
		began := time.Now()
		a := newAuthorizer(t, authz.Options{Reviewer: hubFunc(func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
			may := allowed.Load()
			asked.Add(1)
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
				t.Errorf("none %t, asked for at %v, answered at %v", g.Empty(), first, last)
			}
		})
		synctest.Wait()
		allowed.Store(true)
		time.Sleep(time.Millisecond)
		newer := authz.WithDecisionsSince(t.Context(), time.Now())
		wg.Go(func() {
			if !grants(newer).Everything() {
				t.Error("an answer counts that was asked for before")
			}
		})
		wg.Wait()
		if !grants(newer).Everything() || !grants(t.Context()).Everything() || asked.Load() != 2 {
			t.Errorf("the hub was asked %d times, want twice", asked.Load())
		}
	})
}
