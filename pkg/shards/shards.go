package shards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/shards/internal/membership"
	"federator.dev/federator/pkg/shards/internal/peerca"
	"federator.dev/federator/pkg/shards/internal/shardmap"
)

// Map is which process holds which member. One that was published is immutable.
type Map = shardmap.Map

// Process is one of the processes that share a fleet, and Member a member with those that hold it.
type (
	Process = shardmap.Process
	Member  = shardmap.Member
)

// Errors of maps that are not written, or not read.
type (
	// TooLargeError is the error of a map that an object on the hub has no room for.
	TooLargeError = shardmap.TooLargeError
	// NewerError is the error of a map that a newer federator has written.
	NewerError = shardmap.NewerError
)

// ErrTaken is the error of a process whose ID another one has taken since it started.
var ErrTaken = errors.New("another process has taken the ID")

// Peer is another process that lives.
type Peer struct {
	ID    string
	Epoch aggregate.Revision
	URL   string // https://<address>
	// Client reaches no other process than this one, whatever answers at the address.
	Client *http.Client
}

// KeyOwner says which processes share the keys of views, by their IDs, sorted. Before are those of an earlier map, until all
// have left that behind.
type KeyOwner struct {
	Self        string
	Now, Before []string
}

// Shards is this process's part in sharing the fleet.
type Shards struct {
	o       Options
	client  kubernetes.Interface
	log     *slog.Logger
	metrics *metrics

	distribute trigger.Trigger // what is passed on to the manager may be another
	consider   trigger.Trigger // the leader may have something to do
	refresh    trigger.Trigger // peers may be others
	reload     trigger.Trigger // the CAs need to be looked after
	loaded     chan struct{}   // closed once there are CAs
	loading    sync.Once

	authorities atomic.Pointer[peerca.Authorities]
	certificate certificate
	holds       atomic.Pointer[holding]
	peers       peerTable
	sources     sourceSet

	mu      sync.Mutex
	current *Map          // the newest that this process knows
	changed chan struct{} // closed when there is a newer one
	hub     onHub
	leases  *membership.Leases
	renewed time.Time // when this process last renewed its Lease
	contact time.Time // since when no renewal has failed
}

// onHub is the map as it was last seen on the hub.
type onHub struct {
	seen            bool   // whether there is one is known
	resourceVersion string // "": there is none
	version         int64
	err             error // why it is not usable
}

// New returns this process's part, or what is wrong with its options. Nothing runs yet.
func New(o Options) (*Shards, error) {
	o, err := o.validate()
	if err != nil {
		return nil, err
	}
	hub := rest.CopyConfig(o.Hub)
	hub.QPS = -1 // what it writes is bounded here
	client, err := kubernetes.NewForConfig(hub)
	if err != nil {
		return nil, fmt.Errorf("shards: %w", err)
	}
	return of(o, client)
}

// of is New for options that are valid, and a client of the hub.
func of(o Options, client kubernetes.Interface) (*Shards, error) {
	s := &Shards{
		o: o, client: client, log: o.Logger, metrics: newMetrics(), changed: make(chan struct{}), leases: membership.New(o.Expire, refusedAfter*o.Renew),
		distribute: trigger.New(), consider: trigger.New(), refresh: trigger.New(), reload: trigger.New(), loaded: make(chan struct{}),
	}
	s.peers.clients = map[string]*peerClient{}
	s.holds.Store(&holding{})
	if o.Metrics != nil {
		if err := o.Metrics.Register(collector{s}); err != nil {
			return nil, fmt.Errorf("shards: metrics: %w", err)
		}
	}
	return s, nil
}

// Run takes part until ctx is done: it keeps the Lease, follows the map, and writes it where this process leads. It returns when
// everything that it started has ended, and the Lease is released. An error is ErrTaken, or what the configuration prevents.
func (s *Shards) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer s.peers.close()
	defer running.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	informers, err := s.informers()
	if err != nil {
		return fmt.Errorf("shards: %w", err)
	}
	for _, i := range informers {
		running.Go(func() { i.RunWithContext(ctx) })
	}
	running.Go(func() {
		if err := s.keepLease(ctx); err != nil {
			cancel(fmt.Errorf("shards: %w", err))
		}
	})
	running.Go(func() { s.keepAuthorities(ctx) })
	running.Go(func() { s.passOn(ctx) })
	running.Go(func() { s.refreshPeers(ctx) })
	running.Go(func() { s.lead(ctx) })
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), ErrTaken) {
		return context.Cause(ctx)
	}
	return nil
}

// Map returns the newest map that this process knows, and what is closed when there is a newer one. nil: none is known yet.
func (s *Shards) Map() (*Map, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.changed
}

// Loaded is closed once there are certificates: before, peers are not reached, and nobody reaches this process.
func (s *Shards) Loaded() <-chan struct{} { return s.loaded }

// Peers returns the other processes that live, by ID, as far as this process knows.
func (s *Shards) Peers() []Peer { return s.peers.list() }

// Judge returns who judges a member: this process, or a peer. ok is false where nobody is known to.
func (s *Shards) Judge(member string) (peer Peer, self, ok bool) {
	m, _ := s.Map()
	e, is := m.Member(member)
	switch {
	case !is || e.Judge == "":
		return Peer{}, false, false
	case e.Judge == s.o.ID:
		return Peer{}, true, true
	}
	peer, ok = s.peers.find(e.Judge)
	return peer, false, ok
}

// KeyOwner returns which processes share the keys of views. Without a map nobody has any.
func (s *Shards) KeyOwner() KeyOwner {
	m, _ := s.Map()
	if m == nil {
		return KeyOwner{Self: s.o.ID}
	}
	return KeyOwner{Self: s.o.ID, Now: m.Keys.Now, Before: m.Keys.Before}
}

// accept takes a map that the hub has. One that is older than what this process knows is not used.
func (s *Shards) accept(m *Map, resourceVersion string) {
	s.mu.Lock()
	s.hub = onHub{seen: true, resourceVersion: resourceVersion, version: m.Version}
	// Where a map was deleted, two may have one version: what the hub has counts.
	newer := s.current == nil || m.Version > s.current.Version || m.Version == s.current.Version && !m.Same(s.current)
	if newer {
		s.current = m
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.mu.Unlock()
	if newer {
		s.log.Debug("another map of shards", "version", m.Version, "members", len(m.Members), "processes", len(m.Processes))
		s.distribute.Fire()
		s.refresh.Fire()
	}
	s.consider.Fire()
}

// reject takes note that the hub has a map that cannot be used, or none. What this process knows stays.
func (s *Shards) reject(resourceVersion string, err error) {
	s.mu.Lock()
	same := s.hub.seen && s.hub.resourceVersion == resourceVersion
	s.hub = onHub{seen: true, resourceVersion: resourceVersion, err: err}
	s.mu.Unlock()
	if err != nil && !same {
		s.log.Error("the map of shards is not usable: members stay where they are, until the ConfigMap is deleted or replaced", "error", err)
	}
	s.consider.Fire()
}
