package queryapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/queryserver"
)

// TestServer_OneReaderLeavesWatchesToOthers: who opens watches without end gets a
// share of them, and others still get theirs.
func TestServer_OneReaderLeavesWatchesToOthers(t *testing.T) {
	const most = 8
	s := start(t, func(o *queryapi.Options) { o.Fairness.MaxWatches = most })
	greedy, modest := fresh("greedy"), fresh("modest")
	for _, account := range []string{greedy, modest} {
		allow(t, queryserver.UserOf(account), "", members("watch", "pods"))
	}
	client := s.client(t)
	watch := func(account string) (code int, stop func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.Address+"/fleet/api/v1/pods?watch=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+tokenFor(t, account, "federator"))
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, func() {
			cancel()
			resp.Body.Close()
		}
	}
	var stops []func()
	opened := 0
	for range most {
		code, stop := watch(greedy)
		stops = append(stops, stop)
		switch code {
		case http.StatusOK:
			opened++
		case http.StatusTooManyRequests:
		default:
			t.Fatalf("a watch: %d", code)
		}
	}
	if opened != most/2 {
		t.Errorf("one caller opened %d of %d watches, want half", opened, most)
	}
	code, stop := watch(modest)
	if code != http.StatusOK {
		t.Errorf("another caller's watch: %d", code)
	}
	stop()
	for _, stop := range stops {
		stop()
	}
	until(t, "what is given back can be had again", func() bool {
		code, stop := watch(greedy)
		stop()
		return code == http.StatusOK
	})
}

// TestServer_OneReaderLeavesRequestsToOthers, where the hub's priorities are not
// followed.
func TestServer_OneReaderLeavesRequestsToOthers(t *testing.T) {
	b := newBlocked()
	s := start(t, func(o *queryapi.Options) {
		o.Queries["wait"], o.Fairness.MaxInFlight = b, 4
	})
	token := tokenFor(t, fresh("greedy"), "federator")
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if resp, body := s.get(t, "/query/v1/wait", token); resp.StatusCode != http.StatusOK {
				t.Errorf("within the share: %d %s", resp.StatusCode, body)
			}
		})
		<-b.entered
	}
	resp, body := s.get(t, "/query/v1/whoami", token)
	status := wantStatus(t, "beyond the share", resp, body, http.StatusTooManyRequests)
	if !strings.Contains(status.Message, "2 of them are yours") {
		t.Errorf("says %q", status.Message)
	}
	if resp, body := s.get(t, "/query/v1/whoami", tokenFor(t, fresh("modest"), "federator")); resp.StatusCode != http.StatusOK {
		t.Errorf("another caller: %d %s", resp.StatusCode, body)
	}
	close(b.release)
	wg.Wait()
}

// TestServer_RulesReviewsCreateABoundedNumberOfReviews, and say what they left out.
func TestServer_RulesReviewsCreateABoundedNumberOfReviews(t *testing.T) {
	const many = 1000
	s := start(t, func(o *queryapi.Options) {
		for i := range many {
			if err := o.Index.PutMember(aggregate.Member{Name: fmt.Sprintf("many/m-%d", i), UID: fmt.Sprint("m", i)}); err != nil {
				t.Fatal(err)
			}
		}
	})
	account := fresh("curious")
	named := members("list", "deployments.apps")
	named.ResourceNames = []string{"eu-1"} // so that members are reviewed one by one
	allow(t, queryserver.UserOf(account), "red", named)
	rules, err := s.typed(t, "/fleet", tokenFor(t, account, "federator")).AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !rules.Status.Incomplete || !strings.Contains(rules.Status.EvaluationError, "resources were not evaluated") {
		t.Errorf("what was left out is not reported: %+v", rules.Status)
	}
	reviews := 0.0
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "federator_query_access_review_seconds" {
			for _, m := range f.GetMetric() {
				reviews += float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	if reviews == 0 || reviews > 2600 {
		t.Errorf("one rules review caused %v reviews of the hub", reviews)
	}
}
