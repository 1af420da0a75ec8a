package queryapi

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
)

// Options configure a Server. Index, Fleet, Logger and Listener are required,
// and either Hub or Local.
type Options struct {
	Index    *aggregate.Index
	Fleet    Fleet
	Logger   *slog.Logger
	Metrics  prometheus.Registerer // nil: not exported
	Traces   trace.TracerProvider  // of requests; nil: they are not traced
	Listener net.Listener          // TCP, without TLS; the Server closes it

	// Loading reports that the index does not have yet what it had before a restart: requests
	// are asked to come again. Nil: it has.
	Loading func() bool
	// Grants remembers over a restart under which grants callers were sent objects, without which
	// no watch is resumed over it. Nil: nothing.
	Grants GrantMemory
	// Proved returns when what is held of a kind of a member was last known to be what the member
	// has, by a list or an audit; the zero time when it never was. Nil: never.
	Proved func(member string, kind aggregate.Kind) time.Time
	// WritesHeld returns why nothing is written to a member, "" when it may be. Nil: every
	// member may be written to.
	WritesHeld func(member string) string
	// WritesWith names the credentials that a member is written with, "" where nobody knows.
	// Nil: of no member.
	WritesWith func(member string) string
	// Health returns how federator gets along with a member, nil where nobody knows. Nil: nothing
	// is said of it.
	Health func(member string) *MemberHealth
	// Installation is the ID of this installation of federator, by which others that read it find loops, and Via
	// returns those between it and a member, the nearest first. "" and nil: it has none, and there are none.
	Installation string
	Via          func(member string) []string
	// Known reports whether the index has all members: others that read them believe then that there are no more. Nil:
	// it does.
	Known func() bool

	// ValuesRedacted says that values of Secrets and ConfigMaps are not in the index;
	// callers that read such objects get a warning.
	ValuesRedacted bool

	// Hub is where TokenReviews and SubjectAccessReviews are created. Its client-side rate
	// limit is not used.
	Hub *rest.Config
	// Local serves without a hub: on a loopback address only, with Server.Token as the
	// only credential, which may read everything.
	Local bool

	TLS            TLS
	Authentication Authentication
	Authorization  Authorization
	Fairness       Fairness
	Limits         Limits
	Audit          Audit

	// Peers are the other processes where several share the fleet: each member is answered for by the one
	// that judges it. Nil: this process has the fleet alone.
	Peers Peers
	// Minted are revisions of responses of the whole fleet, which stand for those of all processes. No index
	// and no other process ever uses any of them. Required with Peers; see Server.MintedLeft.
	Minted aggregate.Range

	// UI is served at /ui. Nil: nothing is, and cookies are ignored.
	UI UI

	// MCP is served at /mcp. Nil: nothing is.
	MCP MCP

	// Queries serve GET /query/v1/<name>, in addition to count, find, related and members.
	// Names are lower-case letters, digits and dashes; a name such as plans/{policy} serves
	// all paths with one more segment, which is the request's PathValue("policy"). See
	// Describer and Watchable.
	Queries map[string]Query
}

// GrantMemory remembers digests (SHA-256) of grants by digests of what they are of, and from which
// revision on they have been the same.
type GrantMemory interface {
	// Recall returns what is remembered of a key. Where that is nothing, nobody was sent anything
	// by the key from the revision on; 0: that is not known.
	Recall(key [sha256.Size]byte) (grants [sha256.Size]byte, from aggregate.Revision, known bool)
	// Remember returns once what it replaces would not be recalled after a restart. Until then,
	// nothing is sent under these grants.
	Remember(key, grants [sha256.Size]byte, from aggregate.Revision)
}

// TLS configures the serving certificate. Without files the server makes a self-signed one
// at every start, for Hosts; its CA is Server.CertificateAuthority.
type TLS struct {
	// CertFile and KeyFile are PEM; they are read again when they change.
	CertFile, KeyFile string
	// Hosts are names and addresses of a self-signed certificate, in addition to those
	// of the listener.
	Hosts []string
	// MinVersion is tls.VersionTLS12 (the default) or tls.VersionTLS13.
	MinVersion uint16
}

// Authentication configures how callers are authenticated. Tokens are always reviewed by
// the hub.
type Authentication struct {
	// Audiences of tokens, of which a token needs one; empty means "federator".
	Audiences []string
	// HubTokens are reviewed with the hub's own audiences instead. Who bears one may read as
	// its user, and write through a UI.
	HubTokens []HubTokens
	// TokenTTL is how long a TokenReview is cached, at most 10 s; 0 means 10 s.
	TokenTTL time.Duration
	// Parallel bounds the TokenReviews in flight, of unknown tokens and, separately,
	// of those that the hub has authenticated within an hour; 0 means 64.
	Parallel int
	// ClientCAFile has the CAs, PEM, of client certificates, which name users (common
	// name) and groups (organizations): any of them, including system:masters. It is
	// reloaded when it changes; "" means no client certificates.
	ClientCAFile string
}

