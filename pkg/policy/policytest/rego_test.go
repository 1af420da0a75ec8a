package policytest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/policytest"
)

// tests is a test file with a test beside what every one has.
func tests(rules string) map[string]string {
	return map[string]string{hostFleetFile: "", hostTestFile: "package federator.network.host_test\n\n" + rules}
}

func TestRun_RegoOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		rules   string
		outcome policytest.Outcome
		failure string // of the case, "" for none
		output  string
		timeout time.Duration
	}{
		"one that holds": {rules: "test_x if {\n\tcount(data.federator.network.host.violation) == 0 with input as {}\n}\n", outcome: policytest.Passed},
		"one that does not hold names the line": {
			rules:   "test_x if {\n\tn := count(data.federator.network.host.violation) with input as {}\n\tn == 0\n\tn == 7\n}\n",
			outcome: policytest.Failed, failure: hostTestFile + ":6: false or undefined: n == 7",
		},
		"one that is false": {rules: "test_x := false\n", outcome: policytest.Failed, failure: hostTestFile + ":3: the test failed"},
		"one that is put off": {
			rules: "todo_test_x if {\n\tcount(data.federator.network.host.violation) == 1\n}\n", outcome: policytest.Skipped,
		},
		"one that prints": {
			rules: "test_x if {\n\tprint(\"seen\", data.federator.network.host.violation) with input as {}\n}\n", outcome: policytest.Passed, output: "seen set()\n",
		},
		"one with cases": {
			rules:   "test_x[name] if {\n\tsome name, n in {\"good\": 0, \"bad\": 1}\n\tcount(data.federator.network.host.violation) == n with input as {}\n}\n",
			outcome: policytest.Failed, failure: hostTestFile + `:3: case "bad" fails`,
		},
		"an error of a builtin, at its place": {
			rules:   "test_x if {\n\tnot to_number(\"x\") == 1\n}\n",
			outcome: policytest.Errored, failure: hostTestFile + ":4: eval_builtin_error: to_number: ",
		},
		"a limit of a builtin": {
			rules:   "test_x if {\n\tcount(numbers.range(1, 10000000)) > 1\n}\n",
			outcome: policytest.Errored, failure: "numbers.range: limit of ",
		},
		"one that takes too long": {
			rules:   "test_x if {\n\tnot loops\n}\n\nloops if {\n\tl := numbers.range(1, 5000)\n\tsome a in l\n\tsome b in l\n\tsome c in l\n\ta + b + c == 0\n}\n",
			outcome: policytest.Errored, failure: hostTestFile + ":3: the test takes longer than 100ms", timeout: 100 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, with(tests(c.rules)), policytest.Options{Print: true, Timeout: c.timeout})
			if len(r.Cases) != 1 || r.Total != 1 {
				t.Fatalf("cases %+v of %d, want one", r.Cases, r.Total)
			}
			got := r.Cases[0]
			if got.Outcome != c.outcome || got.Output != c.output || r.OK() != (c.outcome == policytest.Passed || c.outcome == policytest.Skipped) {
				t.Errorf("%+v\n%s\nwant %s, output %q", got, failures(r), c.outcome, c.output)
			}
			if c.failure == "" && len(got.Failures) > 0 || !strings.Contains(failures(r), c.failure) {
				t.Errorf("failures:\n%s\nwant %s", failures(r), c.failure)
			}
		})
	}
}

func TestRun_KeepsPrintOutputOnRequestOnly(t *testing.T) {
	tree := with(tests("test_x if {\n\tprint(\"seen\", data.federator.network.host.violation) with input as {}\n}\n"))
	for _, print := range []bool{false, true} {
		r := run(t, tree, policytest.Options{Print: print})
		if !r.OK() || (r.Cases[0].Output != "") != print {
			t.Errorf("Print %v: %+v", print, r.Cases)
		}
	}
}

func TestRun_LocatesErrorsOfBuiltins(t *testing.T) {
	files := tests("test_x if {\n\tcount(data.federator.network.host.violation) == 0 with input as {\"object\": {\"n\": \"x\"}}\n}\n")
	files[hostFile] = "# METADATA\n# title: x\n# custom: {severity: low, kinds: [Pod]}\npackage federator.network.host\n\nviolation contains {\"msg\": \"many\"} if {\n\tto_number(input.object.n) > 1\n}\n"
	r := run(t, with(files), policytest.Options{})
	if r.Count(policytest.Errored) != 1 || !strings.HasPrefix(failures(r), hostFile+":7: eval_builtin_error: to_number: ") {
		t.Errorf("%+v", r.Cases)
	}
}

func TestRun_HasTheBuiltinsOfTheEngine(t *testing.T) {
	_, err := policytest.Run(t.Context(), with(tests("test_x if {\n\ttime.now_ns() > 0\n}\n")), policytest.Options{Name: "lib"})
	bad, ok := errors.AsType[policy.LoadErrors](err)
	if !ok || len(bad) != 1 || bad[0].File != "lib/"+hostTestFile || bad[0].Line != 4 || !strings.Contains(err.Error(), "time.now_ns") {
		t.Errorf("a test that reads the clock: %v", err)
	}
}

func TestRun_ReportsAllLoadErrors(t *testing.T) {
	_, err := policytest.Run(t.Context(), with(map[string]string{
		"a/a/a.rego": "package federator.a.a\n\nviolation contains {\"msg\": \"x\"} if true\n",
		"b/b/b.rego": "package federator.b.b\n\nviolation contains {\n",
	}), policytest.Options{})
	bad, ok := errors.AsType[policy.LoadErrors](err)
	if !ok || len(bad) == 0 || !strings.HasPrefix(bad[0].File, "b/b") {
		t.Errorf("error %v, want the parse error", err)
	}
}

func TestRun_EmptyTreeHasNoTests(t *testing.T) {
	r, err := policytest.Run(t.Context(), with(map[string]string{hostTestFile: "", hostFleetFile: ""}), policytest.Options{Coverage: true})
	if !errors.Is(err, policytest.ErrNoTests) || r == nil || r.Total != 0 || r.Coverage.Covered != 0 || r.Coverage.Percent != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestOptions_AreChecked(t *testing.T) {
	if _, err := policytest.Run(t.Context(), with(nil), policytest.Options{Timeout: -1}); err == nil {
		t.Error("a negative timeout is taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := policytest.Run(ctx, with(nil), policytest.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}
