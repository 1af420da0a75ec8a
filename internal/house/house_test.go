package house_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
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

func TestTheIndexStartsNoGoroutine(t *testing.T) {
	goFiles(t, "pkg/aggregate", func(path string, src []byte) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, at := range goroutines(t, path, src) {
			t.Errorf("%s: the index starts no goroutine: training and time come from its caller", at)
		}
	})
}

func TestGoroutinesAreFoundInEachForm(t *testing.T) {
	src := []byte("package p\nimport \"sync\"\nfunc f() { go f(); var wg sync.WaitGroup; wg.Go(f); wg.Wait() }\n")
	if n := len(goroutines(t, "p.go", src)); n != 2 {
		t.Errorf("found %d, want 2", n)
	}
}

func TestFilesAreShort(t *testing.T) {
	for _, dir := range []string{"cmd", "pkg", "api", "client", "test"} {
		goFiles(t, dir, func(path string, src []byte) {
			if n := bytes.Count(src, []byte("\n")); n > 500 {
				t.Errorf("%s has %d lines; split it by what its parts are for", path, n)
			}
		})
	}
}

func TestModulesForOthersHaveNoReplaces(t *testing.T) {
	for _, module := range []string{"api", "client"} {
		data, err := os.ReadFile(filepath.Join(root, module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("replace")) {
			t.Errorf("%s/go.mod has a replace directive, which nobody who imports the module would have", module)
		}
		if module == "api" && bytes.Contains(data, []byte("require")) {
			t.Errorf("%s/go.mod has a require directive: whoever imports the module would pay for it", module)
		}
	}
}
