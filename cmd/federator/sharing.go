package main

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/cmd/federator/revisions"
	"federator.dev/federator/internal/component"
	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/enforcement"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/internal/sharing"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/queryapi"
)

// sharedFleet is this process's part in a fleet that several share; the zero value is of one that has it alone.
type sharedFleet struct {
	*sharing.Sharing
	minted *revisions.Keeper // of what the query API answers for the whole fleet
	server *queryapi.Server  // whose revisions these are; nil: nothing is served
}

// newSharing opens the listener of peers. Nothing runs yet.
func newSharing(ctx context.Context, cfg *config.Config, epoch aggregate.Revision, lead func() (time.Time, error), log *slog.Logger, metrics prometheus.Registerer) (*sharedFleet, error) {
	if !cfg.Shards.Many() {
		return &sharedFleet{}, nil
	}
	hub, err := fleet.HubConfig(cfg, userAgent())
	if err != nil {
		return nil, err
	}
	minted, err := reserveRevisions(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	listener, err := listenTCP(ctx, "shards", cfg.Shards.Listen)
	if err != nil {
		return nil, err
	}
	s, err := sharing.New(sharing.Options{
		Hub: hub, Namespace: cfg.Policies.Namespace, Name: cfg.Shards.Name, Address: cfg.Shards.Address, Listener: listener,
		Count: cfg.Shards.Count, Replication: cfg.Shards.Replication, Epoch: epoch, Lead: lead, Logger: log, Metrics: metrics,
	})
	if err != nil {
		listener.Close()
		return nil, err
	}
	return &sharedFleet{Sharing: s, minted: minted}, nil
}

// sources returns what chooses the members that this process holds; nil where it holds all.
func (s *sharedFleet) sources() func([]clusterinformers.Source) []clusterinformers.Source {
	if s.Sharing == nil {
		return nil
	}
	return s.Sources
}

// takeOver returns what takes over what other processes hold; nil where there are none.
func (s *sharedFleet) takeOver() func(context.Context, clusterinformers.TakeOver) map[aggregate.Kind]time.Time {
	if s.Sharing == nil {
		return nil
	}
	return s.TakeOver
}

// addTo has the query API answer for what others hold.
func (s *sharedFleet) addTo(o *queryapi.Options) {
	if s.Sharing != nil {
		o.Peers, o.Minted = s.Sharing, s.minted.First()
	}
}

// serve says what peers are answered from. server is nil where no queries are answered.
func (s *sharedFleet) serve(f *fleet.Fleet, loop *enforce.Loop, e *enforcement.Enforcement, server *queryapi.Server) error {
	if s.Sharing == nil {
		return nil
	}
	parts := sharing.Parts{Manager: f.Manager, Own: f.Index, Form: f.Form, Loop: loop, Memory: f.Memory}
	if s.server = server; server != nil {
		parts.Queries = server.PeersHandler()
	}
	if e != nil {
		parts.Corrections, parts.FleetChanged = e.Handler(), e.FleetChanged
	}
	return s.Serve(parts)
}

// corrections are what corrections need of the other processes; nil where there are none.
func (s *sharedFleet) corrections(epoch aggregate.Revision) *enforcement.Shards {
	if s.Sharing == nil {
		return nil
	}
	return &enforcement.Shards{
		Epoch: strconv.FormatUint(uint64(epoch), 10), Fleet: s.IntentsFleet, Peer: sharing.PeerOf, Unsettled: s.Unsettled,
		Told: s.PeersIndex(), Subscribe: true, KeyOwner: s.KeyOwner(), Changed: s.Changed, Wants: s.Wants, Known: s.Known,
	}
}

// processes are those that share the fleet, whether or not they live.
func (s *sharedFleet) processes() (names []string, known bool) {
	f := s.IntentsFleet()
	if f == nil {
		return nil, false
	}
	return slices.AppendSeq(append(slices.Clone(f.Processes), f.Self), maps.Keys(f.Peers)), true
}

// judged has policies judge once it is known what is judged here. Those of a hub are not among them: they wait by
// themselves, as their leader is who says it.
func (s *sharedFleet) judged(evaluate func(context.Context) error) func(context.Context) error {
	if s.Sharing == nil {
		return evaluate
	}
	return func(ctx context.Context) error {
		s.Known(ctx)
		return evaluate(ctx)
	}
}

// mintedNumbers are the revisions of a query API.
type mintedNumbers struct{ *queryapi.Server }

// Unused implements revisions.Numbers.
func (m mintedNumbers) Unused() uint64 { return m.MintedLeft() }

// Extend implements revisions.Numbers.
func (m mintedNumbers) Extend(r aggregate.Range) error { return m.ExtendMinted(r) }

// Exhausted implements revisions.Numbers: a query without a revision fails, and the process goes on.
func (mintedNumbers) Exhausted() <-chan struct{} { return nil }

// run takes part until ctx is done.
func (s *sharedFleet) run(ctx context.Context) error {
	if s.Sharing == nil {
		return component.Idle(ctx)
	}
	var minting sync.WaitGroup
	defer minting.Wait()
	if s.server != nil {
		minting.Go(func() { _ = s.minted.Run(ctx, mintedNumbers{s.server}) }) // its only error is the context's
	}
	return s.Sharing.Run(ctx)
}

// close closes the listener of one that may not have run.
func (s *sharedFleet) close() {
	if s.Sharing != nil {
		_ = s.Close() // it may be closed already
	}
}
