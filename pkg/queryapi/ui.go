package queryapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Paths of the web UI.
const (
	uiRoot = "/ui"
	// uiRelay is below which requests are those of an authenticated caller.
	uiRelay = "/ui/relay/"
)

// maxUIRequests bounds requests of the web UI in flight that need no log-in.
const maxUIRequests = 64

// UI is a web UI that is served beside the API, at /ui and below. Requests of its pages to the
// API carry the session of their user in cookies.
type UI interface {
	// SetHeaders sets the headers that all responses at /ui have.
	SetHeaders(h http.Header)
	// ServePublic serves requests for /ui and below, but not those for /ui/relay/, before anybody
	// is authenticated.
	ServePublic(w http.ResponseWriter, r *http.Request, callers UICallers)
	// ServeCaller serves requests for /ui/relay/, of an authenticated caller.
	ServeCaller(w http.ResponseWriter, r *http.Request, caller UICaller)
	// Bearer returns the token of the session that a request's cookies carry, "" where there is
	// none. It may set cookies. It is called for requests of the UI's own pages only. Errors that are not
	// *apierrors.StatusError become a 500 without their text.
	Bearer(w http.ResponseWriter, r *http.Request) (string, error)
}

// UICallers authenticates callers of the UI as the API does.
type UICallers interface {
	// ByToken returns the caller that a token is of. Errors are *apierrors.StatusError: 401 where the
	// token is not accepted, 503 where the hub does not answer.
	ByToken(ctx context.Context, token string) (UICaller, error)
	// ByCertificate returns the caller that the client certificate of a request's connection names,
	// false where there is none that is accepted. To the API it counts more than a token in the header
	// Authorization, and less than a session.
	ByCertificate(r *http.Request) (UICaller, bool)
}

// UICaller is an authenticated caller of the UI.
type UICaller struct {
	User  user.Info
	Token string // "" of a caller with a client certificate
	// OfHub says that the token is one that the hub accepts for its own API, too.
	OfHub bool
}

// HubTokens are tokens for the hub's own API. They are reviewed with the hub's own audiences.
type HubTokens struct {
	Issuer   string // claim iss
	Audience string // one of claim aud
}

// claims are what routes a token to its review. They prove nothing: the hub decides.
type claims struct {
	Issuer   string   `json:"iss"`
	Audience audience `json:"aud"`
}

// audience is a string or several in JSON.
type audience []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audience) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(a))
}

// ofHub reports whether a token says that it is one of tokens.
func ofHub(token string, tokens []HubTokens) bool {
	if len(tokens) == 0 {
		return false
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	var c claims
	if err != nil || json.Unmarshal(body, &c) != nil {
		return false
	}
	return slices.ContainsFunc(tokens, func(t HubTokens) bool {
		return t.Issuer == c.Issuer && slices.Contains(c.Audience, t.Audience)
	})
}

func isUI(path string) bool { return path == uiRoot || strings.HasPrefix(path, uiRoot+"/") }

// sameOrigin reports whether a browser says that a page of this server sends a request.
func sameOrigin(r *http.Request) bool { return r.Header.Get("Sec-Fetch-Site") == "same-origin" }

// ofBrowser reports whether a browser sends a request: nothing else sets this header.
func (s *Server) ofBrowser(r *http.Request) bool {
	return s.options.UI != nil && r.Header.Get("Sec-Fetch-Site") != ""
}

// withUIHeaders sets the headers of all responses at /ui, errors included.
func (s *Server) withUIHeaders(next http.Handler) http.Handler {
	ui := s.options.UI
	if ui == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isUI(r.URL.Path) {
			ui.SetHeaders(w.Header())
		}
		next.ServeHTTP(w, r)
	})
}

