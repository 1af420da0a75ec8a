package docs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/test/clitest"
)

func TestDocs_AsMarkdown(t *testing.T) {
	out, err := command(t, "docs", clitest.PolicyTree(t, clitest.OwnedPolicy))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"| [tenancy/owner](#tenancyowner) | low | Namespaces have an owner | Namespace | no | patch Namespace |",
		"## tenancy", "### tenancy/owner", "**Namespaces have an owner**", "An owner is a label. Nothing &lt;else> counts.",
		"- package `federator.tenancy.owner` in [tenancy/owner/owner.rego](tenancy/owner/owner.rego), severity low",
		"- remedies: patch Namespace",
		"| `exempt` | array of string | below |  |",
		"| `label` | string, like `^[a-z\\|]+$` | `\"owner\"` | The label. |",
		"| `teams` | array of object | `[]` | Who may own. |",
		"| `teams[].name` | string | required |  |",
		"| `teams[].size` | integer, at least 1 | – |  |",
		"The default of `exempt`:", `  "default-but-long-enough",`,
	} {
		if !slices.Contains(strings.Split(out, "\n"), line) {
			t.Errorf("there is no line %q in\n%s", line, out)
		}
	}
}

func TestDocs_ReportWhatTheLibraryReadsOfTheFleet(t *testing.T) {
	out, err := command(t, "docs", "-o", "json", "../../../../policies")
	var docs []doc
	if jsonErr := json.Unmarshal([]byte(out), &docs); err != nil || jsonErr != nil {
		t.Fatal(err, jsonErr)
	}
	i := slices.IndexFunc(docs, func(d doc) bool { return d.Package == "federator.hygiene.orphaned_pvc" })
	if i < 0 || docs[i].Category != "hygiene" || docs[i].File != "hygiene/orphaned_pvc/orphaned_pvc.rego" || len(docs[i].Fleet) == 0 {
		t.Errorf("%s", out)
	}
	i = slices.IndexFunc(docs, func(d doc) bool { return d.Package == "federator.hygiene.probes" })
	if i < 0 || len(docs[i].Fleet) > 0 || docs[i].Severity != "medium" || docs[i].Subject != "object" {
		t.Errorf("%s", out)
	}
}

func TestDocs_UpdateAReadme(t *testing.T) {
	dir := clitest.PolicyTree(t, clitest.OwnedPolicy)
	readme := filepath.Join(dir, "README.md")
	check := func(want int) {
		t.Helper()
		if out, err := command(t, "docs", "--check", dir); clitest.ExitCode(err) != want || out != "" {
			t.Errorf("--check: %v\n%s\nwant code %d", err, out, want)
		}
	}
	check(1)
	if out, err := command(t, "docs", "--write", dir); err != nil || out != readme+"\n" {
		t.Fatalf("%v\n%s", err, out)
	}
	check(0)

	// What is around the markers stays, and a README without them is kept whole.
	generated := clitest.ReadFile(t, readme)
	for name, c := range map[string]struct{ before, after string }{
		"around":    {"# Ours\n\n" + strings.Replace(generated, "low", "high", 1) + "\nThe end.\n", "# Ours\n\n" + generated + "\nThe end.\n"},
		"no marker": {"# Ours\n\n\n", "# Ours\n\n" + generated},
	} {
		if err := os.WriteFile(readme, []byte(c.before), 0o600); err != nil {
			t.Fatal(err)
		}
		check(1)
		if _, err := command(t, "docs", "--write", dir); err != nil || clitest.ReadFile(t, readme) != c.after {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, clitest.ReadFile(t, readme), c.after)
		}
		check(0)
	}

	// A policy that changes makes it out of date.
	path := filepath.Join(dir, clitest.OwnedPolicyFile)
	if err := os.WriteFile(path, []byte(strings.Replace(clitest.OwnedPolicy[clitest.OwnedPolicyFile], "severity: low", "severity: critical", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := command(t, "docs", "--check", dir)
	if clitest.ExitCode(err) != 1 || !strings.Contains(err.Error(), "README.md is out of date: run federator policy docs --write "+dir) {
		t.Errorf("after a change: %v", err)
	}

	for _, broken := range []string{endMarker + "\n" + beginMarker + "\n", beginMarker + "\n", generated + generated} {
		if err := os.WriteFile(readme, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := command(t, "docs", "--write", dir); clitest.ExitCode(err) != 2 || clitest.ReadFile(t, readme) != broken {
			t.Errorf("markers that do not fit: %v", err)
		}
	}
}

func TestDocs_RejectBadInput(t *testing.T) {
	dir := clitest.PolicyTree(t, clitest.OwnedPolicy)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{dir, "-o", "html"}, "--output"},
		{[]string{dir, "-o", "json", "--check"}, "--output json"},
		{[]string{dir + "/none"}, "no such file"},
		{[]string{t.TempDir()}, "no policy found in "},
		{[]string{clitest.OwnedPolicyWith(t, clitest.OwnedPolicyFile, "severity: low", "severity: odd")}, "owner.rego:5:"},
	} {
		out, err := command(t, append([]string{"docs"}, c.args...)...)
		if clitest.ExitCode(err) != 2 || !strings.Contains(err.Error(), c.says) || out != "" {
			t.Errorf("policy docs %q: %v\n%s\nwant %q", c.args, err, out, c.says)
		}
	}
}
