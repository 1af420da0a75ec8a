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

// crowded are folders that have more than maxFiles today; the list only gets shorter.
var crowded = map[string]bool{
	"cmd/federator":        true,
	"pkg/clusterinformers": true,
}

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
		switch {
		case n > maxFiles && !crowded[dir]:
			t.Errorf("%s has %d files, at most %d are allowed: make packages of it", dir, n, maxFiles)
		case n <= maxFiles && crowded[dir]:
			t.Errorf("%s has %d files: delete it from the list of crowded folders", dir, n)
		}
	}
	for dir := range crowded {
		if files[dir] == 0 {
			t.Errorf("%s has no files: delete it from the list of crowded folders", dir)
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
