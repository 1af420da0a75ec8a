package gatekeepertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/gatekeeper/v3/pkg/expansion/fixtures"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/gator/reader"
	gator "github.com/open-policy-agent/gatekeeper/v3/pkg/gator/test"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// gatorRun is what gator test, or policy check, does about files.
type gatorRun struct {
	json, yaml, text string
	exit             int
	failed           string // why; "": it printed what it found
}

// runGator does what the command of gator does with what its packages return.
func runGator(t *testing.T, files []string, denyOnly bool) gatorRun {
	t.Helper()
	objects, err := reader.ReadSources(files, nil, "")
	if err != nil {
		return gatorRun{exit: 1, failed: err.Error()}
	}
	responses, err := gator.Test(objects, gator.WithK8sCEL(false))
	if err != nil {
		return gatorRun{exit: 1, failed: err.Error()}
	}
	var out gatorRun
	var results []*gator.GatorResult
	var text strings.Builder
	for _, r := range responses.Results() {
		inOrder(t, r)
		denied := r.EnforcementAction == "deny"
		for _, action := range r.ScopedEnforcementActions {
			denied = denied || action == "deny"
		}
		if denied {
			out.exit = 1
		}
		if denyOnly && !denied {
			continue
		}
		results = append(results, r)
		o := r.ViolatingObject
		name := strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
		text.WriteString(o.GetAPIVersion() + "/" + o.GetKind() + " " + name + ": [" + quote(t, r.Constraint.GetName()) + "] Message: " + quote(t, r.Msg) + "\n")
	}
	out.text = text.String()
	out.json = string(must(json.MarshalIndent(results, "", "    "))(t))
	friendly := []*gator.YamlGatorResult{}
	if err := json.Unmarshal(must(json.Marshal(gator.GetYamlFriendlyResults(results)))(t), &friendly); err != nil {
		t.Fatal(err)
	}
	out.yaml = string(must(yaml.Marshal(friendly))(t))
	return out
}

// inOrder puts the actions of a result, which gator takes from a map, in the order in which
// its constraint names them.
func inOrder(t *testing.T, r *gator.GatorResult) {
	t.Helper()
	named, _, err := unstructured.NestedSlice(r.Constraint.Object, "spec", "scopedEnforcementActions")
	if err != nil {
		t.Fatal(err)
	}
	first := func(action string) int {
		return slices.IndexFunc(named, func(of any) bool { return of.(map[string]any)["action"] == action })
	}
	slices.SortFunc(r.ScopedEnforcementActions, func(a, b string) int { return first(a) - first(b) })
}

func quote(t *testing.T, s string) string {
	t.Helper()
	raw := string(must(json.Marshal(s))(t))
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(raw)
}

func must(raw []byte, err error) func(*testing.T) []byte {
	return func(t *testing.T) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
}

// buildFederator builds the program.
func buildFederator(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "federator")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/federator")
	build.Dir = "../../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// runFederator runs the program, with standard input from a file unless that is "".
func runFederator(t *testing.T, program string, files []string, stdin string, denyOnly bool) gatorRun {
	t.Helper()
	var out gatorRun
	for _, format := range []struct {
		name string
		into *string
	}{{"gator", &out.text}, {"gator-json", &out.json}, {"gator-yaml", &out.yaml}} {
		args := []string{"policy", "check", "-o", format.name}
		for _, f := range files {
			args = append(args, "-f", f)
		}
		if denyOnly {
			args = append(args, "--deny-only")
		}
		cmd := exec.CommandContext(t.Context(), program, args...)
		if stdin != "" {
			in, err := os.Open(stdin)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			cmd.Stdin = in
		}
		printed, err := cmd.Output()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		*format.into, out.exit = string(printed), cmd.ProcessState.ExitCode()
		if exit != nil && !strings.Contains(string(exit.Stderr), " of severity ") { // findings
			out.failed = string(exit.Stderr)
		}
	}
	return out
}

