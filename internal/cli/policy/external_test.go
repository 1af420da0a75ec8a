package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"federator.dev/federator/internal/exit"
	"federator.dev/federator/test/clitest"
)

const ownedPolicy = `# METADATA
# title: Pods are owned
# custom: {severity: low, kinds: [Pod]}
package federator.owned

violation contains {"msg": "nobody owns it"} if not data.fleet.external.cmdb.owners[input.ref.name]
`

const ownedPod = `apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {federator.dev/member: fleet/a}}
`

func TestCommands_JudgeByExternalDocuments(t *testing.T) {
	policies := t.TempDir()
	if err := os.WriteFile(filepath.Join(policies, "owned.rego"), []byte(ownedPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	file := clitest.WriteFile(t, "fleet.yaml", ownedPod)
	const notKnown = `data.fleet.external["cmdb"]: there is no source of that name`
	for name, c := range map[string]struct {
		text, out string // out is in the report, or in the error
		fails     bool
	}{
		"":           {"", notKnown, true},
		"web.yaml":   {"cmdb: {owners: {web: shop}}\n", "0 violations, 0 exempt, 0 unknown", false},
		"none.json":  {`{"cmdb": {"owners": {}}}`, "1 violation, 0 exempt, 0 unknown", true},
		"other.yaml": {"other: {}\n", notKnown, true},
		"bad.json":   {`{"cmdb": }`, "bad.json: line 1, column 10: invalid character '}'", true},
		"list.yaml":  {"- cmdb\n", "list.yaml: it is not an object of documents by source and key", true},
	} {
		args := []string{"policy", "check", "--policies", policies, "-f", file}
		if name != "" {
			args = append(args, "--external", clitest.WriteFile(t, name, c.text))
		}
		out, err := command(t, args...)
		if err != nil {
			out += err.Error()
		}
		if !strings.Contains(out, c.out) || (err != nil) != c.fails {
			t.Errorf("%q: %v, want %q\n%s", name, err, c.out, out)
		}
		if input := strings.HasPrefix(name, "bad") || strings.HasPrefix(name, "list"); input != (err != nil && exit.Code(err) == exit.CodeUsage) {
			t.Errorf("%q exits with %d", name, exit.Code(err))
		}
	}
}
