package crds

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"federator.dev/federator/api/v1alpha1"
)

// change is one of an object that exists: a full one, but for a merge patch.
type change struct {
	was, patch string
	status     bool   // it is of the status
	field      string // that the error names
	want       string // in the error; "" is a change that is admitted
}

const (
	final   = "phase is final: Succeeded can only change to RolledBack; NoOp, Superseded, Protected and RolledBack cannot change"
	record  = "spec is immutable: an Action is a record"
	inverse = "inverse is immutable"
	frozen  = "spec is immutable: a Plan is frozen"
	another = "spec is immutable: create another Approval"

	anotherRollback = "spec is immutable: create another Rollback"
)

func changes() map[string][]change {
	toPhase := func(from, to, want string) change {
		manager := "manager: null"
		return change{
			was: fmt.Sprintf("status: {phase: %s, %s}", from, manager), patch: fmt.Sprintf("status: {phase: %s, %s}", to, manager), status: true, field: "status", want: want,
		}
	}
	actions := []change{
		{patch: `spec: {violation: another}`, field: "spec", want: record},
		{patch: `spec: {target: {name: another}}`, field: "spec", want: record},
		{patch: `spec: {reason: null}`, field: "spec", want: record},
		{patch: `inverse: {patch: '{}'}`, want: inverse},
		{patch: `inverse: null`, want: inverse},
		{was: `inverse: null`, patch: `inverse: {irreversible: "no"}`, want: inverse},
		{patch: `metadata: {labels: {a: b}}`},
		{patch: `status: {attempts: 3}`, status: true},
		{patch: `status: {acknowledgedBy: joe}`, status: true},
		{patch: `status: null`, status: true, want: "status cannot be removed"},
		{patch: `status: {phase: null, manager: null}`, status: true, field: "status", want: "phase cannot be removed"},
		{patch: `status: {phase: Failed}`, status: true, field: "status", want: "manager may be set only if phase is Contended"},
		{patch: `status: {resourceVersion: "1"}`, status: true, field: "status", want: "resourceVersion is immutable once it is set"},
		{patch: `status: {resourceVersion: null}`, status: true, field: "status", want: "resourceVersion is immutable once it is set"},
		toPhase("Succeeded", "RolledBack", ""),
		toPhase("Succeeded", "Succeeded", ""),
		toPhase("Pending", "Writing", ""),
		toPhase("Writing", "Succeeded", ""),
		toPhase("Writing", "Superseded", ""),
		toPhase("Failed", "Writing", ""),
		toPhase("Contended", "Writing", ""),
	}
	for _, end := range []string{"NoOp", "Superseded", "Protected", "RolledBack"} {
		actions = append(actions, toPhase(end, "Writing", final), toPhase(end, "Succeeded", final), toPhase(end, end, ""))
	}
	actions = append(actions, toPhase("Succeeded", "Writing", final), toPhase("Succeeded", "Failed", final))
	return map[string][]change{
		v1alpha1.FleetPolicies: {
			{patch: `spec: {package: another}`, field: "spec.package", want: "package is immutable: create another FleetPolicy"},
			{patch: `spec: {mode: Observe, parameters: null, window: null}`},
			{patch: `status: {halted: null}`, status: true},
			{patch: `status: {halted: {id: null}}`, status: true, field: "status.halted.id", want: "Required value"},
			{patch: `status: {wave: {phase: Nonsense}}`, status: true, field: "status.wave.phase", want: unsupported},
			{patch: `status: {budget: [{scope: Nonsense, targets: 1, allowed: 1, denominator: 1}]}`, status: true, field: "status.budget[0].scope", want: unsupported},
		},
		v1alpha1.PolicySources: {
			{patch: `spec: {url: "https://another.example/a", ref: null}`},
			{patch: `status: {findings: [{severity: Nonsense, message: a}]}`, status: true, field: "status.findings[0].severity", want: unsupported},
			{patch: `status: {activeCommit: {hash: abc}}`, status: true, field: "status.activeCommit.hash", want: noMatch},
		},
		v1alpha1.Actions: actions,
		v1alpha1.Plans: {
			{patch: `spec: {targets: 15}`, field: "spec", want: frozen},
			{patch: `spec: {irreversible: null}`, field: "spec", want: frozen},
			{patch: `metadata: {labels: {a: b}}`},
			{patch: `status: {state: Approved, approvals: []}`, status: true},
			{patch: `status: {state: Nonsense}`, status: true, field: "status.state", want: unsupported},
		},
		v1alpha1.PlanParts: {
			{patch: `spec: {targets: '[]'}`, field: "spec", want: frozen},
			{patch: `metadata: {labels: {a: b}}`},
		},
		v1alpha1.Approvals: {
			{patch: `spec: {by: jane@example.com}`, field: "spec", want: another},
			{patch: `spec: {groups: null}`, field: "spec", want: another},
			{patch: `spec: {expires: "2036-11-22T11:05:00+01:00"}`, field: "spec", want: another},
			{patch: `status: {state: Counts, reason: null}`, status: true},
			{patch: `status: {state: Nonsense}`, status: true, field: "status.state", want: unsupported},
		},
		v1alpha1.Rollbacks: {
			{patch: `spec: {by: joe@example.com}`, field: "spec", want: anotherRollback},
			{patch: `spec: {force: null}`, field: "spec", want: anotherRollback},
			{patch: `spec: {since: "2026-11-21T11:00:00.5Z"}`, field: "spec", want: anotherRollback},
			{patch: `status: {state: Done, reason: null}`, status: true},
			{patch: `status: {state: Nonsense}`, status: true, field: "status.state", want: unsupported},
			{patch: `status: {outcomes: [{result: Nonsense, reason: a, targets: 1}]}`, status: true, field: "status.outcomes[0].result", want: unsupported},
			{patch: `status: {outcomes: [{result: Failed, reason: a, targets: 0}]}`, status: true, field: "status.outcomes[0].targets", want: "greater than or equal to 1"},
		},
		v1alpha1.Members: {
			{patch: `spec: {kubeconfig: {secret: edge-2}, write: null, readOnly: true}`},
			{patch: `spec: {readOnly: true}`, field: "spec", want: "write must not be set for a member that is read-only"},
			{patch: `spec: {kubeconfig: null, write: null, agent: {}}`},
			{patch: `status: {connected: false, lastContactTime: null}`, status: true},
			{patch: `status: {certificateExpires: tomorrow}`, status: true, field: "status.certificateExpires", want: "must be of type date-time"},
		},
		v1alpha1.Notifications: {
			{patch: `spec: {webhook: null, nats: {servers: ["tls://a:4222"]}, rules: null}`},
			{patch: `spec: {webhook: null, alertmanager: {urls: ["https://a"]}, suspend: null}`},
			{patch: `spec: {webhook: null}`, field: "spec", want: oneSink},
			{patch: `status: {processes: []}`, status: true},
			{patch: `status: {processes: [{name: a}, {name: a}]}`, status: true, field: "status.processes[1]", want: "Duplicate value"},
			{patch: `status: {processes: [{name: ""}]}`, status: true, field: "status.processes[0].name", want: "at least 1 chars"},
			{patch: `status: {processes: [{name: a, position: -1}]}`, status: true, field: "status.processes[0].position", want: "greater than or equal to 0"},
			{patch: `status: {processes: [{name: a, waiting: -1}]}`, status: true, field: "status.processes[0].waiting", want: "greater than or equal to 0"},
			{patch: `status: {processes: [{name: a, failures: -1}]}`, status: true, field: "status.processes[0].failures", want: "greater than or equal to 0"},
		},
		v1alpha1.PolicyStates: {
			{patch: `status: {halts: []}`},
			{patch: `status: {halts: [{id: 7f3c}]}`, field: "status.halts[0].reason", want: "Required value"},
			{patch: `status: {rollout: {wave: 2, done: null, healthySince: null}}`},
			{patch: `status: {rollout: {phase: Nonsense}}`, field: "status.rollout.phase", want: unsupported},
		},
	}
}

