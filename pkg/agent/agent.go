package agent

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/agent/internal/apiproxy"
	"federator.dev/federator/pkg/agent/internal/budget"
	"federator.dev/federator/pkg/agent/internal/joining"
	"federator.dev/federator/pkg/agent/internal/tunnel"
)

// Options say where an agent connects, and to what. Hubs, Cluster, Store and Logger are required.
type Options struct {
	Hubs    []string     // addresses, as host:port, one of each process of federator
	Token   string       // to join with; "" if it has joined
	Cluster *rest.Config // the API server that is served, and with which credentials
	Store   Store
	Version string
	Logger  *slog.Logger

	// RequestsPerSecond and BytesPerSecond bound what federator asks of the API server, all its processes together: more
	// waits, and is shed in the end. 0: unbounded.
	RequestsPerSecond float64
	BytesPerSecond    int64

	// Hidden are Secrets that federator is neither shown nor changes. That of Store is, without being said.
	Hidden []types.NamespacedName

	// ReadToken reads the token that is there now, "" where none is: federator has refused the agent, and somebody may have
	// made a new one since. nil: there is none but Token.
	ReadToken func() (string, error)

	// Dial opens connections to federator. nil: as net.Dialer does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Proxy returns through which proxy (http, https or socks5) one of Hubs is dialled, nil for none. nil: all directly.
	Proxy func(hub string) (*url.URL, error)
	// PingInterval and PingTimeout find connections that have gone silent. 0: 12 s and 5 s.
	PingInterval, PingTimeout time.Duration
}

// The defaults of Options. Federator asks sooner whether the agent lives, so that an agent rarely has to ask.
const (
	defaultPingInterval = 12 * time.Second
	defaultPingTimeout  = 5 * time.Second
)

// Agent serves an API server to federator.
type Agent struct {
	o      Options
	token  *joining.Token // of Run's goroutine, as are failed and joining
	failed string         // ID of the token that was refused last

	joining struct {
		key crypto.Signer
		of  string // ID of the token
	}

	proxy  *apiproxy.Proxy
	links  []*link
	doubts trigger.Trigger // a link was refused

	current atomic.Pointer[credentials]
}

// New returns an agent, or what is wrong with its options. Nothing runs yet.
func New(o Options) (*Agent, error) {
	if o.Cluster == nil || o.Store == nil || o.Logger == nil {
		return nil, errors.New("agent: Cluster, Store and Logger are required")
	}
	if !(o.RequestsPerSecond >= 0) || math.IsInf(o.RequestsPerSecond, 1) || o.BytesPerSecond < 0 { // NaN is no number either
		return nil, errors.New("agent: RequestsPerSecond and BytesPerSecond must not be negative")
	}
	if len(o.Hubs) == 0 {
		return nil, errors.New("agent: Hubs is required: the addresses of federator")
	}
	o.Hubs = slices.Compact(slices.Sorted(slices.Values(o.Hubs)))
	for _, h := range o.Hubs {
		if host, port, err := net.SplitHostPort(h); err != nil || host == "" || port == "" {
			return nil, fmt.Errorf("agent: %q is not an address such as federator.example.com:9443", h)
		}
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}).DialContext
	}
	if o.Proxy != nil {
		o.Dial = tunnel.Through(o.Proxy, o.Dial)
	}
	o.PingInterval, o.PingTimeout = cmp.Or(o.PingInterval, defaultPingInterval), cmp.Or(o.PingTimeout, defaultPingTimeout)
	a := &Agent{o: o, doubts: trigger.New()}
	if o.Token != "" {
		token, err := joining.ParseToken(o.Token)
		if err != nil {
			return nil, fmt.Errorf("agent: %w", err)
		}
		a.token = &token
	}
	var err error
	if a.proxy, err = apiproxy.New(o.Cluster, budget.New(o.RequestsPerSecond, o.BytesPerSecond), hiddenBy(&o), o.Logger); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	for _, h := range o.Hubs {
		a.links = append(a.links, newLink(a, h))
	}
	return a, nil
}

// Ready reports whether the agent is connected to a process of federator that has accepted it.
func (a *Agent) Ready() bool { return slices.ContainsFunc(a.links, (*link).ready) }

func hiddenBy(o *Options) []types.NamespacedName {
	all := slices.Clone(o.Hidden)
	if s, is := o.Store.(secretStore); is {
		all = append(all, types.NamespacedName{Namespace: s.namespace, Name: s.name})
	}
	return all
}

// Run joins if it must, and serves until ctx is done. Where federator takes its certificate no longer, it joins again with a
// token that it has not used. An error that is an ErrRefused needs somebody to act.
func (a *Agent) Run(ctx context.Context) error {
	defer a.proxy.Close()
	var refused *credentials
	for {
		c, err := a.enroll(ctx, refused)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("agent: %w", err)
		}
		a.current.Store(c)
		if err = a.serve(ctx); err == nil {
			return nil
		}
		a.o.Logger.Warn("joining again", "because", err)
		if errors.Is(err, ErrRefused) {
			refused = a.current.Load()
		}
	}
}

// serve serves until ctx is done, or the agent is to join again: then it returns why.
func (a *Agent) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, l := range a.links {
		running.Go(func() { l.run(ctx) })
	}
	return a.keepValid(ctx)
}

// Delays between attempts.
const (
	minDelay = 200 * time.Millisecond
	maxDelay = 15 * time.Second
)

// backoff doubles the delay between attempts, and takes half of it or more at random: agents that lost federator together do not
// come back together, and one that it refuses asks no more often than it is said to. (Decorrelated jitter, a random part of
// three times the last delay, stays small for long: its delays grow by a tenth on average.)
type backoff struct {
	limit time.Duration // the last delay was no longer
	most  time.Duration // 0: maxDelay
}

func (b *backoff) next() time.Duration {
	b.limit = min(cmp.Or(b.most, maxDelay), max(2*b.limit, 2*minDelay))
	return b.limit/2 + rand.N(b.limit/2+1)
}

// CheckProxy reports what is wrong with the URL of a proxy, without its password.
func CheckProxy(u *url.URL) error { return tunnel.Check(u) }
