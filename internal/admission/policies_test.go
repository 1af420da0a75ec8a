package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

const (
	falseName   = "spec.by must be the name of the user who creates the Approval"
	falseGroups = "spec.groups must be groups of the user who creates the Approval"
	noApprove   = "the user may not approve this "
	falseAuthor = "annotation federator.dev/changed-by must be the name of the user who changes the spec, or absent"
	lowered     = "spec.approval may be lowered or removed only by users who may approve this FleetPolicy"
	notYours    = "only federator may write PolicyStates, Plans, PlanParts and the status of Approvals and Rollbacks"
)

// check checks that a request was admitted, or denied by the policy with that message.
func check(t *testing.T, what string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "denied request: "+want)):
		t.Errorf("%s: %v, want it denied: %s", what, err, want)
	}
}

// inForce waits until a policy denies a request, which is a dry run.
func inForce(t *testing.T, want string, try func() error) {
	t.Helper()
	until(t, func() error {
		if err := try(); err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("the policy is not in force: %w", err)
		}
		return nil
	})
}

var tryOnly = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

func approval(spec string) string {
	return `{apiVersion: federator.dev/v1alpha1, kind: Approval, metadata: {generateName: a-},
  spec: {reason: reviewed, expires: "2036-01-01T00:00:00Z", ` + spec + `}}`
}

