package authz_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

// TestAuthorizer_HubAllows asks the hub about its own resources once in a while, and forgets nothing else.
func TestAuthorizer_HubAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reviews []string
		a := newAuthorizer(t, authz.Options{Reviewer: hubFunc(func(_ context.Context, s *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
			r := s.ResourceAttributes
			reviews = append(reviews, r.Verb+" "+r.Resource+" of "+r.Group)
			return r.Group == "federator.dev", nil
		}), Parallel: 1})
		ask := func() int {
			t.Helper()
			before := len(reviews)
			own := schema.GroupResource{Group: "federator.dev", Resource: "actions"}
			if ok, err := a.HubAllows(t.Context(), ann, "list", own, ""); !ok || err != nil {
				t.Errorf("%v, %v", ok, err)
			}
			if g, err := a.Grants(t.Context(), ann, "list", own, nil, "", ""); err != nil || !g.Empty() {
				t.Errorf("what is allowed on the hub is granted in members: %v, %v", g, err)
			}
			if visible, _, err := a.Visible(t.Context(), ann, []string{"a/b"}); err != nil || visible != nil {
				t.Errorf("%v, %v", visible, err)
			}
			return len(reviews) - before
		}
		first, second := ask(), ask()
		if first < 3 || second != 0 || reviews[0] != "list actions of federator.dev" || reviews[1] != "list actions.federator.dev of members.federator.dev" {
			t.Errorf("%d reviews, then %d: %q", first, second, reviews)
		}
		time.Sleep(21 * time.Second)
		if n := ask(); n == 0 {
			t.Error("a decision lasts for ever")
		}
	})
}
