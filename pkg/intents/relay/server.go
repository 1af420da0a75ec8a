package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// Path is where a Server is served.
const Path = "/relay/v1/"

const (
	membersPath = Path + "members/"
	// Headers of a request: what its object is, and how many milliseconds it may take.
	kindHeader, versionHeader, timeHeader = "Federator-Kind", "Federator-Api-Version", "Federator-Time"
	// outcomeHeader of an answer says that it is the relay's own.
	outcomeHeader = "Federator-Relay"
	// Its values: nothing was sent, and another process is to be asked or it is to be tried later; nothing was sent
	// otherwise; something may have been executed.
	notNow, notSent, unknown = "not-now", "not-sent", "unknown"

	impersonateUser = "Impersonate-User"

	maxBody    = 8 << 20 // of a request: API servers take 3 MiB
	maxRunning = 256     // requests
	maxTime    = 30 * time.Second
	maxMessage = 1024
)

// ServerOptions configure a Server. All but Protected and Logger are required.
type ServerOptions struct {
	Fleet   func() *intents.Fleet
	Clients remediate.ClientFactory // this process's own access to members
	// Held returns why nothing may be written to a member now, as in remediate.Options.
	Held func(member string) error
	// Leader returns the process that holds the Lease, as far as this one knows, "" for none.
	Leader func() string
	// Peer returns which process a request is from, as its connection proves, "" for none.
	Peer func(*http.Request) string
	// Protected returns why a target is never written, as remediate.Dispatcher.Protected does. nil: none is.
	Protected func(target policy.Ref, annotations map[string]string) string
	Logger    *slog.Logger // nil: none
}

// Server executes requests of the leader in members that this process judges.
type Server struct {
	opts    ServerOptions
	running atomic.Int64
}

// NewServer returns a Server.
func NewServer(opts ServerOptions) (*Server, error) {
	if opts.Fleet == nil || opts.Clients == nil || opts.Held == nil || opts.Leader == nil || opts.Peer == nil {
		return nil, errors.New("relay: Fleet, Clients, Held, Leader and Peer are required")
	}
	if opts.Protected == nil {
		opts.Protected = func(policy.Ref, map[string]string) string { return "" }
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{opts: opts}, nil
}

// refusal is why a request is not executed: nothing was sent.
type refusal struct {
	code    int
	outcome string
	why     string
}

func refuse(code int, outcome, format string, args ...any) *refusal {
	return &refusal{code, outcome, fmt.Sprintf(format, args...)}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.running.Add(-1)
	if s.running.Add(1) > maxRunning {
		answer(w, refuse(http.StatusTooManyRequests, notSent, "the relay has too many requests"))
		return
	}
	if why := s.serve(w, r); why != nil {
		s.opts.Logger.Debug("a request was not relayed", "path", r.URL.Path, "error", why.why)
		answer(w, why)
	}
}

func answer(w http.ResponseWriter, why *refusal) {
	w.Header().Set(outcomeHeader, why.outcome)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(why.code)
	// Only a client that has gone away can make this fail.
	_, _ = io.WriteString(w, clip.Line(why.why, maxMessage))
}

// admit returns why a request is not executed now.
func (s *Server) admit(r *http.Request, member string) *refusal {
	peer := s.opts.Peer(r)
	if peer == "" {
		return refuse(http.StatusForbidden, notSent, "only processes of this fleet may use the relay")
	}
	if leader := s.opts.Leader(); leader != peer {
		return refuse(http.StatusForbidden, notNow, "process %s does not hold the Lease: %q does", peer, leader)
	}
	if !s.opts.Fleet().Judges(member) {
		return refuse(http.StatusMisdirectedRequest, notNow, "this process does not judge member %s", member)
	}
	return nil
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) *refusal {
	of, why := parse(r)
	if why != nil {
		return why
	}
	if why := s.admit(r, of.member); why != nil {
		return why
	}
	c, err := s.opts.Clients.Client(of.member, of.kind, of.apiVersion)
	if err != nil {
		return refuse(http.StatusServiceUnavailable, notSent, "%v", err)
	}
	gv := c.REST.APIVersion()
	if of.describes {
		w.Header().Set("Content-Type", "application/json")
		// Only a client that has gone away can make this fail.
		_ = json.NewEncoder(w).Encode(description{gv.Group, gv.Version, c.Resource, c.Namespaced})
		return nil
	}
	if gv != of.gv || c.Resource != of.resource || c.Namespaced != (of.namespace != "") {
		return refuse(http.StatusConflict, notNow, "the member serves %s as %s of %s now", of.kind, c.Resource, gv)
	}
	return s.execute(w, r, of, c)
}

// execute sends a request to a member, as this process's own.
func (s *Server) execute(w http.ResponseWriter, r *http.Request, of *asked, c *remediate.Client) *refusal {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return refuse(http.StatusBadRequest, notSent, "the body could not be read: %v", err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), of.time)
	defer cancel()
	out := c.REST.Verb(of.method).NamespaceIfScoped(of.namespace, c.Namespaced).Resource(c.Resource).SetHeader("Accept", "application/json").MaxRetries(0)
	if of.name != "" {
		out = out.Name(of.name)
	}
	if len(body) > 0 {
		out = out.SetHeader("Content-Type", of.contentType).Body(body)
	}
	if of.user != "" {
		out = out.SetHeader(impersonateUser, of.user)
	}
	for name, value := range of.parameters {
		out = out.Param(name, value)
	}
	// Again, after all that took time.
	if why := s.admit(r, of.member); why != nil {
		return why
	}
	if of.method != http.MethodGet {
		if err := s.opts.Held(of.member); err != nil {
			return refuse(http.StatusServiceUnavailable, notNow, "%v", err)
		}
		if why := s.opts.Protected(policy.Ref{Member: of.member, Kind: of.kind, Namespace: of.namespace, Name: of.name}, nil); why != "" {
			return refuse(http.StatusForbidden, notSent, "%s", why)
		}
	}
	result := out.Do(ctx)
	return pass(w, &result)
}

