package archtest_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// goFiles calls f with each Go file below a directory of the project.
func goFiles(t *testing.T, dir string, f func(path string, src []byte)) {
	t.Helper()
	found := 0
	err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found++
		f(strings.TrimPrefix(filepath.ToSlash(path), root+"/"), src)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Fatalf("no Go file below %s", dir)
	}
}

// goroutines returns the positions where a file starts one.
func goroutines(t *testing.T, path string, src []byte) []token.Position {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var at []token.Position
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			at = append(at, fset.Position(n.Pos()))
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Go" {
				at = append(at, fset.Position(n.Pos()))
			}
		}
		return true
	})
	return at
}

func TestAggregate_StartsNoGoroutine(t *testing.T) {
	goFiles(t, "pkg/aggregate", func(path string, src []byte) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, at := range goroutines(t, path, src) {
			t.Errorf("%s: the index starts no goroutine: training and time come from its caller", at)
		}
	})
}

func TestGoroutines_AreFoundInEachForm(t *testing.T) {
	src := []byte("package p\nimport \"sync\"\nfunc f() { go f(); var wg sync.WaitGroup; wg.Go(f); wg.Wait() }\n")
	if n := len(goroutines(t, "p.go", src)); n != 2 {
		t.Errorf("found %d, want 2", n)
	}
}

// generated is the line that https://go.dev/s/generatedcode asks for.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func TestFiles_AreShort(t *testing.T) {
	for _, dir := range []string{"cmd", "internal", "pkg", "api", "client", "policies", "test"} {
		goFiles(t, dir, func(path string, src []byte) {
			if n := bytes.Count(src, []byte("\n")); n > 500 && !generated.Match(src) {
				t.Errorf("%s has %d lines; split it by what its parts are for", path, n)
			}
		})
	}
}

func TestModules_HaveNoReplaces(t *testing.T) {
	for _, module := range []string{"api", "client"} {
		data, err := os.ReadFile(filepath.Join(root, module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("replace")) {
			t.Errorf("%s/go.mod has a replace directive, which nobody who imports the module would have", module)
		}
	}
}

// direct are the requirements of a go.mod that are not marked as indirect.
var direct = regexp.MustCompile(`(?m)^(?:require )?\t?([a-z0-9.-]+\.[a-z]+/\S+) v\S+$`)

func TestModules_APIRequiresOnlyKubernetesTypes(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "api", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	found := direct.FindAllSubmatch(data, -1)
	if len(found) == 0 {
		t.Fatal("api/go.mod requires nothing: the pattern is wrong")
	}
	for _, m := range found {
		if name := string(m[1]); name != "k8s.io/api" && name != "k8s.io/apimachinery" {
			t.Errorf("api/go.mod requires %s: every module that imports it would require it, too", name)
		}
	}
}
