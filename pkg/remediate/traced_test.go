package remediate

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/hubclient"
	"federator.dev/federator/pkg/remediate/internal/planstore"
	"federator.dev/federator/pkg/tracing"
	"federator.dev/federator/test/kube"
)

// writesOf are the verbs of the requests that the member's audit log has under an ID.
func (s *fixture) writesOf(id string) (verbs []string, events []kube.AuditEvent) {
	s.Helper()
	events, err := shared.Fleet.Members[0].Audit()
	if err != nil {
		s.Fatal(err)
	}
	for _, e := range events {
		if e.AuditID == id {
			verbs = append(verbs, fmt.Sprint(e.Verb, " ", e.ResponseStatus.Code))
		}
	}
	return verbs, events
}

// TestExecutor_WritesHaveTheAuditIDOfTheirAction is of each verb, traced or not.
func TestExecutor_WritesHaveTheAuditIDOfTheirAction(t *testing.T) {
	for _, test := range []struct {
		name, object, want string
		remedy             policy.Remedy
	}{
		{"patch", oneMap, "patch 200", patch(`{"data":{"a":"2"}}`)},
		{"apply", oneMap, "patch 200", apply(`{"apiVersion":"v1","data":{"a":"1","c":"3"}}`)},
		{"create", "", "create 201", apply(`{"apiVersion":"v1","data":{"c":"3"}}`)},
		{"delete", oneMap, "delete 200", policy.Remedy{Action: "delete"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newFixture(t)
			const name = "one"
			i := s.intentFor(nil, test.remedy)
			if test.object != "" {
				i = s.intentFor(s.create("ConfigMap", fmt.Sprintf(test.object, name)), test.remedy)
			}
			i.Remedy.Target.Kind, i.Remedy.Target.Namespace, i.Remedy.Target.Name = "ConfigMap", s.ns, name
			recorded := ""
			s.checkWrite = func(*Intent) error { // right before the write
				recorded = s.recorded(i.actionName()).AuditID
				return nil
			}
			a := s.execute(i)
			if a.Phase != v1alpha1.PhaseSucceeded || recorded == "" || recorded != a.AuditID || s.recorded(a.Name).AuditID != recorded {
				t.Fatalf("%s %s: audit ID %q, recorded before the write as %q", a.Phase, a.Message, a.AuditID, recorded)
			}
			if err := until(func() error {
				verbs, events := s.writesOf(a.AuditID)
				if !slices.Equal(verbs, []string{test.want}) {
					return fmt.Errorf("under %s there are %q among %d events", a.AuditID, verbs, len(events))
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			if strings.Contains(s.raw(a.Name), "traceID") {
				t.Error("it has a trace, and nothing is traced")
			}
		})
	}
}

// TestExecutor_AuditIDOutlastsTheProcess: what is continued has the ID that is recorded.
func TestExecutor_AuditIDOutlastsTheProcess(t *testing.T) {
	s := newFixture(t)
	i := s.intentFor(s.create("ConfigMap", fmt.Sprintf(oneMap, "one")), patch(`{"data":{"a":"2"}}`))
	lost := errors.New("the process ends here")
	s.checkWrite = func(*Intent) error { return lost }
	if _, err := s.exec.execute(t.Context(), i); !errors.Is(err, lost) {
		t.Fatal(err)
	}
	first := s.recorded(i.actionName()).AuditID
	s.checkWrite = nil
	s.start()
	if a := s.execute(i); a.AuditID != first || first == "" {
		t.Errorf("audit ID %q, was %q", a.AuditID, first)
	}
	if err := until(func() error {
		if verbs, _ := s.writesOf(first); !slices.Equal(verbs, []string{"patch 200"}) {
			return fmt.Errorf("the log has %q", verbs)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestExecutor_RequestsOfWritesSayTheirTrace(t *testing.T) {
	s := newFixture(t)
	exporter := tracetest.NewInMemoryExporter()
	tracer, err := tracing.New(tracing.Options{Exporter: exporter, EchoAfter: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	sent := map[string]string{} // traceparent by request
	note := func(of string) func(*http.Request) error {
		return func(r *http.Request) error {
			mu.Lock()
			defer mu.Unlock()
			what := fmt.Sprint(of, " ", r.Method)
			if strings.Contains(r.URL.RawQuery, "dryRun") {
				what += " dry run"
			}
			sent[what] = r.Header.Get("Traceparent")
			return nil
		}
	}
	s.member.before, s.hub.before = note("member"), note("hub")
	i := s.intentFor(s.create("ConfigMap", fmt.Sprintf(oneMap, "one")), patch(`{"data":{"a":"2"}}`))
	d, err := newDispatcher(Options{Clients: s.clients(), Tracer: tracer, KeepSecretValues: true}, s.journal, hubStates{s.journal.hubClient}, planstore.Store{Hub: hubclient.Client{REST: s.journal.hub}})
	if err != nil {
		t.Fatal(err)
	}
	d.exec.checkWrite = func(*Intent) (time.Time, error) { return time.Time{}, nil }
	i.Cause = tracer.Cause(7, tracing.Object{Member: memberName, Kind: "ConfigMap", Namespace: s.ns, Name: "one"})
	a, err := d.executeSafely(t.Context(), i)
	if err != nil || a.Phase != v1alpha1.PhaseSucceeded {
		t.Fatal(a, err)
	}
	id, _ := tracer.TraceOf("", "", 7)
	if got := s.recorded(a.Name).TraceID; got != id.String() {
		t.Errorf("the Action has trace %q, want %s", got, id)
	}
	parents := map[string]bool{}
	for _, what := range []string{"member PATCH dry run", "member PATCH", "hub POST", "hub PATCH"} {
		parent := sent[what]
		if !strings.HasPrefix(parent, "00-"+id.String()+"-") || !strings.HasSuffix(parent, "-01") || parents[parent] {
			t.Errorf("%s: traceparent %q, all are %q", what, parent, sent)
		}
		parents[parent] = true
	}
}
