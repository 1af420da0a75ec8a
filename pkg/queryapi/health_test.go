package queryapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/queryserver"
)

// TestMembers_HealthNeedsTheWildcard of the hub's RBAC: "*" is every resource that there is or will be, which a list of
// those that are there is not.
func TestMembers_HealthNeedsTheWildcard(t *testing.T) {
	s := start(t, func(o *queryapi.Options) {
		o.Health = func(member string) *queryapi.MemberHealth {
			return &queryapi.MemberHealth{State: "Disconnected", Message: "secret-" + member}
		}
	})
	some, all, one := fresh("some"), fresh("all"), fresh("one")
	allow(t, queryserver.UserOf(some), "", members("list", "pods", "namespaces", "deployments.apps"))
	allow(t, queryserver.UserOf(all), "", members("list", "*"))
	allow(t, queryserver.UserOf(one), "red", members("list", "*"))
	allow(t, queryserver.UserOf(one), "", members("list", "pods"))
	for account, want := range map[string]string{some: "", all: "blue/eu-1 blue/us-1 red/eu-1", one: "red/eu-1"} {
		resp, body := s.get(t, "/query/v1/members?details=true", tokenFor(t, account, "federator"))
		var list struct {
			Items []struct {
				Name            string
				Health          *queryapi.MemberHealth
				HealthForbidden string
			}
		}
		if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Items) != len(memberNames) {
			t.Fatalf("%s: %d, %v: %s", account, resp.StatusCode, err, body)
		}
		var told []string
		for _, m := range list.Items {
			if m.Health != nil {
				told = append(told, m.Name)
			}
			if (m.HealthForbidden == "list *") != (m.Health == nil) || (m.Health == nil) == strings.Contains(body, "secret-"+m.Name) {
				t.Errorf("%s: %+v in %s", account, m, body)
			}
		}
		if got := strings.Join(told, " "); got != want {
			t.Errorf("%s is told of %q, want %q", account, got, want)
		}
	}
}
