package queryapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"federator.dev/federator/pkg/queryapi"
)

// TestStream_QuestionsAreAuditedAsWatches: when they are answered first, and when they are not asked any more. A
// question whose caller is refused later ends with that code.
func TestStream_QuestionsAreAuditedAsWatches(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.log")
	var q revocable
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	rules := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n"
	if err := os.WriteFile(policy, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, func(o *queryapi.Options) {
		local(o)
		o.Queries["revocable"] = &q
		o.Audit = queryapi.Audit{PolicyFile: policy, LogFile: log}
	})
	lines := s.stream(t, s.Token(), "pods /fleet/api/v1/pods?watch=true", "stays /query/v1/count?resource=pods", "ends /query/v1/revocable")
	for seen := map[string]bool{}; len(seen) < 3; {
		line := lines()
		if line == nil || line.Value == nil && line.Event == nil {
			t.Fatalf("%+v", line)
		}
		seen[line.ID] = true
	}
	const pods, stays, ends = "/fleet/api/v1/pods?watch=true", "/query/v1/count?resource=pods", "/query/v1/revocable"
	begun := auditedOf(t, log)
	for _, uri := range []string{pods, stays, ends} {
		if got := begun[uri]; len(got) != 1 || got[0].Stage != auditv1.StageResponseStarted || got[0].ResponseStatus.Code != http.StatusOK || got[0].User.Username == "" {
			t.Errorf("%s: an open question is audited with %s", uri, stages(got))
		}
	}
	q.revoked.Store(true)
	if line := next(t, lines, "ends"); line.Error == nil {
		t.Fatalf("%+v", line)
	}
	until(t, "the end of a refused question is audited", func() bool { return len(auditedOf(t, log)[ends]) == 2 })
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	done := auditedOf(t, log)
	for uri, code := range map[string]int32{pods: http.StatusOK, stays: http.StatusOK, ends: http.StatusForbidden} {
		got := done[uri]
		if len(got) != 2 || got[1].Stage != auditv1.StageResponseComplete || got[1].ResponseStatus.Code != code || got[0].AuditID != got[1].AuditID {
			t.Errorf("%s: a question is audited with %s, want its end with %d", uri, stages(got), code)
		}
	}
}

// revocable is a query that refuses its caller from some time on.
type revocable struct{ revoked atomic.Bool }

func (q *revocable) Serve(w http.ResponseWriter, _ *http.Request, _ queryapi.Caller) error {
	if q.revoked.Load() {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", errors.New("revoked"))
	}
	_, err := w.Write([]byte("1\n"))
	return err
}

// auditedOf returns the events of an audit log by URI.
func auditedOf(t *testing.T, log string) map[string][]auditv1.Event {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]auditv1.Event{}
	for line := range bytes.Lines(text) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out[e.RequestURI] = append(out[e.RequestURI], e)
	}
	return out
}

func stages(events []auditv1.Event) string {
	var out string
	for _, e := range events {
		out += fmt.Sprintf("%s %d %s; ", e.Stage, e.ResponseStatus.Code, e.AuditID)
	}
	return out
}
