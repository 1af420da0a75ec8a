package policy_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// TestEngine_ToleratesNothingThatIsNotRead: what a verdict has read of an object as nothing, as more is read of it than another
// process has told, is no more known once the gaps of that member are tolerated.
func TestEngine_ToleratesNothingThatIsNotRead(t *testing.T) {
	t.Parallel()
	few, more := load(t, otherApp), load(t, otherApp, otherSize)
	other, _ := engineOn(t, worldOf(t, "fleet/b", "web", "shop"), policy.EngineOptions{Set: few, Bindings: bindingsOf(few), Exports: true})
	bindings := bindingsOf(more)
	for i := range bindings {
		bindings[i].Tolerate = &policy.MemberSelector{Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"away": "yes"}}}
	}
	e, err := policy.NewEngine(policy.EngineOptions{Set: more, Bindings: bindings, Exports: true})
	if err != nil {
		t.Fatal(err)
	}
	own, told := worldOf(t, "fleet/a", "web", "pay"), toldOf(t, other.State().Export())
	if _, err := e.Reset(t.Context(), own.index.Snapshot(), told.Snapshot()); err != nil {
		t.Fatal(err)
	}
	subject := policy.Subject{Ref: aggregate.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: "web"}}
	cursor := told.Cursor(told.Snapshot())
	for _, c := range []struct {
		away string
		want policy.VerdictState
	}{{"yes", policy.Error}, {"no", policy.Unknown}, {"yes", policy.Error}} {
		m, _ := told.Snapshot().Member("fleet/b")
		m.Labels = []aggregate.Label{{Key: "away", Value: c.away}}
		if err := told.PutMember(m); err != nil {
			t.Fatal(err)
		}
		batch, _ := cursor.Poll()
		if _, err := e.Apply(t.Context(), nil, batch); err != nil {
			t.Fatal(err)
		}
		if v, ok := e.State().Get("test.other", subject); !ok || v.State != c.want {
			t.Errorf("away=%s: %t %+v, want %s", c.away, ok, v, c.want)
		}
	}
}