// pass passes what a member has answered.
func pass(w http.ResponseWriter, result *rest.Result) *refusal {
	code := 0
	result.StatusCode(&code)
	body, err := result.Raw()
	if code == 0 {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return refuse(http.StatusBadGateway, notSent, "%v", err)
		}
		if err == nil {
			err = errors.New("no answer")
		}
		return refuse(http.StatusBadGateway, unknown, "%v", err)
	}
	if seconds, suggested := apierrors.SuggestsClientDelay(err); suggested && seconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body) // as above
	return nil
}

// description is how objects of a kind are written in a member.
type description struct {
	Group      string `json:"group"`
	Version    string `json:"version"`
	Resource   string `json:"resource"`
	Namespaced bool   `json:"namespaced"`
}

// asked is a request that may pass.
type asked struct {
	member     string
	kind       policy.Kind
	apiVersion string
	describes  bool // it asks for a description only

	method                    string
	gv                        schema.GroupVersion
	resource, namespace, name string
	parameters                map[string]string
	contentType, user         string
	time                      time.Duration
}

// Parameters that pass, and the values that they may have; nil: any.
var passed = map[string][]string{
	"dryRun": {metav1.DryRunAll}, "fieldValidation": {metav1.FieldValidationStrict}, "force": {"true"}, "fieldManager": nil,
}

// contentTypes are those of what remediate.Client sends.
var contentTypes = []string{"application/json", "application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"}

// parse takes a request apart, or refuses what remediate.Client does not send.
func parse(r *http.Request) (*asked, *refusal) {
	bad := func(format string, args ...any) (*asked, *refusal) {
		return nil, refuse(http.StatusForbidden, notSent, format, args...)
	}
	path, ok := strings.CutPrefix(r.URL.Path, membersPath)
	parts := strings.Split(path, "/")
	if !ok || r.URL.RawPath != "" || slices.ContainsFunc(parts, isNoSegment) || len(parts) < 2 {
		return bad("the path is none that is relayed")
	}
	of := &asked{
		member: parts[0] + "/" + parts[1], kind: policy.Kind(r.Header.Get(kindHeader)), apiVersion: r.Header.Get(versionHeader), method: r.Method, time: maxTime,
	}
	if of.kind == "" {
		return bad("header %s is missing", kindHeader)
	}
	if of.describes = len(parts) == 2; of.describes {
		if r.Method != http.MethodGet {
			return bad("it may be read only")
		}
		return of, nil
	}
	parts = parts[2:]
	switch {
	case parts[0] == "api" && len(parts) > 2:
		of.gv, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		of.gv, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return bad("the path is none of objects")
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		of.namespace, parts = parts[1], parts[2:]
	}
	of.resource = parts[0]
	wanted := 2
	if of.method == http.MethodPost {
		wanted = 1
	}
	if len(parts) != wanted || !slices.Contains([]string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete}, of.method) {
		return bad("%.10s of %.100q is not relayed: only single objects are", r.Method, strings.Join(parts, "/"))
	}
	if wanted == 2 {
		of.name = parts[1]
	}
	return of, parseRest(r, of)
}

func isNoSegment(s string) bool {
	return s == "" || s == "." || s == ".." || len(s) > 253 || strings.ContainsAny(s, "%\\\x00")
}

// parseRest takes apart what follows the path.
func parseRest(r *http.Request, of *asked) *refusal {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return refuse(http.StatusForbidden, notSent, "the query: %v", err)
	}
	of.parameters = map[string]string{}
	for name, values := range query {
		allowed, known := passed[name]
		if !known || len(values) != 1 || allowed != nil && !slices.Contains(allowed, values[0]) {
			return refuse(http.StatusForbidden, notSent, "parameter %.40q is not relayed so", name)
		}
		of.parameters[name] = values[0]
	}
	for name, values := range r.Header {
		if !strings.HasPrefix(name, "Impersonate-") {
			continue
		}
		if name != impersonateUser || len(values) != 1 || values[0] == "" {
			return refuse(http.StatusForbidden, notSent, "only a user is impersonated")
		}
		of.user = values[0]
	}
	if of.contentType = r.Header.Get("Content-Type"); of.method != http.MethodGet && !slices.Contains(contentTypes, of.contentType) {
		return refuse(http.StatusForbidden, notSent, "content of type %.40q is not relayed", of.contentType)
	}
	if text := r.Header.Get(timeHeader); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			return refuse(http.StatusForbidden, notSent, "header %s is no time", timeHeader)
		}
		of.time = min(of.time, time.Duration(n)*time.Millisecond)
	}
	return nil
}
