package enforce_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
)

// wanted patches Deployments to the replicas that a document has for their name.
const wanted = `# METADATA
# title: Replicas are those of the list
# custom: {severity: high, kinds: ["Deployment.apps"], remedies: [{action: patch, kind: Deployment.apps}]}
package replicas

violation contains {"msg": "not as in the list", "remedy": {"action": "patch", "patch": {"spec": {"replicas": n}}}} if {
	n := data.fleet.external.cmdb.replicas[input.object.metadata.name]
	input.object.spec.replicas != n
}
`

// TestCorrector_FollowsExternalDocuments: intents follow documents, end where these are not known, and say which they are of.
func TestCorrector_FollowsExternalDocuments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		scope := scopeOf(t, index)
		put(t, scope, "web", 1)
		put(t, scope, "db", 1)
		a := &fakeActor{policies: map[string]actorState{}}
		c := enforce.NewCorrector(a, nil)
		loop := startLoop(t, enforce.Options{Index: index, Set: loadText(t, wanted), Bindings: bindingB, Changed: c.Changed})
		synctest.Wait()
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce})
		if c.Status("b").Complete || loop.State().Synced {
			t.Error("verdicts are counted before documents were read")
		}
		digests := map[string]bool{a.policies["b"].spec.External: true}
		for _, step := range []struct {
			document policy.ExternalDocument
			want     string // intents
			fresh    bool   // they are of other documents
		}{
			{policy.ExternalDocument{Problem: "it has not been read yet", Pending: true}, "", true},
			{policy.ExternalDocument{JSON: []byte(`{"web":3}`)}, `web {"spec":{"replicas":3}}`, true},
			{policy.ExternalDocument{JSON: []byte(`{"db":1,"web":3}`)}, `web {"spec":{"replicas":3}}`, true},
			{policy.ExternalDocument{JSON: []byte(`{"db":1,"web":3}`), From: "elsewhere"}, `web {"spec":{"replicas":3}}`, false},
			{policy.ExternalDocument{JSON: []byte(`{"db":1,"web":3}`), Problem: "it is too old"}, "", true},
			{policy.ExternalDocument{JSON: []byte(`{"db":1,"web":4}`)}, `web {"spec":{"replicas":4}}`, true},
		} {
			documents, err := policy.NewExternal(map[string]map[string]policy.ExternalDocument{"cmdb": {"replicas": step.document}})
			if err != nil {
				t.Fatal(err)
			}
			if err := loop.SetExternal(t.Context(), documents); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			got := ""
			for _, i := range a.policies["b"].intents {
				got += fmt.Sprintf("%s %s", i.Remedy.Target.Name, i.Remedy.Patch)
			}
			digest := a.policies["b"].spec.External
			if got != step.want || digest == "" || digests[digest] == step.fresh || digest != loop.State().ExternalDigest("b") {
				t.Errorf("%+v: %q, want %q; documents %q", step.document, got, step.want, digest)
			}
			digests[digest] = true
			if pending := step.document.Pending; c.Status("b").Complete == pending || a.policies["b"].ready == pending {
				t.Errorf("%+v: complete %t", step.document, c.Status("b").Complete)
			}
		}
	})
}

// TestLoop_ExternalOption: what is given at the start is known in the first state.
func TestLoop_ExternalOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		put(t, scopeOf(t, index), "web", 1)
		documents, err := policy.NewExternal(map[string]map[string]policy.ExternalDocument{"cmdb": {"replicas": {JSON: []byte(`{"web":3}`)}}})
		if err != nil {
			t.Fatal(err)
		}
		loop := startLoop(t, enforce.Options{Index: index, Set: loadText(t, wanted), Bindings: bindingB, External: documents})
		synctest.Wait()
		if c := loop.State().Total("b"); c.Known != 1 || c.Violations != 1 {
			t.Errorf("%+v", c)
		}
	})
}
