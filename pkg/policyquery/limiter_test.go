package policyquery_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
)

// slow is a caller who takes a while to read the answer.
type slow struct {
	name  string
	ready chan struct{}
}

func (s slow) User() user.Info { return &user.DefaultInfo{Name: s.name} }

func (s slow) Grants(context.Context, string, aggregate.Kind, *aggregate.Snapshot) (*queryapi.Grants, error) {
	return nil, nil
}

func (s slow) GrantsIn(ctx context.Context, verb string, kind aggregate.Kind, at *aggregate.Snapshot, _ []string) (*queryapi.Grants, error) {
	return s.Grants(ctx, verb, kind, at)
}

func (slow) HubAllows(context.Context, string, string) (bool, error) { return false, nil }

func (slow) HubAllowsNamed(context.Context, string, string, string) (bool, error) {
	return false, nil
}

func (slow) Visible(context.Context, *aggregate.Snapshot) ([]string, time.Time, error) {
	return nil, time.Time{}, nil
}

func (s slow) VisibleIn(context.Context, []string) ([]string, time.Time, error) {
	return nil, time.Time{}, nil
}

// slowly is where the answer goes.
type slowly struct {
	*httptest.ResponseRecorder
	slow
}

// Write implements http.ResponseWriter.
func (s slowly) Write(p []byte) (int, error) {
	<-s.ready
	return s.ResponseRecorder.Write(p)
}

// unknown is a caller of whom it takes a while to find out what may be read: which
// members, or what of a kind.
type unknown struct {
	slow
	members bool
}

func (u unknown) wait(ctx context.Context) error {
	select {
	case <-u.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (u unknown) Grants(ctx context.Context, _ string, _ aggregate.Kind, _ *aggregate.Snapshot) (*queryapi.Grants, error) {
	return nil, u.wait(ctx)
}

func (u unknown) GrantsIn(ctx context.Context, verb string, kind aggregate.Kind, at *aggregate.Snapshot, _ []string) (*queryapi.Grants, error) {
	return u.Grants(ctx, verb, kind, at)
}

func (u unknown) Visible(ctx context.Context, _ *aggregate.Snapshot) ([]string, time.Time, error) {
	if u.members {
		return nil, time.Time{}, u.wait(ctx)
	}
	return nil, time.Time{}, nil
}

// TestRego_WaitingForTheHubHoldsNoSlot: neither before a query is evaluated, nor while it is.
func TestRego_WaitingForTheHubHoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
		if err != nil {
			t.Fatal(err)
		}
		if err := index.PutMember(aggregate.Member{Name: "fleet/a", UID: "a"}); err != nil {
			t.Fatal(err)
		}
		scope, err := index.OpenScopeAs("fleet/a", "Deployment.apps", "apps/v1", "deployments")
		if err != nil {
			t.Fatal(err)
		}
		item := scope.Item(&aggregate.Record{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "1", Body: []byte(`{"apiVersion":"apps/v1","kind":"Deployment"}`)})
		if _, err := scope.Replace([]aggregate.Item{item}, aggregate.Status{State: aggregate.Synced}); err != nil {
			t.Fatal(err)
		}
		q := &policyquery.Rego{Index: index, Kinds: served{}.Kinds}
		query := "/query/v1/rego?query=" + url.QueryEscape(`x = data.fleet.objects["Deployment.apps"]["fleet/a"].shop.web`)
		ask := func(c queryapi.Caller) chan error {
			done := make(chan error, 1)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, query, nil)
			go func() { done <- q.Serve(httptest.NewRecorder(), r, c) }()
			synctest.Wait()
			return done
		}
		ready := make(chan struct{})
		var strangers []chan error
		for i := range 8 {
			strangers = append(strangers, ask(unknown{slow{fmt.Sprint("stranger", i/2), ready}, i%2 == 0}))
		}
		if err := <-ask(slow{"known", nil}); err != nil {
			t.Errorf("while others wait for the hub: %v", err)
		}
		close(ready)
		for _, s := range strangers {
			if err := <-s; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestRego_OneCallerLeavesSlotsToOthers, and wait for theirs a while.
func TestRego_OneCallerLeavesSlotsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
		if err != nil {
			t.Fatal(err)
		}
		q := &policyquery.Rego{Index: index, Kinds: served{}.Kinds}
		ask := func(ctx context.Context, c slow) chan error {
			done := make(chan error, 1)
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/query/v1/rego?query=1", nil)
			go func() { done <- q.Serve(slowly{httptest.NewRecorder(), c}, r, c) }()
			synctest.Wait()
			return done
		}
		tooMany := func(what string, err error) {
			t.Helper()
			var status apierrors.APIStatus
			if !errors.As(err, &status) || status.Status().Code != http.StatusTooManyRequests || status.Status().Details.RetryAfterSeconds < 1 {
				t.Errorf("%s: %v, want 429 with Retry-After", what, err)
			}
		}
		pending := func(what string, c chan error) {
			t.Helper()
			select {
			case err := <-c:
				t.Errorf("%s: %v, want it to wait", what, err)
			default:
			}
		}
		greedy, modest, third := slow{"greedy", make(chan struct{})}, slow{"modest", make(chan struct{})}, slow{"third", make(chan struct{})}
		var first []chan error
		for range 10 {
			first = append(first, ask(t.Context(), greedy))
		}
		tooMany("beyond what runs and waits", <-ask(t.Context(), greedy))
		free := slow{"free", make(chan struct{})}
		close(free.ready)
		if err := <-ask(t.Context(), free); err != nil {
			t.Errorf("another caller: %v", err)
		}
		var others []chan error
		for range 2 {
			others = append(others, ask(t.Context(), modest))
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone, waits := ask(ctx, third), ask(t.Context(), third)
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("who left: %v", err)
		}
		pending("all turns are taken", waits)
		close(modest.ready)
		for _, c := range others {
			if err := <-c; err != nil {
				t.Error(err)
			}
		}
		close(third.ready)
		if err := <-waits; err != nil {
			t.Errorf("when a turn is free: %v", err)
		}
		pending("greedy runs", first[0])
		for _, c := range first[2:] { // wait until the time is up
			tooMany("what waits for long", <-c)
		}
		close(greedy.ready)
		for _, c := range first[:2] {
			if err := <-c; err != nil {
				t.Error(err)
			}
		}
		if err := <-ask(t.Context(), greedy); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}
