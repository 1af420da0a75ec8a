package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"federator.dev/federator/test/clitest"
)

func TestFormat_RewritesAndLists(t *testing.T) {
	clean := clitest.PolicyTree(t, clitest.OwnedPolicy)
	if out, err := command(t, "policy", "fmt", "--check", "--diff", clean); err != nil || out != "" {
		t.Fatalf("formatted files: %v\n%s", err, out)
	}
	dir := clitest.OwnedPolicyWith(t, clitest.OwnedPolicyFile, "\tnot input.ref.name in", "   not   input.ref.name in")
	path := filepath.Join(dir, clitest.OwnedPolicyFile)
	before := clitest.ReadFile(t, path)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}

	out, err := command(t, "policy", "fmt", "--check", clean, dir)
	if clitest.ExitCode(err) != 1 || err.Error() != "1 file is not formatted" || out != path+"\n" {
		t.Errorf("--check: %v\n%s", err, out)
	}
	out, err = command(t, "policy", "fmt", "--diff", dir)
	if err != nil || !strings.Contains(out, "\n-   not   input.ref.name in input.parameters.exempt\n+\tnot input.ref.name in input.parameters.exempt\n") {
		t.Errorf("--diff: %v\n%s", err, out)
	}
	if clitest.ReadFile(t, path) != before {
		t.Error("--check or --diff has written")
	}

	out, err = command(t, "policy", "fmt", dir)
	if err != nil || out != path+"\n" || clitest.ReadFile(t, path) != clitest.OwnedPolicy[clitest.OwnedPolicyFile] {
		t.Errorf("in place: %v\n%s\n%s", err, out, clitest.ReadFile(t, path))
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file's mode is %v, %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 3 {
		t.Errorf("something is left behind: %v, %v", entries, err)
	}
}

func TestFormat_WritesNothingIfAnyFileIsInvalid(t *testing.T) {
	dir := clitest.OwnedPolicyWith(t, clitest.OwnedPolicyFile, "\tnot input.ref.name in", "   not   input.ref.name in")
	for name, text := range map[string]string{"bad.rego": "package a\n\nx contains if\n", "old.rego": "package b\n\nx[1] { true }\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := clitest.ReadFile(t, filepath.Join(dir, clitest.OwnedPolicyFile))
	out, err := command(t, "policy", "fmt", dir)
	if clitest.ExitCode(err) != 2 || out != "" || !strings.Contains(err.Error(), dir+"/bad.rego:3:") || !strings.Contains(err.Error(), dir+"/old.rego:3:") {
		t.Errorf("%v\n%s", err, out)
	}
	if clitest.ReadFile(t, filepath.Join(dir, clitest.OwnedPolicyFile)) != before {
		t.Error("another file has been written")
	}
	if _, err := command(t, "policy", "fmt", dir+"/none"); clitest.ExitCode(err) != 2 {
		t.Errorf("a directory that is not there: %v", err)
	}
}
