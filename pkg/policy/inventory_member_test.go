package policy_test

import (
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// TestEngine_ReadsTheInventoryOfAnotherMember judges what is in a by an inventory and Namespaces that b has.
func TestEngine_ReadsTheInventoryOfAnotherMember(t *testing.T) {
	t.Parallel()
	w := gatekeeperWorld(t)
	labelled := func(owner string) map[string]any { return withLabels(map[string]any{"owner": owner}, nil) }
	selects := func(app string) map[string]any {
		return map[string]any{"spec": map[string]any{"selector": map[string]any{"app": app}}}
	}
	mustDo(
		t, w,
		putIn("fleet/a", "Namespace", "", "shop", withLabels(map[string]any{"env": "test", "owner": "me"}, nil)),
		putIn("fleet/b", "Namespace", "", "shop", withLabels(map[string]any{"env": "production", "owner": "us"}, nil)),
		putIn("fleet/a", "Ingress.networking.k8s.io", "shop", "one", ingress("x.example")),
		putIn("fleet/a", "Ingress.networking.k8s.io", "shop", "two", ingress("x.example")),
		putIn("fleet/b", "Ingress.networking.k8s.io", "shop", "three", ingress("y.example")),
		putIn("fleet/a", "Service", "shop", "s", selects("x")),
		putIn("fleet/a", "Service", "shop", "twin", selects("x")),
		putIn("fleet/b", "Service", "shop", "other", selects("y")),
		putIn("fleet/a", "PersistentVolumeClaim", "shop", "claim", labelled("me")),
	)
	files := append(gatekeeperFiles(t, "uniqueingresshost", "uniqueserviceselector", "requiredlabels", "namespaceowner"), policy.File{Path: "c.yaml", Data: []byte(`
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sUniqueIngressHost
metadata: {name: hosts, annotations: {federator.dev/inventory: fleet}}
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sUniqueServiceSelector
metadata: {name: selectors}
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sNamespaceOwner
metadata: {name: owner}
spec: {match: {kinds: [{apiGroups: [""], kinds: [PersistentVolumeClaim]}]}}
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sRequiredLabels
metadata: {name: team}
spec:
  match: {kinds: [{apiGroups: [""], kinds: [PersistentVolumeClaim]}], namespaceSelector: {matchLabels: {env: production}}}
  parameters: {labels: [{key: team}]}
`)})
	set := loadFiles(t, files...)
	bindings, _ := policy.DefaultBindings(set, nil)
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindings, InventoryMember: "fleet/b"})
	s := e.State()
	wantMessages(t, s, "K8sUniqueIngressHost/hosts")
	wantMessages(t, s, "K8sUniqueServiceSelector/selectors")
	wantMessages(t, s, "K8sNamespaceOwner/owner", "fleet/a|shop|claim|claim is of me, its namespace of us")
	wantMessages(t, s, "K8sRequiredLabels/team", `fleet/a|shop|claim|you must provide labels: {"team"}`)

	// The verdicts follow what the inventory's member has, and not what the other has.
	mustDo(
		t, w,
		putIn("fleet/b", "Ingress.networking.k8s.io", "shop", "three", ingress("x.example")),
		putIn("fleet/b", "Service", "shop", "other", selects("x")),
		putIn("fleet/b", "Namespace", "", "shop", withLabels(map[string]any{"env": "test", "owner": "me"}, nil)),
		op{Do: "delete", Member: "fleet/a", Kind: "Namespace", Name: "shop"},
	)
	s = apply(t, e, cursor).After
	wantMessages(t, s, "K8sUniqueIngressHost/hosts",
		"fleet/a|shop|one|ingress host conflicts with an existing ingress <x.example>", "fleet/a|shop|two|ingress host conflicts with an existing ingress <x.example>")
	wantMessages(t, s, "K8sUniqueServiceSelector/selectors",
		"fleet/a|shop|s|same selector as service <other> in namespace <shop>", "fleet/a|shop|twin|same selector as service <other> in namespace <shop>")
	wantMessages(t, s, "K8sNamespaceOwner/owner")
	wantMessages(t, s, "K8sRequiredLabels/team")

	// What is incomplete there is unknown here.
	mustDo(t, w, op{Do: "reopen", Member: "fleet/b", Kind: "Service", Version: "v1", State: aggregate.Syncing})
	s = apply(t, e, cursor).After
	for v := range s.Verdicts("K8sUniqueServiceSelector/selectors", "") {
		if v.Subject.Ref.Member == "fleet/a" && v.Subject.Ref.Kind == "Service" && v.State != policy.Unknown {
			t.Errorf("%s is %s", v.Subject, v.State)
		}
	}
}
