package clusterinformers_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/sim"
)

// fakeServer is an API server that answers as a simulated member does, but where the
// test has it answer otherwise.
type fakeServer struct {
	spec clusterinformers.Spec
	cut  func() // breaks all connections

	forward http.HandlerFunc // answers as the member does

	mu     sync.Mutex
	answer func(w http.ResponseWriter, r *http.Request) bool
}

// newFakeServer starts a server before m. answer reports whether it has answered; it is
// called from many goroutines.
func newFakeServer(t *testing.T, m *sim.Member, answer func(w http.ResponseWriter, r *http.Request) bool) *fakeServer {
	t.Helper()
	return newFakeServerOf(t, m, true, answer)
}

// newFakeServerOf is newFakeServer of a server that speaks HTTP/2, or does not.
func newFakeServerOf(t *testing.T, m *sim.Member, http2 bool, answer func(w http.ResponseWriter, r *http.Request) bool) *fakeServer {
	t.Helper()
	transport, err := rest.TransportFor(m.RESTConfig())
	ok(t, err)
	host, err := url.Parse(m.RESTConfig().Host)
	ok(t, err)
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(host)
		r.Out.Header.Del("Authorization") // the transport has the member's own
	}}
	l := &fakeServer{answer: answer, forward: proxy.ServeHTTP}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		answer := l.answer
		l.mu.Unlock()
		if !answer(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	server.EnableHTTP2 = http2
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		if c, is := transport.(interface{ CloseIdleConnections() }); is {
			c.CloseIdleConnections()
		}
	})
	l.cut = server.CloseClientConnections
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{
		Server:                   server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "t"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	kubeconfig, err := clientcmd.Write(*config)
	ok(t, err)
	l.spec = clusterinformers.Spec{Name: nameOf(m), UID: "uid-" + m.Name(), Kubeconfig: kubeconfig, Trusted: true}
	return l
}
