package memberclient

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/kubeconfigtest"
	"federator.dev/federator/test/kube/tcpproxy"
)

// eventually waits until cond holds.
func eventually(t *testing.T, what string, limit time.Duration, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(limit)
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %s in vain: %s", limit, what)
		}
	}
}

// server is a TLS server that speaks HTTP/2 and counts its connections.
type server struct {
	*httptest.Server
	opened, closed atomic.Int32
}

func newServer(t *testing.T, h http.HandlerFunc) *server {
	t.Helper()
	s := &server{Server: httptest.NewUnstartedServer(h)}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // it has something to say of every refused handshake
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.opened.Add(1)
		case http.StateClosed:
			s.closed.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// clientOf returns a client for a server by way of a kubeconfig.
func clientOf(t *testing.T, url string, o TransportOptions, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) *http.Client {
	t.Helper()
	cfg, refusal := ParseKubeconfig(kubeconfigtest.New(t, url, func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		if change != nil {
			change(c, u)
		}
	}), Allowed{})
	if refusal != nil {
		t.Fatal(refusal)
	}
	client, err := NewHTTPClient(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func get(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

func wantRefused(t *testing.T, err error, reason connection.Reason) {
	t.Helper()
	if r := connection.AsRefusal(err); r == nil || r.Reason != reason {
		t.Errorf("got error %v, want a refusal: %s", err, reason)
	}
}

var loopback = connection.Network{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}

func TestDial_RefusesLoopbackUnlessAllowedOrTrusted(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto+" "+r.Header.Get("Authorization")+" "+r.UserAgent())
	})
	for _, url := range []string{s.URL, "https://localhost:" + port(s.URL)} {
		_, err := get(t.Context(), clientOf(t, url, TransportOptions{}, nil), url)
		wantRefused(t, err, connection.ForbiddenAddress)
	}
	if n := s.opened.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
	for _, o := range []TransportOptions{{Network: loopback}, {Trusted: true}} {
		resp, err := get(t.Context(), clientOf(t, s.URL, o, nil), s.URL)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := "HTTP/2.0 Bearer " + kubeconfigtest.Token + " " + UserAgent; err != nil || string(data) != want {
			t.Errorf("server saw %q, %v, want %q", data, err, want)
		}
	}
}

// TestDialer_RefusesTheSameForOthers dials a server as git would.
func TestDialer_RefusesTheSameForOthers(t *testing.T) {
	s := newServer(t, func(http.ResponseWriter, *http.Request) {})
	address := strings.TrimPrefix(s.URL, "https://")
	_, err := connection.Network{}.Dialer().DialContext(t.Context(), "tcp", address)
	wantRefused(t, err, connection.ForbiddenAddress)
	c, err := loopback.Dialer().DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func port(url string) string { return url[strings.LastIndex(url, ":")+1:] }

func TestTransport_RefusesRedirects(t *testing.T) {
	var visited atomic.Int32
	target := newServer(t, func(http.ResponseWriter, *http.Request) { visited.Add(1) })
	for _, status := range []int{300, 301, 302, 303, 307, 308} {
		for _, location := range []string{target.URL + "/?" + kubeconfigtest.Token, "/elsewhere", ":bad", ""} {
			s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/start" {
					visited.Add(1)
				}
				if location != "" {
					w.Header().Set("Location", location)
				}
				w.WriteHeader(status)
			})
			resp, err := get(t.Context(), clientOf(t, s.URL, TransportOptions{Trusted: true}, nil), s.URL+"/start")
			if err == nil {
				resp.Body.Close()
			}
			wantRefused(t, err, connection.Redirect)
			if err != nil && strings.Contains(connection.AsRefusal(err).Message, kubeconfigtest.Token) {
				t.Errorf("message repeats what may be secret: %v", err)
			}
		}
	}
	if n := visited.Load(); n != 0 {
		t.Errorf("redirects were followed %d times", n)
	}
}

