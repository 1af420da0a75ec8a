package manifest_test

import (
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy/internal/manifest"
)

const documents = `apiVersion: admissionregistration.k8s.io/v1beta1
kind: ValidatingAdmissionPolicy
metadata: {name: a, annotations: {federator.dev/severity: low}}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}
  validations: [{expression: "true"}]
status: {observedGeneration: 1}
---
apiVersion: v1
kind: List
items:
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingAdmissionPolicyBinding
  metadata:
    name: b
    annotations: {federator.dev/members: "fleet/eu-*, fleet/us-1", federator.dev/member-selector: stage=prod}
  spec: {policyName: a, validationActions: [Deny, Audit]}
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingWebhookConfiguration
  metadata: {name: ignored}
  webhooks: 7
- apiVersion: admissionregistration.k8s.io/v1alpha1
  kind: MutatingAdmissionPolicy
  metadata: {name: ignored}
---
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: empty}
spec: {crd: {spec: {names: {kind: Empty}}}, targets: [{target: admission.k8s.gatekeeper.sh, rego: "package empty"}]}
`

func TestDocuments_ReadAdmissionPoliciesAmongOthers(t *testing.T) {
	var d manifest.Documents
	d.Read("all.yaml", []byte(documents))
	if len(d.Problems) > 0 || len(d.AdmissionPolicies) != 1 || len(d.Constraints) != 1 || len(d.Templates) != 1 {
		t.Fatalf("%v; %d policies, %d constraints, %d templates", d.Problems, len(d.AdmissionPolicies), len(d.Constraints), len(d.Templates))
	}
	if p := d.AdmissionPolicies[0]; p.Name != "a" || p.Severity != "low" || p.Line != 1 || p.Place("spec.validations[0].expression").Line != 6 {
		t.Errorf("the policy is %+v", p)
	}
	c := d.Constraints[0]
	if c.FullName() != "ValidatingAdmissionPolicyBinding/b" || c.Admission.Policy != "a" || c.Line != 12 || strings.Join(c.Members, " ") != "fleet/eu-* fleet/us-1" || c.MemberSelector == nil {
		t.Errorf("the binding is %+v", c)
	}
	if got := strings.Join(c.ActionsAt(manifest.GatorPoint), " "); got != "Deny Audit" || c.EnforcementAction != "Deny,Audit" {
		t.Errorf("its actions are %s and %s", got, c.EnforcementAction)
	}
}

func TestMentions_LeavesOtherAdmissionDocumentsAlone(t *testing.T) {
	for text, want := range map[string]bool{
		documents: true,
		"apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n": false,
		"kind: ConfigMap": false,
	} {
		if got := manifest.Mentions([]byte(text)); got != want {
			t.Errorf("%.60q: %t", text, got)
		}
	}
}

// FuzzDocuments_Read reads anything: what is no policy is a Problem within the file, or ignored.
func FuzzDocuments_Read(f *testing.F) {
	f.Add([]byte(documents))
	f.Add([]byte("kind: ValidatingAdmissionPolicy\napiVersion: admissionregistration.k8s.io/v1\nspec: {matchConstraints: {resourceRules: [{operations: [CREATE], resources: [a/b, '*/*']}]}}"))
	f.Add([]byte("kind: ValidatingAdmissionPolicyBinding\napiVersion: admissionregistration.k8s.io/v1\nspec: {paramRef: {selector: {matchExpressions: [{operator: In}]}}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var d manifest.Documents
		d.Read("f.yaml", data)
		lines := strings.Count(string(data), "\n") + 2
		for _, p := range d.Problems {
			if p.Line > lines || p.Message == "" {
				t.Errorf("%+v of %d lines", p, lines)
			}
		}
		for _, c := range d.Constraints {
			if c.Name == "" || c.Admission != nil && c.Kind != manifest.AdmissionBindingKind {
				t.Errorf("constraint %+v", c)
			}
		}
	})
}
