package policy

import (
	"strings"
	"testing"

	"federator.dev/federator/test/clitest"
)

const expansionManifests = gatorTemplate + `
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: NeedsOwner
metadata: {name: pods}
spec:
  match: {kinds: [{apiGroups: [''], kinds: [Pod]}]}
---
apiVersion: expansion.gatekeeper.sh/v1beta1
kind: ExpansionTemplate
metadata: {name: deployments}
spec:
  applyTo: [{groups: [apps], kinds: [Deployment], versions: [v1]}]
  templateSource: spec.template
  generatedGVK: {kind: Pod, group: '', version: v1}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {template: {spec: {}}}
`

const mutator = "---\napiVersion: mutations.gatekeeper.sh/v1\nkind: AssignMetadata\nmetadata: {name: owner}\n"

func TestCheck_ExpandsManifests(t *testing.T) {
	file := clitest.WriteFile(t, "all.yaml", expansionManifests)
	out, err := command(t, "policy", "check", "-f", file, "-o", "gator")
	want := `apps/v1/Deployment shop/web: ["pods"] Message: "[Implied by deployments] web-pod has no owner"` + "\n"
	if clitest.ExitCode(err) != 1 || out != want {
		t.Errorf("exits with %d (%v), prints %s", clitest.ExitCode(err), err, out)
	}
}

func TestCheck_RefusesMutatorsByName(t *testing.T) {
	file := clitest.WriteFile(t, "all.yaml", expansionManifests+mutator)
	_, err := command(t, "policy", "check", "-f", file)
	if clitest.ExitCode(err) != 2 || !strings.Contains(err.Error(), "all.yaml: document 5: AssignMetadata owner") {
		t.Errorf("exits with %d: %v", clitest.ExitCode(err), err)
	}
}
