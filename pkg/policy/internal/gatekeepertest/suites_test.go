package gatekeepertest

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy/policytest"
)

// gatekeeperDir is the tree of Gatekeeper's module, as it is required.
func gatekeeperDir(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/open-policy-agent/gatekeeper/v3").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// suiteDirs are the directories of a tree that have suites.
func suiteDirs(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if ext := filepath.Ext(file); err != nil || d.IsDir() || ext != ".yaml" && ext != ".yml" {
			return err
		}
		data, err := os.ReadFile(file)
		if dir := filepath.Dir(file); bytes.Contains(data, []byte("test.gatekeeper.sh/")) && bytes.Contains(data, []byte("kind: Suite")) && !slices.Contains(out, dir) {
			out = append(out, dir)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSuites_Gatekeeper runs every suite in Gatekeeper's tree as it is there.
func TestSuites_Gatekeeper(t *testing.T) {
	passed := 0
	for _, dir := range suiteDirs(t, gatekeeperDir(t)) {
		r, err := policytest.Run(t.Context(), os.DirFS(dir), policytest.Options{})
		if err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		for _, c := range r.Cases {
			switch {
			case c.Outcome == policytest.Skipped:
				t.Logf("%s: not judged: %s", c.ID, c.Reason)
			case c.Outcome != policytest.Passed:
				t.Errorf("%s: %s %v", c.ID, c.Outcome, c.Failures)
			default:
				passed++
			}
		}
	}
	t.Logf("%d cases passed", passed)
	if passed < 9 {
		t.Errorf("%d cases passed: where are the suites?", passed)
	}
}
