// Package issuer is a real issuer of OpenID Connect on a loopback address, with users and a client,
// for tests of log-in.
package issuer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"golang.org/x/text/language"
)

// Users that can log in, all with Password. Claim sub is the name.
const (
	Ann      = "ann"
	Bob      = "bob"
	Password = "correct horse"
)

// Issuer is a running issuer.
type Issuer struct {
	// URL is the issuer's, https.
	URL string
	// CA is its authority, PEM, and CAFile a file with it.
	CA     []byte
	CAFile string

	server *http.Server
	done   sync.WaitGroup

	mu    sync.Mutex
	calls map[string]int // by path
	down  bool
	holds map[string]hold // by path
}

// Client is a client that it knows.
type Client struct {
	ID, Secret   string
	RedirectURLs []string
}

// Start starts an issuer with files in dir, until Stop.
func Start(ctx context.Context, dir string, clients ...Client) (*Issuer, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	i := &Issuer{URL: "https://" + l.Addr().String(), CAFile: filepath.Join(dir, "issuer-ca.crt"), calls: map[string]int{}, holds: map[string]hold{}}
	pair, err := i.certificate()
	if err == nil {
		err = os.WriteFile(i.CAFile, i.CA, 0o600)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("issuer: %w", err)
	}
	for _, c := range clients {
		storage.RegisterClients(storage.WebClient(c.ID, c.Secret, c.RedirectURLs...))
	}
	router := exampleop.SetupServer(i.URL, storage.NewStorage(users{}), slog.New(slog.DiscardHandler), false)
	i.server = &http.Server{Handler: i.count(router), ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	i.done.Go(func() {
		_ = i.server.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}))
	})
	return i, nil
}

// Stop ends it.
func (i *Issuer) Stop() {
	_ = i.server.Close()
	i.done.Wait()
}

// Calls returns how many requests there were of a path.
func (i *Issuer) Calls(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.calls[path]
}

// SetDown has it answer 503, or not.
func (i *Issuer) SetDown(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// hold holds answers back.
type hold struct{ held, until chan struct{} }

// Hold has it hold its answers to requests for a path back until release. What it does is done: held says so of the first.
func (i *Issuer) Hold(path string) (held <-chan struct{}, release func()) {
	h := hold{make(chan struct{}, 1), make(chan struct{})}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.holds[path] = h
	return h.held, sync.OnceFunc(func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.holds, path)
		close(h.until)
	})
}

// serve has an answer wait.
func (h hold) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	answer := httptest.NewRecorder()
	next.ServeHTTP(answer, r)
	select {
	case h.held <- struct{}{}:
	default:
	}
	select {
	case <-h.until:
	case <-r.Context().Done():
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // the client may be gone
}

func (i *Issuer) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		i.calls[r.URL.Path]++
		down := i.down
		h, held := i.holds[r.URL.Path]
		i.mu.Unlock()
		if down {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		if held {
			h.serve(next, w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// certificate makes the serving certificate, which is its own authority.
func (i *Issuer) certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "issuer"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	i.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// users implements storage.UserStore.
type users struct{}

func (users) ExampleClientID() string { return "" }

func (users) GetUserByID(id string) *storage.User {
	if id != Ann && id != Bob {
		return nil
	}
	return &storage.User{
		ID: id, Username: id, Password: Password, FirstName: id, Email: id + "@example.com", EmailVerified: true, PreferredLanguage: language.English,
	}
}

func (u users) GetUserByUsername(name string) *storage.User { return u.GetUserByID(name) }
