package hubside

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/agent/internal/identity"
	"federator.dev/federator/pkg/agent/internal/joining"
)

// Bounds of requests of agents. What a stranger may have the hub asked for is one Secret, by all at once: see
// tokenReader.
const (
	hubTimeout = 10 * time.Second // of a request to the hub
	readRate   = 10               // a second: reads of the tokens
	joinRate   = 20               // a second, of those whose token is known
	renewRate  = 50               // a second, of all members
	helloRate  = 2                // a second, of one member; an agent asks when it could not connect
	helloBurst = 10

	// A member renews once in half of a certificate's life, and tries 32 times in a life where that fails.
	renewsPerLife = 64
	renewBurst    = 5
)

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+joining.JoinPath, s.metrics.counting("join", s.join))
	mux.HandleFunc("POST "+joining.RenewPath, s.metrics.counting("renew", s.renew))
	mux.HandleFunc("POST "+joining.HelloPath, s.metrics.counting("hello", s.hello))
	return mux
}

// problem is an answer that is an error.
type problem struct {
	code   int
	reason metav1.StatusReason
	text   string
}

func (p *problem) Error() string { return p.text }

// errBusy is the error of what may succeed a little later.
var errBusy = errors.New("federator has too many requests of agents")

func problemf(code int, reason metav1.StatusReason, format string, args ...any) *problem {
	return &problem{code, reason, fmt.Sprintf(format, args...)}
}

// fail answers with an error. What the hub says is logged, and not sent: who asks need not be an agent.
func (s *Server) fail(w http.ResponseWriter, err error) {
	var p *problem
	switch {
	case errors.As(err, &p):
	case errors.Is(err, errBusy):
		w.Header().Set("Retry-After", "1")
		p = problemf(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "%v", err)
	default:
		s.o.Logger.Warn("a request of an agent failed on the hub", "error", err)
		p = problemf(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "federator does not reach the hub now")
	}
	joining.WriteError(w, p.code, p.reason, "%s", p.text)
}

// join gives a certificate for a token.
func (s *Server) join(w http.ResponseWriter, r *http.Request) {
	req, key, err := decode(r, true)
	if err != nil {
		s.fail(w, err)
		return
	}
	token, err := joining.ParseToken(req.Token)
	if err != nil {
		s.fail(w, problemf(http.StatusBadRequest, metav1.StatusReasonBadRequest, "%v", err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), hubTimeout)
	defer cancel()
	digest, err := digestOf(key)
	if err != nil {
		s.fail(w, problemf(http.StatusBadRequest, metav1.StatusReasonBadRequest, "csr: %v", err))
		return
	}
	of, err := s.redeem(ctx, token, digest)
	if err != nil {
		s.fail(w, err)
		return
	}
	s.o.Logger.Info("an agent has joined", "member", of.Member(), "address", r.RemoteAddr, "version", joining.CleanVersion(req.Version))
	s.issue(w, of, key)
}

// digestOf is what a public key is known by.
func digestOf(key any) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	digest := sha256.Sum256(der)
	return hex.EncodeToString(digest[:]), err
}

// redeem uses a token up by a key, and returns whose it was.
func (s *Server) redeem(ctx context.Context, token joining.Token, key string) (identity.Identity, error) {
	refused := func(err error) error {
		return problemf(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "%v", err)
	}
	kept, err := s.tokens.read(ctx)
	if apierrors.IsNotFound(err) {
		s.reload.Fire() // it is created again
		return identity.Identity{}, problemf(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
			"Secret %s/%s, which has the tokens, is missing on the hub: a new token is needed once it is there", s.o.Namespace, TokenSecret)
	}
	if err != nil {
		return identity.Identity{}, err
	}
	known, err := find(kept, token, key, time.Now())
	if err != nil {
		return identity.Identity{}, refused(err)
	}
	of, err := identity.Parse(known.Member, known.UID)
	if err != nil {
		return of, refused(errUnknownToken)
	}
	if !s.joins.Allow() { // who has no token does not get here
		return of, errBusy
	}
	if err := s.checkMember(ctx, of); err != nil {
		return of, err
	}
	err = use(ctx, s.client.CoreV1().Secrets(s.o.Namespace), kept, token, key, time.Now())
	if errors.Is(err, errUnknownToken) || errors.Is(err, errExpiredToken) {
		err = refused(err)
	}
	return of, err
}

