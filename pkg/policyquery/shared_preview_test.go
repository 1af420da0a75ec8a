package policyquery_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"federator.dev/federator/pkg/policyquery"
)

// post asks for the preview of a candidate.
func (j *testServer) post(c *policyquery.PreviewCandidate) (code int, report *policyquery.PreviewReport, text string) {
	j.t.Helper()
	body, err := json.Marshal(c)
	if err != nil {
		j.t.Fatal(err)
	}
	token := j.token
	if token == "" {
		token = j.server.Token()
	}
	req, err := http.NewRequestWithContext(j.t.Context(), http.MethodPost, j.address+"/query/v1/preview", bytes.NewReader(body))
	if err != nil {
		j.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := j.client.Do(req)
	if err != nil {
		j.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		j.t.Fatal(err)
	}
	report = &policyquery.PreviewReport{}
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(all, report); err != nil {
			j.t.Fatal(err)
		}
	}
	return resp.StatusCode, report, string(all)
}

// counts are what a report says that does not depend on who evaluated it.
func counts(r *policyquery.PreviewReport) string {
	for _, p := range r.Policies {
		p.Evaluations, p.Shared, p.CPUMillis, p.PerEvaluationMicros = 0, 0, 0, 0
	}
	text, err := json.Marshal([]any{r.Complete, r.Ended, r.Policies, r.Groups, r.Corrections, r.Withheld, len(r.Samples)})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// otherReplicas is the candidate of the tests: it finds others, and fewer.
const otherReplicas = `# METADATA
# title: Replicas
# custom: {severity: high, kinds: ["Deployment.apps"], remedies: [{action: patch, kind: Deployment.apps}]}
package replicas

violation contains {"msg": "other", "remedy": {"action": "patch", "patch": {"spec": {"replicas": 9}}}} if input.object.spec.replicas in {2, 3}
`

// TestSharedPreview_EqualsOneProcess: any process previews a policy on the whole fleet.
func TestSharedPreview_EqualsOneProcess(t *testing.T) {
	processes, hub := pair(t, load(t, "high"), bindings)
	hub.who = func(s *authorizationv1.SubjectAccessReviewSpec) bool {
		a := s.ResourceAttributes
		switch s.User {
		case "bob":
			return a.Verb == policyquery.PreviewVerb || a.Namespace == "fleet" && a.Name == "b"
		case "eve":
			return a.Verb != policyquery.PreviewVerb
		}
		return true
	}
	one := start(t, nil)
	put := func(j *testServer, member string) {
		for n, name := range []string{"web", "api", "db", "only-" + member[len("fleet/"):]} {
			j.put(member, name, n+1, "")
		}
	}
	for _, p := range processes {
		for _, member := range p.judges {
			put(p.testServer, member)
			one.join(member)
			put(one, member)
		}
	}
	tell(t, processes)
	one.awaitEvaluation()
	candidate := &policyquery.PreviewCandidate{Files: []policyquery.PreviewFile{{Path: "0.rego", Text: otherReplicas}}}
	_, report, said := one.post(candidate)
	want := counts(report)
	if !report.Complete || len(report.Groups) != 3 || len(report.Corrections) != 1 || report.Corrections[0].Wanted != 6 {
		t.Fatalf("one process says %s", said)
	}
	for _, p := range processes {
		code, report, said := p.post(candidate)
		if got := counts(report); code != http.StatusOK || got != want || report.Absent != nil || report.Revision == 0 {
			t.Errorf("%s: %d\n%s\nwant\n%s\nit says %s", p.id, code, got, want, said)
		}
		if code, _, said := p.post(&policyquery.PreviewCandidate{Files: []policyquery.PreviewFile{{Path: "0.rego", Text: "package ("}}}); code != http.StatusBadRequest || !strings.Contains(said, "0.rego") {
			t.Errorf("%s says of what cannot be loaded: %d %s", p.id, code, said)
		}
		p.fails("/query/v1/preview", http.StatusBadRequest)
	}
	for _, p := range processes {
		p.token = "bob"
		code, report, said := p.post(candidate)
		if code != http.StatusOK || len(report.Groups) != 1 || strings.Contains(said, "fleet/a") || strings.Contains(said, "fleet/c") || report.Corrections[0].Wanted != 2 {
			t.Errorf("bob asks %s: %d %s", p.id, code, said)
		}
		p.token = "eve"
		if code, _, said := p.post(candidate); code != http.StatusForbidden {
			t.Errorf("eve asks %s: %d %s", p.id, code, said)
		}
	}
	processes[1].listener.CloseClientConnections()
	processes[1].listener.Close()
	processes[0].token = "ann"
	code, report, said := processes[0].post(candidate)
	if code != http.StatusOK || report.Complete || fmt.Sprint(report.Absent) != "[fleet/b]" || !strings.Contains(report.Ended, "fleet/b") || len(report.Groups) != 2 {
		t.Errorf("while a process is lost: %d %s", code, said)
	}
}
