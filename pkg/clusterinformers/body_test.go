package clusterinformers_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"federator.dev/federator/pkg/clusterinformers"
)

// TestBodies_AreBounded has a member answer with bodies that do not end: what is not
// a list or a watch is read up to its limit, and the member is out of reach, or read
// by what else it says.
func TestBodies_AreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		path  string
		code  int
		bytes int64 // that may be read, with what is under way
	}{
		"version":   {"/version", http.StatusOK, 16 << 20},
		"discovery": {"/api", http.StatusOK, 16 << 20},
		"error":     {"/api/v1/namespaces/kube-system", http.StatusInternalServerError, 64 << 10},
		"refusal":   {"/version", http.StatusUnauthorized, 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			var most, ended atomic.Int64
			block := []byte(strings.Repeat(" ", 1<<16))
			var l *liar
			r := newRig(t, few(), func(r *rig, o *clusterinformers.Options) {
				l = newLiar(t, r.fleet.Members()[0], func(w http.ResponseWriter, req *http.Request) bool {
					if !strings.HasPrefix(req.URL.Path, c.path) || c.path == "/api" && req.URL.Path != "/api" {
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
			r.until("the reason is told", func() bool { return r.status(m).LastError != "" })
		})
	}
}