// TestGatorTest_EqualsPolicyCheck compares what federator policy check writes, and exits
// with, to what gator test does, byte by byte.
func TestGatorTest_EqualsPolicyCheck(t *testing.T) {
	theirs := filepath.Join(gatekeeperDir(t), "test", "gator", "test", "fixtures")
	program := buildFederator(t)
	at := func(names ...string) []string {
		for i, name := range names {
			if strings.Contains(name, "/") {
				names[i] = filepath.Join(theirs, name)
			} else {
				names[i] = filepath.Join("testdata", "gator", name)
			}
		}
		return names
	}
	t.Run("namespaces", func(t *testing.T) { testNamespaces(t, program) })
	t.Run("standard input", func(t *testing.T) { testStdin(t, program, theirs) })
	t.Run("gator's expansions", func(t *testing.T) { testExpansions(t, program) })
	for _, c := range []struct {
		name     string
		files    []string
		exit     int
		denyOnly bool
	}{
		{"violations", at("policies.yaml", "objects.yaml"), 1, false},
		{"objects first", at("objects.yaml", "policies.yaml"), 1, false},
		{"clean", at("policies.yaml", "clean.yaml"), 0, false},
		{"actions", at("policies.yaml", "actions.yaml", "objects.yaml"), 1, false},
		{"actions, denied only", at("policies.yaml", "actions.yaml", "objects.yaml"), 1, true},
		{"warned", at("policies.yaml", "warn.yaml"), 0, false},
		{"warned, denied only", at("policies.yaml", "warn.yaml"), 0, true},
		{"expansion", at("policies.yaml", "expansion.yaml"), 1, false},
		{"expansion with an action", at("policies.yaml", "expansion-warn.yaml"), 0, false},
		{"expansion by two templates", at("policies.yaml", "expansion-two.yaml"), 1, false},
		{"expansion of what is expanded", at("policies.yaml", "expansion-recursive.yaml"), 1, false},
		{"expansion in a cycle", at("policies.yaml", "expansion-cycle.yaml"), 1, false},
		{"expansion without a source", at("policies.yaml", "expansion-no-source.yaml"), 1, false},
		{"expansion of itself", at("policies.yaml", "expansion-itself.yaml"), 1, false},
		{"expansion of what is in no namespace", at("policies.yaml", "expansion-nowhere.yaml"), 1, false},
		{"expansion in a Namespace that is not there", at("policies.yaml", "expansion-missing.yaml"), 1, false},
		{"a Namespace that is not there", at("policies.yaml", "missing.yaml"), 1, false},
		{"a Namespace that is not there, denied only", at("policies.yaml", "missing.yaml"), 1, true},
		{"given twice", at("policies.yaml", "twice.yaml"), 1, false},
		{"given twice, clean", at("policies.yaml", "twice-clean.yaml"), 0, false},
		{"a file given twice", at("policies.yaml", "source.yaml", "twice-clean.yaml", "twice-clean.yaml"), 1, false},
		{"source", at("policies.yaml", "source.yaml"), 1, false},
		{"gator's violations", at("manifests/with-policies/with-violations.yaml"), 1, false},
		{"gator's defaults", at("manifests/with-policies/with-violations-and-defaults.yaml"), 1, false},
		{"gator's Rego v1", at("manifests/with-policies/with-violations-rego-v1.yaml"), 1, false},
		{"gator's clean", at("manifests/with-policies/no-violations.yaml"), 0, false},
		{"gator's directory", at("policies/default", "manifests/no-policies/with-violations.yaml"), 1, false},
		{"gator's inventory", at("policies/default", "manifests/referential-data"), 1, false},
		{"gator's extensions", at("manifests/different-extensions"), 1, false},
		{"gator's expansion", at("manifests/expansion"), 1, false},
		{"gator's broken template", at("manifests/invalid-resources/template.yaml"), 1, false},
		{"gator's constraint without a template", at("manifests/invalid-resources/constraint.yaml"), 1, false},
		{"gator's broken object", at("manifests/invalid-resources/object.yaml"), 1, false},
		{"gator's expansion in a Namespace that is not there", append(at("policies.yaml"), filepath.Join(theirs, "../../expand/fixtures/expand-with-missing-ns/input")), 1, false},
		{"not there", at("absent.yaml"), 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := runGator(t, c.files, c.denyOnly)
			if want.exit != c.exit {
				t.Errorf("gator exits with %d, not %d: %+v", want.exit, c.exit, want)
			}
			want.compare(t, runFederator(t, program, c.files, "", c.denyOnly))
		})
	}
}

