package policysource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource/internal/checkout"
	"federator.dev/federator/pkg/policysource/internal/signature"
)

// How sources are reached and bounded.
type (
	// Secret is a text that is never printed, logged or marshalled.
	Secret = checkout.Secret
	// Auth is how to log in to a remote, and how to know it.
	Auth = checkout.Auth
	// Limits bound one fetch; zeros are defaults.
	Limits = checkout.Limits
	// Keys are whose signatures to trust.
	Keys = signature.Keys
)

// Source is where policies come from.
type Source struct {
	// Name is unique, and a DNS label. Files are reported as they are in the
	// repository, those of other sources as Name/path.
	Name string
	URL  string // https://, ssh://, user@host:path or, where allowed, file://
	// Ref is a branch, a tag, a full name below refs/, or a commit's hash. "" is the
	// remote's HEAD.
	Ref      string
	Path     string        // of the directory with policies, "" is the root
	Interval time.Duration // between looks at the remote, give or take a tenth; 0 means 5 minutes, the least is 10 seconds
	Auth     Auth
	Verify   Keys // where there are any, the commit or the annotated tag must be signed by one
	Limits   Limits
	// MaxDiff bounds how many verdicts a commit may change: those that Difference
	// counts. 0 is no bound. It holds for changes of what is active.
	MaxDiff int
	// LastGood is the commit that was active before a restart. It is tried first when
	// nothing is active, and is not Current unless it is still the newest.
	LastGood string
	// Fault is what its owner has found wrong with it, such as a Secret that is missing:
	// nobody is asked while it says something, and the source is Invalid.
	Fault string
	// Generation is of the object that this was read from; Status repeats it.
	Generation int64
}

const (
	defaultInterval = 5 * time.Minute
	minInterval     = 10 * time.Second
)

// Candidate is a commit on its way to become active.
type Candidate struct {
	Source string
	Commit Commit
	Tree   fs.FS         // below the source's path
	Files  policy.Source // the same, as Load takes it
	Set    *policy.Set   // with all other active sources
	Active *policy.Set   // what is active now
}

// Commit is where policies were read.
type Commit struct {
	Hash   string    `json:"hash"`
	Ref    string    `json:"ref"`  // full, or a hash
	Path   string    `json:"path"` // in the repository; "." is the root
	Author string    `json:"author"`
	Time   time.Time `json:"time"`             // of the author
	Signer string    `json:"signer,omitempty"` // by a key that is trusted
}

// Difference is what a candidate changes in the verdicts on the live fleet.
type Difference struct {
	Appeared int `json:"appeared"` // violations
	Cleared  int `json:"cleared"`  // violations
	Changed  int `json:"changed"`  // violations with another text, severity or remedy
	Unknown  int `json:"unknown"`  // verdicts that are no longer Known
}

// Total is what a bound is about.
func (d Difference) Total() int { return d.Appeared + d.Cleared + d.Changed + d.Unknown }

// Options are a Manager's. Test is required.
type Options struct {
	// Base are policies that are always there, compiled with every source. Names are as
	// sources'.
	Base []policy.Source
	Load policy.LoadOptions
	// Test runs a candidate's own tests. Findings of severity error refuse it, with
	// files relative to Candidate.Tree. An error means that they could not be run:
	// they are run again later.
	Test func(context.Context, Candidate) ([]policy.Finding, error)
	// Diff compares a candidate with what is active, on the live fleet. nil: sources
	// with a bound are refused. An error means that it could not be told.
	Diff func(context.Context, Candidate) (Difference, error)

	// Dial makes connections to remotes; nil is net.Dialer's. It is where addresses can
	// be refused.
	Dial      func(ctx context.Context, network, address string) (net.Conn, error)
	Proxy     func(*http.Request) (*url.URL, error) // for https; nil is none
	AllowFile bool                                  // file URLs read repositories of this machine

	Parallel   int           // sources that fetch and judge at a time; 0 means 2
	MinBackoff time.Duration // after the first failure; 0 means 5 seconds
	MaxBackoff time.Duration // doubled up to; 0 means 10 minutes
	Log        *slog.Logger  // nil is none
}

func (o Options) validate() (Options, error) {
	switch {
	case o.Test == nil:
		return o, errors.New("policysource: options: Test is required")
	case o.Parallel < 0 || o.MinBackoff < 0 || o.MaxBackoff < 0:
		return o, errors.New("policysource: options: Parallel, MinBackoff or MaxBackoff is negative")
	}
	for _, b := range o.Base {
		if !label.MatchString(b.Name) { // files are told apart by it
			return o, fmt.Errorf("policysource: options: base %.80q: %w", b.Name, ErrName)
		}
	}
	if o.Parallel == 0 {
		o.Parallel = 2
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
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

func (o Options) client() *checkout.Client {
	return &checkout.Client{Dial: o.Dial, Proxy: o.Proxy, AllowFile: o.AllowFile}
}

// What SetSources and Sync return.
var (
	ErrName   = errors.New("name is not unique, or not a DNS label")
	ErrSource = errors.New("no such source")
)

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// checkNames refuses lists of sources that cannot be told apart.
func (o Options) checkNames(sources []Source) error {
	seen := map[string]bool{}
	for _, b := range o.Base {
		seen[b.Name] = true
	}
	for _, s := range sources {
		if seen[s.Name] || !label.MatchString(s.Name) {
			return fmt.Errorf("source %.80q: %w", s.Name, ErrName)
		}
		seen[s.Name] = true
	}
	return nil
}

// spec is a source that makes sense.
type spec struct {
	Source
	verifier *signature.Verifier // nil: no signature is asked for
}

// check says what makes no sense in a source, before anybody is asked.
func (o Options) check(s Source) (spec, error) {
	out := spec{Source: s}
	switch {
	case s.Fault != "":
		return out, errors.New(s.Fault)
	case s.Interval < 0 || s.Interval > 0 && s.Interval < minInterval:
		return out, fmt.Errorf("the interval is %s: the least is %s", s.Interval, minInterval)
	case s.MaxDiff < 0:
		return out, errors.New("maxDiff is negative")
	case s.MaxDiff > 0 && o.Diff == nil:
		return out, errors.New("maxDiff is set, but nothing here can tell differences")
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

// request is what to fetch, unless it is known.
func (s spec) request(known string) checkout.Request {
	return checkout.Request{URL: s.URL, Ref: s.Ref, Path: s.Path, Auth: s.Auth, Limits: s.Limits, Known: known}
}