func TestTransport_VerifiesTLS(t *testing.T) {
	s := newServer(t, func(http.ResponseWriter, *http.Request) {})
	for name, tc := range map[string]struct {
		change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)
		ok     bool
	}{
		"right name":  {func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.TLSServerName = "example.com" }, true},
		"wrong name":  {func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.TLSServerName = "other.invalid" }, false},
		"another CA":  {func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.CertificateAuthorityData = otherCA }, false},
		"address SAN": {nil, true},
	} {
		resp, err := get(t.Context(), clientOf(t, s.URL, TransportOptions{Trusted: true}, tc.change), s.URL)
		if err == nil {
			resp.Body.Close()
		}
		if (err == nil) != tc.ok || connection.AsRefusal(err) != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// otherCA is a certificate of nobody here: ISRG Root X2, which is public.
var otherCA = []byte(`-----BEGIN CERTIFICATE-----
MIICGzCCAaGgAwIBAgIQQdKd0XLq7qeAwSxs6S+HUjAKBggqhkjOPQQDAzBPMQsw
CQYDVQQGEwJVUzEpMCcGA1UEChMgSW50ZXJuZXQgU2VjdXJpdHkgUmVzZWFyY2gg
R3JvdXAxFTATBgNVBAMTDElTUkcgUm9vdCBYMjAeFw0yMDA5MDQwMDAwMDBaFw00
MDA5MTcxNjAwMDBaME8xCzAJBgNVBAYTAlVTMSkwJwYDVQQKEyBJbnRlcm5ldCBT
ZWN1cml0eSBSZXNlYXJjaCBHcm91cDEVMBMGA1UEAxMMSVNSRyBSb290IFgyMHYw
EAYHKoZIzj0CAQYFK4EEACIDYgAEzZvVn4CDCuwJSvMWSj5cz3es3mcFDR0HttwW
+1qLFNvicWDEukWVEYmO6gbf9yoWHKS5xcUy4APgHoIYOIvXRdgKam7mAHf7AlF9
ItgKbppbd9/w+kHsOdx1ymgHDB/qo0IwQDAOBgNVHQ8BAf8EBAMCAQYwDwYDVR0T
AQH/BAUwAwEB/zAdBgNVHQ4EFgQUfEKWrt5LSDv6kviejM9ti6lyN5UwCgYIKoZI
zj0EAwMDaAAwZQIwe3lORlCEwkSHRhtFcP9Ymd70/aTSVaYgLXTWNLxBo1BfASdW
tL4ndQavEi51mI38AjEAi/V3bNTIZargCyzuFJ0nN6T5U6VR5CmD1/iQMVtCnwr1
/q4AaOeMSQ+2b1tbFfLn
-----END CERTIFICATE-----
`)

func TestTransport_RefusesLargeHeaders(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 2*maxHeaderBytes))
	})
	resp, err := get(t.Context(), clientOf(t, s.URL, TransportOptions{Trusted: true}, nil), s.URL)
	if err == nil {
		resp.Body.Close()
		t.Error("accepted")
	}
}

func TestTransport_UsesNoProxy(t *testing.T) {
	client := clientOf(t, "https://192.0.2.1", TransportOptions{}, nil)
	if tr := client.Transport.(*transport); tr.base.(*switching).stock.Proxy != nil {
		t.Error("the transport has a proxy function")
	}
}

// ticks answers with a line every few milliseconds until the client goes.
func ticks(w http.ResponseWriter, r *http.Request) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		fmt.Fprintf(w, "%d\n", i)
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

func TestTransport_BlackHoleEndsStreamsWithinEightSeconds(t *testing.T) {
	t.Parallel()
	s := newServer(t, ticks)
	proxy, err := tcpproxy.Listen(t.Context(), "127.0.0.1:0", strings.TrimPrefix(s.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	url := "https://" + proxy.Addr()
	client := clientOf(t, url, TransportOptions{Trusted: true}, nil) // the defaults
	// Several scopes' streams, which all have to end.
	const streams = 5
	var readers sync.WaitGroup
	ended := make(chan error, streams)
	for range streams {
		resp, err := get(t.Context(), client, url)
		if err != nil {
			t.Fatal(err)
		}
		readers.Go(func() {
			defer resp.Body.Close()
			_, err := io.Copy(io.Discard, resp.Body)
			ended <- err
		})
	}
	if err := proxy.Set(tcpproxy.Mode{State: tcpproxy.BlackHole}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	for range streams {
		if err := <-ended; err == nil {
			t.Error("a stream ended without an error")
		}
	}
	readers.Wait()
	if took := time.Since(begin); took > 8*time.Second || took < DefaultPingTimeout {
		t.Errorf("noticed after %s", took)
	}
}

func TestTransport_RetiredClosesItsConnections(t *testing.T) {
	s := newServer(t, ticks)
	before := goleak.IgnoreCurrent()
	client := clientOf(t, s.URL, TransportOptions{Trusted: true}, nil)
	resp, err := get(t.Context(), client, s.URL)
	if err != nil {
		t.Fatal(err)
	}
	client.CloseIdleConnections()
	lines := bufio.NewScanner(resp.Body)
	for range 10 {
		if !lines.Scan() {
			t.Fatalf("a stream in use was cut: %v", lines.Err())
		}
	}
	if n := s.closed.Load(); n != 0 {
		t.Errorf("%d connections in use were closed", n)
	}
	resp.Body.Close()
	eventually(t, "the connection closes when its last stream has ended", 5*time.Second, func() bool { return s.closed.Load() == 1 })
	goleak.VerifyNone(t, before)
}

func TestTransport_SharesNoConnection(t *testing.T) {
	s := newServer(t, func(http.ResponseWriter, *http.Request) {})
	for range 2 {
		resp, err := get(t.Context(), clientOf(t, s.URL, TransportOptions{Trusted: true}, nil), s.URL)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if n := s.opened.Load(); n != 2 {
		t.Errorf("%d connections for two transports", n)
	}
}

func TestTransport_PresentsTheClientCertificate(t *testing.T) {
	ca, key := kubeconfigtest.KeyPair()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, len(r.TLS.PeerCertificates))
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	defer s.Close()
	client := clientOf(t, s.URL, TransportOptions{Trusted: true}, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		u.Token, u.ClientCertificateData, u.ClientKeyData = "", ca, key
	})
	resp, err := get(t.Context(), client, s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if data, err := io.ReadAll(resp.Body); err != nil || string(data) != "1" {
		t.Errorf("server saw %q certificates, %v", data, err)
	}
}
