package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/rego"

	"federator.dev/federator/internal/cli/report/junit"
	"federator.dev/federator/test/clitest"
)

func sample() *Report {
	r := &Report{
		Revision: 42, AsOf: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Members: []string{"fleet/eu-1", "fleet/us-1"},
		Policies: []Policy{
			{Name: "federator.network.unique_host", Title: "One host", Description: "Of one member.", Severity: "high", File: "./policies/network/unique host.rego"},
			{Name: "federator.quota", Severity: "low"},
			{Name: "federator.clean", Severity: "medium"},
		},
		Results: []Result{
			{State: Unknown, Severity: "low", Policy: "federator.quota", Binding: "quota", Subject: Subject{View: "cpu", Key: "team-a"}, Message: "fleet/us-1 Pod is Stale"},
			{State: Violation, Severity: "high", Policy: "federator.network.unique_host", Binding: "hosts", Subject: Subject{Member: "fleet/eu-1", Kind: "Ingress.networking.k8s.io", Namespace: "shop", Name: "web"}, Message: "host <a> & \x01b", Details: json.RawMessage(`{"host":"a"}`)},
			{State: Exempt, Severity: "high", Policy: "federator.network.unique_host", Binding: "hosts", Subject: Subject{Member: "fleet/us-1", Kind: "Ingress.networking.k8s.io", Namespace: "shop", Name: "old"}, Message: "host a"},
			{State: Error, Severity: "low", Policy: "federator.quota", Binding: "quota", Subject: Subject{Member: "fleet/us-1"}, Message: "sprintf: limit of 10 bytes exceeded"},
		},
	}
	r.Sort()
	return r
}

func written(t *testing.T, format string, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.Write(&b, format, "devel"); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReport_AsTable(t *testing.T) {
	got := written(t, "table", sample())
	for _, want := range []string{
		"Violation   high       federator.network.unique_host   fleet/eu-1   Ingress.networking.k8s.io shop/web   host <a> &  b",
		"Unknown     low        federator.quota                 -            cpu[team-a]",
		"Error       low        federator.quota                 fleet/us-1   Member fleet/us-1",
		"fleet/eu-1            1         0        0        0",
		"fleet/us-1            0         0        1        1",
		"federator.clean                          0         0        0        0",
		"1 violation, 1 exempt, 1 unknown, 1 error, at revision 42 as of 2026-01-02T03:04:05Z",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x01") || strings.Contains(got, "\x1b") {
		t.Errorf("control characters in %q", got)
	}
}

func TestReport_AsJSON(t *testing.T) {
	var got Report
	if err := json.Unmarshal([]byte(written(t, "json", sample())), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Results) != 4 || got.Results[0].State != Violation || got.Clean {
		t.Errorf("got %+v", got)
	}
}

func TestReport_AsSARIF(t *testing.T) {
	log := clitest.SARIF(t, written(t, "sarif", sample()))
	run := log.Runs[0]
	if len(run.Tool.Driver.Rules) != 3 || len(run.Results) != 3 || len(run.Invocations[0].Notifications) != 1 {
		t.Fatalf("%d rules, %d results, %+v", len(run.Tool.Driver.Rules), len(run.Results), run.Invocations)
	}
	first := run.Results[0]
	if first.Level != "error" || first.Kind != "fail" || first.Locations[0].Logical[0].FullyQualifiedName != "fleet/eu-1/Ingress.networking.k8s.io/shop/web" ||
		first.Locations[0].Physical.Artifact.URI != "policies/network/unique%20host.rego" {
		t.Errorf("a violation: %+v", first)
	}
	if open := run.Results[1]; open.Kind != "open" || open.Level != "none" {
		t.Errorf("an unknown verdict: %+v", open)
	}
	if exempt := run.Results[2]; len(exempt.Suppressions) != 1 {
		t.Errorf("an exempt violation: %+v", exempt)
	}
	clitest.SARIF(t, written(t, "sarif", &Report{}))
}

func TestSARIFSchema_RejectsInvalidLogs(t *testing.T) {
	rs, err := rego.New(rego.Query("json.match_schema(input.document, input.schema)"), rego.Input(map[string]any{
		"document": `{"version":"2.1.0","runs":[{"results":[]}]}`, "schema": clitest.SARIFSchema,
	})).Eval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if answer, ok := rs[0].Expressions[0].Value.([]any); !ok || answer[0] != false {
		t.Errorf("a run without a tool is valid: %v", rs)
	}
}

func TestReport_AsJUnit(t *testing.T) {
	text := written(t, "junit", sample())
	var got junit.Suites
	if err := xml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if got.Tests != 5 || got.Failures != 1 || got.Errors != 1 || got.Skipped != 2 || len(got.Suites) != 3 {
		t.Errorf("got %+v", got)
	}
	if c := got.Suites[0].Cases[0]; c.Failure == nil || c.Failure.Message != "host <a> &  b" || c.Failure.Text != `{"host":"a"}` {
		t.Errorf("the violation: %+v", c)
	}
	if c := got.Suites[2].Cases[0]; c.Failure != nil || c.Error != nil || c.Skipped != nil {
		t.Errorf("a policy without results does not pass: %+v", c)
	}
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestReport_CheckBySeverity(t *testing.T) {
	for _, c := range []struct {
		failOn   string
		unknowns bool
		want     string
	}{
		{"none", true, ""},
		{"critical", true, ""},
		{"high", false, "1 violation of severity high or higher"},
		{"low", false, "1 violation, 1 error of severity low or higher"},
		{"low", true, "1 violation, 1 error, 1 unknown of severity low or higher"},
	} {
		err := sample().Check(c.failOn, c.unknowns)
		if got := func() string {
			if err == nil {
				return ""
			}
			return err.Error()
		}(); got != c.want {
			t.Errorf("verdict(%s, %v) = %q, want %q", c.failOn, c.unknowns, got, c.want)
		}
	}
}

func TestSARIF_FingerprintsOfUnknownResultsAreOfNoText(t *testing.T) {
	result := func(state, message string) Result {
		return Result{State: state, Policy: "p", Subject: Subject{Kind: "Pod", Name: "web"}, Message: message}
	}
	if a, b := fingerprint(result(Unknown, "Pod of a is Syncing")), fingerprint(result(Unknown, "Pod of a is Stale")); a != b {
		t.Errorf("what is incomplete changes the fingerprint: %s, %s", a, b)
	}
	if a, b := fingerprint(result(Violation, "one")), fingerprint(result(Violation, "two")); a == b {
		t.Errorf("two violations of one object have one fingerprint, %s", a)
	}
}
