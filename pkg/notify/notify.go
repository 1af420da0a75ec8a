package notify

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/notify/internal/webhook"
)

// Types of events.
const (
	HaltBegan     = "dev.federator.halt.began"
	HaltEnded     = "dev.federator.halt.ended"
	PlanWaits     = "dev.federator.plan.waits"
	PlanApproved  = "dev.federator.plan.approved"
	ApprovalGiven = "dev.federator.approval.given"
	StopBegan     = "dev.federator.stop.began"
	StopEnded     = "dev.federator.stop.ended"
	RolledBack    = "dev.federator.action.rolledback"
)

// Fact is something that the hub shows: it has happened, or goes on.
type Fact struct {
	UID        string // of the object that it is about
	Transition string // what happened to it, once for each UID: "halt/3f2a", "created"
	Type       string // of the event, such as HaltBegan
	Until      string // type of the event when the fact is no longer listed; "" for none
	// Ongoing facts are told to a receiver that was told nothing yet however old they are, as
	// are those with an Until.
	Ongoing bool
	Subject string // the object, for people: "FleetPolicy/tier"
	At      time.Time
	Data    map[string]string
}

// id is that of the fact's event.
func (f *Fact) id() string { return f.UID + "/" + f.Transition }

// Source lists facts. It is safe for concurrent use.
type Source interface {
	// Facts returns all facts, in any order. complete is false where some may be missing:
	// then none is taken to have ended.
	Facts() (facts []Fact, complete bool)
}

// Receiver is where events are sent.
type Receiver struct {
	Name string // of its ConfigMap: federator-notices-<name>
	URL  string
	// Keys returns the shared secrets that sign an event, of at least 16 bytes each: several
	// while one takes the place of another.
	Keys func() ([][]byte, error)
	// RootCAs verify the receiver; nil: those of the system.
	RootCAs *x509.CertPool
}

// FieldError is what is wrong with a field of a Receiver: name, url or key.
type FieldError = webhook.FieldError

var receiverName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// Validate returns what is wrong with name and URL: a FieldError.
func (r *Receiver) Validate() error {
	if !receiverName.MatchString(r.Name) {
		return &FieldError{Field: "name", Problem: fmt.Sprintf("%q is not a DNS label", r.Name)}
	}
	return webhook.CheckURL(r.URL)
}

// ValidateKeys returns what is wrong with the keys as they are now.
func (r *Receiver) ValidateKeys() error {
	_, err := r.keys()
	return err
}

// keys returns the secrets, at least one, each long enough.
func (r *Receiver) keys() ([][]byte, error) {
	keys, err := r.Keys()
	if err != nil {
		return nil, err
	}
	return keys, webhook.CheckKeys(keys)
}

// Options configure a Notifier. All but Logger and Metrics are required.
type Options struct {
	Hub       *rest.Config
	Namespace string // of the ConfigMaps
	Origin    string // of events: a URI reference that names this hub, such as /federator/hub-1
	Receivers []Receiver
	Source    Source
	IsLeader  func() bool           // whether this process sends
	Logger    *slog.Logger          // nil: none
	Metrics   prometheus.Registerer // nil: none
}

func (o *Options) validate() error {
	if o.Hub == nil || o.Namespace == "" || o.Origin == "" || o.Source == nil || o.IsLeader == nil {
		return errors.New("notify: Hub, Namespace, Origin, Source and IsLeader are required")
	}
	names := map[string]bool{}
	for _, r := range o.Receivers {
		if r.Keys == nil {
			return fmt.Errorf("notify: receiver %q: Keys is required", r.Name)
		}
		err := r.Validate()
		if err == nil {
			err = r.ValidateKeys()
		}
		if err != nil {
			return fmt.Errorf("notify: receiver %q: %w", r.Name, err)
		}
		if names[r.Name] {
			return fmt.Errorf("notify: two receivers are named %q", r.Name)
		}
		names[r.Name] = true
	}
	return nil
}

// Notifier sends events to receivers.
type Notifier struct {
	opts    Options
	senders []*sender
	metrics *metrics
}

// New returns a Notifier; nothing is sent before Run.
func New(opts Options) (*Notifier, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	hub, err := kubernetes.NewForConfig(opts.Hub)
	if err != nil {
		return nil, fmt.Errorf("notify: hub: %w", err)
	}
	n := &Notifier{opts: opts, metrics: newMetrics()}
	for _, r := range opts.Receivers {
		n.metrics.addReceiver(r.Name)
		n.senders = append(n.senders, &sender{
			opts: &n.opts, receiver: r, client: newClient(r.RootCAs), metrics: n.metrics, triggered: trigger.New(), log: opts.Logger.With("receiver", r.Name),
			store: &store{maps: hub.CoreV1().ConfigMaps(opts.Namespace), name: configMapPrefix + r.Name},
		})
	}
	if opts.Metrics != nil {
		if err := opts.Metrics.Register(n.metrics); err != nil {
			return nil, fmt.Errorf("notify: metrics: %w", err)
		}
	}
	return n, nil
}

// newClient returns a client that follows no redirect.
func newClient(roots *x509.CertPool) *http.Client {
	return webhook.NewClient(&http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	})
}

// Trigger has the source asked soon: it may list something new.
func (n *Notifier) Trigger() {
	for _, s := range n.senders {
		s.triggered.Fire()
	}
}

// Run sends events until the context ends.
func (n *Notifier) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, s := range n.senders {
		wg.Go(func() {
			defer s.client.CloseIdleConnections()
			s.run(ctx)
		})
	}
	<-ctx.Done()
	return context.Cause(ctx)
}
