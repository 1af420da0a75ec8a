package policy_test

import (
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

const (
	otherApp = `# METADATA
# title: Reads what others have of the name
# custom: {severity: low, kinds: ["Deployment.apps"]}
package test.other

violation contains {"msg": sprintf("%s has another app", [member])} if {
	some member, other in data.fleet.by_name["Deployment.apps"][input.ref.namespace][input.ref.name]
	other.spec.app != input.object.spec.app
}
`
	otherSize = `# METADATA
# title: Reads more of the same objects
# custom: {severity: low, kinds: ["Deployment.apps"]}
package test.size

violation contains {"msg": "smaller"} if {
	some other in data.fleet.by_name["Deployment.apps"][input.ref.namespace][input.ref.name]
	other.spec.replicas > input.object.spec.replicas
}
`
)

// TestEngine_ConfigureKnowsAgainWhatOthersHaveTold: while another policy reads more of objects than another process has told,
// nothing of them is known. Once it is gone they are read again, also by verdicts of policies that have not changed.
func TestEngine_ConfigureKnowsAgainWhatOthersHaveTold(t *testing.T) {
	t.Parallel()
	few, more := load(t, otherApp), load(t, otherApp, otherSize)
	other, _ := engineOn(t, worldOf(t, "fleet/b", "web", "shop"), policy.EngineOptions{Set: few, Bindings: bindingsOf(few), Exports: true})
	e, err := policy.NewEngine(policy.EngineOptions{Set: more, Bindings: bindingsOf(more), Exports: true})
	if err != nil {
		t.Fatal(err)
	}
	own := worldOf(t, "fleet/a", "web", "pay")
	if _, err := e.Reset(t.Context(), own.index.Snapshot(), toldOf(t, other.State().Export()).Snapshot()); err != nil {
		t.Fatal(err)
	}
	subject := policy.Subject{Ref: aggregate.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: "web"}}
	for _, c := range []struct {
		set        *policy.Set
		state      policy.VerdictState
		violations int
	}{{more, policy.Unknown, 0}, {few, policy.Known, 1}, {more, policy.Unknown, 0}, {few, policy.Known, 1}} {
		if _, err := e.Configure(t.Context(), c.set, bindingsOf(c.set)); err != nil {
			t.Fatal(err)
		}
		v, ok := e.State().Get("test.other", subject)
		if !ok || v.State != c.state || len(v.Violations) != c.violations {
			t.Errorf("with %d policies: %t %+v, want %s and %d violations", len(c.set.Packages), ok, v, c.state, c.violations)
		}
	}
}
