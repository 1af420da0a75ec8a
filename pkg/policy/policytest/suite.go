package policytest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"federator.dev/federator/pkg/policy"
)

const (
	suiteGroup = "test.gatekeeper.sh"
	// maxSuiteFiles bounds the files that the suites of a tree name.
	maxSuiteFiles = 100_000
)

// suite is a file of Gatekeeper's tests: each applies one constraint of one template to
// objects, and says which violations there are.
type suite struct {
	dir  string // of the files that it names, within the tree
	name string // of the file, as reported
	line int
	of   suiteDocument
}

type suiteDocument struct {
	APIVersion string      `yaml:"apiVersion"`
	Kind       string      `yaml:"kind"`
	Skip       bool        `yaml:"skip"`
	Tests      []suiteTest `yaml:"tests"`
}

type suiteTest struct {
	Name       string      `yaml:"name"`
	Template   string      `yaml:"template"`
	Constraint string      `yaml:"constraint"`
	Expansion  string      `yaml:"expansion"`
	Cases      []suiteCase `yaml:"cases"`
	Invalid    bool        `yaml:"invalid"`
	Skip       bool        `yaml:"skip"`

	line int
}

type suiteCase struct {
	Name       string      `yaml:"name"`
	Object     string      `yaml:"object"`
	Inventory  []string    `yaml:"inventory"`
	Assertions []assertion `yaml:"assertions"`
	Skip       bool        `yaml:"skip"`

	line int
}

// assertion is about the violations whose messages match.
type assertion struct {
	Violations any     `yaml:"violations"` // a number, "yes" or "no"; "yes" when nothing is said
	Message    *string `yaml:"message"`

	line int
}

func (t *suiteTest) UnmarshalYAML(n *yaml.Node) error {
	type plain suiteTest
	t.line = n.Line
	return n.Decode((*plain)(t))
}

func (c *suiteCase) UnmarshalYAML(n *yaml.Node) error {
	type plain suiteCase
	c.line = n.Line
	return n.Decode((*plain)(c))
}

func (a *assertion) UnmarshalYAML(n *yaml.Node) error {
	type plain assertion
	a.line = n.Line
	return n.Decode((*plain)(a))
}

// readSuites reads the suites of a tree. What they name stays for their tests, and is
// taken out of the source: two tests may well have constraints of one name.
func readSuites(source *policy.Source, tree fs.FS) ([]suite, error) {
	var out []suite
	var bad policy.LoadErrors
	named := map[string]bool{}
	for _, f := range source.Files {
		if ext := path.Ext(f.Path); ext != ".yaml" && ext != ".yml" || strings.HasSuffix(f.Path, "_fleet.yaml") {
			continue
		}
		data, err := readFile(tree, f.Path)
		if err != nil {
			return nil, err
		}
		if len(data) > maxFixture || !bytes.Contains(data, []byte(suiteGroup+"/")) {
			continue
		}
		found, err := decodeSuites(data)
		name := reported(source, f.Path)
		if err != nil {
			bad = append(bad, policy.Finding{Code: "suite", Severity: policy.SeverityError, File: name, Message: err.Error()})
		}
		for _, s := range found {
			s.dir, s.name = path.Dir(f.Path), name
			out = append(out, s)
			s.names(named)
		}
	}
	if len(named) > maxSuiteFiles {
		bad = append(bad, policy.Finding{Code: "suite", Severity: policy.SeverityError, File: source.Name, Message: fmt.Sprintf("suites name more than %d files", maxSuiteFiles)})
	}
	if len(bad) > 0 {
		return nil, bad
	}
	source.Files = slices.DeleteFunc(slices.Clone(source.Files), func(f policy.File) bool { return named[f.Path] })
	return out, nil
}

func reported(source *policy.Source, file string) string {
	if source.Name == "" {
		return file
	}
	return source.Name + "/" + file
}

func decodeSuites(data []byte) ([]suite, error) {
	var out []suite
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var n yaml.Node
		if err := d.Decode(&n); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		var kind struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string `yaml:"kind"`
		}
		if err := n.Decode(&kind); err != nil || kind.Kind != "Suite" || !strings.HasPrefix(kind.APIVersion, suiteGroup+"/") {
			continue
		}
		s := suite{line: n.Line}
		if err := n.Decode(&s.of); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
}

// names adds the files that a suite names.
func (s *suite) names(to map[string]bool) {
	add := func(file string) {
		if file != "" {
			to[path.Join(s.dir, file)] = true
		}
	}
	for _, t := range s.of.Tests {
		add(t.Template)
		add(t.Constraint)
		add(t.Expansion)
		for _, c := range t.Cases {
			add(c.Object)
			for _, f := range c.Inventory {
				add(f)
			}
		}
	}
}

// check returns why violations are not as asserted, "" if they are.
func (a *assertion) check(messages []string) (string, error) {
	matching := len(messages)
	of := "violations"
	if a.Message != nil {
		re, err := regexp.Compile(*a.Message)
		if err != nil {
			return "", fmt.Errorf("message: %w", err)
		}
		matching = 0
		for _, m := range messages {
			if re.MatchString(m) {
				matching++
			}
		}
		of = fmt.Sprintf("violations with %q", *a.Message)
	}
	switch want := a.Violations.(type) {
	case int:
		if want < 0 {
			break
		}
		if matching != want {
			return strconv.Itoa(want) + " " + of, nil
		}
		return "", nil
	case nil, string:
		switch {
		case want == nil || want == "yes":
			if matching == 0 {
				return "at least one of " + of, nil
			}
			return "", nil
		case want == "no":
			if matching > 0 {
				return "no " + of, nil
			}
			return "", nil
		}
	}
	return "", fmt.Errorf("violations is %v; it is a number, yes or no", a.Violations)
}
