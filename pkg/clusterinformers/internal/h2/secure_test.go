package h2_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"federator.dev/federator/pkg/clusterinformers/internal/h2"
)

// TestTransport_BeginsNoTLSOnSecureConnections: it speaks HTTP/2 at once.
func TestTransport_BeginsNoTLSOnSecureConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Proto+" "+r.Host)
	})}
	server.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		<-ended
	})
	c := newOwn(t, func(o *h2.Options) {
		o.Secure, o.TLS = true, nil
		o.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
		}
	})
	status, body, err := c.get(t.Context(), "https://agent/")
	if err != nil || status != http.StatusOK || string(body) != "HTTP/2.0 agent" {
		t.Errorf("%d %q %v", status, body, err)
	}
	resp, err := c.do(t.Context(), http.MethodGet, "https://agent/", nil)
	if err != nil || resp.TLS != nil {
		t.Errorf("%v, TLS %v", err, resp.TLS)
	}
	resp.Body.Close()
}
