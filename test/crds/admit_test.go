package crds

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/robfig/cron/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"federator.dev/federator/api/v1alpha1"
)

var (
	dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	strict = metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
)

func TestCRDs_AreEstablished(t *testing.T) {
	hub(t)
	for _, name := range resources() {
		u, err := shared.client.Resource(crdResource).Get(t.Context(), name+".federator.dev", metav1.GetOptions{})
		must(t, err)
		var c apiextensionsv1.CustomResourceDefinition
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &c))
		state := map[apiextensionsv1.CustomResourceDefinitionConditionType]apiextensionsv1.ConditionStatus{}
		for _, cond := range c.Status.Conditions {
			state[cond.Type] = cond.Status
		}
		for want, status := range map[apiextensionsv1.CustomResourceDefinitionConditionType]apiextensionsv1.ConditionStatus{
			apiextensionsv1.Established: apiextensionsv1.ConditionTrue, apiextensionsv1.NamesAccepted: apiextensionsv1.ConditionTrue,
		} {
			if state[want] != status {
				t.Errorf("%s: condition %s is %q, want %s", name, want, state[want], status)
			}
		}
		if s := state[apiextensionsv1.NonStructuralSchema]; s == apiextensionsv1.ConditionTrue {
			t.Errorf("%s: the schema is not structural", name)
		}
		hasStatus := c.Spec.Versions[0].Subresources != nil && c.Spec.Versions[0].Subresources.Status != nil
		scope := apiextensionsv1.ClusterScoped
		if namespaceOf(name) != "" {
			scope = apiextensionsv1.NamespaceScoped
		}
		if c.Spec.Scope != scope || hasStatus != statusApart(name) {
			t.Errorf("%s: scope %s, subresources %v", name, c.Spec.Scope, c.Spec.Versions[0].Subresources)
		}
	}
}

// decode reads an object as a program with the types does: nothing may be unknown
// to them.
func decode(t *testing.T, u *unstructured.Unstructured) (runtime.Object, error) {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	text, err := u.MarshalJSON()
	must(t, err)
	out, _, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode(text, nil, nil)
	return out, err
}

// TestSchema_PrunesNoField: the schema prunes nothing that the types
// have, and the types lose nothing that the schema has.
func TestSchema_PrunesNoField(t *testing.T) {
	for _, resource := range resources() {
		t.Run(resource, func(t *testing.T) {
			c := client(t, resource)
			want := full(t, resource, "kept")
			got := create(t, c, want)
			for _, part := range []string{"spec", "inverse", "status"} {
				if d := cmp.Diff(want.Object[part], got.Object[part]); d != "" {
					t.Errorf("%s was changed (-sent +kept):\n%s", part, d)
				}
			}
			typed, err := decode(t, got)
			must(t, err)
			again, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed.DeepCopyObject())
			must(t, err)
			for _, part := range []string{"spec", "inverse", "status"} {
				// Times have zones, and numbers types: what they mean is compared.
				if d := cmp.Diff(canonical(t, got.Object[part]), canonical(t, again[part])); d != "" {
					t.Errorf("%s was lost by the types (-kept +typed):\n%s", part, d)
				}
			}
			unused(t, resource, schemaOf(t, resource), want.Object, nil)
		})
	}
}

// canonical writes times in UTC, and durations and numbers in one way.
func canonical(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	var out any
	must(t, json.Unmarshal(text, &out))
	return normal(out)
}

func normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = normal(v[k])
		}
	case []any:
		for i := range v {
			v[i] = normal(v[i])
		}
	case string:
		if d, err := time.ParseDuration(v); err == nil {
			return d.String()
		}
		if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return at.UTC().Format(time.RFC3339Nano)
		}
	}
	return v
}

// unused reports fields of a schema that an object does not have, so that full
// objects stay full.
func unused(t *testing.T, resource string, s *apiextensionsv1.JSONSchemaProps, v any, path []string) {
	t.Helper()
	absent := map[string]bool{ // what cannot be there beside the rest
		"spec.ref.tag": true, "spec.ref.commit": true, "spec.ref.name": true, "spec.external.file": true, "spec.external.configMap": true,
		"spec.amends": true, "spec.rollback": true, "spec.policySource": true, "spec.halt": true, "spec.commit": true, "spec.version": resource == v1alpha1.Approvals,
		"spec.propagationPolicy": true, "spec.readOnly": true, "spec.agent": true, "spec.nats": true, "spec.alertmanager": true, "inverse.irreversible": true, "apiVersion": true, "kind": true, "metadata": true,
	}
	switch v := v.(type) {
	case map[string]any:
		for name, p := range s.Properties {
			at := append(path[:len(path):len(path)], name)
			child, ok := v[name]
			if where := strings.Join(at, "."); !ok && !absent[where] && !optionalIn(where) {
				t.Errorf("%s: testdata has no %s", resource, where)
			}
			unused(t, resource, &p, child, at)
		}
	case []any:
		if len(v) > 0 && s.Items != nil && s.Items.Schema != nil {
			unused(t, resource, s.Items.Schema, v[0], path)
		}
	}
}

