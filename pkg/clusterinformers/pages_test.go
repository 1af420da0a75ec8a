package clusterinformers_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/sim"
)

// TestPages_AKindLargerThanAResponseIsReadInSmallerPages, of a member that cannot
// stream lists and, as API servers with a watch cache, answers a list at
// resourceVersion 0 whole whatever its limit is.
func TestPages_AKindLargerThanAResponseIsReadInSmallerPages(t *testing.T) {
	var mu sync.Mutex
	var limits []string
	r := newRig(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		m := r.fleet.Members()[0]
		o.Budget.ResponseBytes = 60_000
		for i := range 1200 {
			ok(t, m.Create(pod(i)))
		}
		m.Faults().Add(sim.Fault{Verb: "watchlist", Status: 403})
		transport, err := rest.TransportFor(m.RESTConfig())
		ok(t, err)
		host, err := url.Parse(m.RESTConfig().Host)
		ok(t, err)
		direct := httputil.NewSingleHostReverseProxy(host)
		direct.Transport = transport
		l := newFakeServer(t, m, func(w http.ResponseWriter, req *http.Request) bool {
			q := req.URL.Query()
			if !strings.HasSuffix(req.URL.Path, "/pods") || q.Get("watch") != "" {
				return false
			}
			mu.Lock()
			limits = append(limits, q.Get("resourceVersion")+"/"+q.Get("limit"))
			mu.Unlock()
			if q.Get("resourceVersion") == "" {
				return false
			}
			q.Del("limit")
			req.URL.RawQuery = q.Encode()
			req.Header.Del("Authorization")
			whole := httptest.NewRecorder()
			direct.ServeHTTP(whole, req)
			w.Header().Set("Content-Type", whole.Header().Get("Content-Type"))
			w.WriteHeader(whole.Code)
			_, _ = w.Write(whole.Body.Bytes())
			return true
		})
		t.Cleanup(func() {
			if c, is := transport.(interface{ CloseIdleConnections() }); is {
				c.CloseIdleConnections()
			}
		})
		r.source.view = []clusterinformers.Spec{l.spec}
	}).start()
	m := r.fleet.Members()[0]
	r.untilState(m, "Pod", aggregate.Synced)
	if info := r.scope(m, "Pod"); info.Objects != 1200 {
		t.Errorf("%d pods are held", info.Objects)
	}
	r.exact(m, kindsOf("Pod"))
	mu.Lock()
	defer mu.Unlock()
	if len(limits) < 5 || limits[0] != "/" || limits[1] != "/500" || limits[2] != "/250" {
		t.Errorf("lists at resourceVersion/limit %q", limits)
	}
}

// TestPages_OneObjectLargerThanAResponseIsOverBudget: pages of one cannot be halved.
func TestPages_OneObjectLargerThanAResponseIsOverBudget(t *testing.T) {
	r := newRig(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		m := r.fleet.Members()[0]
		o.Budget.ResponseBytes = 20_000
		huge := pod(0)
		huge.Annotations = map[string]string{"huge": strings.Repeat("x", 30_000)}
		ok(t, m.Create(huge))
		ok(t, m.Create(configMap(1)))
		m.Faults().Add(sim.Fault{Verb: "watchlist", Status: 403})
	}).start()
	m := r.fleet.Members()[0]
	r.untilState(m, "Pod", aggregate.OverBudget)
	r.untilState(m, "ConfigMap", aggregate.Synced)
}
