package clusterinformers_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
)

// TestInformers_ThatCloseLogNothingOfClientGo: a member that leaves and the end of the
// process are no errors, whatever their watches and lists are at.
func TestInformers_ThatCloseLogNothingOfClientGo(t *testing.T) {
	var mu sync.Mutex
	var said []string
	state := klog.CaptureState()
	t.Cleanup(state.Restore) // after the manager has ended
	klog.SetLoggerWithOptions(funcr.New(func(prefix, args string) {
		if strings.Contains(args, "Feature gate") { // said once a process
			return
		}
		mu.Lock()
		defer mu.Unlock()
		said = append(said, prefix+" "+args)
	}, funcr.Options{Verbosity: 2}), klog.ContextualLogger(true)) // whatever -v is

	opts := fewKinds()
	opts.Members = 4
	var waiting atomic.Int64
	r := newRig(t, opts, func(r *rig, _ *clusterinformers.Options) {
		for i, m := range r.fleet.Members() {
			fill(t, m, 3)
			if i%2 == 0 {
				continue
			}
			// Its pods are not listed to the end: the informer closes meanwhile.
			r.source.view[i] = newFakeServer(t, m, func(w http.ResponseWriter, req *http.Request) bool {
				if req.URL.Path != "/api/v1/pods" {
					return false
				}
				w.Header().Set("Content-Type", req.Header.Get("Accept")+";stream=watch")
				w.WriteHeader(http.StatusOK)
				if f, ok := w.(http.Flusher); ok {
					f.Flush()
				}
				waiting.Add(1)
				<-req.Context().Done()
				return true
			}).spec
		}
	}).start()
	ms := r.fleet.Members()
	r.synced(ms[0])
	r.synced(ms[2])
	r.until("two wait for their pods", func() bool {
		return waiting.Load() == 2 && r.state(ms[1], "ConfigMap") == aggregate.Synced && r.state(ms[3], "ConfigMap") == aggregate.Synced
	})
	r.source.set(r.source.view[2], r.source.view[3])
	r.until("two have left", func() bool { return len(r.joined()) == 2 })
	r.end()
	mu.Lock()
	defer mu.Unlock()
	if len(said) > 0 {
		t.Errorf("client-go says:\n%s", strings.Join(said, "\n"))
	}
}
