package policyquery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub/hubreader"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
)

// evaluated serves what a hub and the policies of a loop say.
func evaluated(t *testing.T) *hubServer {
	t.Helper()
	set, err := policy.Load([]policy.Source{{Name: "git", Files: []policy.File{{Path: "tier.rego", Data: []byte(`# METADATA
# title: Tiers
# custom: {severity: low, kinds: ["Deployment.apps"], remedies: [{action: patch, kind: Deployment.apps}]}
package tier

violation contains {"msg": "no tier", "remedy": {"action": "patch", "patch": {"metadata": {"labels": {"tier": "gold"}}}}} if not input.object.metadata.labels.tier
`)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := startHub(t, hubreader.Options{}, func(o *queryapi.Options, reader *hubreader.Reader) {
		loop, err := enforce.New(enforce.Options{Index: o.Index, Set: set, Bindings: []policy.Binding{{Name: "tier", Package: "tier"}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- loop.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		rego := &policyquery.Rego{Index: o.Index, Kinds: planFleet{}.Kinds, State: loop.State}
		o.Queries["policies"] = &policyquery.Policies{Kinds: planFleet{}.Kinds, Loop: loop, Hub: reader}
		o.Queries["explain"] = policyquery.Explain{Kinds: planFleet{}.Kinds, Loop: loop, Rego: rego, Hub: reader}
	})
	s.run()
	return s
}

// apply applies a manifest to the hub, and sets the status.
func (s *hubServer) apply(resource, name, manifest, status string) {
	s.t.Helper()
	s.keep(resource, name, manifest)
	if err := s.rest.Patch(types.MergePatchType).Resource(resource).Name(name).SubResource("status").Body([]byte(`{"status":` + status + `}`)).Do(s.t.Context()).Error(); err != nil {
		s.t.Fatal(err)
	}
}

// keep applies a manifest to the hub until the test ends.
func (s *hubServer) keep(resource, name, manifest string) {
	s.t.Helper()
	if err := shared.Fleet.Hub.Apply(s.t.Context(), []byte(manifest)); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = s.rest.Delete().Resource(resource).Name(name).Do(context.Background()).Error() })
}

// TestHub_AddsWhatTheCallerMayListThere to policies and explanations.
func TestHub_AddsWhatTheCallerMayListThere(t *testing.T) {
	s := evaluated(t)
	root, part := newName("root"), newName("part")
	all, without := s.user(root, nil, "*"), s.user(part, nil, "*")
	s.mayOnHub(root, "actions", "policysources", "fleetpolicies")
	now := metav1.Now().UTC().Format(time.RFC3339)
	s.apply("fleetpolicies", "tier", "apiVersion: federator.dev/v1alpha1\nkind: FleetPolicy\nmetadata: {name: tier}\nspec: {package: tier, mode: Enforce}\n",
		fmt.Sprintf(`{"conditions":[{"type":"Enforcing","status":"False","reason":"Halted","message":"too many","lastTransitionTime":%q}],"halted":{"id":"h1","reason":"OverLimit","message":"too many","since":%q},
			"origin":{"source":"git","commit":%q},"actions":{"pending":0,"succeeded":7,"noOp":0,"failed":0,"superseded":0,"contended":0,"protected":0,"managed":0,"rolledBack":0}}`, now, now, strings.Repeat("a", 40)))
	s.apply("policysources", "git", "apiVersion: federator.dev/v1alpha1\nkind: PolicySource\nmetadata: {name: git}\nspec: {url: \"https://example.com/x.git\"}\n",
		fmt.Sprintf(`{"activeCommit":{"hash":%q,"ref":"refs/heads/main","author":"ann","time":%q}}`, strings.Repeat("a", 40), now))
	s.apply("fleetpolicies", "unbound", "apiVersion: federator.dev/v1alpha1\nkind: FleetPolicy\nmetadata: {name: unbound}\nspec: {package: none}\n", `{"observedGeneration":1}`)
	s.act("on-web", "fleet/a", "web", nil)
	s.act("on-shop", "fleet/a", "shop", nil)
	var x policyquery.Explanation
	at := "explain?policy=tier&member=fleet/a&kind=Deployment.apps&namespace=web&name=here"
	eventually(t, func() error {
		var list policyquery.PolicyList
		code, text := s.ask(all, "policies?policy=tier", &list)
		if code != http.StatusOK || len(list.Items) != 1 {
			return fmt.Errorf("%d %s", code, text)
		}
		i := list.Items[0]
		if i.Mode != "Enforce" || i.State != "Halted" || i.Message != "too many" || i.Halted == nil || i.Halted.ID != "h1" || i.Corrected == nil || *i.Corrected != 0 || i.Source.Commit == "" || *i.Violations != 4 || i.FleetPolicy == nil || strings.Contains(text, "managedFields") {
			return errors.New(text)
		}
		if code, text = s.ask(all, at, &x); code != http.StatusOK || x.Commit == nil || x.Commit.Author != "ann" || x.Commit.Time == nil || len(x.Actions) != 1 || x.Actions[0].Name != "on-web" {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	if text, err := json.Marshal(x.Remedies); err != nil || !strings.Contains(string(text), `"changes":[{"path":"/metadata/labels","after":{"tier":"gold"}}]`) {
		t.Errorf("%s, %v", text, err)
	}
	if _, text := s.ask(all, "policies", nil); !strings.Contains(text, `"name":"unbound"`) || strings.Contains(text, `"fleetPolicy"`) {
		t.Errorf("%s", text)
	}
	for path, hidden := range map[string][]string{
		"policies?policy=tier": {"Halted", "Enforce", "aaaa", "fleetPolicy\"", "corrected"}, "policies": {"unbound"}, at: {"on-web", "ann", "aaaa"},
	} {
		code, text := s.ask(without, path, nil)
		for _, h := range hidden {
			if code != http.StatusOK || strings.Contains(text, h) {
				t.Errorf("%s without a grant on the hub says %q: %d %s", path, h, code, text)
			}
		}
	}
	if _, text := s.ask(without, "policies", nil); !strings.Contains(text, `"hubForbidden":"list fleetpolicies.federator.dev"`) {
		t.Errorf("%s", text)
	}
	if code, _ := s.ask(without, "policies?policy=unbound", nil); code != http.StatusNotFound {
		t.Errorf("a FleetPolicy that is not in effect: %d", code)
	}
}