// Authorization configures how it is decided what callers may read.
type Authorization struct {
	// AllowTTL and DenyTTL are how long a decision is cached, at most 30 s; 0
	// means 20 s and 10 s.
	AllowTTL, DenyTTL time.Duration
	// Parallel bounds the SubjectAccessReviews in flight; 0 means 64.
	Parallel int
	// Members, where set, reviews what the hub does not grant: the result is the union
	// of both. UserPrefix is then put before names of users and groups, and required.
	Members    MemberReviewer
	UserPrefix string
	// Now is the clock of cached decisions; nil means time.Now.
	Now func() time.Time
}

// Fairness bounds requests in flight. A caller gets a share of both numbers: at most as
// many as are free, so half of them when it is alone.
type Fairness struct {
	// Priority has the hub's FlowSchemas and PriorityLevelConfigurations share
	// MaxInFlight among callers, where federator may list and watch them.
	Priority bool
	// MaxInFlight bounds requests in flight, without watches; 0 means 400.
	MaxInFlight int
	// MaxWatches bounds open watches; 0 means 10,000.
	MaxWatches int
}

// Limits bound what one request or connection may cost.
type Limits struct {
	// Request bounds the time of a request, without watches; 0 means 60 s.
	Request time.Duration
	// Header is how long a client may take to send a request's header or body;
	// 0 means 10 s.
	Header time.Duration
	// Idle is how long a connection is kept without a request; 0 means 90 s.
	Idle time.Duration
	// HeaderBytes bounds a request's header, 0 means 64 KiB; BodyBytes its
	// body, 0 means 64 KiB.
	HeaderBytes, BodyBytes int
	// Streams bounds concurrent requests on one HTTP/2 connection; 0 means 100.
	Streams int
	// Drain is how long requests in flight may take at shutdown; 0 means 5 s.
	Drain time.Duration
	// Peer is how long another process may take to begin its part of a response, before it is said to be
	// missing; 0 means 15 s.
	Peer time.Duration
}

// Audit configures the audit log. Both files are needed, or neither.
type Audit struct {
	// PolicyFile is an audit.k8s.io/v1 Policy.
	PolicyFile string
	// LogFile is appended to, an audit.k8s.io/v1 Event in JSON per line; it is created with
	// mode 0600 if it is missing.
	LogFile string
	// MaxBytes is the size at which LogFile is rotated: renamed with the time in its
	// name; 0 means 100 MiB. Only a regular file is rotated.
	MaxBytes int64
	// MaxBackups bounds the number of rotated files, 0 means 10; MaxAge their age, 0
	// means any.
	MaxBackups int
	MaxAge     time.Duration
}

const (
	maxTokenTTL = 10 * time.Second
	maxGrantTTL = 30 * time.Second
)

