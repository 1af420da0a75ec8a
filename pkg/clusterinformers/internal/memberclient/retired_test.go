package memberclient

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"federator.dev/federator/test/kube/tcpproxy"
)

// A request that is given up while its answer is awaited leaves an idle
// connection, which nobody would close.
func TestTransport_RetiredClosesAbandonedRequests(t *testing.T) {
	requested := make(chan struct{}, 1)
	s := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
		requested <- struct{}{}
		<-r.Context().Done()
	})
	client := clientOf(t, s.URL, TransportOptions{Trusted: true}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() {
		if resp, err := get(ctx, client, s.URL); err == nil {
			resp.Body.Close()
			t.Error("the request was answered")
		}
	})
	<-requested
	client.CloseIdleConnections()
	cancel()
	asking.Wait()
	eventually(t, "the connection closes when its request is given up", 5*time.Second, func() bool { return s.closed.Load() == 1 })
}

// A connection that is being made when the transport is retired is not kept for
// later requests.
func TestTransport_RetiredKeepsNoConnectionBeingMade(t *testing.T) {
	s := newServer(t, func(http.ResponseWriter, *http.Request) {})
	proxy, err := tcpproxy.Listen(t.Context(), "127.0.0.1:0", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	if err := proxy.Set(tcpproxy.Mode{State: tcpproxy.BlackHole}); err != nil {
		t.Fatal(err)
	}
	client := clientOf(t, "https://"+proxy.Addr(), TransportOptions{Trusted: true}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() {
		if resp, err := get(ctx, client, "https://"+proxy.Addr()); err == nil {
			resp.Body.Close()
			t.Error("the request was answered")
		}
	})
	eventually(t, "the handshake hangs", 5*time.Second, func() bool { return proxy.Stats().Accepted == 1 })
	cancel()
	asking.Wait()
	client.CloseIdleConnections()
	if err := proxy.Set(tcpproxy.Mode{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the connection closes when it is made", 5*time.Second, func() bool { return proxy.Stats().Open == 0 })
}
