package queryapi

import (
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
	Listener net.Listener          // TCP, without TLS; the Server closes it

	// ValuesRedacted says that values of Secrets and ConfigMaps are not in the index;
	// who reads such objects whole is warned.
	ValuesRedacted bool

	// Hub reviews tokens and access. Its client-side rate limit is not used.
	Hub *rest.Config
	// Local serves without a hub: on a loopback address only, to the bearer of
	// Server.Token, who may read everything.
	Local bool

	TLS            TLS
	Authentication Authentication
	Authorization  Authorization
	Fairness       Fairness
	Limits         Limits
	Audit          Audit

	// Queries answer GET /query/v1/<name>, beside count, related and
	// members. Names are lower-case letters, digits and dashes. See Describer and
	// Watchable.
	Queries map[string]Query
}

// TLS is how the server proves who it is. Without files it makes a certificate
// of its own at every start, for Hosts, whose authority is
// Server.CertificateAuthority.
type TLS struct {
	// CertFile and KeyFile are PEM; they are read again when they change.
	CertFile, KeyFile string
	// Hosts are names and addresses of a certificate of our own, beside those
	// that the listener has.
	Hosts []string
	// MinVersion is tls.VersionTLS12 (the default) or tls.VersionTLS13.
	MinVersion uint16
}

// Authentication is how callers prove who they are. Tokens are always reviewed by the
// hub.
type Authentication struct {
	// Audiences are those that a token must be meant for, one of them; empty
	// means "federator".
	Audiences []string
	// TokenTTL is how long the hub's review of a token is kept, at most 10 s;
	// 0 means 10 s.
	TokenTTL time.Duration
	// Parallel bounds reviews of tokens in flight, which strangers cause, and
	// beside them those of tokens that the hub has known within an hour; 0
	// means 64.
	Parallel int
	// ClientCAFile holds the authorities, PEM, whose client certificates name
	// users (common name) and groups (organizations). They can name anybody,
	// system:masters included. Read again when it changes; "" means that
	// client certificates are not asked for.
	ClientCAFile string
}

// Authorization is who decides what callers may read.
type Authorization struct {
	// AllowTTL and DenyTTL are how long an answer is kept, at most 30 s; 0
	// means 20 s and 10 s.
	AllowTTL, DenyTTL time.Duration
	// Parallel bounds reviews in flight; 0 means 64.
	Parallel int
	// Members, where set, is asked for what the hub does not grant: the result
	// is the union of both. UserPrefix then comes before names of users and
	// groups, and is required.
	Members    MemberReviewer
	UserPrefix string
	// Now is the clock that answers age by; nil means time.Now.
	Now func() time.Time
}

// Fairness bounds requests under way. Of both numbers a caller has a share: as
// many as are free, half of them alone.
type Fairness struct {
	// Priority has the hub's FlowSchemas and PriorityLevelConfigurations share
	// MaxInFlight among callers, where federator may list and watch them.
	Priority bool
	// MaxInFlight is the number of requests at once, watches aside; 0 means 400.
	MaxInFlight int
	// MaxWatches is the number of open watches; 0 means 10,000.
	MaxWatches int
}

// Limits bound what one request or connection may cost.
type Limits struct {
	// Request is how long a request may take, watches aside; 0 means 60 s.
	Request time.Duration
	// Header is how long a client may take to send a request's header or body;
	// 0 means 10 s.
	Header time.Duration
	// Idle is how long a connection is kept without a request; 0 means 90 s.
	Idle time.Duration
	// HeaderBytes bounds a request's header, 0 means 64 KiB; BodyBytes its
	// body, 0 means 64 KiB.
	HeaderBytes, BodyBytes int
	// Streams is the number of requests at once on one HTTP/2 connection; 0
	// means 100.
	Streams int
	// Drain is how long requests under way may take when the server ends; 0
	// means 5 s.
	Drain time.Duration
}

// Audit is where it is recorded who asked for what. Both files or neither.
type Audit struct {
	// PolicyFile is an audit.k8s.io/v1 Policy.
	PolicyFile string
	// LogFile is appended to, an audit.k8s.io/v1 Event in JSON per line; it is
	// made with mode 0600 where it is missing.
	LogFile string
	// MaxBytes is how large LogFile may become before it is set aside, under a
	// name with the time, and another is begun; 0 means 100 MiB. It goes on
	// where it is no regular file.
	MaxBytes int64
	// MaxBackups is how many of those set aside are kept, 0 means 10; MaxAge
	// how old they may become, 0 means any age.
	MaxBackups int
	MaxAge     time.Duration
}

