package apiproxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
)

// TestProxy_AnIdleWatchHoldsNoBuffer, whether federator takes it compressed, as it does, or not.
func TestProxy_AnIdleWatchHoldsNoBuffer(t *testing.T) {
	for _, encoding := range []string{"zstd", "identity"} {
		t.Run(encoding, func(t *testing.T) { idle(t, encoding) })
	}
}

func idle(t *testing.T, encoding string) {
	const watches = 400
	end := make(chan struct{})
	s := newProxy(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // the test's client is there
		select {
		case <-end:
		case <-r.Context().Done():
		}
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
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/v1/pods?watch=true", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept-Encoding", encoding)
			resp, err := s.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _ = io.Copy(io.Discard, resp.Body); resp.Body.Close() })
		}
	}
	open(1)
	before := heap()
	open(watches)
	if each := (heap() - before) / watches; each > 48<<10 { // of client, proxy and server
		t.Errorf("an idle watch holds %d bytes", each)
	}
}

// TestProxy_BoundsWhatRuns, of all connections together.
func TestProxy_BoundsWhatRuns(t *testing.T) {
	end, began := make(chan struct{}), make(chan struct{})
	s := newProxy(t, func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-end
	})
	p := s.Config.Handler.(*Proxy)
	p.running.Store(maxRunning - 1) // as if there were so many
	first := make(chan int)
	get := func() int {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/pods", http.NoBody))
		return w.Code
	}
	go func() { first <- get() }()
	<-began
	if code := get(); code != http.StatusTooManyRequests {
		t.Errorf("one more is answered with %d", code)
	}
	close(end)
	if code := <-first; code != http.StatusOK {
		t.Errorf("the last that there is room for: %d", code)
	}
	if n := p.running.Load(); n != maxRunning-1 {
		t.Errorf("%d run afterwards", n)
	}
}
