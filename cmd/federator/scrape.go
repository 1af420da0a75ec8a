package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// metricsPath is what a scraper needs the verb get for, as of any API server.
const metricsPath = "/metrics"

// reviewTime bounds one review by the hub. reviewsPerSecond bounds the reviews caused by
// unknown callers and, separately, by callers that were authorized before.
const (
	reviewTime       = 5 * time.Second
	reviewsPerSecond = 50
)

// onlyScrapers admits callers that the hub authenticates by a bearer token (TokenReview)
// and authorizes to get /metrics (SubjectAccessReview), as metrics name members, policies
// and kinds. Without a hub it admits callers on this machine.
func onlyScrapers(hub *rest.Config, next http.Handler, log *slog.Logger) (http.Handler, error) {
	if hub == nil {
		return localOnly(next), nil
	}
	unknown, err := newReviews(hub)
	if err != nil {
		return nil, err
	}
	known, err := newReviews(hub)
	if err != nil {
		return nil, err
	}
	return &scrapers{unknown: unknown, known: known, tokens: cache.NewLRUExpireCache(maxScrapers), next: next, log: log}, nil
}

// maxScrapers bounds the tokens that are remembered, each for a while after it was authorized.
const (
	maxScrapers = 64
	remembered  = time.Hour
)

// reviews authenticates and authorizes by the hub, with its own rate limit.
type reviews struct {
	login  authenticator.Request
	grants authorizer.Authorizer
}

func newReviews(hub *rest.Config) (*reviews, error) {
	config := rest.CopyConfig(hub)
	config.QPS, config.Burst = reviewsPerSecond, reviewsPerSecond
	config.UserAgent = "federator/metrics"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("listen.serve: hub: %w", err)
	}
	retry := &wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: .2, Steps: 3}
	login, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient: client.AuthenticationV1(), TokenAccessReviewTimeout: reviewTime, WebhookRetryBackoff: retry,
		CacheTTL: 10 * time.Second,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("listen.serve: authentication: %w", err)
	}
	grants, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(), WebhookRetryBackoff: retry,
		AllowCacheTTL: 30 * time.Second, DenyCacheTTL: 10 * time.Second,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("listen.serve: authorization: %w", err)
	}
	return &reviews{login: login, grants: grants}, nil
}

// scrapers authorizes readers of metrics. Tokens that were authorized are remembered, as
// hashes: their reviews have a rate limit of their own, so that unknown callers cannot
// lock them out.
type scrapers struct {
	unknown, known *reviews
	tokens         *cache.LRUExpireCache // hashes
	next           http.Handler
	log            *slog.Logger
}

// of returns the reviews for a request, and the hash of its token.
func (s *scrapers) of(r *http.Request) (*reviews, [sha256.Size]byte) {
	hash := sha256.Sum256([]byte(r.Header.Get("Authorization")))
	if _, known := s.tokens.Get(hash); known {
		return s.known, hash
	}
	return s.unknown, hash
}

func (s *scrapers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*reviewTime)
	defer cancel()
	reviews, token := s.of(r)
	caller, known, err := reviews.login.AuthenticateRequest(r.WithContext(ctx))
	if !known {
		if unanswered(err) {
			s.log.Warn("token review failed", "path", metricsPath, "error", err)
			http.Error(w, "the TokenReview on the hub failed", http.StatusServiceUnavailable)
			return
		}
		s.tokens.Remove(token)
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "a bearer token that the hub accepts is required", http.StatusUnauthorized)
		return
	}
	decision, _, err := reviews.grants.Authorize(ctx, authorizer.AttributesRecord{User: caller.User, Verb: "get", Path: metricsPath})
	if err != nil {
		s.log.Warn("access review failed", "path", metricsPath, "error", err)
		http.Error(w, "the SubjectAccessReview on the hub failed", http.StatusServiceUnavailable)
		return
	}
	if decision != authorizer.DecisionAllow {
		s.tokens.Remove(token)
		http.Error(w, forbiddenScrape(caller.User), http.StatusForbidden)
		return
	}
	s.tokens.Add(token, nil, remembered)
	s.next.ServeHTTP(w, r)
}

func forbiddenScrape(u user.Info) string {
	return fmt.Sprintf("User %q cannot get path %q: a ClusterRole with nonResourceURLs [%s] and verbs [get] is required", u.GetName(), metricsPath, metricsPath)
}

// unanswered reports whether the hub failed to answer, rather than rejected the token.
func unanswered(err error) bool {
	var several utilerrors.Aggregate
	if errors.As(err, &several) {
		for _, one := range several.Errors() {
			if unanswered(one) {
				return true
			}
		}
		return false
	}
	var status apierrors.APIStatus
	var network net.Error
	return errors.As(err, &status) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded)
}
