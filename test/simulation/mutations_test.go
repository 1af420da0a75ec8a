package simulation

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The mutations of this tree can be made, and the tests that are to find them exist.
func TestMutations_Apply(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err) // .ci/run and all that tests sources of policies need it, too
	}
	const root = "../.."
	var patches []string
	for _, pattern := range []string{"testdata/mutations/*.patch", "testdata/mutations/units/*.patch"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d patches: %v", pattern, len(found), err)
		}
		patches = append(patches, found...)
	}
	for _, patch := range patches {
		path, err := filepath.Abs(patch)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), git, "apply", "--check", path)
		cmd.Dir = root
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s does not apply to this tree, make it again: %v\n%s", patch, err, output)
		}
		if err := findTest(root, patch); err != nil {
			t.Errorf("%s: %v", patch, err)
		}
	}
}

// findTest looks for the test that a patch of units names in its first line.
func findTest(root, patch string) error {
	if filepath.Base(filepath.Dir(patch)) != "units" {
		return nil
	}
	text, err := os.ReadFile(patch)
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var pkg, test string
	if _, err := fmt.Sscanf(line, "Test: %s %s", &pkg, &test); err != nil {
		return fmt.Errorf("its first line %q names no package and test: %w", line, err)
	}
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if strings.Contains(string(code), "func "+test+"(") {
			return nil
		}
	}
	return fmt.Errorf("package %s has no %s", pkg, test)
}
