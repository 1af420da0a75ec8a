package authz_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"federator.dev/federator/pkg/queryapi/internal/authz"
)

// TestAuthorizer_OneCallerLeavesSlotsToOthers: questions of one caller that the
// hub answers slowly hold up nobody else's.
func TestAuthorizer_OneCallerLeavesSlotsToOthers(t *testing.T) {
	const parallel = 8
	var slow, most atomic.Int64
	gate := make(chan struct{})
	a := newAuthorizer(t, authz.Options{Parallel: parallel, Reviewer: hubFunc(func(ctx context.Context, r *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
		if r.User != "greedy" {
			return true, nil
		}
		if r.ResourceAttributes.Name == "" {
			return false, nil // so that it asks for every member by name
		}
		n := slow.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		defer slow.Add(-1)
		select {
		case <-gate:
		case <-ctx.Done():
			return false, ctx.Err()
		}
		return false, nil
	})})
	var members []string
	for i := range 100 {
		members = append(members, fmt.Sprintf("fleet/m-%d", i))
	}
	var wg sync.WaitGroup
	for i := range 4 { // several requests, with several tokens, are one caller's
		wg.Go(func() {
			u := &user.DefaultInfo{Name: "greedy", Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {fmt.Sprint(i)}}}
			if g, err := a.Grants(t.Context(), u, "list", resources[0], members, "", ""); err != nil || !g.Empty() {
				t.Errorf("the greedy caller: %+v, %v", g, err)
			}
		})
	}
	until(t, "the greedy caller asks", func() bool { return slow.Load() > 0 })
	answered := make(chan error, 1)
	go func() {
		g, err := a.Grants(t.Context(), ann, "list", resources[0], members, "", "")
		if err == nil && !g.Everything() {
			err = errors.New("not granted")
		}
		answered <- err
	}()
	var err error
	done := false
	until(t, "another caller is answered while the hub is slow for the greedy one", func() bool {
		select {
		case err = <-answered:
			done = true
		default:
		}
		return done
	})
	if err != nil {
		t.Error(err)
	}
	close(gate)
	wg.Wait()
	if n := most.Load(); n > parallel/4 {
		t.Errorf("%d questions of one caller at once, of %d in all", n, parallel)
	}
}

// TestAuthorizer_WithReviewLimitBoundsReviews: a call that would need more questions
// fails and asks no more; answers that are kept cost nothing.
func TestAuthorizer_WithReviewLimitBoundsReviews(t *testing.T) {
	var reviews atomic.Int64
	a := newAuthorizer(t, authz.Options{Reviewer: hubFunc(func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
		reviews.Add(1)
		return false, nil
	})})
	ctx := authz.WithReviewLimit(t.Context(), 5)
	if _, err := a.Grants(ctx, ann, "list", resources[0], hubMembers, "", ""); !errors.Is(err, authz.ErrTooManyReviews) {
		t.Errorf("%v, want that there are too many questions", err)
	}
	if n := reviews.Load(); n > 5 {
		t.Errorf("the hub received %d reviews, 5 were allowed", n)
	}
	if _, err := a.Grants(t.Context(), ann, "list", resources[0], hubMembers, "", ""); err != nil {
		t.Fatal(err)
	}
	before := reviews.Load()
	if _, err := a.Grants(authz.WithReviewLimit(t.Context(), 0), ann, "list", resources[0], hubMembers, "", ""); err != nil || reviews.Load() != before {
		t.Errorf("what is known: %v, %d reviews", err, reviews.Load()-before)
	}
}
