package clusterinformers_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
)

// TestResume_GoesOnAtTheLastResourceVersion ends a watch after each kind of event,
// and looks at where the next one begins.
func TestResume_GoesOnAtTheLastResourceVersion(t *testing.T) {
	began := make(chan string, 16) // resourceVersions of watches
	next := make(chan string)      // what the watch under way says before it ends
	bookmark := func(rv int) string {
		return fmt.Sprintf(`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d"}}}`+"\n", rv)
	}
	r := newRig(t, fewKinds(), func(r *rig, _ *clusterinformers.Options) {
		l := newFakeServer(t, r.fleet.Members()[0], func(w http.ResponseWriter, req *http.Request) bool {
			q := req.URL.Query()
			if !strings.HasSuffix(req.URL.Path, "/pods") || q.Get("watch") == "" {
				return false
			}
			if onlyJSON(w, req) {
				return true
			}
			w.Header().Set("Content-Type", "application/json")
			if q.Get("sendInitialEvents") == "true" {
				began <- "list"
				_, _ = w.Write([]byte(event("ADDED", 3, `"name":"a","namespace":"shop"`) + event("ADDED", 11, `"name":"b","namespace":"shop"`) + fmt.Sprintf(bookmarkOfPods, 20)))
			} else {
				began <- q.Get("resourceVersion")
			}
			_ = http.NewResponseController(w).Flush()
			select {
			case text := <-next:
				_, _ = w.Write([]byte(text))
			case <-req.Context().Done():
			}
			return true
		})
		r.source.view = []clusterinformers.Spec{l.spec}
	}).start()
	m := r.fleet.Members()[0]
	begins := func(want string) {
		t.Helper()
		select {
		case got := <-began:
			if got != want {
				t.Fatalf("the watch begins at %q, want %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("no watch begins, want one at %q", want)
		}
	}
	says := func(text string) {
		t.Helper()
		select {
		case next <- text:
		case <-time.After(patience):
			t.Fatal("no watch is under way")
		}
	}
	begins("list")
	r.untilState(m, "Pod", aggregate.Synced)
	for _, step := range []struct{ says, begins string }{
		{"", "20"}, // the bookmark that ends the initial events, not the newest object
		{event("MODIFIED", 21, `"name":"a","namespace":"shop"`), "21"},
		{bookmark(30), "30"},
		{event("DELETED", 31, `"name":"a","namespace":"shop"`), "31"},
		{event("ADDED", 32, `"name":"c","namespace":"shop"`) + event("ADDED", 33, `"name":"d","namespace":"shop","annotations":7`), "33"},
		{event("ADDED", 34, `"name":"e","namespace":"shop"`) + `{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"labels":{"a":"overwrites-what-was-read-before"},"name":"e","namespace":"shop"}}}` + "\n", "34"}, // an event without one
		{event("ADDED", 35, `"name":"f","namespace":"shop"`) + event("ADDED", 36, `"name":"g","names`)[:60], "35"},                                                                                                                       // and one that breaks off
	} {
		says(step.says)
		begins(step.begins)
	}
	if n := r.detail(m, "Pod").Relists; len(n) != 1 || n["initial"] != 1 {
		t.Errorf("lists %v", n)
	}
}
