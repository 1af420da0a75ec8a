package bench

import (
	"strings"
	"testing"

	"federator.dev/federator/internal/exit"
	"federator.dev/federator/test/clitest"
)

func TestBench_MeasuresAndCompares(t *testing.T) {
	source := []string{"--policies", clitest.Policies(t), "-f", clitest.WriteFile(t, "fleet.yaml", clitest.Manifests+clitest.StolenHost)}
	run := func(args ...string) (string, error) {
		return command(t, append(append([]string{"bench"}, args...), source...)...)
	}
	path := t.TempDir() + "/run.json"
	out, err := run("--count", "3", "--save", path)
	if err != nil || !strings.HasPrefix(out, "POLICY ") || !strings.Contains(out, "\ntest.hosts ") {
		t.Fatalf("%v: %s", err, out)
	}
	saved, err := loadResult(path)
	if err != nil || saved.Objects != 4 {
		t.Fatalf("%+v, %v", saved, err)
	}
	for name, want := range map[string]int{"test.hosts": 9, "test.replicas": 3, "test.images": 3} {
		p, ok := saved.policy(name)
		if !ok || p.Evaluations != want || p.Nanoseconds <= 0 || p.Allocations <= 0 || p.Bytes <= 0 || (p.Reads == 1) != (name == "test.hosts") {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if out, err := run("--compare", path, "--factor", "1000"); err != nil || !strings.Contains(out, "NS BEFORE") {
		t.Errorf("compared: %v, %s", err, out)
	}
	for i := range saved.Policies {
		saved.Policies[i].Allocations = 1
	}
	if err := saved.save(path); err != nil {
		t.Fatal(err)
	}
	if out, err := run("--compare", path, "--factor", "2", "-o", "json"); clitest.ExitCode(err) != exit.CodeFindings || !strings.Contains(err.Error(), "test.hosts: ") || !strings.Contains(out, `"nsPerEvaluation"`) {
		t.Errorf("costs more: %v, %s", err, out)
	}
	for _, args := range [][]string{{"--count", "0"}, {"--factor", "0.5"}, {"--factor", "NaN"}, {"-o", "csv"}, {"--compare", "absent"}} {
		if out, err := run(args...); clitest.ExitCode(err) != exit.CodeUsage || out != "" {
			t.Errorf("%v: exits with %d: %v", args, clitest.ExitCode(err), err)
		}
	}
}
