package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"federator.dev/federator/test/clitest"
)

const admissionPolicies = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: needs-owner}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [services], operations: [CREATE]}
  validations:
  - {expression: "has(object.metadata.labels) && 'owner' in object.metadata.labels", messageExpression: "object.metadata.name + ' has no owner'"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: all}
spec: {policyName: needs-owner, validationActions: [Deny]}
`

// admissionLibrary is a directory with a ValidatingAdmissionPolicy whose binding is edited.
func admissionLibrary(t *testing.T, edit ...string) string {
	t.Helper()
	dir := t.TempDir()
	text := strings.NewReplacer(edit...).Replace(admissionPolicies)
	if err := os.WriteFile(filepath.Join(dir, "owner.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestCheck_FailsForWhatABindingDenies(t *testing.T) {
	file := clitest.WriteFile(t, "manifests.yaml", ownerless)
	owned := clitest.WriteFile(t, "owned.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop, labels: {owner: me}}\n")
	for _, c := range []struct {
		name, file, old, with string
		want                  int
	}{
		{"Deny", file, "", "", 1},
		{"clean", owned, "", "", 0},
		{"Deny and Audit", file, "[Deny]", "[Audit, Deny]", 1},
		{"Warn", file, "[Deny]", "[Warn]", 0},
		{"Warn and Audit", file, "[Deny]", "[Warn, Audit]", 0},
		{"an error", file, "'owner' in", "'owner' inn", 2},
		{"a failing expression", file, "has(object.metadata.labels) && 'owner' in object.metadata.labels", "object.metadata.labels.size() > 0", 3},
		{"a failing expression that is ignored", file, "spec:\n  matchConstraints", "spec:\n  failurePolicy: Ignore\n  matchConstraints", 1},
		{"another resource", file, "[services]", "[pods]", 0},
		{"an object of another version", file, "[v1]", "[v1beta1]", 3},
	} {
		edit := []string{}
		if c.old != "" {
			edit = []string{c.old, c.with}
		}
		out, err := command(t, "policy", "check", "-f", c.file, "--policies", admissionLibrary(t, edit...))
		if got := clitest.ExitCode(err); got != c.want {
			t.Errorf("%s: exits with %d (%v), want %d; prints %s", c.name, got, err, c.want, out)
		}
		if c.want == 1 && (!strings.Contains(out, "web has no owner") || !strings.Contains(out, "admission.needs_owner")) {
			t.Errorf("%s: prints %s", c.name, out)
		}
	}
}

// The definition of a custom kind says what its resource is called.
func TestCheck_KnowsResourcesOfDefinitions(t *testing.T) {
	dir := admissionLibrary(t, `apiGroups: [""]`, "apiGroups: [shop.example]", "services", "widgets")
	widget := "apiVersion: shop.example/v1\nkind: Widget\nmetadata: {name: web, namespace: shop}\n"
	definition := `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.shop.example}
spec: {group: shop.example, scope: Namespaced, names: {kind: Widget, plural: widgets}}
`
	for text, want := range map[string]int{widget: 3, widget + definition: 1} {
		out, err := command(t, "policy", "check", "-f", clitest.WriteFile(t, "manifests.yaml", text), "--policies", dir)
		if got := clitest.ExitCode(err); got != want {
			t.Errorf("exits with %d (%v), want %d; prints %s", got, err, want, out)
		}
	}
}

func TestCommands_TakeAdmissionPolicies(t *testing.T) {
	dir := admissionLibrary(t, "metadata: {name: needs-owner}", "metadata: {name: needs-owner, annotations: {description: Services have owners.}}")
	file := clitest.WriteFile(t, "manifests.yaml", ownerless)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"policy", "lint", dir}, ""},
		{[]string{"policy", "docs", dir}, "Services have owners."},
		{[]string{"policy", "fmt", dir}, ""},
		{[]string{"policy", "bench", "-f", file, "--policies", dir}, "ValidatingAdmissionPolicyBinding/all"},
		{[]string{"policy", "explain", "-f", file, "--policies", dir, "manifests/default Service shop/web"}, "   9           1      0   has(object.metadata.labels)"},
	} {
		out, err := command(t, c.args...)
		if code := clitest.ExitCode(err); code != 0 || !strings.Contains(out, c.want) {
			t.Errorf("%s: exits with %d (%v), prints %s", c.args, code, err, out)
		}
	}
}

// A policy among the manifests is an object: it may well ask about what only a request has.
func TestCheck_JudgesAdmissionPoliciesAmongManifestsAsObjects(t *testing.T) {
	immutable := strings.NewReplacer("needs-owner", "immutable", "[CREATE]", "[UPDATE]", "name: all", "name: immutable").Replace(admissionPolicies)
	owned := "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop, labels: {owner: me}}\n"
	file := clitest.WriteFile(t, "manifests.yaml", owned+"---\n"+immutable)
	if out, err := command(t, "policy", "check", "-f", file, "--policies", admissionLibrary(t)); clitest.ExitCode(err) != 0 {
		t.Errorf("exits with %d (%v), prints %s", clitest.ExitCode(err), err, out)
	}
	constraint := "\n---\napiVersion: constraints.gatekeeper.sh/v1beta1\nkind: NeedsOwner\nmetadata: {name: pods}\nspec: {match: {kinds: [{apiGroups: [''], kinds: [Pod]}]}}\n"
	file = clitest.WriteFile(t, "more.yaml", gatorTemplate+constraint+"---\n"+owned+"---\n"+immutable)
	if out, err := command(t, "policy", "check", "-f", file); clitest.ExitCode(err) != 0 {
		t.Errorf("beside a template: exits with %d (%v), prints %s", clitest.ExitCode(err), err, out)
	}
}