func TestApprovals_AreOfWhoTheySayAndOfWhoMay(t *testing.T) {
	install(t, approvalsName)
	users := map[string]dynamic.Interface{}
	for _, user := range []string{"jane", "joe"} {
		_, users[user] = clientFor(t, as(t, user, "people", "platform:approvers"))
	}
	_, users["federator"] = clientFor(t, as(t, federator))
	try := func(user, spec string) error {
		_, err := users[user].Resource(approvals).Create(t.Context(), object(t, approval(spec)), tryOnly)
		return err
	}
	inForce(t, falseName, func() error { return try("jane", "fleetPolicy: hosts, halt: a, by: joe") })
	for _, c := range []struct{ user, spec, want string }{
		{"jane", "fleetPolicy: hosts, halt: a, by: jane", ""},
		{"jane", "fleetPolicy: hosts, halt: a, by: jane, groups: [people, platform:approvers]", ""},
		{"jane", "fleetPolicy: hosts, halt: a, by: jane, groups: [people, system:masters]", falseGroups},
		{"jane", "fleetPolicy: costs, halt: a, by: jane", noApprove + "FleetPolicy"},
		{"jane", "policySource: platform, commit: 0123456789abcdef0123456789abcdef01234567, by: jane", ""},
		{"jane", "policySource: hosts, commit: 0123456789abcdef0123456789abcdef01234567, by: jane", noApprove + "PolicySource"},
		{"jane", "fleetPolicy: hosts, halt: a, by: Jane", falseName},
		{"joe", "fleetPolicy: hosts, halt: a, by: jane", falseName},
		{"joe", "fleetPolicy: hosts, halt: a, by: joe", noApprove + "FleetPolicy"},
		{"federator", "fleetPolicy: hosts, halt: a, by: \"" + federator + "\"", noApprove + "FleetPolicy"},
	} {
		check(t, c.user+": "+c.spec, try(c.user, c.spec), c.want)
	}

	got, err := users["jane"].Resource(approvals).Create(t.Context(), object(t, approval("fleetPolicy: hosts, halt: a, by: jane")), metav1.CreateOptions{})
	must(t, err)
	// Server-side apply creates, too.
	_, err = users["joe"].Resource(approvals).Apply(t.Context(), "b", object(t, strings.Replace(approval("fleetPolicy: hosts, halt: a, by: jane"), "generateName: a-", "name: b", 1)), metav1.ApplyOptions{FieldManager: "joe"})
	check(t, "apply", err, falseName)
	_, err = users["joe"].Resource(approvals).Patch(t.Context(), got.GetName(), types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	check(t, "a label", err, "")
	must(t, users["joe"].Resource(approvals).Delete(t.Context(), got.GetName(), metav1.DeleteOptions{}))
}

func TestRollbacks_AreOfWhoTheySayAndOfWhoMay(t *testing.T) {
	install(t, rollbacksName, recordsName)
	const (
		falseName   = "spec.by must be the name of the user who creates the Rollback"
		falseGroups = "spec.groups must be groups of the user who creates the Rollback"
		noRollback  = "the user may not roll back this FleetPolicy"
	)
	users := map[string]dynamic.Interface{}
	for _, user := range []string{"jane", "joe"} {
		_, users[user] = clientFor(t, as(t, user, "people"))
	}
	rollback := func(name, spec string) *unstructured.Unstructured {
		return object(t, `{apiVersion: federator.dev/v1alpha1, kind: Rollback, metadata: {`+name+`}, spec: {reason: bad, since: "2026-01-01T00:00:00Z", `+spec+`}}`)
	}
	try := func(user, spec string) error {
		_, err := users[user].Resource(rollbacks).Create(t.Context(), rollback("generateName: a-", spec), tryOnly)
		return err
	}
	inForce(t, falseName, func() error { return try("jane", "policy: hosts, by: joe") })
	for _, c := range []struct{ user, spec, want string }{
		{"jane", "policy: hosts, by: jane", ""},
		{"jane", "policy: hosts, by: jane, groups: [people]", ""},
		{"jane", "policy: hosts, by: jane, groups: [people, system:masters]", falseGroups},
		{"jane", "policy: costs, by: jane", noRollback},
		{"joe", "policy: hosts, by: jane", falseName},
		{"joe", "policy: hosts, by: joe", noRollback},
	} {
		check(t, c.user+": "+c.spec, try(c.user, c.spec), c.want)
	}
	got, err := users["jane"].Resource(rollbacks).Create(t.Context(), rollback("name: b", "policy: hosts, by: jane"), metav1.CreateOptions{})
	must(t, err)
	inForce(t, notYours, func() error {
		_, err := users["jane"].Resource(rollbacks).Patch(t.Context(), got.GetName(), types.MergePatchType, []byte(`{"status":{"state":"Done"}}`), metav1.PatchOptions{DryRun: tryOnly.DryRun}, "status")
		return err
	})
	must(t, users["joe"].Resource(rollbacks).Delete(t.Context(), got.GetName(), metav1.DeleteOptions{}))
}

// fleetPolicy returns a FleetPolicy with an annotation, "" for none.
func fleetPolicy(by, spec string) string {
	note := ""
	if by != "" {
		note = `, annotations: {federator.dev/changed-by: "` + by + `"}`
	}
	return `{apiVersion: federator.dev/v1alpha1, kind: FleetPolicy, metadata: {name: hosts` + note + `}, spec: {package: a.b, ` + spec + `}}`
}

func TestFleetPolicies_SayWhoHasChangedThem(t *testing.T) {
	install(t, authorsName)
	users := map[string]dynamic.Interface{}
	for _, user := range []string{"jane", "joe"} {
		_, users[user] = clientFor(t, as(t, user, "people"))
	}
	_, users["federator"] = clientFor(t, as(t, federator))
	create := func(user, by string, options metav1.CreateOptions) error {
		_, err := users[user].Resource(fleetPolicies).Create(t.Context(), object(t, fleetPolicy(by, "mode: Observe")), options)
		return err
	}
	inForce(t, falseAuthor, func() error { return create("jane", "joe", tryOnly) })
	check(t, "without a name", create("jane", "", tryOnly), "")
	check(t, "by federator, from git", create("federator", "", tryOnly), "")
	check(t, "by federator, as somebody", create("federator", "jane", tryOnly), falseAuthor)
	must(t, create("jane", "jane", metav1.CreateOptions{}))
	t.Cleanup(func() {
		must(t, users["jane"].Resource(fleetPolicies).Delete(context.WithoutCancel(t.Context()), "hosts", metav1.DeleteOptions{}))
	})
	for _, c := range []struct{ what, user, patch, want string }{
		{"a spec under another's name", "joe", `{"spec":{"mode":"DryRun"}}`, falseAuthor},
		{"a spec under their name", "joe", `{"metadata":{"annotations":{"federator.dev/changed-by":"joe"}},"spec":{"mode":"DryRun"}}`, ""},
		{"a spec under no name", "joe", `{"metadata":{"annotations":{"federator.dev/changed-by":null}},"spec":{"mode":"DryRun"}}`, ""},
		{"a spec under an empty name", "joe", `{"metadata":{"annotations":{"federator.dev/changed-by":""}},"spec":{"mode":"DryRun"}}`, ""},
		{"a spec under their own name again", "jane", `{"spec":{"mode":"DryRun"}}`, ""},
		{"a name without a spec", "joe", `{"metadata":{"annotations":{"federator.dev/changed-by":"joe"}}}`, falseAuthor},
		{"no name without a spec", "jane", `{"metadata":{"annotations":{"federator.dev/changed-by":null}}}`, falseAuthor},
		{"the same spec under their name", "joe", `{"metadata":{"annotations":{"federator.dev/changed-by":"joe"}},"spec":{"mode":"Observe"}}`, falseAuthor},
		{"another annotation", "joe", `{"metadata":{"annotations":{"federator.dev/acknowledge":"1a2b"}}}`, ""},
		{"a spec from git", "federator", `{"spec":{"mode":"DryRun"}}`, ""},
		{"a name from git", "federator", `{"metadata":{"annotations":{"federator.dev/changed-by":"joe"}},"spec":{"mode":"DryRun"}}`, falseAuthor},
	} {
		_, err := users[c.user].Resource(fleetPolicies).Patch(t.Context(), "hosts", types.MergePatchType, []byte(c.patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		check(t, c.what, err, c.want)
	}
	_, err := users["federator"].Resource(fleetPolicies).Patch(t.Context(), "hosts", types.MergePatchType, []byte(`{"status":{"observedGeneration":1}}`), metav1.PatchOptions{}, "status")
	check(t, "a status", err, "")
}

func TestFleetPolicies_LowerApprovalOnlyByWhoMayApprove(t *testing.T) {
	install(t, authorsName)
	users := map[string]dynamic.Interface{}
	for _, user := range []string{"jane", "joe"} {
		_, users[user] = clientFor(t, as(t, user, "people"))
	}
	_, users["federator"] = clientFor(t, as(t, federator))
	_, err := users["joe"].Resource(fleetPolicies).Create(t.Context(), object(t, fleetPolicy("", `approval: {
  required: 2, groups: [a, b], serviceAccounts: ["system:serviceaccount:a:b"], above: 10, validFor: 8h}`)), metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, users["joe"].Resource(fleetPolicies).Delete(context.WithoutCancel(t.Context()), "hosts", metav1.DeleteOptions{}))
	})
	try := func(user, approval string) error {
		if !json.Valid([]byte(approval)) {
			t.Fatalf("%s is no JSON", approval)
		}
		_, err := users[user].Resource(fleetPolicies).Patch(t.Context(), "hosts", types.MergePatchType, []byte(`{"spec":{"approval":`+approval+`}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	inForce(t, lowered, func() error { return try("joe", "null") })
	for approval, isLower := range map[string]bool{
		`null`:                     true,
		`{"required":1}`:           true,
		`{"required":3}`:           false,
		`{"groups":null}`:          true,
		`{"groups":[]}`:            true,
		`{"groups":["a"]}`:         false,
		`{"groups":["a","c"]}`:     true,
		`{"serviceAccounts":null}`: false,
		`{"serviceAccounts":["system:serviceaccount:a:b","system:serviceaccount:a:c"]}`: true,
		`{"above":null}`:      false,
		`{"above":5}`:         false,
		`{"above":11}`:        true,
		`{"validFor":"1h"}`:   false,
		`{"validFor":"480m"}`: false,
		`{"validFor":"9h"}`:   true,
		`{"validFor":null}`:   true, // which is 24h
		`{"required":3,"groups":["a"],"above":null,"validFor":"7h59m"}`: false,
		`{"required":3,"groups":["c"]}`:                                 true,
	} {
		want := ""
		if isLower {
			want = lowered
		}
		check(t, "joe: "+approval, try("joe", approval), want)
		check(t, "git: "+approval, try("federator", approval), want)
		check(t, "jane: "+approval, try("jane", approval), "")
	}
}

func TestRecords_AreFederatorsAlone(t *testing.T) {
	install(t, recordsName)
	_, joe := clientFor(t, as(t, "joe", "people"))
	_, ours := clientFor(t, as(t, federator))
	const digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	plan := object(t, `{apiVersion: federator.dev/v1alpha1, kind: Plan, metadata: {name: a-9f86d081884c7d65}, spec: {policy: a, purpose: Generation, hash: `+digest+`,
  generation: 0123456789abcdef0123456789abcdef, digests: {package: `+digest+`, parameters: `+digest+`, spec: `+digest+`, targets: `+digest+`}, targets: 0, parts: 0}}`)
	inForce(t, notYours, func() error {
		_, err := joe.Resource(plans).Create(t.Context(), plan, tryOnly)
		return err
	})
	_, err := ours.Resource(plans).Create(t.Context(), plan, metav1.CreateOptions{})
	must(t, err)
	_, err = joe.Resource(plans).Patch(t.Context(), plan.GetName(), types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	check(t, "a label", err, notYours)
	check(t, "a delete", joe.Resource(plans).Delete(t.Context(), plan.GetName(), metav1.DeleteOptions{}), notYours)
	_, err = ours.Resource(plans).Patch(t.Context(), plan.GetName(), types.MergePatchType, []byte(`{"status":{"state":"Waiting"}}`), metav1.PatchOptions{}, "status")
	check(t, "federator's status", err, "")
	check(t, "federator's delete", ours.Resource(plans).Delete(t.Context(), plan.GetName(), metav1.DeleteOptions{}), "")

	act := object(t, `{apiVersion: federator.dev/v1alpha1, kind: Action, metadata: {name: written}, spec: {binding: hosts, package: acme.hosts, revision: "1", verb: delete,
  target: {member: fleet/eu-1, apiVersion: v1, kind: Service, namespace: shop, name: web, uid: u, resourceVersion: "1"}}, inverse: {verb: apply, patch: "{}"}}`)
	_, err = joe.Resource(actions).Create(t.Context(), act, metav1.CreateOptions{})
	check(t, "an Action", err, notYours)
	_, err = ours.Resource(actions).Create(t.Context(), act, metav1.CreateOptions{})
	check(t, "federator's Action", err, "")
	_, err = joe.Resource(actions).Patch(t.Context(), "written", types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	check(t, "the phase of an Action", err, notYours)
	_, err = joe.Resource(actions).Patch(t.Context(), "written", types.MergePatchType, []byte(`{"metadata":{"labels":{"federator.dev/rollback":"true"}}}`), metav1.PatchOptions{})
	check(t, "a label of an Action", err, "")
	check(t, "a delete of an Action", joe.Resource(actions).Delete(t.Context(), "written", metav1.DeleteOptions{}), notYours)
	check(t, "federator's delete of an Action", ours.Resource(actions).Delete(t.Context(), "written", metav1.DeleteOptions{}), "")

	given, err := hub(t).Client().CoreV1().RESTClient().Post().AbsPath("/apis/federator.dev/v1alpha1/approvals").SetHeader("Content-Type", "application/yaml").
		Body([]byte(strings.Replace(approval("fleetPolicy: hosts, halt: a, by: joe"), "generateName: a-", "name: given", 1))).Do(t.Context()).Raw()
	if err != nil {
		t.Fatalf("%v: %s", err, given)
	}
	for _, user := range []struct {
		client dynamic.Interface
		want   string
	}{{joe, notYours}, {ours, ""}} {
		_, err = user.client.Resource(approvals).Patch(t.Context(), "given", types.MergePatchType, []byte(`{"status":{"state":"Counts"}}`), metav1.PatchOptions{}, "status")
		check(t, "the status of an Approval", err, user.want)
	}
	must(t, joe.Resource(approvals).Delete(t.Context(), "given", metav1.DeleteOptions{}))
}