// withUI serves what needs no log-in: it comes before authentication.
func (s *Server) withUI(next http.Handler) http.Handler {
	ui := s.options.UI
	if ui == nil {
		return next
	}
	slots := newCallerShares(maxUIRequests, false)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case path == "/" && isNavigation(r):
			ui.SetHeaders(w.Header())
			w.Header().Set("Cache-Control", "no-cache")
			w.Header().Set("Vary", "Accept")
			http.Redirect(w, r, uiRoot+"/", http.StatusFound)
		case !isUI(path) || strings.HasPrefix(path, uiRelay):
			next.ServeHTTP(w, r)
		default:
			// Nobody is known yet: shares are those of addresses, so that one that asks and does not read
			// keeps nobody else from logging in.
			host, _, _ := net.SplitHostPort(r.RemoteAddr)
			if ok, _ := slots.acquire(host); !ok {
				writeStatus(w, apierrors.NewTooManyRequests("too many requests of the web UI are in flight", 1).ErrStatus)
				return
			}
			defer slots.release(host)
			if l := labelsOf(r.Context()); l != nil {
				l.setResource("ui")
			}
			ui.ServePublic(w, r, uiCallers{s})
		}
	})
}

// isNavigation reports whether a person opens an address in a browser.
func isNavigation(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Authorization") == "" &&
		strings.Contains(r.Header.Get("Accept"), "text/html")
}

// uiCallers implements UICallers.
type uiCallers struct{ *Server }

// ByToken implements UICallers.
func (s uiCallers) ByToken(ctx context.Context, token string) (UICaller, error) {
	answer, ok, err := s.tokens.AuthenticateToken(ctx, token)
	switch failure := hubFailure(err); {
	case ok:
		return UICaller{User: answer.User, Token: token, OfHub: s.ofHub(token)}, nil
	case failure != nil:
		return UICaller{}, s.reviewFailure(failure)
	}
	s.metrics.refused.WithLabelValues("unauthenticated").Inc()
	return UICaller{}, apierrors.NewUnauthorized("Unauthorized")
}

// ByCertificate implements UICallers.
func (s uiCallers) ByCertificate(r *http.Request) (UICaller, bool) {
	if s.certificates == nil {
		return UICaller{}, false
	}
	answer, ok, err := s.certificates.AuthenticateRequest(r)
	if err != nil || !ok {
		return UICaller{}, false
	}
	return UICaller{User: answer.User}, true
}

func (s *Server) ofHub(token string) bool {
	return !s.options.Local && ofHub(token, s.options.Authentication.HubTokens)
}

type bearerKey struct{}

// withSession makes the session of a page's user the credentials of its request. Cookies count
// only where the browser says that a page of this server sends the request, and where there are
// no other credentials in it.
func (s *Server) withSession(next http.Handler) http.Handler {
	ui := s.options.UI
	if ui == nil {
		return next
	}
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" && r.Header.Get("Cookie") != "" && sameOrigin(r) && origins.Check(r) == nil {
			token, err := ui.Bearer(w, r)
			if err != nil {
				writeError(w, r, s.log, err)
				return
			}
			if token != "" {
				r = withBearer(r, token)
			}
		}
		if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
			r = r.WithContext(context.WithValue(r.Context(), bearerKey{}, strings.TrimSpace(token)))
		}
		next.ServeHTTP(w, r)
	})
}

// withBearer returns a request of the bearer of a token, whatever client certificate its connection
// has: the request is by the user who has logged in.
func withBearer(r *http.Request, token string) *http.Request {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Del("Cookie")
	if r.TLS != nil {
		state := *r.TLS
		state.PeerCertificates, state.VerifiedChains = nil, nil
		r.TLS = &state
	}
	return r
}

// serveRelay serves requests of the UI on behalf of its caller.
func (s *Server) serveRelay(w http.ResponseWriter, r *http.Request) error {
	u, ok := apirequest.UserFrom(r.Context())
	if !ok {
		return errors.New("a request without a user")
	}
	if l := labelsOf(r.Context()); l != nil {
		l.setResource("ui/relay")
	}
	token, _ := r.Context().Value(bearerKey{}).(string)
	s.options.UI.ServeCaller(w, r, UICaller{User: u, Token: token, OfHub: s.ofHub(token)})
	return nil
}
