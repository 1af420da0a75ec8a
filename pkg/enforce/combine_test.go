package enforce_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// several is a policy that proposes remedies for one object, whatever is evaluated.
func several(remedies ...string) string {
	text := `# METADATA
# title: Several
# custom: {severity: high, kinds: ["Deployment.apps"], remedies: [{action: patch, kind: Deployment.apps}, {action: apply, kind: Deployment.apps}, {action: delete, kind: Deployment.apps}]}
package replicas

target := {"member": "fleet/a", "kind": "Deployment.apps", "namespace": "shop", "name": "web"}
`
	for n, r := range remedies {
		text += fmt.Sprintf("\nviolation contains {\"msg\": \"m%d\", \"remedy\": object.union(%s, {\"target\": target})} if input.ref.name == \"o%d\"\n", n, r, n)
	}
	return text
}

// TestCorrector_CombinesRemediesOfOneTarget: those of several subjects are one write, or
// follow each other, or are refused and name the subjects.
func TestCorrector_CombinesRemediesOfOneTarget(t *testing.T) {
	apply := func(object string) string { return `{"action": "apply", "object": ` + object + `}` }
	patch := func(text string) string { return `{"action": "patch", "patch": ` + text + `}` }
	for _, test := range []struct {
		name     string
		remedies []string
		want     string // action and body; or why it is refused
		deferred int
		message  string
	}{
		{"the same twice", []string{apply(`{"spec": {"a": 1}}`), apply(`{"spec": {"a": 1}}`)}, `apply {"spec":{"a":1}}`, 0, "m0"},
		{"applies of other fields", []string{apply(`{"spec": {"a": 1, "m": {}}}`), apply(`{"spec": {"b": [1]}}`), apply(`{"spec": {"m": {"x": "y"}}}`)}, `apply {"spec":{"a":1,"b":[1],"m":{"x":"y"}}}`, 0, "m0; m1; m2"},
		{"applies of one field", []string{apply(`{"spec": {"a": 1, "b": 1}}`), apply(`{"spec": {"a": 1, "b": 2}}`)}, `in spec.b: of fleet/a Deployment.apps shop/o0 ("m0") and of fleet/a Deployment.apps shop/o1 ("m1")`, 0, ""},
		{"the third contradicts", []string{apply(`{"spec": {"a": 1}}`), apply(`{"spec": {"b": 2}}`), apply(`{"spec": {"a": {"x": 1}}}`)}, "in spec.a: ", 0, ""},
		{"other lists", []string{apply(`{"spec": {"a": [1]}}`), apply(`{"spec": {"a": [2]}}`)}, "in spec.a: ", 0, ""},
		{"merge patches of other fields", []string{patch(`{"spec": {"a": 1}}`), patch(`{"spec": {"b": null}}`)}, `patch {"spec":{"a":1,"b":null}}`, 0, "m0; m1"},
		{"a removal of what another sets", []string{patch(`{"spec": {"a": {"x": 1}}}`), patch(`{"spec": {"a": null}}`)}, "in spec.a: ", 0, ""},
		{"JSON patches of other fields", []string{patch(`[{"op": "add", "path": "/spec/a", "value": 1}]`), patch(`[{"op": "replace", "path": "/spec/b", "value": 1}]`)}, `patch [{"op":"add","path":"/spec/a","value":1}]`, 1, "m0; later, to patch the same object: m1"},
		{"JSON patches of one field", []string{patch(`[{"op": "add", "path": "/spec/a", "value": 1}]`), patch(`[{"op": "replace", "path": "/spec/a", "value": 2}]`)}, "in spec.a: ", 0, ""},
		{"a JSON patch that sets a field twice: the last counts", []string{patch(`[{"op": "add", "path": "/spec/a", "value": 1}, {"op": "replace", "path": "/spec/a", "value": 2}]`), patch(`[{"op": "replace", "path": "/spec/a", "value": 2}]`)}, `patch [{"op":"add","path":"/spec/a","value":1},{"op":"replace","path":"/spec/a","value":2}]`, 1, ""},
		{"JSON patches of one list", []string{patch(`[{"op": "remove", "path": "/spec/a/0"}]`), patch(`[{"op": "add", "path": "/spec/a/-", "value": 1}]`)}, `patch [{"op":"remove","path":"/spec/a/0"}]`, 1, ""},
		{"a JSON patch and a merge patch", []string{patch(`{"spec": {"a": 1}}`), patch(`[{"op": "add", "path": "/spec/b", "value": 1}]`)}, `patch {"spec":{"a":1}}`, 1, ""},
		{"a JSON patch below what another sets", []string{patch(`{"spec": {"a": [1]}}`), patch(`[{"op": "replace", "path": "/spec/a/0", "value": 3}]`)}, "in spec.a: ", 0, ""},
		{"apply and patch", []string{apply(`{"spec": {"a": 1}}`), patch(`{"spec": {"b": 1}}`)}, `apply {"spec":{"a":1}}`, 1, ""},
		{"delete and apply", []string{apply(`{"spec": {"a": 1}}`), `{"action": "delete"}`}, "in whether the object is to exist: ", 0, ""},
		{"two deletions", []string{`{"action": "delete"}`, `{"action": "delete"}`}, "delete ", 0, "m0"},
		{"other propagation", []string{`{"action": "delete", "propagationPolicy": "Orphan"}`, `{"action": "delete", "propagationPolicy": "Background"}`}, "in the propagation policy: ", 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				index := newIndex(t)
				scope := scopeOf(t, index)
				for n := range test.remedies {
					put(t, scope, fmt.Sprint("o", n), 1)
				}
				put(t, scope, "web", 1)
				set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "p.rego", Data: []byte(several(test.remedies...))}}}}, policy.LoadOptions{})
				if err != nil {
					t.Fatal(err)
				}
				a := &fakeActor{policies: map[string]actorState{}}
				c := enforce.NewCorrector(a, nil)
				startLoop(t, enforce.Options{Index: index, Set: set, Bindings: bindingB, Changed: c.Changed})
				setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce})
				a.describe("b")
				if len(a.policies["b"].intents) != 1 {
					t.Fatalf("intents %+v", a.policies["b"].intents)
				}
				i, s := a.policies["b"].intents[0], c.Status("b")
				if got := written(&i); i.Refused == "" && got != test.want || i.Refused != "" && !strings.Contains(i.Refused, test.want) {
					t.Errorf("%s, refused %q, want %s", got, i.Refused, test.want)
				}
				if (i.Refused != "") != (s.Contradicting == 1 && s.Contradiction == i.Refused) || s.Deferred != test.deferred {
					t.Errorf("refused %q, status %+v", i.Refused, s)
				}
				if test.message != "" && i.Message != test.message {
					t.Errorf("message %q, want %q", i.Message, test.message)
				}
				// Once the others are gone the first is as if it were alone.
				for n := range test.remedies[1:] {
					scope.Delete("shop", fmt.Sprint("o", n+1))
				}
				if _, err := scope.Commit(); err != nil {
					t.Fatal(err)
				}
				a.describe("b")
				if i, s := a.policies["b"].intents[0], c.Status("b"); i.Refused != "" || i.Message != "m0" || s.Contradicting != 0 || s.Deferred != 0 {
					t.Errorf("alone: %+v, status %+v", i, s)
				}
			})
		})
	}
}

func written(i *remediate.Intent) string {
	return fmt.Sprintf("%s %s%s", i.Remedy.Action, i.Remedy.Object, i.Remedy.Patch)
}