const (
	maxTokenTTL = 10 * time.Second
	maxGrantTTL = 30 * time.Second
)

var queryName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// builtinQueries are the questions that the server answers itself.
var builtinQueries = []string{"count", "related", "members"}

// withDefaults returns the options with what was left open filled in, or what is
// wrong with them, all of it.
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
		errs = append(errs, errors.New("an index, a fleet, a logger and a listener are required"))
	}
	if (o.Hub == nil) != o.Local {
		errs = append(errs, errors.New("either a hub is needed, or Local"))
	}
	if o.Local && o.Listener != nil && !isLoopback(o.Listener.Addr()) {
		errs = append(errs, fmt.Errorf("without a hub only a loopback address may be served, not %s", o.Listener.Addr()))
	}
	if (o.TLS.CertFile == "") != (o.TLS.KeyFile == "") {
		errs = append(errs, errors.New("a certificate and its key go together"))
	}
	if v := o.TLS.MinVersion; v != tls.VersionTLS12 && v != tls.VersionTLS13 {
		errs = append(errs, fmt.Errorf("TLS version %#x: the least may be 1.2 or 1.3", v))
	}
	if (o.Audit.PolicyFile == "") != (o.Audit.LogFile == "") {
		errs = append(errs, errors.New("an audit policy and an audit log go together"))
	}
	return errors.Join(errs...)
}

// checkAuth refuses, beside bad values, what would be ignored without a hub.
func (o Options) checkAuth() error {
	var errs []error
	if slices.Contains(o.Authentication.Audiences, "") {
		errs = append(errs, errors.New("an audience is empty"))
	}
	if t := o.Authentication.TokenTTL; t < 0 || t > maxTokenTTL {
		errs = append(errs, fmt.Errorf("reviews of tokens may be kept for %v at most, not %v", maxTokenTTL, t))
	}
	for _, t := range []time.Duration{o.Authorization.AllowTTL, o.Authorization.DenyTTL} {
		if t < 0 || t > maxGrantTTL {
			errs = append(errs, fmt.Errorf("reviews of access may be kept for %v at most, not %v", maxGrantTTL, t))
		}
	}
	if (o.Authorization.Members == nil) != (o.Authorization.UserPrefix == "") {
		errs = append(errs, errors.New("asking members and a prefix for users go together"))
	}
	if strings.HasPrefix(o.Authorization.UserPrefix, "system:") {
		errs = append(errs, fmt.Errorf("prefix %q would make callers part of the members' own system", o.Authorization.UserPrefix))
	}
	if o.Local && (o.Authentication.ClientCAFile != "" || o.Authorization.Members != nil || o.Fairness.Priority) {
		errs = append(errs, errors.New("client certificates, asking members and the hub's priorities need a hub"))
	}
	return errors.Join(errs...)
}

func (o Options) checkBounds() error {
	for name, n := range map[string]int64{
		"MaxInFlight": int64(o.Fairness.MaxInFlight), "MaxWatches": int64(o.Fairness.MaxWatches), "Parallel": int64(min(o.Authorization.Parallel, o.Authentication.Parallel)),
		"Request": int64(o.Limits.Request), "Header": int64(o.Limits.Header), "Idle": int64(o.Limits.Idle), "Drain": int64(o.Limits.Drain),
		"HeaderBytes": int64(o.Limits.HeaderBytes), "BodyBytes": int64(o.Limits.BodyBytes), "Streams": int64(o.Limits.Streams),
		"MaxBytes": o.Audit.MaxBytes, "MaxBackups": int64(o.Audit.MaxBackups), "MaxAge": int64(o.Audit.MaxAge),
	} {
		if n < 0 {
			return fmt.Errorf("%s may not be negative", name)
		}
	}
	return nil
}

func (o Options) checkQueries() error {
	for name, q := range o.Queries {
		switch {
		case !queryName.MatchString(name):
			return fmt.Errorf("%q is no name of a question", name)
		case slices.Contains(builtinQueries, name):
			return fmt.Errorf("the server answers %q itself", name)
		case q == nil:
			return fmt.Errorf("question %q is nil", name)
		}
	}
	return nil
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
