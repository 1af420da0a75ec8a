package archtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"testing"
)

// maxFiles is how many files of production code a folder may have.
const maxFiles = 25

func TestFolders_HaveFewFiles(t *testing.T) {
	files := map[string]int{}
	for _, dir := range []string{"cmd", "internal", "pkg", "api", "client", "policies"} {
		goFiles(t, dir, func(name string, src []byte) {
			if !strings.HasSuffix(name, "_test.go") && !generated.Match(src) {
				files[path.Dir(name)]++
			}
		})
	}
	for dir, n := range files {
		if n > maxFiles {
			t.Errorf("%s has %d files, at most %d are allowed: split it into packages", dir, n, maxFiles)
		}
	}
}

// TestPackages_SayWhatTheyAreFor wants one package comment of each package that is no
// command, which begins with "Package" and its name.
func TestPackages_SayWhatTheyAreFor(t *testing.T) {
	type doc struct {
		name     string
		comments []string
	}
	packages := map[string]*doc{}
	for _, dir := range []string{"cmd", "internal", "pkg", "api", "client", "policies", "test"} {
		goFiles(t, dir, func(name string, src []byte) {
			if strings.Contains(name, "/testdata/") {
				return
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			if file.Name.Name == "main" || strings.HasSuffix(file.Name.Name, "_test") {
				return
			}
			p := packages[path.Dir(name)]
			if p == nil {
				p = &doc{name: file.Name.Name}
				packages[path.Dir(name)] = p
			}
			if comment := packageComment(file); comment != "" {
				p.comments = append(p.comments, comment)
			}
		})
	}
	for dir, p := range packages {
		switch {
		case len(p.comments) != 1:
			t.Errorf("%s has %d package comments, not one", dir, len(p.comments))
		case !strings.HasPrefix(p.comments[0], "Package "+p.name+" "):
			t.Errorf("%s: its comment does not begin with \"Package %s \"", dir, p.name)
		}
	}
}

func packageComment(file *ast.File) string {
	if file.Doc == nil {
		return ""
	}
	return file.Doc.Text()
}
