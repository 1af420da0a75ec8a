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

// leaveOut has the next events be of objects that no API server would admit.
func (l *lossy) leaveOut() {
	l.set(func(e map[string]any) []map[string]any {
		e["object"].(map[string]any)["metadata"].(map[string]any)["annotations"] = "boom"
		return []map[string]any{e}
	})
}

// dropAll has all events be lost.
func (l *lossy) dropAll() { l.set(func(map[string]any) []map[string]any { return nil }) }

// TestLeftOut_IsAudited: what becomes of an object that is left out is found where its event is lost.
func TestLeftOut_IsAudited(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *rig)
		cause  string
		left   int
		held   int
	}{
		"it is fit now":    {func(r *rig) { touch(r.t, r.fleet.Members()[0], 1, "y") }, "version", 0, 30},
		"it is gone":       {func(r *rig) { ok(r.t, r.fleet.Members()[0].Delete(pods, "shop", "pod-1")) }, "extra", 0, 29},
		"nothing has come": {func(*rig) {}, "", 1, 29},
	} {
		t.Run(name, func(t *testing.T) {
			r, l := followLossy(t, nil)
			m := r.fleet.Members()[0]
			l.leaveOut()
			touch(t, m, 1, "x")
			r.until("it is left out", func() bool { return r.detail(m, "Pod").LeftOut == 1 })
			l.dropAll()
			c.change(r)
			r.until("a bookmark has come", func() bool { return r.detail(m, "Pod").Applied == m.ResourceVersion() })
			l.set(nil)
			got := r.audited("Pod")["Pod"]
			if c.cause == "" && got.Outcome != "equal" || c.cause != "" && (got.Outcome != "different" || got.Differences[c.cause] != 1) {
				t.Errorf("the audit says %+v", got)
			}
			r.until("it is repaired", func() bool { return r.detail(m, "Pod").LeftOut == c.left && len(r.held(m, "Pod")) == c.held })
		})
	}
}

// TestLeftOut_HidesNoLoss: many objects are left out, and change often; they are counted once each, and what is
// lost beside them is found.
func TestLeftOut_HidesNoLoss(t *testing.T) {
	r, l := followLossy(t, nil)
	m := r.fleet.Members()[0]
	l.leaveOut()
	for n := range 100 {
		ok(t, m.Create(pod(1000+n)))
	}
	for n := range 20 {
		touch(t, m, 1099, fmt.Sprint(n))
		ok(t, m.Delete(pods, pod(1000+n).Namespace, pod(1000+n).Name))
	}
	r.until("they are left out", func() bool {
		st := r.detail(m, "Pod")
		return st.Applied == m.ResourceVersion() && st.LeftOut == 80
	})
	if got := r.audited("Pod")["Pod"]; got.Outcome != "equal" {
		t.Errorf("nothing was lost, and the audit says %+v", got)
	}
	l.dropAll()
	for n := range 20 {
		ok(t, m.Create(pod(2000+n)))
	}
	r.until("a bookmark has come", func() bool { return r.detail(m, "Pod").Applied == m.ResourceVersion() })
	l.set(nil)
	if got := r.audited("Pod")["Pod"]; got.Outcome != "different" || got.Differences["missing"] != 20 {
		t.Errorf("20 additions were lost, and the audit says %+v", got)
	}
}

// TestLeftOut_BeyondTheBudgetIsNotProved: the member has no budget for all that is left out of it, so that an
// audit could not tell what is lost from it. The scope is listed instead.
func TestLeftOut_BeyondTheBudgetIsNotProved(t *testing.T) {
	r, l := followLossy(t, func(o *clusterinformers.Options) { o.Budget.Bytes = 512 << 10 })
	m := r.fleet.Members()[0]
	l.leaveOut()
	for n := range 300 {
		ok(t, m.Create(pod(1000+n)))
	}
	for n := range 100 {
		touch(t, m, 1299, fmt.Sprint(n)) // no object more
	}
	r.until("they are left out", func() bool { return r.detail(m, "Pod").Applied == m.ResourceVersion() })
	if st := r.detail(m, "Pod"); st.LeftOut < 200 || st.LeftOut > 300 || !st.LeftOutMore || !strings.HasPrefix(st.Reason, fmt.Sprintf("at least %d objects are left out: ", st.LeftOut)) {
		t.Errorf("300 are left out, and the status says %d: %s", st.LeftOut, st.Reason)
	}
	if held := len(r.held(m, "Pod")); held != 30 {
		t.Errorf("%d are held beside them", held)
	}
	for n := range 300 { // so that they are within the budget of a list
		ok(t, m.Delete(pods, pod(1000+n).Namespace, pod(1000+n).Name))
	}
	r.until("they are gone", func() bool { return r.detail(m, "Pod").Applied == m.ResourceVersion() })
	if st := r.detail(m, "Pod"); st.LeftOut != 0 || st.State != aggregate.Partial || !strings.HasPrefix(st.Reason, "objects may be left out") {
		t.Errorf("nobody knows whether something is left out, and the status says %+v", st)
	}
	l.set(nil)
	if got := r.audited("Pod")["Pod"]; got.Outcome != "listed" || !got.Repaired || !strings.Contains(got.Message, "left out") {
		t.Errorf("the audit says %+v", got)
	}
	if st := r.detail(m, "Pod"); st.LeftOut != 0 || st.LeftOutMore {
		t.Errorf("%d are left out of a list without any", st.LeftOut)
	}
	if got := r.audited("Pod")["Pod"]; got.Outcome != "equal" {
		t.Errorf("the audit of what was listed says %+v", got)
	}
}
