package clusterinformers_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/sim"
)

// TestBodies_AreBounded has a member answer with bodies that do not end: what is not
// a list or a watch is read up to its limit, and the member is out of reach, or read
// by what else it says.
func TestBodies_AreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		path  string
		verb  string // of a list or watch
		code  int
		bytes int64 // that may be read, with what is under way
	}{
		"version":              {"/version", "", http.StatusOK, 16 << 20},
		"discovery":            {"/api", "", http.StatusOK, 16 << 20},
		"error":                {"/api/v1/namespaces/kube-system", "", http.StatusInternalServerError, 64 << 10},
		"refusal":              {"/version", "", http.StatusUnauthorized, 64 << 10},
		"error of a list":      {"/api/v1/pods", "list", http.StatusInternalServerError, 64 << 10},
		"refusal of a list":    {"/api/v1/pods", "list", http.StatusForbidden, 64 << 10},
		"error of a watch":     {"/api/v1/pods", "watch", http.StatusInternalServerError, 64 << 10},
		"refusal of a watch":   {"/api/v1/pods", "watch", http.StatusForbidden, 64 << 10},
		"error of the first":   {"/api/v1/pods", "watchlist", http.StatusInternalServerError, 64 << 10},
		"refusal of the first": {"/api/v1/pods", "watchlist", http.StatusForbidden, 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			var most, ended atomic.Int64
			block := []byte(strings.Repeat(" ", 1<<16))
			var l *fakeServer
			r := newRig(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
				if c.verb == "list" || c.verb == "watch" { // which is how members are read that cannot do both at once
					r.fleet.Members()[0].Faults().Add(sim.Fault{Verb: "watchlist", Status: http.StatusForbidden})
				}
				l = newFakeServer(t, r.fleet.Members()[0], func(w http.ResponseWriter, req *http.Request) bool {
					if !strings.HasPrefix(req.URL.Path, c.path) || c.path == "/api" && req.URL.Path != "/api" || c.verb != "" && c.verb != verbOf(req) {
						return false
					}
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(c.code)
					sent := int64(0)
					for sent < 256<<20 {
						n, err := w.Write(block)
						if sent += int64(n); err != nil {
							break
						}
					}
					most.Store(max(most.Load(), sent))
					ended.Add(1)
					return true
				})
				r.source.view = []clusterinformers.Spec{l.spec}
			}).start()
			r.until("the body has been given up", func() bool { return ended.Load() > 0 })
			// Flow control lets some more be sent than is read.
			if got := most.Load(); got > c.bytes+(8<<20) {
				t.Errorf("%d MiB were taken of a body that may have %d", got>>20, c.bytes>>20)
			}
			m := r.fleet.Members()[0]
			r.until("the reason is reported", func() bool { return r.status(m).LastError != "" || r.detail(m, "Pod").Reason != "" })
		})
	}
}

// verbOf distinguishes lists, watches, and watches that begin with a list.
func verbOf(req *http.Request) string {
	switch q := req.URL.Query(); {
	case q.Get("sendInitialEvents") == "true":
		return "watchlist"
	case q.Get("watch") != "":
		return "watch"
	}
	return "list"
}

// TestDiscovery_IsBoundedInSum has a member answer for many groups, as a server that does
// not aggregate, with a body for each that is within its limit.
func TestDiscovery_IsBoundedInSum(t *testing.T) {
	const groups, size = 64, 4 << 20
	var sent, requests atomic.Int64
	block := []byte(strings.Repeat(" ", 1<<16))
	r := newRig(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		o.DiscoveryInterval = 100 * time.Millisecond
		l := newFakeServer(t, r.fleet.Members()[0], func(w http.ResponseWriter, req *http.Request) bool {
			group, ofGroup := strings.CutPrefix(req.URL.Path, "/apis/g")
			if req.URL.Path != "/apis" && !ofGroup {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			if !ofGroup {
				requests.Add(1)
				list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
				for i := range groups {
					gv := metav1.GroupVersionForDiscovery{GroupVersion: fmt.Sprintf("g%d.example/v1", i), Version: "v1"}
					list.Groups = append(list.Groups, metav1.APIGroup{Name: fmt.Sprintf("g%d.example", i), Versions: []metav1.GroupVersionForDiscovery{gv}, PreferredVersion: gv})
				}
				_ = json.NewEncoder(w).Encode(list) //nolint:errcheck // the client is gone
				return true
			}
			for range size / len(block) {
				n, err := w.Write(block)
				sent.Add(int64(n))
				if err != nil {
					return true
				}
			}
			fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"g%s","resources":[]}`, group)
			return true
		})
		r.source.view = []clusterinformers.Spec{l.spec}
	}).start()
	r.until("a discovery has ended", func() bool { return requests.Load() > 1 })
	// Flow control lets some more be sent than is read, of each.
	if got, most := sent.Load(), requests.Load()*(16<<20+groups*(1<<20)); got > most {
		t.Errorf("%d MiB were taken in %d discoveries", got>>20, requests.Load())
	}
}

// TestDiscovery_IsBoundedByWhatItBecomes has a member answer with what is small as text
// and large as structs, or in another format than was requested. Such an answer
// offers no resources, and is not requested again and again within one discovery.
func TestDiscovery_IsBoundedByWhatItBecomes(t *testing.T) {
	const head = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[`
	for name, c := range map[string]struct{ body, want string }{
		"empty objects": {head + strings.Repeat("{},", 1_000_000) + "{}]}", "too large"},
		"nulls":         {head + strings.Repeat("null,", 1_000_000) + "{}]}", "too large"},
		"in a string":   {head + `{"metadata":{"name":"` + strings.Repeat(`{\"n{`, 100_000) + `"}}]}`, ""},
		"YAML":          {"items: [" + strings.Repeat("~,", 1000) + "~]", "not JSON"},
		"protobuf":      {"k8s\x00" + strings.Repeat("\x0a\x00", 1000), "not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
				l := newFakeServer(t, r.fleet.Members()[0], func(w http.ResponseWriter, req *http.Request) bool {
					if req.URL.Path != "/apis" {
						return false
					}
					w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
					_, _ = io.WriteString(w, c.body)
					return true
				})
				r.source.view = []clusterinformers.Spec{l.spec}
			}).start()
			m := r.fleet.Members()[0]
			if c.want == "" {
				r.until("it has been queried", func() bool { s := r.status(m); return s.Synced || s.LastError != "" })
				if got := r.status(m).LastError; strings.Contains(got, "too large") {
					t.Error(got)
				}
				return
			}
			r.until("the reason is reported", func() bool { return strings.Contains(r.status(m).LastError, c.want) })
		})
	}
}
