package answers_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"federator.dev/federator/cmd/federator/answers"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
)

// slow is a caller of whom it takes a while to find out what may be read.
type slow struct {
	name string
	told chan struct{}
}

func (s slow) User() user.Info { return &user.DefaultInfo{Name: s.name} }

func (s slow) Grants(context.Context, string, aggregate.Kind, *aggregate.Snapshot) (*queryapi.Grants, error) {
	return nil, nil
}

func (s slow) Visible(ctx context.Context) ([]string, error) {
	select {
	case <-s.told:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// TestQueriesOfOneLeaveTurnsToOthers, and wait for theirs a while.
func TestQueriesOfOneLeaveTurnsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
		if err != nil {
			t.Fatal(err)
		}
		q := &answers.Rego{Index: index, Resources: served{}.Resources}
		ask := func(ctx context.Context, c slow) chan error {
			done := make(chan error, 1)
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/query/v1/rego?query=1", nil)
			go func() { done <- q.Answer(httptest.NewRecorder(), r, c) }()
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
		close(free.told)
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
		close(modest.told)
		for _, c := range others {
			if err := <-c; err != nil {
				t.Error(err)
			}
		}
		close(third.told)
		if err := <-waits; err != nil {
			t.Errorf("when a turn is free: %v", err)
		}
		pending("greedy runs", first[0])
		for _, c := range first[2:] { // wait until the time is up
			tooMany("what waits for long", <-c)
		}
		close(greedy.told)
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