// optionalIn are fields of structures that are used in several places.
func optionalIn(path string) bool {
	for _, suffix := range []string{".labels", ".names", ".matchLabels", ".matchExpressions", ".values", ".count", ".percent", ".signer", ".author", ".time", ".since", ".health", ".member", ".observedGeneration"} {
		if strings.HasSuffix(path, suffix) {
			return true
		}
	}
	return false
}

func TestSchema_Defaults(t *testing.T) {
	for resource, c := range map[string]struct{ minimal, want string }{
		v1alpha1.FleetPolicies: {`
apiVersion: federator.dev/v1alpha1
kind: FleetPolicy
metadata: {name: minimal}
spec:
  package: a.b
  waves: [{name: all}]
  window: {schedule: "* * * * *", duration: 1h}
  approval: {}
`, `
package: a.b
mode: Observe
unknown: {mode: Strict}
limits: {window: 1h, maxAffected: {policy: {percent: 10}}, maxReversions: 5}
waves: [{name: all, soak: 0s, health: {require: Healthy, timeout: 10m, maxFailed: 0}}]
approval: {required: 1, validFor: 24h}
optOut: Honor
gitops: Respect
window: {schedule: "* * * * *", duration: 1h, timeZone: UTC}
`},
		v1alpha1.PolicySources: {`
apiVersion: federator.dev/v1alpha1
kind: PolicySource
metadata: {name: minimal}
spec:
  url: https://git.example/policies
  verification: {secretRef: {namespace: a, name: b}}
  ceiling: {limits: {policy: {count: 1}}, waves: [{name: all}]}
  external: [{name: a, https: {url: "https://a"}}]
`, `
url: https://git.example/policies
external: [{name: a, https: {url: "https://a", interval: 1m}, maxAge: 1h, maxBytes: 1048576}]
interval: 5m
timeout: 1m
maxPrune: 1
ceiling:
  maxMode: Observe
  limits: {window: 1h, policy: {count: 1}}
  waves: [{name: all, soak: 0s, health: {require: Healthy, timeout: 10m, maxFailed: 0}}]
  gitops: Respect
  optOut: Honor
verification: {mode: Any, secretRef: {namespace: a, name: b}}
`},
		v1alpha1.Actions: {`
apiVersion: federator.dev/v1alpha1
kind: Action
metadata: {name: minimal}
spec: {binding: a, package: b, revision: "1", verb: delete, target: {member: a/b, apiVersion: v1, kind: Pod, name: c, uid: d, resourceVersion: "1"}}
`, `
{binding: a, package: b, revision: "1", verb: delete, target: {member: a/b, apiVersion: v1, kind: Pod, name: c, uid: d, resourceVersion: "1"}}
`},
		v1alpha1.Plans: {`
apiVersion: federator.dev/v1alpha1
kind: Plan
metadata: {name: a-9f86d081884c7d65}
spec:
  policy: a
  purpose: Generation
  hash: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
  generation: 0123456789abcdef0123456789abcdef
  digests:
    package: 60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752
    parameters: fd61a03af4f77d870fc21e05e7e80678095c92d808cfb3b5c279ee04c74aca13
    spec: a4e624d686e03ed2767c0abd85c14426b0b1157d2ce81d27bb4fe4f6f01d688a
    targets: a140c0c1eda2def2b830363ba362aa4d7d255c262960544821f556e16661b6ff
  targets: 0
  parts: 0
`, `
policy: a
purpose: Generation
hash: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
generation: 0123456789abcdef0123456789abcdef
digests:
  package: 60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752
  parameters: fd61a03af4f77d870fc21e05e7e80678095c92d808cfb3b5c279ee04c74aca13
  spec: a4e624d686e03ed2767c0abd85c14426b0b1157d2ce81d27bb4fe4f6f01d688a
  targets: a140c0c1eda2def2b830363ba362aa4d7d255c262960544821f556e16661b6ff
targets: 0
parts: 0
`},
		v1alpha1.Approvals: {`
apiVersion: federator.dev/v1alpha1
kind: Approval
metadata: {name: minimal}
spec: {policySource: a, commit: 0123456789abcdef0123456789abcdef01234567, reason: b, expires: "2027-01-01T00:00:00Z", by: c}
`, `
{policySource: a, commit: 0123456789abcdef0123456789abcdef01234567, reason: b, expires: "2027-01-01T00:00:00Z", by: c}
`},
		v1alpha1.Rollbacks: {`
apiVersion: federator.dev/v1alpha1
kind: Rollback
metadata: {name: minimal}
spec: {policy: a, commit: 0123456789abcdef0123456789abcdef01234567, reason: b, by: c}
`, `
{policy: a, commit: 0123456789abcdef0123456789abcdef01234567, reason: b, by: c}
`},
		v1alpha1.Members: {`
apiVersion: federator.dev/v1alpha1
kind: Member
metadata: {name: minimal}
spec: {kubeconfig: {secret: a}}
`, `
{kubeconfig: {secret: a}}
`},
		v1alpha1.Notifications: {`
apiVersion: federator.dev/v1alpha1
kind: Notification
metadata: {name: minimal}
spec: {webhook: {url: "https://a", secretRef: {name: b}}, rules: [{}]}
`, `
webhook: {url: "https://a", secretRef: {name: b}, groupBy: [Policy, Type, Transition], wait: 10s, interval: 1m, maxMessages: 100}
rules: [{types: [Violation, Policy]}]
`},
	} {
		t.Run(resource, func(t *testing.T) {
			got, err := client(t, resource).Create(t.Context(), parse(t, c.minimal), dryRun)
			must(t, err)
			if d := cmp.Diff(parse(t, c.want).Object, got.Object["spec"]); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if _, err := decode(t, got); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("a limit replaces the default", func(t *testing.T) {
		u := parse(t, `
apiVersion: federator.dev/v1alpha1
kind: FleetPolicy
metadata: {name: counted}
spec: {package: a.b, limits: {maxAffected: {policy: {count: 3}}}}
`)
		got, err := client(t, v1alpha1.FleetPolicies).Create(t.Context(), u, dryRun)
		must(t, err)
		limit, _, _ := unstructured.NestedMap(got.Object, "spec", "limits", "maxAffected", "policy")
		if !reflect.DeepEqual(limit, map[string]any{"count": int64(3)}) {
			t.Errorf("got %v", limit)
		}
	})
}

// TestSchema_AdmittedObjectsCanBeDecoded offers values that some parsers take and others do
// not. What the API server admits, the types and those who use them can read: one
// object that they cannot would stop every list.
func TestSchema_AdmittedObjectsCanBeDecoded(t *testing.T) {
	offers := map[string]struct{ good, bad []string }{
		"durations": {
			good: []string{"1h", "90m", "1h30m", "1.5h", "3600s", "5m0.000000001s", "600000ms", "1h1h"},
			bad: []string{
				"1.5", "h", "1d", "1 h", "-1h", "+1h", ".5h", "1.h", "1e3s", "3600000000us", "999999999h", "0", "", "PT1H", "\uff11h", "1h\n",
			},
		},
		"times": {
			good: []string{"2027-01-01T00:00:00Z", "2027-01-01T00:00:00.123456789Z", "2027-01-01T00:00:00-00:00", "2027-01-01T00:00:00+14:00"},
			bad: []string{
				"2027-01-01t00:00:00z", "2027-01-01T00:00:00,5Z", "2027-01-01 00:00:00Z", "2027-01-01", "2027-02-30T00:00:00Z", "2027-01-01T24:00:00Z",
				"2027-01-01T23:59:60Z", "2027-01-01T00:00:00+25:00", "2027-01-01T00:00:00+00:60", "",
			},
		},
		"schedules": {
			good: []string{"* * * * *", "0 2 * * MON-FRI", "*/5 0-6,22 1,15 jan,Jul 0", "1-2/3 * * * *"},
			bad: []string{
				"60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * * 7", "* * * * mon#1", "* * L * *", "@daily", "* * * *", "* * * * * *",
				" * * * * *", "*  * * * *", "*/0 * * * *", "? * * * *", "*-5 * * * *", "007 * * * *", "TZ=UTC * * * * *", "* * * FOO *", "* * * * S", "",
			},
		},
	}
	check := func(field, value string, read func(*unstructured.Unstructured) error) (admitted bool) {
		t.Helper()
		quoted, err := json.Marshal(value)
		must(t, err)
		u := with(t, full(t, v1alpha1.FleetPolicies, "read"), fmt.Sprintf(field, quoted))
		got, err := client(t, v1alpha1.FleetPolicies).Create(t.Context(), u, dryRun)
		if err != nil {
			return false
		}
		if _, err := decode(t, got); err != nil {
			t.Errorf("%s %q is admitted, and cannot be decoded: %v", field, value, err)
		} else if err := read(got); err != nil {
			t.Errorf("%s %q is admitted, and cannot be used: %v", field, value, err)
		}
		return true
	}
	nothing := func(*unstructured.Unstructured) error { return nil }
	for what, o := range offers {
		for _, value := range slices.Concat(o.good, o.bad) {
			admitted := false
			switch what {
			case "durations":
				admitted = check(`spec: {limits: {window: %s}}`, value, nothing)
				check(`spec: {window: {duration: %s}}`, value, nothing)
				check(`spec: {waves: [{name: a, soak: %s}]}`, value, nothing)
				check(`spec: {waves: [{name: a, health: {timeout: %s}}]}`, value, nothing)
			case "times":
				admitted = check(`spec: {exemptions: [{names: [a], reason: b, expires: %s}]}`, value, nothing)
			case "schedules":
				admitted = check(`spec: {window: {schedule: %s}}`, value, func(*unstructured.Unstructured) error {
					_, err := cron.ParseStandard(value)
					return err
				})
			}
			if want := slices.Contains(o.good, value); admitted != want {
				t.Errorf("%s: %q is admitted: %t, want %t", what, value, admitted, want)
			}
		}
	}
}
