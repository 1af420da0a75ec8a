package relay_test

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/intents/relay"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/test/memhttp"
)

// TestClient_CorrectsByTheJudge: patch, apply, create and delete, as a user, with preconditions.
func TestClient_CorrectsByTheJudge(t *testing.T) {
	w := newWorld(t)
	i := w.intent(w.create("patched"))
	w.correct(i)
	a := w.next()
	o := w.get("patched")
	if data, _, _ := nested(o.Object, "data", "a"); a.Phase != v1alpha1.PhaseSucceeded || data != "right" || o.GetAnnotations()[api.ActionKey] != a.Name || a.WrittenVersion != o.GetResourceVersion() {
		t.Fatalf("%s %s: %v", a.Phase, a.Message, o)
	}

	stale := w.intent(o)
	stale.ResourceVersion, stale.Remedy.Patch = i.ResourceVersion, []byte(`{"data":{"a":"stale"}}`)
	w.correct(stale)
	if a := w.next(); a.Phase != v1alpha1.PhaseSuperseded {
		t.Errorf("a stale one: %s %s", a.Phase, a.Message)
	}

	made := w.intent(o)
	made.UID, made.ResourceVersion = "", ""
	made.Remedy = policy.Remedy{Action: "apply", Target: made.Remedy.Target, Object: []byte(`{"apiVersion":"v1","kind":"ConfigMap","data":{"b":"2"}}`)}
	made.Remedy.Target.Name = "made"
	w.correct(made)
	if a := w.next(); a.Phase != v1alpha1.PhaseSucceeded || w.get("made").GetAnnotations()[api.ActionKey] != a.Name {
		t.Errorf("a create: %s %s", a.Phase, a.Message)
	}

	applied := w.intent(w.get("made"))
	applied.Remedy = policy.Remedy{Action: "apply", Target: applied.Remedy.Target, Object: []byte(`{"apiVersion":"v1","kind":"ConfigMap","data":{"c":"3"}}`)}
	w.correct(applied)
	if a := w.next(); a.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("an apply: %s %s", a.Phase, a.Message)
	}

	gone := w.intent(w.get("made"))
	gone.Remedy = policy.Remedy{Action: "delete", Target: gone.Remedy.Target}
	w.correct(gone)
	if a := w.next(); a.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("a delete: %s %s", a.Phase, a.Message)
	}

	as := w.intent(w.get("patched"))
	as.ActAs, as.Remedy.Patch = "nobody-special", []byte(`{"data":{"a":"as"}}`)
	w.correct(as)
	if a := w.next(); a.Phase != v1alpha1.PhaseFailed || !strings.Contains(a.Message, "nobody-special") {
		t.Errorf("as a user without rights: %s %s", a.Phase, a.Message)
	}
}

func nested(o map[string]any, keys ...string) (string, bool, error) {
	for _, key := range keys[:len(keys)-1] {
		o, _ = o[key].(map[string]any)
	}
	text, ok := o[keys[len(keys)-1]].(string)
	return text, ok, nil
}

// TestClient_ALostAnswerIsProvedByTheTarget: it was written, once.
func TestClient_ALostAnswerIsProvedByTheTarget(t *testing.T) {
	w := newWorld(t)
	o := w.create("lost")
	w.faults.lose.Store(1)
	w.correct(w.intent(o))
	a := w.next()
	if a.Phase != v1alpha1.PhaseSucceeded || w.faults.writes.Load() != 1 {
		t.Errorf("%s %s after %d writes", a.Phase, a.Message, w.faults.writes.Load())
	}
	if now := w.get("lost"); now.GetAnnotations()[api.ActionKey] != a.Name {
		t.Errorf("the target has %v", now.GetAnnotations())
	}
}

// TestClient_AMemberThatMovesIsNotWrittenMeanwhile, and nothing is said to have failed.
func TestClient_AMemberThatMovesIsNotWrittenMeanwhile(t *testing.T) {
	w := newWorld(t)
	o := w.create("moves")
	w.judges.Store(fleetOf("judge", "other", nil))
	i := w.intent(o)
	if _, err := w.client.Client(theMember, "ConfigMap", "v1"); !errors.Is(err, remediate.ErrNotNow) {
		t.Errorf("asked who judges it no more: %v", err)
	}
	w.correct(i)
	time.Sleep(6 * time.Second) // more than all tries
	if w.faults.writes.Load() > 0 || len(w.actions) > 0 {
		t.Fatalf("%d writes, %d Actions", w.faults.writes.Load(), len(w.actions))
	}
	w.judges.Store(fleetOf("judge", "judge", nil))
	if a := w.next(); a.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("after it has moved: %s %s", a.Phase, a.Message)
	}
}

