package policies_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/policytest"
	"federator.dev/federator/policies"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestThePoliciesPassTheirTests(t *testing.T) {
	r, err := policytest.Run(t.Context(), policies.FS, policytest.Options{Name: "policies", Coverage: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Cases {
		for _, f := range c.Failures {
			t.Error(f)
		}
		if c.Outcome == policytest.Skipped {
			t.Errorf("%s:%d: %s is put off", c.File, c.Line, c.Name)
		}
	}
	t.Logf("%d tests of %d policies, which evaluate %.1f%% of their lines", len(r.Cases), len(r.Set.Packages), r.Coverage.Percent)
	for _, f := range r.Coverage.Files {
		if f.Percent < 90 {
			t.Errorf("%s: tests evaluate %.1f%% of the lines, not %v", f.File, f.Percent, f.Missed)
		}
	}
	for _, f := range policy.Lint(r.Set) {
		t.Error(f)
	}
}

// TestEveryPolicyIsTested: each has Rego tests that fire and others, and a fixture
// of a fleet that is not known whole.
func TestEveryPolicyIsTested(t *testing.T) {
	source, err := policy.ReadSource("", policies.FS)
	if err != nil {
		t.Fatal(err)
	}
	set, err := policy.Load([]policy.Source{source}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fleet := 0
	for _, p := range set.Packages {
		dir, name := path.Dir(p.File), path.Base(path.Dir(p.File))
		if p.File != path.Join(dir, name+".rego") || p.Name != "federator."+strings.ReplaceAll(dir, "/", ".") {
			t.Errorf("%s is package %s: the place of a policy is <category>/<name>/<name>.rego, its package federator.<category>.<name>", p.File, p.Name)
		}
		if n := regoTests(set, dir); n < 2 {
			t.Errorf("%s has %d Rego tests, want one that fires and one that must not", p.File, n)
		}
		// What names no kind reads no scope, so that nothing of it can be Unknown.
		scopes := p.AnyKind || len(p.Kinds)+len(p.Reads.ByName)+len(p.Reads.Objects)+len(p.Reads.Views) > 0
		if fires, open := expectations(t, path.Join(dir, name+"_fleet.yaml")); fires == 0 || scopes && open == 0 {
			t.Errorf("%s_fleet.yaml expects %d verdicts with violations and %d that are Unknown, want some of each", path.Join(dir, name), fires, open)
		}
		if p.Title == "" || p.Description == "" {
			t.Errorf("%s: METADATA has no title or no description", p.File)
		}
		if len(p.Reads.Views)+len(p.Reads.ByName)+len(p.Reads.Objects) > 0 || p.Reads.Members != nil {
			fleet++
		}
	}
	t.Logf("%d policies, of which %d read the fleet", len(set.Packages), fleet)
}

// regoTests counts the Rego tests in a directory.
func regoTests(set *policy.Set, dir string) int {
	n := 0
	for file, m := range set.Tests {
		if path.Dir(file) != dir {
			continue
		}
		for _, r := range m.Rules {
			if strings.HasPrefix(r.Head.Name.String(), "test_") {
				n++
			}
		}
	}
	return n
}

// expectations counts the verdicts that a fixture expects to have violations, and
// to be Unknown.
func expectations(t *testing.T, file string) (fires, open int) {
	t.Helper()
	f, err := policies.FS.Open(file)
	if err != nil {
		t.Error(err)
		return 0, 0
	}
	defer f.Close()
	for d := yaml.NewDecoder(f); ; {
		var c struct {
			Expect []struct {
				State      string
				Violations []string
			}
		}
		if err := d.Decode(&c); errors.Is(err, io.EOF) {
			return fires, open
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, e := range c.Expect {
			if len(e.Violations) > 0 {
				fires++
			}
			if e.State == "Unknown" {
				open++
			}
		}
	}
}

func TestTheWholeTreeIsEmbedded(t *testing.T) {
	list := func(tree fs.FS) []string {
		var names []string
		if err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
			if !d.IsDir() && (strings.HasSuffix(name, ".rego") || strings.HasSuffix(name, ".yaml")) {
				names = append(names, name)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return names
	}
	if embedded, there := list(policies.FS), list(os.DirFS(".")); len(there) == 0 || !slices.Equal(embedded, there) {
		t.Errorf("embedded are\n%q\nthere are\n%q", embedded, there)
	}
}