// compare compares what federator does with what gator does.
func (want gatorRun) compare(t *testing.T, got gatorRun) {
	t.Helper()
	if got.exit != want.exit || (got.failed == "") != (want.failed == "") {
		t.Errorf("exits with %d, gator with %d\nours  %s %s\ngator %s %s", got.exit, want.exit, got.failed, got.text, want.failed, want.text)
	}
	if want.failed != "" {
		return
	}
	for _, x := range [][3]string{{"text", got.text, want.text}, {"json", got.json, want.json}, {"yaml", got.yaml, want.yaml}} {
		if x[1] != x[2] {
			t.Errorf("%s differs: %s", x[0], firstDifference(x[1], x[2]))
		}
	}
}

// testNamespaces compares which constraints select what is in no namespace, or in one that is
// or is not given. All say the same of an object, of which gator has no order.
func testNamespaces(t *testing.T, program string) {
	files := []string{"testdata/gator/policies.yaml", "testdata/gator/names.yaml"}
	lines := func(of gatorRun) []string { return slices.Sorted(strings.Lines(of.text)) }
	want, got := runGator(t, files, false), runFederator(t, program, files, "", false)
	if len(lines(want)) < 30 || !slices.Equal(lines(got), lines(want)) {
		t.Errorf("ours more %v, gator %v", minus(lines(got), lines(want)), minus(lines(want), lines(got)))
	}
}

// testStdin compares manifests that are given as standard input alone.
func testStdin(t *testing.T, program, theirs string) {
	for _, name := range []string{"with-violations.yaml", "no-violations.yaml"} {
		file := filepath.Join(theirs, "manifests", "with-policies", name)
		want := runGator(t, []string{file}, false)
		want.compare(t, runFederator(t, program, nil, file, false))
	}
}

// testExpansions compares Gatekeeper's own fixtures of expansion, those without mutators.
func testExpansions(t *testing.T, program string) {
	for name, list := range map[string][]string{
		"pods":           {fixtures.TempExpDeploymentExpandsPods, fixtures.DeploymentNginx, fixtures.DeploymentNginxWithNs},
		"dry run":        {fixtures.TempExpDeploymentExpandsPodsEnforceDryrun, fixtures.DeploymentNginx},
		"several kinds":  {fixtures.TempExpMultipleApplyTo, fixtures.DeploymentNginx},
		"recursive":      {fixtures.TempExpCronJob, fixtures.TempExpJob, fixtures.GeneratorCronJob},
		"without a kind": {fixtures.TempExpDeploymentExpandsPods, fixtures.DeploymentNoGVK},
		"cats":           {fixtures.TemplateCatExpandsKitten, fixtures.TemplateCatExpandsPurr, fixtures.GeneratorCat},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "all.yaml")
			if err := os.WriteFile(file, []byte(strings.Join(list, "\n---\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			files := []string{"testdata/gator/policies.yaml", "testdata/gator/kittens.yaml", file}
			runGator(t, files, false).compare(t, runFederator(t, program, files, "", false))
		})
	}
}

// firstDifference shows the first lines that differ.
func firstDifference(ours, theirs string) string {
	a, b := strings.Split(ours, "\n"), strings.Split(theirs, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			end := func(s []string) string { return strings.Join(s[i:min(i+4, len(s))], "\n") }
			return fmt.Sprintf("line %d\nours\n%s\ngator\n%s", i+1, end(a), end(b))
		}
	}
	return fmt.Sprintf("ours has %d lines, gator %d", len(a), len(b))
}