// TestServer_RefusesOthers: who is no peer, does not lead, or wants to write what is held or protected.
func TestServer_RefusesOthers(t *testing.T) {
	w := newWorld(t)
	name := w.create("x").GetName()
	send := func(as string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://judge/relay/v1/members/"+theMember+"/api/v1/namespaces/"+w.namespace+"/configmaps/"+name, bytes.NewReader([]byte("{}")))
		must(t, err)
		r.Header.Set("Federator-Kind", "ConfigMap")
		r.Header.Set("Content-Type", "application/json")
		response, err := (&memhttp.Transport{Handler: w.transport.Handler, As: as}).RoundTrip(r)
		must(t, err)
		defer response.Body.Close()
		return response.StatusCode, response.Header.Get("Federator-Relay")
	}
	if code, said := send(""); code != http.StatusForbidden || said != "not-sent" {
		t.Errorf("no peer: %d %s", code, said)
	}
	if code, said := send("another"); code != http.StatusForbidden || said != "not-now" {
		t.Errorf("who does not lead: %d %s", code, said)
	}
	w.held.Store(true)
	if code, said := send("leader"); code != http.StatusServiceUnavailable || said != "not-now" {
		t.Errorf("a held member: %d %s", code, said)
	}
	w.held.Store(false)
	name = "protected"
	if code, said := send("leader"); code != http.StatusForbidden || said != "not-sent" {
		t.Errorf("a protected target: %d %s", code, said)
	}
	name = "x"
	w.lead("another")
	if code, _ := send("leader"); code != http.StatusForbidden {
		t.Errorf("who led before: %d", code)
	}
	w.lead("leader")
	w.get("x") // it is still there
	if code, said := send("leader"); code != http.StatusOK || said != "" {
		t.Errorf("the leader: %d %s", code, said)
	}
}

// TestServer_PassesOnlyWhatCorrectionsSend.
func TestServer_PassesOnlyWhatCorrectionsSend(t *testing.T) {
	w := newWorld(t)
	before := w.create("safe").GetResourceVersion()
	at := "/relay/v1/members/" + theMember + "/api/v1/namespaces/" + w.namespace + "/configmaps"
	for _, test := range []struct{ method, path, header, value string }{
		{"GET", at, "", ""},                      // a list
		{"GET", at + "?watch=true", "", ""},      // a watch
		{"GET", at + "/safe?watch=true", "", ""}, // of one
		{"DELETE", at, "", ""},                   // a collection
		{"PUT", at + "/safe", "", ""},
		{"PATCH", at + "/safe/status", "", ""},
		{"POST", at + "/safe/binding", "", ""},
		{"PATCH", at + "/safe?dryRun=None", "", ""},
		{"PATCH", at + "/safe?dryRun=All&dryRun=All", "", ""},
		{"PATCH", at + "/safe?force=false", "", ""},
		{"PATCH", at + "/safe?pretty=true", "", ""},
		{"PATCH", at + "/%73afe", "", ""},
		{"PATCH", at + "/../configmaps/safe", "", ""},
		{"PATCH", strings.Replace(at, "/configmaps", "/secrets", 1) + "/safe", "", ""},
		{"PATCH", strings.Replace(at, "/api/v1/", "/apis/apps/v1/", 1) + "/safe", "", ""},
		{"PATCH", "/relay/v1/members/" + theMember + "/api/v1/configmaps/safe", "", ""},
		{"GET", "/relay/v1/members/" + theMember + "/version", "", ""},
		{"POST", "/relay/v1/members/" + theMember, "", ""},
		{"PATCH", at + "/safe", "Impersonate-Group", "system:masters"},
		{"PATCH", at + "/safe", "Impersonate-Uid", "0"},
		{"PATCH", at + "/safe", "Content-Type", "application/strategic-merge-patch+json"},
		{"PATCH", at + "/safe", "Federator-Kind", "Secret"},
		{"PATCH", at + "/safe", "Federator-Time", "-1"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), test.method, "http://judge"+test.path, strings.NewReader(`{"data":{"a":"hacked"}}`))
		must(t, err)
		r.Header.Set("Federator-Kind", "ConfigMap")
		r.Header.Set("Content-Type", "application/merge-patch+json")
		if test.header != "" {
			r.Header.Set(test.header, test.value)
		}
		response, err := w.transport.RoundTrip(r)
		must(t, err)
		response.Body.Close()
		if response.StatusCode < 400 || response.Header.Get("Federator-Relay") == "" {
			t.Errorf("%s %s %s: %d", test.method, test.path, test.header, response.StatusCode)
		}
	}
	if now := w.get("safe").GetResourceVersion(); now != before {
		t.Error("it was written")
	}
	if _, err := relay.NewServer(relay.ServerOptions{}); err == nil {
		t.Error("a relay without options")
	}
}
