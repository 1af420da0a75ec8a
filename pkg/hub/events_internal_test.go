package hub

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// TestEvents_LastSaysWhatIsKept: however fast it changes.
func TestEvents_LastSaysWhatIsKept(t *testing.T) {
	e, err := NewEvents(EventsOptions{Config: &rest.Config{Host: "http://127.0.0.1:1"}, IsLeader: func() bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	began, last := time.Now(), ""
	drain := func(now time.Time) {
		for n, _ := e.next(now); n != nil; n, _ = e.next(now) {
			last, e.lastWritten[n.eventKey] = n.reason, now
		}
	}
	record := func(why string) { e.RecordKept("default", "p", "u", why) }
	record("full")
	drain(began.Add(time.Minute))
	record("")
	drain(began.Add(2 * time.Minute))
	for _, why := range []string{"full", "", "full"} {
		record(why)
	}
	for n := range 120 {
		drain(began.Add(time.Duration(3+n) * time.Minute))
	}
	if last != "IndexNotKept" {
		t.Errorf("nothing is kept, and the last Event is %s", last)
	}
}

// TestEvents_WhoDoesNotLeadWritesItsOwnOnly: also of what comes while one is written.
func TestEvents_WhoDoesNotLeadWritesItsOwnOnly(t *testing.T) {
	var written []string // requests come one after the other
	var events *Events
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		for _, reason := range []string{"IndexNotKept", "EventsLost"} {
			if bytes.Contains(body, []byte(reason)) {
				written = append(written, reason)
			}
		}
		if len(written) == 1 {
			events.add(&pendingEvent{eventKey: eventKey{reason: "EventsLost", subject: "Pod"}, immediate: true, text: "lost"})
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"kind":"Event","apiVersion":"events.k8s.io/v1","metadata":{"name":"a","namespace":"default"}}`) //nolint:errcheck // the client is gone
	}))
	defer server.Close()
	var err error
	events, err = NewEvents(EventsOptions{Config: &rest.Config{Host: server.URL}, IsLeader: func() bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	events.add(&pendingEvent{eventKey: eventKey{reason: "IndexNotKept", own: true}, immediate: true, text: "full"})
	events.flush(t.Context())
	if !slices.Equal(written, []string{"IndexNotKept"}) {
		t.Errorf("a process that does not lead wrote %q", written)
	}
}
