package clusterinformers_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
)

// event is a watch event of a pod whose metadata is given but for its
// resourceVersion.
func event(typ string, rv int, metadata string) string {
	return fmt.Sprintf(`{"type":%q,"object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d",%s}}}`+"\n", typ, rv, metadata)
}

const bookmarkOfPods = `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n"

// onlyJSON refuses protobuf, and reports whether it did.
func onlyJSON(w http.ResponseWriter, r *http.Request) bool {
	if !strings.Contains(r.Header.Get("Accept"), "protobuf") {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotAcceptable)
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotAcceptable","code":406}`))
	return true
}

func TestLeftOut_ObjectsThatNoAPIServerLetsInMakeTheScopePartial(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	later := make(chan string)
	var l *fakeServer
	r := newRig(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		l = newFakeServer(t, r.fleet.Members()[0], func(w http.ResponseWriter, req *http.Request) bool {
			if !strings.HasSuffix(req.URL.Path, "/pods") {
				return false
			}
			if onlyJSON(w, req) {
				return true
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(event("ADDED", 11, `"name":"good","namespace":"shop"`) +
				event("ADDED", 12, `"name":"boom","namespace":"shop","annotations":"boom"`) +
				event("ADDED", 13, `"name":"`+long+`","namespace":"shop"`) +
				event("ADDED", 14, `"name":"homeless"`) +
				strings.Replace(event("ADDED", 15, `"name":"other","namespace":"shop"`), `"v1"`, `"bogus/v9"`, 1) +
				fmt.Sprintf(bookmarkOfPods, 20)))
			for {
				_ = http.NewResponseController(w).Flush()
				select {
				case text := <-later:
					_, _ = w.Write([]byte(text))
				case <-req.Context().Done():
					return true
				}
			}
		})
		r.source.view = []clusterinformers.Spec{l.spec}
	}).start()
	m := r.fleet.Members()[0]
	says := func(state aggregate.State, left int, reason string, names ...string) {
		t.Helper()
		r.until(fmt.Sprintf("%d pods are left out of %q", left, names), func() bool {
			st := r.scope(m, "Pod").Status
			held := r.held(m, "Pod")
			if st.State != state || !strings.Contains(st.Reason, reason) || len(st.Reason) > 600 || len(held) != len(names) {
				return false
			}
			for n, name := range names {
				if !strings.HasPrefix(held[n], name+" ") {
					return false
				}
			}
			if r.metric("federator_scope_left_out_objects", nameOf(m), "Pod") != float64(left) || r.metric("federator_member_left_out_objects", nameOf(m), "") != float64(left) {
				return false
			}
			return r.detail(m, "Pod").LeftOut == left
		})
	}
	says(aggregate.Partial, 4, "4 objects are left out: ", "shop/good")
	if st := r.detail(m, "Pod"); strings.Contains(st.Reason, "shop") || st.LeftOutExample == "" {
		t.Errorf("readers see %q, operators %q", st.Reason, st.LeftOutExample)
	}
	later <- event("MODIFIED", 21, `"name":"boom","namespace":"shop"`) + event("DELETED", 22, `"name":"`+long+`","namespace":"shop"`)
	says(aggregate.Partial, 2, "2 objects are left out: ", "shop/boom", "shop/good")
	later <- event("MODIFIED", 23, `"name":"good","namespace":"shop","labels":[]`) + event("DELETED", 24, `"name":"homeless"`) +
		event("DELETED", 25, `"name":"other","namespace":"shop"`)
	says(aggregate.Partial, 1, "1 object is left out: metadata.labels has the wrong type", "shop/boom")
	later <- event("MODIFIED", 26, `"name":"good","namespace":"shop"`)
	says(aggregate.Synced, 0, "", "shop/boom", "shop/good")
}
