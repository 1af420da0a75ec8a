package enforce_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
)

func TestMetrics_FollowPoliciesAndMembersNotTheirProduct(t *testing.T) {
	const members, policies, worst = 40, 27, 20
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		for m := range members {
			name := fmt.Sprintf("fleet/m-%02d", m)
			if err := index.PutMember(aggregate.Member{Name: name, UID: name}); err != nil {
				t.Fatal(err)
			}
			scope, err := index.OpenScope(name, "Deployment.apps", "apps/v1")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := scope.Replace(nil, aggregate.Status{State: aggregate.Synced}); err != nil {
				t.Fatal(err)
			}
			for n := range 1 + m%3 { // m-02, m-05 and so on have the most
				put(t, scope, fmt.Sprint("web-", n), 1)
			}
		}
		var bindings []policy.Binding
		for p := range policies {
			bindings = append(bindings, policy.Binding{Name: fmt.Sprintf("p-%02d", p), Package: "replicas"})
		}
		registry := prometheus.NewRegistry()
		startLoop(t, enforce.Options{Index: index, Set: load(t, "input.object.spec.replicas < 2"), Bindings: bindings, Metrics: registry})
		synctest.Wait()
		for name, want := range map[string]int{
			"federator_policy_verdicts": 3 * policies, "federator_policy_violations": policies, "federator_policy_exempt_violations": policies,
			"federator_policy_member_violations": worst * policies, "federator_member_violations": members,
		} {
			if got, err := testutil.GatherAndCount(registry, name); err != nil || got != want {
				t.Errorf("%d series of %s, want %d, %v", got, name, want, err)
			}
		}
		w := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
		text := w.Body.String()
		for _, line := range []string{
			`federator_member_violations{member="fleet/m-02",severity="high"} 81`, `federator_member_violations{member="fleet/m-03",severity="high"} 27`,
			`federator_policy_member_violations{member="fleet/m-38",policy="p-26",severity="high"} 3`,
			`federator_policy_violations{binding="p-00",policy="p-00",severity="high"} 79`,
		} {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("no %s in\n%s", line, text)
			}
		}
		if strings.Contains(text, `federator_policy_member_violations{member="fleet/m-00"`) {
			t.Error("a member with the fewest violations is among those with the most")
		}
	})
}
