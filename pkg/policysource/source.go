package policysource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/policytest"
	"federator.dev/federator/pkg/policysource/internal/checkout"
	"federator.dev/federator/pkg/policysource/internal/signature"
)

// Credentials, limits and trusted keys of sources.
type (
	// Secret is a text that is never printed, logged or marshalled.
	Secret = checkout.Secret
	// Auth has the credentials for a remote, and how to authenticate it.
	Auth = checkout.Auth
	// Limits limit one fetch; zero values are defaults.
	Limits = checkout.Limits
	// Keys are the keys whose signatures are trusted.
	Keys = signature.Keys
)

// Source is a git repository with policies.
type Source struct {
	// Name is unique, and a DNS label. Findings have paths in the repository, those about
	// other sources Name/path.
	Name string
	URL  string // https://, ssh://, user@host:path or, if allowed, file://
	// Ref is a branch, a tag, a full name starting with refs/, or a commit's hash.
	// Defaults to the remote's HEAD.
	Ref      string
	Path     string        // directory with policies; "" is the root
	Interval time.Duration // between checks of the remote, with 10% jitter; 0 means 5 minutes, the minimum is 10 seconds
	Auth     Auth
	Verify   Keys // if set, the commit or the annotated tag must be signed by one of them
	Limits   Limits
	// MaxDiff is the maximum Difference.Total of a commit that replaces an active one. 0
	// means no limit.
	MaxDiff int
	// Rollout has a commit that passes all gates, and changes packages of an active one, be a candidate
	// instead of active at once: phase Rollout. It becomes active when Promoted is its hash, and is
	// rejected when TakenBack is. These restart nothing.
	Rollout                     bool
	Promoted                    string
	TakenBack, TakenBackMessage string
	// Begun is the commit whose rollout has begun, as the caller has recorded it: it has been within
	// MaxDiff, or was approved, and that is not asked again when other sources change. It restarts nothing.
	Begun string
	// LastGood is the commit that was active before a restart. It is tried first if no
	// commit is active, and is Current only if it is still the newest.
	LastGood string
	// Owned are the names of the packages that were active before a restart: other sources
	// cannot take them while this one is listed and nothing of it is active.
	Owned []string
	// Problem is what the caller has found wrong with the source, such as a missing Secret.
	// While it is set the source is Invalid and nothing is fetched.
	Problem string
	// Generation is that of the object that this was read from, repeated in Status.
	Generation int64
}

const (
	defaultInterval = 5 * time.Minute
	minInterval     = 10 * time.Second
)

// Candidate is a commit that may become active.
type Candidate struct {
	Source string
	Commit Commit
	Tree   fs.FS         // below the source's path
	Files  policy.Source // the same, for policy.Load
	Set    *policy.Set   // with all other active sources
	Active *policy.Set   // the active set

	author string // owner of the trusted key that has signed the commit itself
}

// Commit is a commit that policies were read from.
type Commit struct {
	Hash   string    `json:"hash"`
	Ref    string    `json:"ref"`  // full, or a hash
	Path   string    `json:"path"` // in the repository; "." is the root
	Author string    `json:"author"`
	Time   time.Time `json:"time"`             // of the author
	Signer string    `json:"signer,omitempty"` // owner of a trusted key
}

// Values of Status.Reason.
const (
	ReasonTooWide   = "TooWide"   // MaxDiff holds a commit back
	ReasonInRollout = "InRollout" // a commit is a candidate
	ReasonTakenBack = "TakenBack" // it was
)

// Difference is how many verdicts on the live fleet a candidate changes.
type Difference struct {
	Appeared int `json:"appeared"` // violations
	Cleared  int `json:"cleared"`  // violations
	Changed  int `json:"changed"`  // violations with another message, severity or remedy
	Unknown  int `json:"unknown"`  // verdicts that become Unknown or fail
	// Enforcement is how many violations are corrected otherwise than before: the mode, limits,
	// waves or members of their policies change. It is at least one for each such policy.
	Enforcement int `json:"enforcement"`
}

// Total is the number that Source.MaxDiff limits.
func (d Difference) Total() int {
	return d.Appeared + d.Cleared + d.Changed + d.Unknown + d.Enforcement
}

