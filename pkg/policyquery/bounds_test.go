package policyquery_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
)

// TestRego_ReviewsKindsOnlyInMembersThatHaveThem: a reader with grants for single members costs
// the hub a question for each of them, and thousands of kinds that one of them invents
// none about the others.
func TestRego_ReviewsKindsOnlyInMembersThatHaveThem(t *testing.T) {
	const members, invented = 50, 60
	j, hub := hubbed(t, func(o *queryapi.Options, _ *policyquery.Violations) {
		o.Authorization.AllowTTL, o.Authorization.DenyTTL = 0, 0 // the defaults, so that no review is repeated
	})
	hub.where = func(a *authorizationv1.ResourceAttributes) bool { return a.Name == "m0" || a.Name == "m1" }
	for i := range members {
		m := fmt.Sprint("fleet/m", i)
		j.join(m)
		j.put(m, "web", 5, "")
	}
	for i := range invented {
		scope, err := j.index.OpenScopeAs("fleet/m0", aggregate.MakeKind(fmt.Sprint("Thing", i), "acme.io"), "acme.io/v1", fmt.Sprint("things", i))
		if err != nil {
			t.Fatal(err)
		}
		scope.SetStatus(aggregate.Status{State: aggregate.Syncing})
		if _, err := scope.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	j.awaitEvaluation()
	// Which members may be seen at all takes two questions or so for each; a kind in a
	// member at most one for the fleet, one for its namespace and one for itself.
	const most = 2*members + 5*invented
	for i, path := range []string{
		"/query/v1/members",
		"/query/v1/related?member=fleet/m0&resource=deployments.apps&namespace=shop&name=web",
		"/query/v1/rego?query=" + url.QueryEscape(`n = count([1 | data.fleet.scopes[_][_]])`),
	} {
		j.token = fmt.Sprint("reader", i)
		before := hub.requests.Load()
		if code, body := j.text(path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
		if n := hub.requests.Load() - before; n < invented || n > most {
			t.Errorf("%s: the hub receives %d reviews, want %d at most", path, n, most)
		}
	}
}

// TestViolations_PagesOfViolationsAreBoundedInBytes: what policies quote of objects may be large.
func TestViolations_PagesOfViolationsAreBoundedInBytes(t *testing.T) {
	j := start(t, nil)
	j.join("fleet/a")
	const objects = 30
	for i := range objects {
		j.put("fleet/a", fmt.Sprintf("web-%02d", i), 3, fmt.Sprintf("%d %s", i, strings.Repeat("w", 600_000)))
	}
	j.awaitEvaluation()
	var names []string
	for next, pages := "", 0; ; pages++ {
		query := url.Values{"policy": {"replicas"}, "limit": {"500"}}
		if next != "" {
			query.Set("continue", next)
		}
		code, body := j.text("/query/v1/violations?" + query.Encode())
		var found policyquery.ViolationList
		if err := json.Unmarshal([]byte(body), &found); err != nil || code != http.StatusOK {
			t.Fatalf("%d, %v", code, err)
		}
		if len(body) > 9<<20 {
			t.Errorf("a page of %d bytes", len(body))
		}
		for _, f := range found.Items {
			names = append(names, f.Subject.Name)
		}
		if next = found.Continue; next == "" {
			if pages < 2 {
				t.Errorf("%d pages", pages+1)
			}
			break
		}
	}
	if len(names) != objects || !slices.IsSorted(names) {
		t.Errorf("%d of %d: %v", len(names), objects, names)
	}
}
