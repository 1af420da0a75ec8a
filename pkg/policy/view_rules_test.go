package policy_test

import (
	"testing"

	"federator.dev/federator/pkg/policy"
)

// TestLoad_ViewsMayUseRulesOfEveryForm has views whose keys are constants, and one that reads
// rules below a name: OPA looks whether there is data beside such rules.
func TestLoad_ViewsMayUseRulesOfEveryForm(t *testing.T) {
	t.Parallel()
	const head = `# METADATA
# title: Every app
# custom: {severity: low, kinds: ["Deployment.apps"]}
package p

violation contains {"msg": key} if {
	some key in ["shop", "all", "a/b"]
	some e in data.fleet.views.p.v[key]
	e.value == input.object.spec.app
}

`
	for name, c := range map[string]struct {
		rules string
		keys  []string
	}{
		"a constant key":              {`view.v.all contains input.object.spec.app if input.ref.name`, []string{"all"}},
		"a constant key in brackets":  {`view.v["a/b"] contains input.object.spec.app if input.ref.name`, []string{"a/b"}},
		"two constant keys":           {"view.v.all contains input.object.spec.app\nview.v.shop contains input.object.spec.app if input.ref.name", []string{"all", "shop"}},
		"a constant key and computed": {"view.v.all contains input.object.spec.app\nview.v[key] contains input.object.spec.app if key := input.object.spec.app", []string{"all", "shop"}},
		"rules below a name":          {"keys.one := \"all\"\nkeys.two := \"shop\"\nview.v[key] contains input.object.spec.app if some key in keys", []string{"all", "shop"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, err := deployments(t, 0)
			if err != nil {
				t.Fatal(err)
			}
			set := load(t, head+c.rules+"\n")
			e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindingsOf(set)})
			put := deployment("fleet/a", "x", map[string]any{"app": "shop"})
			mustDo(t, w, put)
			apply(t, e, cursor)
			if got, want := e.State().Total("p"), (policy.Counts{Known: 1, Violations: len(c.keys)}); got != want {
				h, _ := e.State().Health("p")
				t.Fatalf("%+v, not %+v: %s", got, want, h.Problem())
			}
			put.Do = "delete"
			mustDo(t, w, put)
			apply(t, e, cursor)
			if got := e.State().Total("p"); got != (policy.Counts{}) {
				t.Errorf("when it is gone: %+v", got)
			}
		})
	}
}
