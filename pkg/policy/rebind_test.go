package policy_test

import (
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy"
)

// TestEngine_EvaluatesReadersOfAKindThatNothingChangedOf configures an engine again, with nothing that is to be
// evaluated, and then changes what two policies read about objects of another kind.
func TestEngine_EvaluatesReadersOfAKindThatNothingChangedOf(t *testing.T) {
	t.Parallel()
	set := load(t, versionPolicy("test.shop", "", `violation contains {"msg": "no shop"} if not data.fleet.by_name["Namespace"][""]["shop"]`))
	bindings := []policy.Binding{{Name: "one", Package: "test.shop"}, {Name: "two", Package: "test.shop"}}
	w := versionWorld(t)
	mustDo(t, w, op{Do: "reopen", Member: "fleet/a", Kind: "Namespace", Version: "v1"})
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindings})
	if _, err := e.Configure(t.Context(), set, bindings); err != nil {
		t.Fatal(err)
	}
	mustDo(t, w, op{Do: "put", Member: "fleet/a", Kind: "Namespace", Name: "shop", Object: map[string]any{}})
	apply(t, e, cursor)
	wantMessages(t, e.State(), "one")
	wantMessages(t, e.State(), "two")
}

// TestGatekeeper_KeepsUpWithAnotherConstraintOfTheFleet gives a template a second constraint, for which its index is
// made again: the first one reads that then.
func TestGatekeeper_KeepsUpWithAnotherConstraintOfTheFleet(t *testing.T) {
	t.Parallel()
	constraint := `{"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "K8sUniqueIngressHost", "metadata": {"name": "NAME", "annotations": {"federator.dev/inventory": "fleet"}},
		"spec": {"match": {"kinds": [{"apiGroups": ["networking.k8s.io"], "kinds": ["Ingress"]}]}}}`
	one := policy.File{Path: "one.yaml", Data: []byte(strings.NewReplacer("NAME", "one", `"fleet"`, `"member"`).Replace(constraint))}
	two := policy.File{Path: "two.yaml", Data: []byte(strings.ReplaceAll(constraint, "NAME", "two"))}
	w := gatekeeperWorld(t)
	mustDo(t, w, putIn("fleet/a", "Ingress.networking.k8s.io", "shop", "one", ingress("x.example")))
	set := loadFiles(t, append(gatekeeperFiles(t, "uniqueingresshost"), one)...)
	e, cursor := gatekeeperEngine(t, w, set)
	set = loadFiles(t, append(gatekeeperFiles(t, "uniqueingresshost"), one, two)...)
	bindings, _ := policy.DefaultBindings(set, nil)
	if _, err := e.Configure(t.Context(), set, bindings); err != nil {
		t.Fatal(err)
	}
	mustDo(t, w, putIn("fleet/a", "Ingress.networking.k8s.io", "shop", "two", ingress("x.example")))
	apply(t, e, cursor)
	if got := messages(e.State(), "K8sUniqueIngressHost/one"); len(got) != 2 {
		t.Errorf("it finds %q", got)
	}
}
