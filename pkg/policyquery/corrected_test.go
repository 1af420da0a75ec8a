package policyquery_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policyquery"
)

// phase sets the phase of an Action: a hub drops the status of one that is created.
func (s *hubServer) phase(name string, phase v1alpha1.ActionPhase) {
	s.t.Helper()
	body := fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase)
	if err := s.rest.Patch(types.MergePatchType).Resource("actions").Name(name).SubResource("status").Body(body).Do(s.t.Context()).Error(); err != nil {
		s.t.Fatal(err)
	}
}

// TestPolicies_CorrectedCountsWhatActionsLists as succeeded, to each caller: Actions on what it may not read are not
// counted, and who may not list Actions is told no number, not even 0.
func TestPolicies_CorrectedCountsWhatActionsLists(t *testing.T) {
	s := evaluated(t)
	root, narrow, nobody := newName("root"), newName("narrow"), newName("nobody")
	users := map[string]*http.Client{"root": s.user(root, nil, "*"), "narrow": s.user(narrow, []string{"b"}, "*"), "shop": s.user("shop", nil), "nobody": s.user(nobody, nil, "*")}
	for _, name := range []string{root, narrow, "shop"} {
		s.mayOnHub(name, "actions", "fleetpolicies")
	}
	s.mayOnHub(nobody, "fleetpolicies")
	s.keep("fleetpolicies", "tier", "apiVersion: federator.dev/v1alpha1\nkind: FleetPolicy\nmetadata: {name: tier}\nspec: {package: tier, mode: Enforce}\n")
	for _, a := range []struct {
		name, member, namespace string
		phase                   v1alpha1.ActionPhase
		change                  func(*v1alpha1.Action)
	}{
		{"a-shop", "fleet/a", "shop", v1alpha1.PhaseSucceeded, nil},
		{"a-web", "fleet/a", "web", v1alpha1.PhaseSucceeded, nil},
		{"b-shop", "fleet/b", "shop", v1alpha1.PhaseSucceeded, nil},
		{"b-web", "fleet/b", "web", v1alpha1.PhaseSucceeded, nil},
		{"b-failed", "fleet/b", "web", v1alpha1.PhaseFailed, nil},
		{"b-pending", "fleet/b", "web", v1alpha1.PhasePending, nil},
		{"former", "fleet/b", "web", v1alpha1.PhaseSucceeded, func(a *v1alpha1.Action) { a.Spec.Target.MemberUID = "another" }},
		{"gone", "fleet/gone", "web", v1alpha1.PhaseSucceeded, nil},
		{"other", "fleet/b", "web", v1alpha1.PhaseSucceeded, func(a *v1alpha1.Action) { a.Spec.Binding = "other" }},
	} {
		s.act(a.name, a.member, a.namespace, a.change)
		s.phase(a.name, a.phase)
	}
	says := func(want map[string]string) {
		t.Helper()
		for user, want := range want {
			eventually(t, func() error {
				for _, path := range []string{"policies", "policies?policy=tier"} {
					var list policyquery.PolicyList
					code, text := s.ask(users[user], path, &list)
					if code != http.StatusOK || len(list.Items) != 1 {
						return fmt.Errorf("%s: %d %s", user, code, text)
					}
					got := "none"
					if n := list.Items[0].Corrected; n != nil {
						got = fmt.Sprint(*n)
					}
					if got != want || want == "none" && strings.Contains(text, "corrected") {
						return fmt.Errorf("%s of %s: %s, want %s", path, user, got, want)
					}
				}
				return nil
			})
			if want == "none" {
				continue
			}
			if list, names := s.list(users[user], "policy=tier&phase=Succeeded"); fmt.Sprint(list.Total) != want {
				t.Errorf("%s is listed %q, and told of %s", user, names, want)
			}
		}
	}
	says(map[string]string{"root": "4", "narrow": "2", "shop": "2", "nobody": "none"})
	s.phase("b-web", v1alpha1.PhaseRolledBack)
	says(map[string]string{"root": "3", "narrow": "1", "shop": "2", "nobody": "none"})
}
