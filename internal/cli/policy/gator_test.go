package policy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"federator.dev/federator/test/clitest"
)

const gatorTemplate = `
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: needsowner}
spec:
  crd: {spec: {names: {kind: NeedsOwner}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    rego: |
      package needsowner
      violation[{"msg": msg, "details": {"kind": input.review.kind.kind}}] {
        not input.review.object.metadata.labels.owner
        msg := sprintf("%v has no owner", [input.review.object.metadata.name])
      }
`

// gatorLibrary is a directory with a template and a constraint of an action.
func gatorLibrary(t *testing.T, spec string) string {
	t.Helper()
	dir := t.TempDir()
	constraint := "apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: NeedsOwner\nmetadata: {name: all}\nspec:\n  match: {kinds: [{apiGroups: [''], kinds: [Service]}]}\n" + spec
	for name, text := range map[string]string{"template.yaml": gatorTemplate, "constraint.yaml": constraint} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const ownerless = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n"

func TestCheck_ExitsAsGatorTestDoes(t *testing.T) {
	file := clitest.WriteFile(t, "manifests.yaml", ownerless)
	owned := clitest.WriteFile(t, "owned.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop, labels: {owner: me}}\n")
	scoped := "  enforcementAction: scoped\n  scopedEnforcementActions: [{action: deny, enforcementPoints: [{name: %s}]}]\n"
	for _, c := range []struct {
		name, spec, file string
		want             int
	}{
		{"deny by default", "", file, 1},
		{"clean", "", owned, 0},
		{"deny", "  enforcementAction: deny\n", file, 1},
		{"warn", "  enforcementAction: warn\n", file, 0},
		{"dryrun", "  enforcementAction: dryrun\n", file, 0},
		{"scoped to gator", strings.Replace(scoped, "%s", "gator.gatekeeper.sh", 1), file, 1},
		{"scoped to everything", strings.Replace(scoped, "%s", "'*'", 1), file, 1},
		{"scoped to a webhook", strings.Replace(scoped, "%s", "validation.gatekeeper.sh", 1), file, 0},
	} {
		out, err := command(t, "policy", "check", "-f", c.file, "--policies", gatorLibrary(t, c.spec), "-o", "gator")
		if got := clitest.ExitCode(err); got != c.want {
			t.Errorf("%s: exits with %d (%v), want %d; prints %s", c.name, got, err, c.want, out)
		}
		if want := `v1/Service shop/web: ["all"] Message: "web has no owner"` + "\n"; c.want == 1 && out != want {
			t.Errorf("%s: prints %q, want %q", c.name, out, want)
		}
	}
}

func TestCheck_WritesJSONAsGatorTestDoes(t *testing.T) {
	file := clitest.WriteFile(t, "manifests.yaml", ownerless)
	out, err := command(t, "policy", "check", "-f", file, "--policies", gatorLibrary(t, ""), "-o", "gator-json")
	var got []map[string]any
	if e := json.Unmarshal([]byte(out), &got); e != nil || len(got) != 1 || clitest.ExitCode(err) != 1 {
		t.Fatalf("%v, %v: %s", err, e, out)
	}
	constraint, _ := got[0]["constraint"].(map[string]any)
	object, _ := got[0]["violatingObject"].(map[string]any)
	if got[0]["msg"] != "web has no owner" || got[0]["enforcementAction"] != "deny" || constraint["kind"] != "NeedsOwner" || object["kind"] != "Service" ||
		got[0]["target"] != "admission.k8s.gatekeeper.sh" {
		t.Errorf("got %v", got[0])
	}
}
