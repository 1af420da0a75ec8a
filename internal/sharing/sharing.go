package sharing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/component"
	"federator.dev/federator/internal/election"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/internal/verdictmemory"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/exchange"
	"federator.dev/federator/pkg/handover"
	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/intents/facts"
	"federator.dev/federator/pkg/intents/relay"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/pkg/shards"
)

// Options are what a process that shares a fleet is given. All but Lead, Policies and Metrics are required.
type Options struct {
	Hub         *rest.Config
	Namespace   string // of federator on the hub
	Name        string // of this process, which it has again after a restart
	Address     string // host and port at which the others reach Listener
	Listener    net.Listener
	Count       int // processes that there are to be
	Replication int
	Epoch       aggregate.Revision // the first revision of the process's own index

	// Lead returns until when this process may write the map, or an error if another one leads. Nil: an election of the
	// processes that share the fleet decides.
	Lead func() (until time.Time, err error)
	// Policies names what is evaluated here, for people who compare processes. Nil: nothing is named.
	Policies func() string
	Logger   *slog.Logger
	Metrics  prometheus.Registerer // nil: none
}

// Sharing is this process's part in a fleet that several share.
type Sharing struct {
	o        Options
	shards   *shards.Shards
	elector  *election.Elector // nil where Options.Lead says who leads
	peers    *aggregate.Index  // of what others tell
	importer *exchange.Importer
	exporter *exchange.Exporter
	view     assignments
	fleet    intentsFleet
	meter    meter
	applied  atomic.Int64 // version of the map whose keys the loop judges
	taker    *handover.Taker
	holders  holders
	newest   func() *shards.Map // nil: there is none

	others    others
	followed  chan struct{} // closed once the peers' index has the members of a map
	following sync.Once
	passed    trigger.Trigger // the loop has evaluated something

	// Set by Serve, before Run.
	manager *clusterinformers.Manager
	own     *aggregate.Index
	loop    *enforce.Loop         // nil without policies
	memory  *verdictmemory.Memory // of the loop; nil without
	form    func(aggregate.Kind) string
	giver   *handover.Giver
	server  *http.Server
	changed func() // who judges what has changed; may be nil
}

