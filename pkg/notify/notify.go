package notify

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/trigger"
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
	Subject    string // the object, for people: "FleetPolicy/tier"
	At         time.Time
	Data       map[string]string
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
	// Key is the shared secret of signatures, 16 bytes or more.
	Key []byte
}

// Options configure a Notifier. All but RootCAs, Logger and Metrics are required.
type Options struct {
	Hub       *rest.Config
	Namespace string // of the ConfigMaps
	Origin    string // of events: a URI that names this hub, such as /federator/hub-1
	Receivers []Receiver
	Source    Source
	IsLeader  func() bool // whether this process sends
	// RootCAs verify receivers; nil: those of the system.
	RootCAs *x509.CertPool
	Logger  *slog.Logger          // nil: none
	Metrics prometheus.Registerer // nil: none
}

// minKey is how many bytes the key of signatures has at least.
const minKey = 16

func (o *Options) validate() error {
	if o.Hub == nil || o.Namespace == "" || o.Origin == "" || o.Source == nil || o.IsLeader == nil {
		return errors.New("notify: Hub, Namespace, Origin, Source and IsLeader are required")
	}
	names := map[string]bool{}
	for _, r := range o.Receivers {
		if err := r.validate(); err != nil {
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
	client  *http.Client
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
	n := &Notifier{opts: opts, metrics: newMetrics(), client: &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute,
			TLSClientConfig: &tls.Config{RootCAs: opts.RootCAs, MinVersion: tls.VersionTLS12},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	for _, r := range opts.Receivers {
		n.senders = append(n.senders, &sender{
			opts: &n.opts, receiver: r, client: n.client, metrics: n.metrics, triggered: trigger.New(), log: opts.Logger.With("receiver", r.Name),
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

// Trigger has the source asked soon: it may list something new.
func (n *Notifier) Trigger() {
	for _, s := range n.senders {
		s.triggered.Fire()
	}
}

// Run sends events until the context ends.
func (n *Notifier) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer n.client.CloseIdleConnections()
	defer wg.Wait()
	for _, s := range n.senders {
		wg.Go(func() { s.run(ctx) })
	}
	<-ctx.Done()
	return context.Cause(ctx)
}
