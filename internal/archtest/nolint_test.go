package archtest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// directive is a comment that silences linters, which it names.
var directive = regexp.MustCompile(`//` + `nolint:([\w,]+)`)

// TestNolint_NamesLintersThatAreOn finds comments that silence nothing: nolintlint does not,
// since what staticcheck finds differs between build tags.
func TestNolint_NamesLintersThatAreOn(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Linters struct {
			Enable []string
		}
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	on := config.Linters.Enable
	if len(on) < 10 {
		t.Fatalf("only %v are on", on)
	}
	for _, dir := range []string{"cmd", "internal", "pkg", "api", "client", "policies", "test"} {
		goFiles(t, dir, func(path string, src []byte) {
			for i, line := range strings.Split(string(src), "\n") {
				if m := directive.FindStringSubmatch(line); m != nil {
					for _, name := range strings.Split(m[1], ",") {
						if !slices.Contains(on, name) {
							t.Errorf("%s:%d: %s is not on", path, i+1, name)
						}
					}
				}
			}
		})
	}
}