// New wires it. Nothing runs yet; Run closes the listener.
func New(o Options) (*Sharing, error) {
	switch {
	case o.Hub == nil, o.Listener == nil, o.Logger == nil:
		return nil, errors.New("shards: Hub, Listener and Logger are required")
	}
	s := &Sharing{o: o, followed: make(chan struct{}), passed: trigger.New()}
	lead := o.Lead
	if lead == nil {
		var err error
		if s.elector, err = election.New(o.Hub, o.Namespace, "", o.Logger); err != nil {
			return nil, err
		}
		lead = s.elector.Lease
	}
	var err error
	// Nobody reads revisions of the peers' index.
	if s.peers, err = aggregate.New(aggregate.Options{Revisions: aggregate.Range{First: 1, End: 1 << 52}}); err != nil {
		return nil, err
	}
	s.exporter, err = exchange.NewExporter(exchange.ExporterOptions{Process: o.Name, Epoch: uint64(o.Epoch), Peer: PeerOf, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	s.fleet.self = o.Name
	if s.importer, err = exchange.NewImporter(exchange.ImporterOptions{Index: s.peers, Logger: o.Logger}); err != nil {
		return nil, err
	}
	s.importer.SetInterest(&interest.Set{}) // until the loop says what it reads
	s.shards, err = shards.New(shards.Options{
		Hub: o.Hub, Namespace: o.Namespace, ID: o.Name, Epoch: o.Epoch, Address: o.Address, Replication: o.Replication, Count: o.Count,
		Lead: lead, Fleet: s.setFleet, Ready: s.ready, LetGo: s.importer.Complete, Measure: s.measure, Applied: s.applied.Load,
		Policies: o.Policies, Metrics: o.Metrics, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	s.newest = func() *shards.Map { m, _ := s.shards.Map(); return m }
	if s.taker, err = handover.NewTaker(handover.TakerOptions{Holders: s.holdersOf, Logger: o.Logger}); err != nil {
		return nil, err
	}
	if o.Metrics != nil {
		for _, c := range []prometheus.Collector{s.importer, s.exporter, s.taker} {
			if err := o.Metrics.Register(c); err != nil {
				return nil, fmt.Errorf("shards: metrics: %w", err)
			}
		}
	}
	return s, nil
}

// Sources returns sources of what this process holds, from those of the whole fleet.
func (s *Sharing) Sources(all []clusterinformers.Source) []clusterinformers.Source {
	return s.shards.Sources(all)
}

// PeersIndex has what other processes tell of their members, for the loop alone.
func (s *Sharing) PeersIndex() *aggregate.Index { return s.peers }

// KeyOwner says which keys of views are judged here, by the newest map.
func (s *Sharing) KeyOwner() policy.KeyOwner {
	o := s.shards.KeyOwner()
	return policy.KeyOwner{Self: o.Self, Now: o.Now, Before: o.Before}
}

// Changed tells others what a pass of the policies has changed. It does not block.
func (s *Sharing) Changed(c *policy.Changes) {
	if c.After != nil {
		s.exporter.Changed(c.After.Export(), exported(c.Exported()))
	}
	s.passed.Fire()
}

func exported(c policy.ExportedChanges) exchange.Changes {
	out := exchange.Changes{All: c.All, Members: c.Members, Objects: c.Objects}
	for _, scope := range c.Scopes {
		out.Scopes = append(out.Scopes, exchange.ScopeOf{Member: scope.Member, Kind: scope.Kind})
	}
	return out
}

// Assignment implements queryapi.Peers.
func (s *Sharing) Assignment() *queryapi.Assignment { return s.view.newest() }

// Parts are what a process does with its part of the fleet.
type Parts struct {
	Manager *clusterinformers.Manager   // reads it
	Own     *aggregate.Index            // has what is read
	Form    func(aggregate.Kind) string // says what of a kind is held, as in persistence.Options
	Loop    *enforce.Loop               // judges it; nil: nothing does
	Memory  *verdictmemory.Memory       // of the loop; nil: when violations were first seen is not handed over
	Queries http.Handler                // answers peers from it; nil: nothing does
	// Corrections answers peers about corrections, and FleetChanged is told when who judges what has changed; nil: there are none.
	Corrections  http.Handler
	FleetChanged func()
}

// Serve says what peers are answered from. It is called before Run.
func (s *Sharing) Serve(p Parts) error {
	s.manager, s.own, s.loop, s.memory, s.changed, s.form = p.Manager, p.Own, p.Loop, p.Memory, p.FleetChanged, p.Form
	var err error
	s.giver, err = handover.NewGiver(handover.GiverOptions{Index: s.own, Form: s.form, Proved: s.manager.Proved, Seen: s.seen, Peer: PeerOf, Logger: s.o.Logger})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle(handover.Path, s.giver)
	mux.Handle(handover.SeenPath, s.giver)
	mux.Handle("/shards/v1/", s.shards.Handler())
	mux.Handle("/exchange/v1/", s.exporter)
	if p.Corrections != nil {
		for _, path := range []string{intents.Path, facts.Path, relay.Path} {
			mux.Handle(path, p.Corrections)
		}
	}
	if p.Queries != nil {
		mux.Handle("/", p.Queries)
	}
	s.server = &http.Server{
		Handler: mux, TLSConfig: s.shards.TLS(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelDebug),
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: 1000},
	}
	return nil
}

// Run takes part until the context ends, and hands over what it has for a moment more. It returns when all that it started has ended.
func (s *Sharing) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	defer running.Wait()
	train := func(ctx context.Context) error { fleet.Train(ctx, s.peers, s.o.Logger); return context.Cause(ctx) }
	parts := []func(context.Context) error{s.shards.Run, s.exporter.Run, s.importer.Run, s.followMap, s.followKeys, s.followSeen, s.followInterest, s.listen, s.measureLoad, train}
	if s.elector != nil {
		parts = append(parts, s.elector.Run)
	}
	for _, run := range parts {
		running.Go(func() {
			if err := run(ctx); ctx.Err() == nil {
				cancel(fmt.Errorf("%w: %w", component.ErrEnded, err))
			}
		})
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// listen serves peers until the context ends, and those who take over what was judged here until they have it.
func (s *Sharing) listen(ctx context.Context) error {
	// Connections are accepted until the end: a handshake needs a context that goes on. What peers read ends with ctx.
	s.server.BaseContext = func(net.Listener) context.Context { return context.WithoutCancel(ctx) }
	s.server.Handler = s.unlessEnding(ctx, s.server.Handler)
	var ending sync.WaitGroup
	ending.Go(func() {
		<-ctx.Done()
		s.handOver(ctx)
		soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if s.server.Shutdown(soon) != nil { // what goes on is streams
			_ = s.server.Close()
		}
	})
	s.o.Logger.Info("listening", "server", "shards", "address", s.o.Listener.Addr().String())
	err := s.server.ServeTLS(s.o.Listener, "", "")
	ending.Wait()
	return err
}

// Close closes the listener of one that does not run.
func (s *Sharing) Close() error { return s.o.Listener.Close() }

// ready reports whether all of a member was read.
func (s *Sharing) ready(member string) bool {
	m, ok := s.manager.Member(member)
	return ok && m.Synced
}

// Known returns once this process knows a map, and the peers' index has the members of it that others judge, or ctx is done: before,
// it is not known what this process judges, and what it has not been told of would seem not to be there.
func (s *Sharing) Known(ctx context.Context) {
	select {
	case <-s.followed:
	case <-ctx.Done():
	}
}
