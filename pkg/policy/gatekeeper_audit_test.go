package policy_test

import (
	"testing"

	"federator.dev/federator/pkg/policy"
)

// auditTemplate is a template with a constraint of all Services.
func auditTemplate(t testing.TB, rego string) *policy.Set {
	t.Helper()
	text := `
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: audited}
spec:
  crd: {spec: {names: {kind: Audited}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    rego: |
      package audited
` + rego + `
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: Audited
metadata: {name: all}
spec: {match: {kinds: [{apiGroups: [""], kinds: [Service, Namespace]}]}}
`
	return loadFiles(t, policy.File{Path: "audited.yaml", Data: []byte(text)})
}

// TestGatekeeper_AnswersAsItsAudit has what Gatekeeper's audit was seen to answer.
func TestGatekeeper_AnswersAsItsAudit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rego string
		want []string // of Service 7/s
	}{
		"a message may be empty": {`      violation[{"msg": ""}] { input.review.kind.kind == "Service" }`, []string{""}},
		"violations are one by message and details": {
			`      violation[{"msg": "m", "field": f}] { input.review.kind.kind == "Service"; f := [1, 2][_] }
      violation[{"msg": "m", "details": {}}] { input.review.kind.kind == "Service" }
      violation[{"msg": "m", "details": {"a": 1}}] { input.review.kind.kind == "Service" }`, []string{"m", "m"},
		},
		"a Namespace that is not there is an empty object": {
			`      violation[{"msg": msg}] { input.review.kind.kind == "Service"; msg := object.get(input.review.namespaceObject, "kind", "none") }`, []string{"none"},
		},
		"a number is the key of data.inventory that it is written as": {
			`      violation[{"msg": name}] { ns := to_number(input.review.namespace); data.inventory.namespace[ns]["v1"]["Service"][name] }`, []string{"s"},
		},
		"a number is a known step": {
			`      violation[{"msg": name}] { ns := to_number(input.review.namespace); data.inventory.namespace[ns][api]["Service"][name]; api != "v2" }`, []string{"s"},
		},
		"a trace is true": {`      violation[{"msg": "m"}] { input.review.kind.kind == "Service"; trace("x") }`, []string{"m"}},
		"objects are found by what is compared with a field of input": {
			`      violation[{"msg": name}] { o := data.inventory.namespace[ns]["v1"]["Service"][name]; o.spec.a == input.review.object.spec.a }`, []string{"s"},
		},
		"and by a field that is iterated instead of the object": {
			`      violation[{"msg": name}] { a := data.inventory.namespace[ns]["v1"]["Service"][name].spec.a; a == input.review.object.spec.a }`, []string{"s"},
		},
		"and by the variable that it was given": {
			`      violation[{"msg": name}] { o := data.inventory.namespace[ns]["v1"]["Service"][name]; a := input.review.object.spec.a; o.spec.a == a }`, []string{"s"},
		},
		"and by one compared first": {
			`      violation[{"msg": name}] { input.review.kind.kind == "Service"; o := data.inventory.namespace[ns][api]["Service"][name]; input.review.object.spec == o.spec; api == "v1" }`, []string{"s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := gatekeeperWorld(t)
			mustDo(t, w, putIn("fleet/a", "Service", "7", "s", map[string]any{"spec": map[string]any{"a": "x"}}))
			set := auditTemplate(t, c.rego)
			e, _ := gatekeeperEngine(t, w, set)
			want := make([]string, len(c.want))
			for i, m := range c.want {
				want[i] = "fleet/a|7|s|" + m
			}
			wantMessages(t, e.State(), "Audited/all", want...)
		})
	}
}

// TestGatekeeper_FindsObjectsOfTheFleetByTheirNames looks for an object of another member by
// the namespace that data.inventory has it in.
func TestGatekeeper_FindsObjectsOfTheFleetByTheirNames(t *testing.T) {
	t.Parallel()
	w := gatekeeperWorld(t)
	mustDo(t, w, putIn("fleet/a", "Service", "shop", "s", map[string]any{}), putIn("fleet/b", "Service", "shop", "other", map[string]any{}))
	set := loadFiles(t, policy.File{Path: "audited.yaml", Data: []byte(`
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: audited}
spec:
  crd: {spec: {names: {kind: Audited}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    rego: |
      package audited
      violation[{"msg": msg}] {
        input.review.name == "s"
        data.inventory.namespace[ns]["v1"]["Service"]["other"]
        n := data.inventory.namespace[ns]["v1"]["Service"]["other"].metadata.namespace
        o := data.inventory.namespace[_]["v1"]["Service"][name]
        o.metadata.namespace == n
        msg := sprintf("%s in %s", [name, n])
      }
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: Audited
metadata: {name: all, annotations: {federator.dev/inventory: fleet}}
spec: {match: {kinds: [{apiGroups: [""], kinds: [Service]}]}}
`)})
	e, _ := gatekeeperEngine(t, w, set)
	wantMessages(t, e.State(), "Audited/all", "fleet/a|shop|s|other in fleet/b/shop")
}
