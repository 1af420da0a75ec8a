package externaldata

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"path"
	"strings"
	"time"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
)

// Source is a PolicySource that names documents.
type Source struct {
	Name      string
	Documents []Document // with different keys
}

// Document says where a document is: one of File, ConfigMap and HTTPS.
type Document struct {
	Key       string
	File      string // path below the source's, as io/fs has it
	ConfigMap *ConfigMapKey
	HTTPS     *HTTPS
	Schema    []byte // JSON schema; empty: anything
	MaxBytes  int    // of its text and of its JSON; 0 means DefaultMaxBytes
	// MaxAge is how old it may be: the time since it was last found to be so. 0 means DefaultMaxAge.
	MaxAge time.Duration
	// Interval is how often a ConfigMap or a server is asked. 0 means DefaultInterval.
	Interval time.Duration
	// Problem is what the caller has found wrong, such as a missing Secret. While it is set nothing is read. Pending says that it is
	// about to be resolved.
	Problem string
	Pending bool
}

// ConfigMapKey names a key of a ConfigMap.
type ConfigMapKey struct{ Name, Key string }

// HTTPS is an address.
type HTTPS struct {
	URL   string // https://host/path
	Token policysource.Secret
	CA    []byte // PEM certificates, and no others are trusted; empty: those of the system
}

// Defaults and bounds of documents.
const (
	DefaultMaxBytes = 1 << 20
	DefaultMaxAge   = time.Hour
	DefaultInterval = time.Minute
	MinInterval     = 10 * time.Second
	MaxDocuments    = 32       // of a source
	maxTotal        = 64 << 20 // bytes of all together
)

// Checkout is the active commit of a source.
type Checkout struct {
	Commit string // its hash; "": none is active
	Path   string // of Tree in the repository
	Tree   fs.FS
	// At is when it was last found to be the newest one.
	At time.Time
	// Pending says that none is active yet because the source has not been read.
	Pending bool
}

// Errors of Options.ConfigMap.
var (
	// ErrNotFound is a ConfigMap that is not there, or may not be a document.
	ErrNotFound = errors.New("not found")
)

// Options configure a Manager. All functions are called by goroutines of Run.
type Options struct {
	// Checkout returns the active commit of a source. Manager.Trigger has it asked again.
	Checkout func(source string) Checkout
	// ConfigMap returns the data of a ConfigMap, and its version. Manager.TriggerConfigMap has it asked again.
	ConfigMap func(ctx context.Context, name string) (data map[string]string, version string, err error)
	// Dial opens connections to servers and may reject addresses; nil means net.Dialer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Timeout bounds one request; 0 means 30 seconds.
	Timeout time.Duration
	// MinBackoff and MaxBackoff bound the delay after failures, which doubles; 0 means 5 seconds and 10 minutes.
	MinBackoff, MaxBackoff time.Duration
	Clock                  func() time.Time // nil means time.Now
	Logger                 *slog.Logger     // nil: none
}

func (o Options) validate() (Options, error) {
	if o.Checkout == nil || o.ConfigMap == nil {
		return o, errors.New("external data: Checkout and ConfigMap are required")
	}
	if o.Timeout < 0 || o.MinBackoff < 0 || o.MaxBackoff < 0 {
		return o, errors.New("external data: Timeout, MinBackoff or MaxBackoff is negative")
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.MinBackoff == 0 {
		o.MinBackoff = 5 * time.Second
	}
	if o.MaxBackoff == 0 {
		o.MaxBackoff = max(10*time.Minute, o.MinBackoff)
	}
	if o.MaxBackoff < o.MinBackoff {
		return o, errors.New("external data: MaxBackoff is less than MinBackoff")
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// checkSources rejects lists that are ambiguous.
func checkSources(sources []Source) error {
	names := map[string]bool{}
	for _, s := range sources {
		if names[s.Name] {
			return fmt.Errorf("source %.80q is there twice", s.Name)
		}
		names[s.Name] = true
		keys := map[string]bool{}
		for _, d := range s.Documents {
			if keys[d.Key] || d.Key == "" {
				return fmt.Errorf("source %.80q: key %.80q is empty, or there twice", s.Name, d.Key)
			}
			keys[d.Key] = true
		}
		if len(s.Documents) > MaxDocuments {
			return fmt.Errorf("source %.80q has more than %d documents", s.Name, MaxDocuments)
		}
	}
	return nil
}

// withDefaults returns a document with defaults and its schema, or what is wrong with it.
func (d Document) withDefaults() (Document, *policy.ExternalSchema, error) {
	if d.MaxBytes == 0 {
		d.MaxBytes = DefaultMaxBytes
	}
	if d.MaxAge == 0 {
		d.MaxAge = DefaultMaxAge
	}
	if d.Interval == 0 {
		d.Interval = DefaultInterval
	}
	schema, err := policy.ParseExternalSchema(d.Schema)
	where := 0
	for _, is := range []bool{d.File != "", d.ConfigMap != nil, d.HTTPS != nil} {
		if is {
			where++
		}
	}
	switch {
	case d.Problem != "":
		return d, schema, errors.New(d.Problem)
	case err != nil:
		return d, schema, fmt.Errorf("schema: %w", err)
	case where != 1:
		return d, schema, errors.New("it has to have one of file, configMap and https")
	case d.MaxBytes < 0 || d.MaxBytes > policy.MaxExternalBytes:
		return d, schema, fmt.Errorf("maxBytes is %d, and has to be between 1 and %d", d.MaxBytes, policy.MaxExternalBytes)
	case d.MaxAge < 0:
		return d, schema, errors.New("maxAge is negative")
	case d.Interval < MinInterval:
		return d, schema, fmt.Errorf("interval is %s, but must be at least %s", d.Interval, MinInterval)
	case d.File != "" && (!fs.ValidPath(d.File) || d.File == "."):
		return d, schema, errors.New("file is no path of a file below the source's path")
	case d.HTTPS != nil:
		return d, schema, d.HTTPS.validate()
	}
	return d, schema, nil
}

func (h *HTTPS) validate() error {
	u, err := url.Parse(h.URL)
	switch {
	case err != nil:
		return errors.New("the URL is malformed") // without what it says, which may be a password
	case u.Scheme != "https":
		return errors.New("the URL does not begin with https://")
	case u.User != nil:
		return errors.New("the URL has credentials: use a Secret")
	case u.Hostname() == "" || u.Opaque != "":
		return errors.New("the URL names no host")
	case u.Fragment != "":
		return errors.New("the URL has a fragment")
	}
	return nil
}

// isYAML reports whether a file, or a key of a ConfigMap, may be YAML.
func isYAML(name string) bool { return !strings.EqualFold(path.Ext(name), ".json") }
