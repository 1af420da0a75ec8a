package apiproxy

import (
	"io"
	"net/http"
	"runtime"
	"testing"
)

// TestAttack_AnIdleWatchHoldsNoBuffer: each response that goes on holds 64 KiB to be copied by, for as long as it does. That is 64 KiB
// for each kind and replica of federator, at rest, and 256 MiB a connection for a hub that opens all streams: the chart limits the Pod to 192Mi.
func TestAttack_AnIdleWatchHoldsNoBuffer(t *testing.T) {
	const watches = 400
	end := make(chan struct{})
	s := newProxy(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-end
	})
	defer close(end)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	open := func(n int) {
		for range n {
			resp, err := s.Client().Get(s.URL + "/api/v1/pods?watch=true")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _ = io.Copy(io.Discard, resp.Body); resp.Body.Close() })
		}
	}
	open(1)
	before := heap()
	open(watches)
	each := (heap() - before) / watches
	t.Logf("%d bytes each, of the client, the proxy and the server", each)
	if each > 48<<10 {
		t.Errorf("an idle watch holds %d bytes", each)
	}
}