// renew gives another certificate for one that is valid.
func (s *Server) renew(w http.ResponseWriter, r *http.Request) {
	of, err := s.peer(r.TLS)
	if err != nil {
		s.fail(w, err)
		return
	}
	_, key, err := decode(r, true)
	if err != nil {
		s.fail(w, err)
		return
	}
	if err := s.registry.mayRenew(of.Identity); err != nil {
		s.fail(w, err)
		return
	}
	if !s.renewals.Allow() {
		s.fail(w, errBusy)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), hubTimeout)
	defer cancel()
	if err := s.checkMember(ctx, of.Identity); err != nil {
		s.fail(w, err)
		return
	}
	s.issue(w, of.Identity, key)
}

// hello says whether the agent may connect: a connection that is refused cannot say why.
func (s *Server) hello(w http.ResponseWriter, r *http.Request) {
	of, err := s.peer(r.TLS)
	if err != nil {
		s.fail(w, err)
		return
	}
	req, _, err := decode(r, false)
	if err != nil {
		s.fail(w, err)
		return
	}
	if err := s.registry.hello(of.Identity, joining.CleanVersion(req.Version)); err != nil {
		s.fail(w, err)
		return
	}
	send(w, joining.Response{Member: of.Member()})
}

// gone is of a Member that has another UID, or none.
func gone(of identity.Identity) *problem {
	return problemf(http.StatusForbidden, metav1.StatusReasonForbidden,
		"there is no Member %s with UID %s that has an agent: it was deleted, or created again, and the agent must join with a new token", of.Member(), of.UID)
}

// checkMember asks the hub whether the agent of a Member may connect.
func (s *Server) checkMember(ctx context.Context, of identity.Identity) error {
	u, err := s.dynamic.Resource(v1alpha1.Resource(v1alpha1.Members)).Namespace(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return gone(of)
	case err != nil:
		return err
	}
	if now, may := mayConnect(trimmed(u)); !may || now != of {
		return gone(of)
	}
	return nil
}

// peer is who has opened a connection.
type peer struct {
	identity.Identity
	authority [sha256.Size]byte // the digest of the CA that it was verified by
}

// errDropped is the error of a certificate that was verified by a CA that is none any more.
var errDropped = problemf(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "the certificate is of a CA that was dropped: join with a new token")

// peer returns whose certificate a connection has. TLS has verified it, by the CAs of then.
func (s *Server) peer(c *tls.ConnectionState) (peer, error) {
	if c == nil || len(c.VerifiedChains) == 0 {
		return peer{}, problemf(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "a certificate is required: join with a token")
	}
	of, err := identity.Of(c.PeerCertificates[0])
	if err != nil {
		return peer{}, problemf(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "%v", err)
	}
	chain := c.VerifiedChains[0]
	p := peer{of, identity.Digest(chain[len(chain)-1])}
	if !s.registry.trusts(p.authority) {
		return peer{}, errDropped
	}
	return p, nil
}

// decode reads a request, and the key of its CSR where it must have one.
func decode(r *http.Request, withCSR bool) (joining.Request, any, error) {
	bad := func(format string, args ...any) (joining.Request, any, error) {
		return joining.Request{}, nil, problemf(http.StatusBadRequest, metav1.StatusReasonBadRequest, format, args...)
	}
	var req joining.Request
	if err := joining.Decode(r.Body, &req); err != nil {
		return bad("the body: %v", err)
	}
	if !withCSR {
		return req, nil, nil
	}
	csr, err := x509.ParseCertificateRequest(req.CSR)
	if err != nil {
		return bad("csr is not a certificate signing request")
	}
	switch key := csr.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if key.Curve.Params().BitSize < 256 {
			return bad("csr: the key is too short")
		}
	default: // RSA takes long to verify
		return bad("csr: the key is neither of ECDSA nor of Ed25519")
	}
	if csr.CheckSignature() != nil {
		return bad("csr: the signature is not of its key")
	}
	return req, csr.PublicKey, nil
}

// issue answers with a certificate.
func (s *Server) issue(w http.ResponseWriter, of identity.Identity, key any) {
	all, now := *s.authorities.Load(), time.Now()
	cert, err := signAgent(all.newest(now), of, key, now, s.o.CertificateLife)
	if err != nil {
		s.fail(w, fmt.Errorf("signing a certificate: %w", err))
		return
	}
	send(w, joining.Response{Member: of.Member(), Certificate: identity.Encode(cert), Authorities: identity.Encode(all.certificates()...)})
}

func send(w http.ResponseWriter, resp joining.Response) {
	w.Header().Set("Content-Type", "application/json")
	// Only a client that has gone away can make this fail.
	_ = json.NewEncoder(w).Encode(resp)
}
