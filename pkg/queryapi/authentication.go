package queryapi

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/client-go/kubernetes"
)

// LocalUser is the user of the token of a local server.
const LocalUser = "federator:local"

// tokenReviewTimeout bounds one TokenReview.
const tokenReviewTimeout = 5 * time.Second

// Hashes of tokens that the hub has authenticated are kept for a while: their reviews have
// slots of their own, which floods of invalid tokens cannot use up.
const (
	maxKnownTokens = 10_000
	knownTokenTTL  = time.Hour
)

// newCertificateAuthenticator returns an authenticator for client certificates.
func newCertificateAuthenticator(ca *clientCAs) authenticator.Request {
	return group.NewAuthenticatedGroupAdder(x509.NewDynamic(ca.VerifyOptions, x509.CommonNameUserConversion)) // the hub names all groups of tokens
}

// newAuthenticator returns an authenticator for tokens, by TokenReviews on the hub, and for
// client certificates where certificates is not nil. There are no anonymous users.
func newAuthenticator(hub kubernetes.Interface, l Authentication, certificates authenticator.Request) (authenticator.Request, authenticator.Token, error) {
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: .2, Steps: 3}
	reviews, err := webhook.NewFromInterface(hub.AuthenticationV1(), l.Audiences, backoff, tokenReviewTimeout, webhook.AuthenticatorMetrics{
		RecordRequestTotal: authenticatorfactory.RecordRequestTotal, RecordRequestLatency: authenticatorfactory.RecordRequestLatency,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("query API: authentication: %w", err)
	}
	cached := tokencache.New(knownTokens{reviews, cache.NewLRUExpireCache(maxKnownTokens)}, false, l.TokenTTL, l.TokenTTL)
	tokens := tokenReviews{cached, l.Audiences, l.HubTokens}
	var ways []authenticator.Request
	if certificates != nil {
		ways = append(ways, certificates) // first: it needs no review
	}
	ways = append(ways, bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))
	return hubErrorRecorder{group.NewAuthenticatedGroupAdder(union.New(ways...))}, tokens, nil
}

// tokenReviews reviews tokens for one of some audiences and, where a token says that it is one
// of the hub's, for the hub's own.
type tokenReviews struct {
	reviews   authenticator.Token
	audiences authenticator.Audiences
	hubTokens []HubTokens
}

// AuthenticateToken implements authenticator.Token.
func (t tokenReviews) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if !ofHub(token, t.hubTokens) {
		ctx = authenticator.WithAudiences(ctx, t.audiences)
	}
	return t.reviews.AuthenticateToken(ctx, token)
}

// knownTokens marks reviews of tokens that the hub has authenticated recently.
type knownTokens struct {
	reviews authenticator.Token
	known   *cache.LRUExpireCache // hashes
}

// knownTokenKey marks the context of a review of a known token.
type knownTokenKey struct{}

// AuthenticateToken implements authenticator.Token.
func (k knownTokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	hash := sha256.Sum256([]byte(token))
	if _, known := k.known.Get(hash); known {
		ctx = context.WithValue(ctx, knownTokenKey{}, true)
	}
	answer, ok, err := k.reviews.AuthenticateToken(ctx, token)
	switch {
	case ok:
		k.known.Add(hash, nil, knownTokenTTL)
	case hubFailure(err) == nil:
		k.known.Remove(hash)
	}
	return answer, ok, err
}

// reviewLimiter bounds the TokenReviews in flight. Those of known tokens have slots of their
// own.
type reviewLimiter struct {
	http.RoundTripper
	unknown, known *semaphore.Weighted
}

func newReviewLimiter(t http.RoundTripper, slots int64) reviewLimiter {
	return reviewLimiter{t, semaphore.NewWeighted(slots), semaphore.NewWeighted(slots)}
}

// RoundTrip implements http.RoundTripper.
func (l reviewLimiter) RoundTrip(r *http.Request) (*http.Response, error) {
	slots := l.unknown
	if r.Context().Value(knownTokenKey{}) != nil {
		slots = l.known
	}
	if err := slots.Acquire(r.Context(), 1); err != nil {
		return nil, err
	}
	defer slots.Release(1)
	return l.RoundTripper.RoundTrip(r)
}

// newToken returns a random token.
func newToken() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// newLocalAuthenticator accepts one token.
func newLocalAuthenticator(token string) (authenticator.Request, authenticator.Token) {
	known := authenticator.TokenFunc(func(_ context.Context, got string) (*authenticator.Response, bool, error) {
		if subtle.ConstantTimeCompare([]byte(got), []byte(token)) != 1 {
			return nil, false, nil
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: LocalUser, Groups: []string{user.AllAuthenticated}}}, true, nil
	})
	return union.New(bearertoken.New(known), websocket.NewProtocolAuthenticator(known)), known
}

type hubErrorKey struct{}

// hubError is where hubErrorRecorder records a failed review.
type hubError struct{ err error }

// hubErrorRecorder distinguishes a hub that does not answer from a caller that is not
// authenticated: the first is no reason to log in again.
type hubErrorRecorder struct{ authenticator.Request }

func (h hubErrorRecorder) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	answer, ok, err := h.Request.AuthenticateRequest(r)
	if o, recorded := r.Context().Value(hubErrorKey{}).(*hubError); recorded && !ok {
		o.err = hubFailure(err)
	}
	return answer, ok, err
}

// hubFailure returns the error of the hub within err, nil if there is none.
func hubFailure(err error) error {
	var several utilerrors.Aggregate
	if errors.As(err, &several) {
		for _, one := range several.Errors() {
			if failure := hubFailure(one); failure != nil {
				return failure
			}
		}
		return nil
	}
	var status apierrors.APIStatus
	var network net.Error
	if errors.As(err, &status) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// withHubError puts a hubError into the context.
func withHubError(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), hubErrorKey{}, &hubError{})))
	})
}

// unauthenticated answers requests that could not be authenticated.
func (s *Server) unauthenticated(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 && !s.ofBrowser(r) { // of whose one connection a tab may be logged in, and have a stream open
		w.Header().Set("Connection", "close") // keep no HTTP/2 connection
	}
	o, _ := r.Context().Value(hubErrorKey{}).(*hubError)
	if o == nil || o.err == nil {
		s.metrics.refused.WithLabelValues("unauthenticated").Inc()
		w.Header().Set("WWW-Authenticate", "Bearer")
		writeStatus(w, apierrors.NewUnauthorized("Unauthorized").Status())
		return
	}
	writeStatus(w, s.reviewFailure(o.err).Status())
}

// reviewFailure logs why a token was not reviewed, and returns what to answer.
func (s *Server) reviewFailure(err error) *apierrors.StatusError {
	s.metrics.refused.WithLabelValues("hub").Inc()
	s.log.Warn("query API: TokenReview failed", "error", err)
	if apierrors.IsForbidden(err) {
		return apierrors.NewInternalError(errors.New("federator may not create TokenReviews on the hub"))
	}
	return apierrors.NewServiceUnavailable("the hub did not answer a TokenReview")
}
