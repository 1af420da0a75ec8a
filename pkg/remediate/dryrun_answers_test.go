package remediate

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
)

// TestExecutor_TriesOnly: a member's answers to dry runs, and what they would change. Nothing is
// written, and no Action recorded.
func TestExecutor_TriesOnly(t *testing.T) {
	s := newFixture(t)
	one := s.create("ConfigMap", fmt.Sprintf(oneMap, "one"))
	kept := s.create("ConfigMap", `{"metadata":{"name":"kept","annotations":{"federator.dev/protect":""}},"data":{"a":"1"}}`)
	secret := s.create("Secret", `{"metadata":{"name":"secret"},"stringData":{"a":"1"}}`)
	stale := one.DeepCopy()
	stale.SetResourceVersion("1")
	for name, c := range map[string]struct {
		object              *unstructured.Unstructured
		remedy              policy.Remedy
		change              func(*Intent)
		want                v1alpha1.DryRunAnswer
		message, diff, lost string
	}{
		"patch":   {object: one, remedy: patch(`{"data":{"a":"3","b":null,"c":"4"}}`), want: v1alpha1.DryRunPassed, diff: "- data.a: \"1\"\n+ data.a: \"3\"\n- data.b: \"2\"\n+ data.c: \"4\"\n"},
		"delete":  {object: one, remedy: policy.Remedy{Action: "delete"}, want: v1alpha1.DryRunPassed, diff: "- the object\n"},
		"nothing": {object: one, remedy: patch(`{"data":{"a":"1"}}`), want: v1alpha1.DryRunNoOp, message: "nothing would change"},
		"values": {
			object: secret, remedy: patch(`{"data":{"a":"Mg=="},"metadata":{"labels":{"x":"y"}}}`), want: v1alpha1.DryRunPassed, lost: "values of Secrets are not stored",
			diff: "~ data.a: another value, which is not shown\n+ metadata.labels.x: \"y\"\n",
		},
		"contended":   {object: one, remedy: apply(`{"apiVersion":"v1","data":{"a":"3"}}`), want: v1alpha1.DryRunContended, message: "owned by somebody"},
		"refused":     {object: one, remedy: patch(`{"dota":{}}`), want: v1alpha1.DryRunRefused, message: "unknown field"},
		"protected":   {object: kept, remedy: patch(`{"data":{"a":"3"}}`), want: v1alpha1.DryRunProtected, message: "annotated"},
		"another one": {object: stale, remedy: patch(`{"data":{"a":"3"}}`), want: v1alpha1.DryRunSuperseded, message: "has changed"},
		"invalid":     {object: one, remedy: patch(`{"metadata":null}`), want: v1alpha1.DryRunInvalid, message: "cannot be"},
		"too large":   {object: one, remedy: patch(`{"data":{"b":"` + strings.Repeat("x", maxPatch) + `"}}`), want: v1alpha1.DryRunInvalid, message: "at most"},
		"contradicting": {
			object: one, remedy: patch(`{"data":{"a":"3"}}`), change: func(i *Intent) { i.Refused = "they contradict each other" }, want: v1alpha1.DryRunInvalid, message: "contradict",
		},
	} {
		i := s.intentFor(c.object, c.remedy)
		if c.change != nil {
			c.change(i)
		}
		got := s.try(i)
		if got.DryRun != c.want || !strings.Contains(got.Message, c.message) || c.message == "" && got.Message != "" || got.Diff != c.diff || got.Irreversible != c.lost {
			t.Errorf("%s: %s %q, irreversible %q, diff:\n%s", name, got.DryRun, got.Message, got.Irreversible, got.Diff)
		}
		if s.known(i.actionName()) || s.known(i.triedName()) {
			t.Errorf("%s: an Action is recorded", name)
		}
	}
	created := s.intentFor(nil, apply(`{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"1"}}`))
	created.Remedy.Target.Kind, created.Remedy.Target.Namespace, created.Remedy.Target.Name = "ConfigMap", s.ns, "new"
	if got := s.try(created); got.DryRun != v1alpha1.DryRunPassed || !strings.Contains(got.Diff, "+ data.a: \"1\"\n") || strings.Contains(got.Diff, "- ") {
		t.Errorf("create: %s %q, diff:\n%s", got.DryRun, got.Message, got.Diff)
	}
	if s.get("ConfigMap", "new") != nil {
		t.Error("it was created")
	}
	s.expectWrites("configmaps", "one", "create by others")
	s.exec.owner = func(*Intent) (string, error) { return "Application argocd/web", nil }
	if got := s.try(s.intentFor(one, patch(`{"data":{"a":"3"}}`))); got.DryRun != v1alpha1.DryRunManaged || got.Message != "managed by Application argocd/web" {
		t.Errorf("managed: %s %s", got.DryRun, got.Message)
	}
}