var queryName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(/\{[a-z]+\})?$`)

// builtinQueries are the queries that the server has itself.
var builtinQueries = []string{"count", "find", "related", "members", "stream"}

// withDefaults returns the options with defaults, or all their errors.
func (o Options) withDefaults() (Options, error) {
	setDefault(&o.TLS.MinVersion, tls.VersionTLS12)
	if len(o.Authentication.Audiences) == 0 {
		o.Authentication.Audiences = []string{"federator"}
	}
	setDefault(&o.Authentication.TokenTTL, maxTokenTTL)
	setDefault(&o.Authentication.Parallel, 64)
	setDefault(&o.Fairness.MaxInFlight, 400)
	setDefault(&o.Fairness.MaxWatches, 10_000)
	setDefault(&o.Audit.MaxBytes, 100<<20)
	setDefault(&o.Audit.MaxBackups, 10)
	setDefault(&o.Limits.Request, time.Minute)
	setDefault(&o.Limits.Header, 10*time.Second)
	setDefault(&o.Limits.Idle, 90*time.Second)
	setDefault(&o.Limits.HeaderBytes, 64<<10)
	setDefault(&o.Limits.BodyBytes, 64<<10)
	setDefault(&o.Limits.Streams, 100)
	setDefault(&o.Limits.Drain, 5*time.Second)
	setDefault(&o.Limits.Peer, 15*time.Second)
	if err := errors.Join(o.checkRequired(), o.checkAuth(), o.checkBounds(), o.checkQueries()); err != nil {
		return Options{}, fmt.Errorf("query API: %w", err)
	}
	return o, nil
}

func setDefault[T comparable](value *T, standard T) {
	var zero T
	if *value == zero {
		*value = standard
	}
}

func (o Options) checkRequired() error {
	var errs []error
	if o.Index == nil || o.Fleet == nil || o.Logger == nil || o.Listener == nil {
		errs = append(errs, errors.New("Index, Fleet, Logger and Listener are required"))
	}
	if (o.Hub == nil) != o.Local {
		errs = append(errs, errors.New("exactly one of Hub and Local is required"))
	}
	if (o.Peers == nil) != (o.Minted == aggregate.Range{}) {
		errs = append(errs, errors.New("Peers and Minted must be set together"))
	}
	if o.Local && o.Listener != nil && !isLoopback(o.Listener.Addr()) {
		errs = append(errs, fmt.Errorf("a local server must listen on a loopback address, not %s", o.Listener.Addr()))
	}
	if (o.TLS.CertFile == "") != (o.TLS.KeyFile == "") {
		errs = append(errs, errors.New("TLS.CertFile and TLS.KeyFile must be set together"))
	}
	if v := o.TLS.MinVersion; v != tls.VersionTLS12 && v != tls.VersionTLS13 {
		errs = append(errs, fmt.Errorf("TLS.MinVersion %#x: must be 1.2 or 1.3", v))
	}
	if (o.Audit.PolicyFile == "") != (o.Audit.LogFile == "") {
		errs = append(errs, errors.New("Audit.PolicyFile and Audit.LogFile must be set together"))
	}
	return errors.Join(errs...)
}

// checkAuth refuses invalid values, and settings that are ignored without a hub.
func (o Options) checkAuth() error {
	var errs []error
	if slices.Contains(o.Authentication.Audiences, "") {
		errs = append(errs, errors.New("an audience is empty"))
	}
	if slices.ContainsFunc(o.Authentication.HubTokens, func(t HubTokens) bool { return t.Issuer == "" || t.Audience == "" }) {
		errs = append(errs, errors.New("HubTokens need an issuer and an audience"))
	}
	if t := o.Authentication.TokenTTL; t < 0 || t > maxTokenTTL {
		errs = append(errs, fmt.Errorf("TokenTTL must be between 0 and %v, not %v", maxTokenTTL, t))
	}
	for _, t := range []time.Duration{o.Authorization.AllowTTL, o.Authorization.DenyTTL} {
		if t < 0 || t > maxGrantTTL {
			errs = append(errs, fmt.Errorf("AllowTTL and DenyTTL must be between 0 and %v, not %v", maxGrantTTL, t))
		}
	}
	if (o.Authorization.Members == nil) != (o.Authorization.UserPrefix == "") {
		errs = append(errs, errors.New("Authorization.Members and UserPrefix must be set together"))
	}
	if strings.HasPrefix(o.Authorization.UserPrefix, "system:") {
		errs = append(errs, fmt.Errorf("user prefix %q would make callers system users of members", o.Authorization.UserPrefix))
	}
	if o.Local && (o.Authentication.ClientCAFile != "" || o.Authorization.Members != nil || o.Fairness.Priority) {
		errs = append(errs, errors.New("client certificates, member reviews and Fairness.Priority need a hub"))
	}
	return errors.Join(errs...)
}

func (o Options) checkBounds() error {
	for name, n := range map[string]int64{
		"MaxInFlight": int64(o.Fairness.MaxInFlight), "MaxWatches": int64(o.Fairness.MaxWatches), "Parallel": int64(min(o.Authorization.Parallel, o.Authentication.Parallel)),
		"Request": int64(o.Limits.Request), "Header": int64(o.Limits.Header), "Idle": int64(o.Limits.Idle), "Drain": int64(o.Limits.Drain), "Peer": int64(o.Limits.Peer),
		"HeaderBytes": int64(o.Limits.HeaderBytes), "BodyBytes": int64(o.Limits.BodyBytes), "Streams": int64(o.Limits.Streams),
		"MaxBytes": o.Audit.MaxBytes, "MaxBackups": int64(o.Audit.MaxBackups), "MaxAge": int64(o.Audit.MaxAge),
	} {
		if n < 0 {
			return fmt.Errorf("%s must not be negative", name)
		}
	}
	return nil
}

func (o Options) checkQueries() error {
	values := map[string]string{} // names of queries with a path value, by what their paths begin with
	for name, q := range o.Queries {
		if base, value := splitQueryName(name); value != "" {
			if other, ok := values[base]; ok {
				return fmt.Errorf("queries %q and %q have the same paths", min(name, other), max(name, other))
			}
			values[base] = name
		}
		switch {
		case !queryName.MatchString(name):
			return fmt.Errorf("%q is not a valid name of a query", name)
		case slices.Contains(builtinQueries, name):
			return fmt.Errorf("query %q is built in", name)
		case q == nil:
			return fmt.Errorf("query %q is nil", name)
		}
	}
	return nil
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
