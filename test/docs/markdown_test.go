package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// documents returns the files whose commands are run, in the order in which they run.
func documents(t *testing.T) []string {
	t.Helper()
	out := []string{"README.md", "CONTRIBUTING.md", "charts/federator/README.md"}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("docs has no pages: %v", err)
	}
	for _, page := range pages {
		out = append(out, "docs/"+filepath.Base(page))
	}
	return out
}

// block is a fenced block of a document.
type block struct {
	line     int    // of its first line of text
	language string // of the fence
	text     string
}

// blocks returns the fenced blocks of a document.
func blocks(text string) ([]block, error) {
	var out []block
	var open *block
	for i, line := range strings.Split(text, "\n") {
		fence, ok := strings.CutPrefix(line, "```")
		switch {
		case ok && open == nil:
			open = &block{line: i + 2, language: fence}
		case ok && fence != "":
			return nil, fmt.Errorf("line %d: a block opens within the one of line %d", i+1, open.line-1)
		case ok:
			out = append(out, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			return nil, fmt.Errorf("line %d: an indented fence hides what is in it", i+1)
		}
	}
	if open != nil {
		return nil, fmt.Errorf("line %d: the block has no end", open.line-1)
	}
	return out, nil
}

// languages are those that a fence may name, and whether such a block has commands.
var languages = map[string]bool{"sh": true, "console": true, "yaml": false, "rego": false, "text": false, "mermaid": false, "go": false}

var fileName = regexp.MustCompile(`^# ([\w./-]+\.(?:yaml|yml|rego))\n`)

// file returns the name of the file that a block is the content of, if it is.
func (b block) file() string {
	if m := fileName.FindStringSubmatch(b.text); m != nil {
		return m[1]
	}
	return ""
}

// command is a command of a document.
type command struct {
	line int
	text string   // one or more lines, as bash takes them
	exit string   // the code that it exits with
	want []string // lines of output; nil where the document shows none
}

var exits = regexp.MustCompile(`#.*\bexits with (\d+)`)

// commands returns the commands of a block. In a console block they follow "$ ".
func (b block) commands() []command {
	var out []command
	going := false // the line before ends with a backslash
	for i, line := range strings.Split(strings.TrimSuffix(b.text, "\n"), "\n") {
		typed := line
		if b.language == "console" && !going {
			var ok bool
			if typed, ok = strings.CutPrefix(line, "$ "); !ok {
				if len(out) > 0 {
					out[len(out)-1].want = append(out[len(out)-1].want, line)
				}
				continue
			}
		}
		switch {
		case going:
			out[len(out)-1].text += "\n" + typed
		case strings.TrimSpace(typed) == "" || strings.HasPrefix(typed, "#"):
			continue
		default:
			out = append(out, command{line: b.line + i, text: typed, exit: "0"})
		}
		if m := exits.FindStringSubmatch(typed); m != nil {
			out[len(out)-1].exit = m[1]
		}
		going = strings.HasSuffix(typed, `\`)
	}
	return out
}

// load reads a document.
func load(t *testing.T, name string) []block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	all, err := blocks(string(text))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return all
}

func TestDocuments_BlocksNameTheirLanguage(t *testing.T) {
	for _, name := range documents(t) {
		for _, b := range load(t, name) {
			if _, ok := languages[b.language]; !ok {
				t.Errorf("%s:%d: a block of language %q: %v are known, and commands are in sh or console", name, b.line-1, b.language, slices.Sorted(keys(languages)))
			}
		}
	}
}

func TestCommands_AreFoundInEachForm(t *testing.T) {
	all, err := blocks("a\n```sh\n# about\nmake build   # comment\n\nfederator serve \\\n  --config x   # exits with 2\n```\n```console\n$ kubectl get pods\nNAME  READY\n$ true\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range all {
		for _, c := range b.commands() {
			got = append(got, fmt.Sprintf("%d %q %s %q", c.line, c.text, c.exit, c.want))
		}
	}
	want := []string{
		`4 "make build   # comment" 0 []`, `6 "federator serve \\\n  --config x   # exits with 2" 2 []`,
		`10 "kubectl get pods" 0 ["NAME  READY"]`, `12 "true" 0 []`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// link is a link to a file of the repository.
var link = regexp.MustCompile(`\]\(([^)\s:#]+)(#[^)\s]*)?\)`)

func TestDocuments_LinksLeadSomewhere(t *testing.T) {
	names := append(documents(t), "ARCHITECTURE.md", "CHANGELOG.md", "policies/README.md", "test/bench/README.md")
	for _, dir := range []string{"docs/reference", "docs/dev"} {
		more, err := filepath.Glob(filepath.Join(root, dir, "*.md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range more {
			names = append(names, dir+"/"+filepath.Base(m))
		}
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(name), m[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, m[1])
			}
		}
	}
}