// Options configure a Manager.
type Options struct {
	// Base are policies that are always active, compiled with every source. Their names
	// are DNS labels that no source may have.
	Base []policy.Source
	Load policy.LoadOptions
	// Test runs a candidate's own tests. Findings of severity error, with files relative
	// to Candidate.Tree, reject it. An error means that the tests could not be run; they
	// are retried later. nil: Rego tests and fleet fixtures, with package policytest.
	Test func(context.Context, Candidate) ([]policy.Finding, error)
	// Diff compares a candidate with the active set, on the live fleet. An error means
	// that they could not be compared. nil: sources with MaxDiff are invalid.
	Diff func(context.Context, Candidate) (Difference, error)
	// Approved reports whether people have approved a commit of a source that exceeds
	// MaxDiff. It must not block. When that changes, Sync has the commit checked again. nil:
	// none is approved.
	Approved func(source, commit string) bool
	// Shared says that other processes have the same sources and judge by them, too: commits that were replaced while they
	// rolled out are not kept, which processes that have started since would not have.
	Shared bool

	// Dial opens connections to remotes and may reject addresses; nil means net.Dialer's.
	Dial      func(ctx context.Context, network, address string) (net.Conn, error)
	Proxy     func(*http.Request) (*url.URL, error) // for https; nil means none
	AllowFile bool                                  // allow file URLs of local repositories
	// Transport does the requests of https remotes instead of connections by Dial; nil: none.
	Transport http.RoundTripper
	// Jitter returns a delay near to the one that it is given; nil: a random one, within 10%.
	Jitter func(time.Duration) time.Duration

	MaxConcurrent int           // sources that fetch and evaluate at a time; 0 means 2
	MinBackoff    time.Duration // after the first failure; 0 means 5 seconds
	MaxBackoff    time.Duration // maximum after doubling; 0 means 10 minutes
	Logger        *slog.Logger  // nil means none
}

func (o Options) validate() (Options, error) {
	switch {
	case o.MaxConcurrent < 0 || o.MinBackoff < 0 || o.MaxBackoff < 0:
		return o, errors.New("policysource: options: MaxConcurrent, MinBackoff or MaxBackoff is negative")
	}
	for _, b := range o.Base {
		if !dnsLabel.MatchString(b.Name) { // it prefixes paths of files
			return o, fmt.Errorf("policysource: options: base %.80q: %w", b.Name, errInvalidName)
		}
	}
	if o.Approved == nil {
		o.Approved = func(string, string) bool { return false }
	}
	if o.Test == nil {
		o.Test = runTests(policytest.Options{})
	}
	if o.Jitter == nil {
		o.Jitter = func(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }
	}
	if o.MaxConcurrent == 0 {
		o.MaxConcurrent = 2
	}
	if o.MinBackoff == 0 {
		o.MinBackoff = 5 * time.Second
	}
	if o.MaxBackoff == 0 {
		o.MaxBackoff = max(10*time.Minute, o.MinBackoff)
	}
	if o.MaxBackoff < o.MinBackoff {
		return o, errors.New("policysource: options: MaxBackoff is less than MinBackoff")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

func (o Options) client() *checkout.Client {
	return &checkout.Client{Dial: o.Dial, Proxy: o.Proxy, AllowFile: o.AllowFile, Transport: o.Transport}
}

// ErrUnknownSource is returned by Sync.
var ErrUnknownSource = errors.New("no such source")

var errInvalidName = errors.New("name is not unique, or not a DNS label")

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// checkNames rejects names that are invalid or not unique.
func (o Options) checkNames(sources []Source) error {
	seen := map[string]bool{}
	for _, b := range o.Base {
		seen[b.Name] = true
	}
	for _, s := range sources {
		if seen[s.Name] || !dnsLabel.MatchString(s.Name) {
			return fmt.Errorf("source %.80q: %w", s.Name, errInvalidName)
		}
		seen[s.Name] = true
	}
	return nil
}

// validSource is a source that has been validated.
type validSource struct {
	Source
	verifier *signature.Verifier // nil: no signature is required
}

// validateSource checks a source without contacting its remote.
func (o Options) validateSource(s Source) (validSource, error) {
	out := validSource{Source: s}
	switch {
	case s.Problem != "":
		return out, errors.New(s.Problem)
	case s.Interval < 0 || s.Interval > 0 && s.Interval < minInterval:
		return out, fmt.Errorf("interval is %s, but must be at least %s", s.Interval, minInterval)
	case s.MaxDiff < 0:
		return out, errors.New("maxDiff is negative")
	case s.MaxDiff > 0 && o.Diff == nil:
		return out, errors.New("maxDiff is set, but commits cannot be compared here")
	case s.Interval == 0:
		out.Interval = defaultInterval
	}
	if err := o.client().Validate(out.request("")); err != nil {
		return out, err
	}
	if !s.Verify.Required() {
		return out, nil
	}
	var err error
	out.verifier, err = signature.NewVerifier(s.Verify)
	return out, err
}

// request returns what to fetch, unless the remote's ref still has the known hash.
func (s validSource) request(known string) checkout.Request {
	return checkout.Request{URL: s.URL, Ref: s.Ref, Path: s.Path, Auth: s.Auth, Limits: s.Limits, Known: known}
}