func TestSchema_Changes(t *testing.T) {
	for resource, list := range changes() {
		for i, c := range list {
			t.Run(fmt.Sprintf("%s/%s to %s", resource, c.was, c.patch), func(t *testing.T) {
				r := client(t, resource)
				old := create(t, r, with(t, full(t, resource, fmt.Sprintf("changed-%d", i)), c.was))
				var subresources []string
				if c.status && statusApart(resource) {
					subresources = []string{"status"}
				}
				_, err := r.Update(t.Context(), with(t, old, c.patch), metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}, subresources...)
				switch {
				case c.want == "":
					must(t, err)
				case err == nil:
					t.Fatal("it is admitted")
				default:
					blamed(t, err, refusal{field: c.field, want: c.want})
				}
			})
		}
	}
}

// create creates an object with its status.
func create(t *testing.T, r dynamic.ResourceInterface, want *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	got := added(t, r, want)
	if want.Object["status"] == nil || got.Object["status"] != nil {
		return got
	}
	got.Object["status"] = want.Object["status"]
	got, err := r.UpdateStatus(t.Context(), got, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
	must(t, err)
	return got
}

// added creates an object, without its status, until the test ends.
func added(t *testing.T, r dynamic.ResourceInterface, want *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	got, err := r.Create(t.Context(), want, strict)
	must(t, err)
	t.Cleanup(func() {
		if err := r.Delete(context.WithoutCancel(t.Context()), got.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return got
}

// TestStatus_IsASubresource: the main resource does not change the status, nor the status subresource the spec.
func TestStatus_IsASubresource(t *testing.T) {
	for _, resource := range resources() {
		if !statusApart(resource) {
			continue
		}
		t.Run(resource, func(t *testing.T) {
			r := client(t, resource)
			sent := full(t, resource, "apart")
			got := added(t, r, sent)
			if got.Object["status"] != nil {
				t.Errorf("a new object has a status: %v", got.Object["status"])
			}
			both := with(t, sent, `metadata: {labels: {changed: "true"}, annotations: {changed: "true"}}`)
			specs := map[string]string{v1alpha1.FleetPolicies: `spec: {suspend: false}`, v1alpha1.PolicySources: `spec: {maxPrune: 7}`}
			changed := specs[resource] // the specs of others are what they are
			both = with(t, both, changed)
			both.SetResourceVersion(got.GetResourceVersion())
			got, err := r.UpdateStatus(t.Context(), both, metav1.UpdateOptions{})
			must(t, err)
			if d := cmp.Diff(sent.Object["spec"], got.Object["spec"]); d != "" || got.GetLabels()["changed"] != "" {
				t.Errorf("with the status something else was written: labels %v, spec (-was +is):\n%s", got.GetLabels(), d)
			}
			if d := cmp.Diff(sent.Object["status"], got.Object["status"]); d != "" || got.GetGeneration() != 1 {
				t.Errorf("generation %d, status (-want +got):\n%s", got.GetGeneration(), d)
			}
			both.SetResourceVersion(got.GetResourceVersion())
			delete(both.Object, "status")
			got, err = r.Update(t.Context(), both, metav1.UpdateOptions{})
			must(t, err)
			if d := cmp.Diff(sent.Object["status"], got.Object["status"]); d != "" {
				t.Errorf("without the status it was written (-was +is):\n%s", d)
			}
			if want := map[bool]int64{true: 1, false: 2}[changed == ""]; got.GetGeneration() != want || got.GetLabels()["changed"] != "true" {
				t.Errorf("generation %d, want %d; labels %v", got.GetGeneration(), want, got.GetLabels())
			}
		})
	}
}

// TestPolicyState_IsWrittenWhole: what federator remembers is there with the first write, since
// corrections rest on it.
func TestPolicyState_IsWrittenWhole(t *testing.T) {
	sent := full(t, v1alpha1.PolicyStates, "whole")
	got := added(t, client(t, v1alpha1.PolicyStates), sent)
	if d := cmp.Diff(sent.Object["status"], got.Object["status"]); d != "" {
		t.Errorf("status (-sent +kept):\n%s", d)
	}
	if _, err := decode(t, got); err != nil {
		t.Error(err)
	}
}

// TestAction_IsCreatedOnce: the second of two processes that record the same
// correction reports it.
func TestAction_IsCreatedOnce(t *testing.T) {
	r := client(t, v1alpha1.Actions)
	create(t, r, full(t, v1alpha1.Actions, "once"))
	if _, err := r.Create(t.Context(), full(t, v1alpha1.Actions, "once"), strict); !apierrors.IsAlreadyExists(err) {
		t.Errorf("want AlreadyExists, got %v", err)
	}
}

// TestAction_AllVerbsAreAdmitted are the kinds of corrections that there are.
func TestAction_AllVerbsAreAdmitted(t *testing.T) {
	for what, patch := range map[string]string{
		"a patch":                       ``,
		"a merge patch":                 `spec: {patchType: Merge, patch: '{}'}`,
		"an apply":                      `spec: {verb: apply, patchType: null, patch: '{"kind":"Ingress"}'}`,
		"an apply that creates":         `{spec: {verb: apply, patchType: null, target: {uid: null, resourceVersion: null}, beforeHash: null}, inverse: {verb: delete, patch: null}}`,
		"a delete":                      `{spec: {verb: delete, patchType: null, patch: null, patchHash: null, propagationPolicy: Foreground, afterHash: null}, inverse: {verb: apply}}`,
		"an irreversible one":           `inverse: {verb: null, patch: null, irreversible: "values of Secrets are not kept"}`,
		"a patch of a Secret's values":  `{spec: {target: {kind: Secret}, patch: null}, inverse: {verb: null, patch: null, irreversible: "values of Secrets are not kept"}}`,
		"a patch of a Secret's labels":  `{spec: {target: {kind: Secret}, patch: '[{"op":"add","path":"/metadata/labels/a","value":"b"}]'}, inverse: {patch: '{"metadata":{"labels":{"a":null}}}'}}`,
		"a ConfigMap's values":          `{spec: {target: {kind: ConfigMap}, patch: null}, inverse: {verb: null, patch: null, irreversible: "values of ConfigMaps are not stored"}}`,
		"a ConfigMap's labels":          `{spec: {target: {kind: ConfigMap}, patch: '[{"op":"add","path":"/metadata/labels/a","value":"b"}]'}, inverse: {patch: '{"metadata":{"labels":{"a":null}}}'}}`,
		"data where values are kept":    `spec: {target: {kind: ConfigMap}, valuesKept: true, patch: '[{"op":"remove","path":"/data/a"}]'}`,
		"without a namespace or reason": `spec: {target: {namespace: null}, reason: null, origin: null, subject: null}`,
	} {
		t.Run(what, func(t *testing.T) {
			got, err := client(t, v1alpha1.Actions).Create(t.Context(), with(t, full(t, v1alpha1.Actions, "admitted"), patch), dryRun)
			must(t, err)
			if _, err := decode(t, got); err != nil {
				t.Error(err)
			}
		})
	}
}
