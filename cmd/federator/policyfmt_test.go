package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const ownerFile = "tenancy/owner/owner.rego"

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPolicyFmt(t *testing.T) {
	clean := policyTree(t, owned)
	if out, err := command(t, "policy", "fmt", "--check", "--diff", clean); err != nil || out != "" {
		t.Fatalf("formatted files: %v\n%s", err, out)
	}
	dir := ownedWith(t, ownerFile, "\tnot input.ref.name in", "   not   input.ref.name in")
	path := filepath.Join(dir, ownerFile)
	before := read(t, path)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}

	out, err := command(t, "policy", "fmt", "--check", clean, dir)
	if code(err) != 1 || err.Error() != "1 file is not formatted" || out != path+"\n" {
		t.Errorf("--check: %v\n%s", err, out)
	}
	out, err = command(t, "policy", "fmt", "--diff", dir)
	if err != nil || !strings.Contains(out, "\n-   not   input.ref.name in input.parameters.exempt\n+\tnot input.ref.name in input.parameters.exempt\n") {
		t.Errorf("--diff: %v\n%s", err, out)
	}
	if read(t, path) != before {
		t.Error("--check or --diff has written")
	}

	out, err = command(t, "policy", "fmt", dir)
	if err != nil || out != path+"\n" || read(t, path) != owned[ownerFile] {
		t.Errorf("in place: %v\n%s\n%s", err, out, read(t, path))
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file's mode is %v, %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 3 {
		t.Errorf("something is left behind: %v, %v", entries, err)
	}
}

func TestPolicyFmtWritesNothingBesideAFileThatIsWrong(t *testing.T) {
	dir := ownedWith(t, ownerFile, "\tnot input.ref.name in", "   not   input.ref.name in")
	for name, text := range map[string]string{"bad.rego": "package a\n\nx contains if\n", "old.rego": "package b\n\nx[1] { true }\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := read(t, filepath.Join(dir, ownerFile))
	out, err := command(t, "policy", "fmt", dir)
	if code(err) != 2 || out != "" || !strings.Contains(err.Error(), dir+"/bad.rego:3:") || !strings.Contains(err.Error(), dir+"/old.rego:3:") {
		t.Errorf("%v\n%s", err, out)
	}
	if read(t, filepath.Join(dir, ownerFile)) != before {
		t.Error("another file has been written")
	}
	if _, err := command(t, "policy", "fmt", dir+"/none"); code(err) != 2 {
		t.Errorf("a directory that is not there: %v", err)
	}
}
