package docs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReference_IsUpToDate writes docs/reference with DOCS=write, as make docs does, and
// else compares it with what it would write.
func TestReference_IsUpToDate(t *testing.T) {
	s := built(t)
	for name, generate := range map[string]func(*testing.T, *stage) string{
		"cli.md": cli, "configuration.md": configurationKeys, "metrics.md": metrics, "crds.md": customResources,
	} {
		t.Run(name, func(t *testing.T) {
			text := generate(t, s)
			file := filepath.Join(root, "docs", "reference", name)
			if os.Getenv("DOCS") == "write" {
				must(t, os.MkdirAll(filepath.Dir(file), 0o755))
				must(t, os.WriteFile(file, []byte(text), 0o644))
				return
			}
			is, err := os.ReadFile(file)
			must(t, err)
			if line, differs := difference(string(is), text); differs {
				t.Errorf("docs/reference/%s is out of date (line %d); run `make docs`", name, line)
			}
		})
	}
}

// difference returns the first line in which two texts differ.
func difference(a, b string) (line int, differs bool) {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range max(len(as), len(bs)) {
		if i >= len(as) || i >= len(bs) || as[i] != bs[i] {
			return i + 1, true
		}
	}
	return 0, false
}

// output runs the command without a user's settings, and returns what it prints.
func (s *stage) output(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(s.bin, "federator"), args...)
	cmd.Env = []string{"HOME=/nonexistent"}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("federator %s: %v\n%s", strings.Join(args, " "), err, &errs)
	}
	return string(out)
}

var subcommand = regexp.MustCompile(`(?m)^  ([a-z]+) +\S`)

// cli has what each command says of itself.
func cli(t *testing.T, s *stage) string {
	var out strings.Builder
	out.WriteString("# Commands\n\nGenerated from `federator help` by `make docs`; do not edit.\n")
	var walk func(path []string)
	walk = func(path []string) {
		help := strings.TrimSpace(s.output(t, append([]string{"help"}, path...)...))
		fmt.Fprintf(&out, "\n## %s\n\n```text\n%s\n```\n", strings.Join(append([]string{"federator"}, path...), " "), trailing.ReplaceAllString(help, ""))
		_, list, found := strings.Cut(help, "Available Commands:\n")
		if !found {
			return
		}
		list, _, _ = strings.Cut(list, "\n\n")
		for _, m := range subcommand.FindAllStringSubmatch(list, -1) {
			if m[1] != "help" {
				walk(append(path[:len(path):len(path)], m[1]))
			}
		}
	}
	walk(nil)
	return out.String()
}

var trailing = regexp.MustCompile(`(?m)[ \t]+$`)

// cell makes a text fit into a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
