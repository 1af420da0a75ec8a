package archtest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	testName   = regexp.MustCompile("`((?:Test|Fuzz|Example|Benchmark)[A-Z]\\w*)`")
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example|Benchmark)[A-Z]\w*)\(`)
	runFlag    = regexp.MustCompile(`go test.* -run ['"]?([\w^()|]+)`)
	packageArg = regexp.MustCompile(`go test.* \./((?:pkg|test)/[\w/]+)`)
	folderName = regexp.MustCompile("`((?:api|client|cmd|internal|pkg|policies|test|tools|charts|docs)(?:/[\\w.-]+)*)/?`")
)

// markdown calls f with each of the project's documents.
func markdown(t *testing.T, f func(name, text string)) {
	t.Helper()
	names := []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(filepath.ToSlash(path), root+"/")
		if name == "docs/dev/words" || name == "docs/dev/words.md" { // they have names of before
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".md") {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		f(name, string(text))
	}
}

func TestDocuments_NameTestsThatExist(t *testing.T) {
	exists := map[string]bool{}
	for _, dir := range []string{"api", "client", "cmd", "internal", "pkg", "policies", "test"} {
		goFiles(t, dir, func(path string, src []byte) {
			if strings.HasSuffix(path, "_test.go") {
				for _, m := range testFunc.FindAllSubmatch(src, -1) {
					exists[string(m[1])] = true
				}
			}
		})
	}
	named := 0
	markdown(t, func(name, text string) {
		for _, m := range testName.FindAllStringSubmatch(text, -1) {
			named++
			if !exists[m[1]] {
				t.Errorf("%s names %s, which does not exist", name, m[1])
			}
		}
	})
	if named < 50 {
		t.Errorf("documents name only %d tests: the pattern is wrong", named)
	}
}

// TestMakefile_PatternsMatchTests: go test passes if its -run pattern matches nothing.
func TestMakefile_PatternsMatchTests(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, line := range strings.Split(string(makefile), "\n") {
		run, pkg := runFlag.FindStringSubmatch(line), packageArg.FindStringSubmatch(line)
		if run == nil || pkg == nil {
			continue
		}
		checked++
		pattern, found := regexp.MustCompile(run[1]), false
		goFiles(t, pkg[1], func(_ string, src []byte) {
			found = found || slices.ContainsFunc(testFunc.FindAllSubmatch(src, -1), func(m [][]byte) bool { return pattern.Match(m[1]) })
		})
		if !found {
			t.Errorf("make runs tests %s in %s: none has such a name", run[1], pkg[1])
		}
	}
	if checked < 5 {
		t.Errorf("found only %d go test -run in the Makefile: the pattern is wrong", checked)
	}
}

func TestDocuments_NameFoldersThatExist(t *testing.T) {
	named := 0
	markdown(t, func(name, text string) {
		for _, m := range folderName.FindAllStringSubmatch(text, -1) {
			named++
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", name, m[1])
			}
		}
	})
	if named < 30 {
		t.Errorf("documents name only %d folders: the pattern is wrong", named)
	}
}

// story is a story of testdata that a law names, with or without an asterisk.
var story = regexp.MustCompile("stor(?:y|ies) ((?:`[a-z0-9*-]+`(?:, | and )?)+)")

func TestDocuments_NameStoriesThatExist(t *testing.T) {
	var exist []string
	for _, dir := range []string{"test/e2e/testdata", "test/enforcement/testdata", "cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if name, ok := strings.CutSuffix(filepath.Base(path), ".txtar"); ok {
				exist = append(exist, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	named := 0
	markdown(t, func(name, text string) {
		for _, m := range story.FindAllStringSubmatch(text, -1) {
			for _, n := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(m[1], -1) {
				named++
				if !slices.ContainsFunc(exist, func(s string) bool { ok, _ := filepath.Match(n[1], s); return ok }) {
					t.Errorf("%s names the story %s, which does not exist", name, n[1])
				}
			}
		}
	})
	if named < 10 {
		t.Errorf("documents name only %d stories: the pattern is wrong", named)
	}
}
