// Package queryserver runs query APIs for tests, on loopback addresses and until the test ends.
package queryserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/kube"
)

// Patience is how long a client waits for an answer.
const Patience = 30 * time.Second

// Server is a running query API.
type Server struct {
	*queryapi.Server
	Address string         // host and port
	Roots   *x509.CertPool // of its certificate
	End     func() error   // ends it, once, and returns what Run said
}

// Start runs a server until the test ends. What o leaves out is that of a fleet without members and
// kinds, and of a query whoami. Listener, if that is nil, listens on a loopback address.
func Start(t testing.TB, o queryapi.Options) *Server {
	t.Helper()
	var err error
	if o.Index == nil {
		if o.Index, err = aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)}); err != nil {
			t.Fatal(err)
		}
	}
	if o.Fleet == nil {
		o.Fleet = Fleet{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Queries == nil {
		o.Queries = map[string]queryapi.Query{"whoami": WhoAmI}
	}
	if o.Listener == nil {
		if o.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	s := &Server{Address: o.Listener.Addr().String(), Roots: x509.NewCertPool()}
	if s.Server, err = queryapi.New(o); err != nil {
		o.Listener.Close()
		t.Fatal(err)
	}
	s.Roots.AppendCertsFromPEM(s.CertificateAuthority())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	s.End = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := s.End(); err != nil {
			t.Errorf("the server failed: %v", err)
		}
	})
	return s
}

// Transport speaks to the server, with client certificates; its connections end with the test.
func (s *Server) Transport(t testing.TB, certs ...tls.Certificate) *http.Transport {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.Roots, Certificates: certs}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// Client is a client with such a transport.
func (s *Server) Client(t testing.TB, certs ...tls.Certificate) *http.Client {
	return &http.Client{Transport: s.Transport(t, certs...), Timeout: Patience}
}

// Fleet is one whose members serve these resources, and that was never in contact with any.
type Fleet []queryapi.ServedResource

var never = make(chan struct{})

// Resources implements queryapi.Fleet.
func (f Fleet) Resources() ([]queryapi.ServedResource, <-chan struct{}) { return f, never }

// LastContact implements queryapi.Fleet.
func (Fleet) LastContact(string, aggregate.Kind) time.Time { return time.Time{} }

// Question answers a query as a function does.
type Question func(http.ResponseWriter, *http.Request, queryapi.Caller) error

// Serve implements queryapi.Query.
func (q Question) Serve(w http.ResponseWriter, r *http.Request, c queryapi.Caller) error {
	return q(w, r, c)
}

// WhoAmI answers with the caller's name and groups.
var WhoAmI = Question(func(w http.ResponseWriter, _ *http.Request, c queryapi.Caller) error {
	_, err := fmt.Fprintf(w, "%s %s", c.User().GetName(), strings.Join(c.User().GetGroups(), ","))
	return err
})

// TokenFor returns a token of a ServiceAccount of namespace default of a hub, for some audiences; without any,
// for the hub's own API.
func TokenFor(t testing.TB, hub *kube.Hub, account string, audiences ...string) string {
	t.Helper()
	accounts := hub.Client().CoreV1().ServiceAccounts("default")
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	answer, err := accounts.CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

// UserOf is the user that such a ServiceAccount is.
func UserOf(account string) string { return "system:serviceaccount:default:" + account }

// Certificate returns a client certificate that a hub has issued.
func Certificate(t testing.TB, hub *kube.Hub, user string, ttl time.Duration, groups ...string) tls.Certificate {
	t.Helper()
	issued, err := hub.IssueCert(user, ttl, groups...)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(issued.Cert, issued.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
