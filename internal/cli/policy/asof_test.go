package policy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"federator.dev/federator/internal/cli/input"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/test/clitest"
)

const expiringPolicy = `# METADATA
# title: Nothing has passed
# custom: {severity: low, kinds: [Pod]}
package federator.expiry

violation contains {"msg": "passed"} if data.fleet.passed[input.object.spec.until]
`

const expiringPod = `apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {federator.dev/member: fleet/a}}
spec: {until: "2030-01-02T00:00:00Z"}
`

func TestCommands_JudgeAsOfATime(t *testing.T) {
	policies := t.TempDir()
	if err := os.WriteFile(filepath.Join(policies, "expiry.rego"), []byte(expiringPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	file := clitest.WriteFile(t, "fleet.yaml", expiringPod)
	for at, want := range map[string]int{"": 0, "2030-01-01T23:59:59Z": 0, "2030-01-02T00:00:00Z": 1, "2030-01-02T01:00:00+01:00": 1} {
		args := []string{"--policies", policies, "-f", file}
		if at != "" {
			args = append(args, "--as-of", at)
		}
		r, err := checked(t, args...)
		if len(r.Results) != want || (err != nil) != (want > 0) {
			t.Errorf("as of %q: %d results, %v", at, len(r.Results), err)
		}
	}
	for _, args := range [][]string{
		{"policy", "diff", policies, policies, "-f", file, "--as-of", "2031-01-01T00:00:00Z"},
		{"policy", "explain", "--policies", policies, "-f", file, "--as-of", "2031-01-01T00:00:00Z", "fleet/a", "Pod", "default/web"},
	} {
		out, err := command(t, args...)
		if err != nil {
			t.Errorf("%v: %s %v", args, out, err)
		}
		if args[1] == "explain" && (!strings.Contains(out, "passed") || !strings.Contains(out, "as of 2031-01-01T00:00:00Z")) {
			t.Errorf("explained:\n%s", out)
		}
	}
	for _, at := range []string{"tomorrow", "2026-01-02", "1960-01-01T00:00:00Z"} {
		_, err := command(t, "policy", "check", "--policies", policies, "-f", file, "--as-of", at)
		if !errors.Is(err, input.ErrAsOf) || exit.Code(err) != exit.CodeUsage {
			t.Errorf("as of %q: %v exits with %d", at, err, exit.Code(err))
		}
	}
}
