package clusterinformers_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
)

// scriptedPod is a Pod as JSON.
func scriptedPod(name, rv, label string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"default","uid":"uid-%s","resourceVersion":%q,"labels":{"app":%q}},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		name, name, rv, label)
}

// scriptedEvent is an event of a watch as JSON.
func scriptedEvent(typ, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", typ, object)
}

// scriptedBookmark is a bookmark as JSON; end says that it ends the initial events.
func scriptedBookmark(rv string, end bool) string {
	annotations := ""
	if end {
		annotations = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	}
	return scriptedEvent("BOOKMARK", fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":%q%s}}`, rv, annotations))
}

// writeEvents answers a watch, which goes on until the client ends it.
func writeEvents(w http.ResponseWriter, req *http.Request, events ...string) {
	w.Header().Set("Content-Type", "application/json")
	for _, e := range events {
		_, _ = w.Write([]byte(e))
	}
	_ = http.NewResponseController(w).Flush()
	<-req.Context().Done()
}

// followScripted follows a member that answers requests for Pods as it is told.
func followScripted(t *testing.T, answer func(w http.ResponseWriter, req *http.Request)) *rig {
	t.Helper()
	r := newRig(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		o.Kinds = []clusterinformers.KindRule{{Kind: "Pod"}, {Kind: "Namespace"}}
		r.source.view[0] = newFakeServer(t, r.fleet.Members()[0], func(w http.ResponseWriter, req *http.Request) bool {
			if !strings.HasSuffix(req.URL.Path, "/pods") {
				return false
			}
			answer(w, req)
			return true
		}).spec
	})
	return r.start()
}

// TestWatch_AppliesWhatChangesDuringTheInitialEvents: API servers send what happens before the
// initial events are complete, deletions too.
func TestWatch_AppliesWhatChangesDuringTheInitialEvents(t *testing.T) {
	r := followScripted(t, func(w http.ResponseWriter, req *http.Request) {
		writeEvents(w, req,
			scriptedEvent("ADDED", scriptedPod("gone", "5", "x")),
			scriptedEvent("ADDED", scriptedPod("changed", "6", "x")),
			scriptedEvent("ADDED", scriptedPod("again", "7", "x")),
			scriptedEvent("DELETED", scriptedPod("gone", "11", "x")),
			scriptedEvent("MODIFIED", scriptedPod("changed", "12", "y")),
			scriptedEvent("DELETED", scriptedPod("again", "13", "x")),
			scriptedEvent("ADDED", scriptedPod("again", "14", "z")),
			scriptedBookmark("15", true))
	})
	m := r.fleet.Members()[0]
	r.untilState(m, "Pod", aggregate.Synced)
	var got []string
	for _, o := range r.held(m, "Pod") {
		got = append(got, strings.Join(strings.Fields(o)[:3], " "))
	}
	if want := "default/again uid-again 14, default/changed uid-changed 12"; strings.Join(got, ", ") != want {
		t.Errorf("held are %s, want %s", got, want)
	}
}
