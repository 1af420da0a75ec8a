package exchange

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
)

// Export is what other processes need of the members that this one judges, at one revision. It never changes.
type Export interface {
	Revision() aggregate.Revision
	// Members yields the members that are judged here, and Member returns one of them.
	Members() iter.Seq[aggregate.Member]
	Member(name string) (aggregate.Member, bool)
	// Scopes yields a member's, and Scope returns one of them. The version is the digest of the projection.
	Scopes(member string) iter.Seq[aggregate.ScopeInfo]
	Scope(member string, kind aggregate.Kind) (aggregate.ScopeInfo, bool)
	// Records calls yield with each record of a scope, which it uses again.
	Records(member string, kind aggregate.Kind, yield func(*aggregate.Record) error) error
	// Record fills into with that of an object, and reports whether there is one.
	Record(ref aggregate.Ref, into *aggregate.Record) (ok bool, err error)
	// Keys calls yield with the name of each object of a scope, and what its record is wanted for, which it uses again. What a
	// record is wanted for follows from it alone. Nothing is read of objects.
	Keys(member string, kind aggregate.Kind, yield func(namespace, name string, k *interest.Keys) error) error
	// KeysOf fills in what the record of an object is wanted for: nothing where there is none.
	KeysOf(ref aggregate.Ref, k *interest.Keys)
	// Find calls yield with each object that has a key of a set, and maybe more often than once, and look with each key or name that
	// it looks at.
	Find(set *interest.Set, look func() error, yield func(aggregate.Ref) error) error
}

// ScopeOf is one kind of one member.
type ScopeOf struct {
	Member string
	Kind   aggregate.Kind
}

// Changes is what may differ between two exports. To name what does not differ costs a look, and no importer anything.
type Changes struct {
	All     bool            // what differs is not known
	Members []string        // that came or left, or of which something else is known; of one that came, all is new
	Scopes  []ScopeOf       // that came or went, or whose status, version or resource changed; of another version, all is new
	Objects []aggregate.Ref // whose record changed, came or went
}

// ExporterOptions are those of an Exporter.
type ExporterOptions struct {
	Process string // its ID
	// Epoch is unique to the process and its start, as aggregate.Index.First of its own index is.
	Epoch  uint64
	Logger *slog.Logger
	// Peer returns which process a request is from, as its connection proves, for Exporter.Wants; nil: that is not known.
	Peer func(*http.Request) string

	LogBytes  int64         // of changes that importers resume from; 32 MiB by default
	MaxRecord int           // bytes of a record; a scope with a larger one is OverBudget for others; 4 MiB by default
	Gather    time.Duration // between two steps, for which changes are gathered; 10 ms by default
	Heartbeat time.Duration // between frontiers while there is nothing else; 1 s by default
	Stall     time.Duration // after which an importer that does not read is cut; 1 min by default, since it writes a large member at once
	Audit     time.Duration // for which digests of a scope that has not changed are used again; 5 min by default
}

func (o *ExporterOptions) validate() error {
	if o.Process == "" || o.Epoch == 0 || o.Logger == nil {
		return errors.New("exporter: Process, Epoch and Logger are required")
	}
	if o.LogBytes < 0 || o.MaxRecord < 0 || o.Gather < 0 || o.Heartbeat < 0 || o.Stall < 0 || o.Audit < 0 {
		return errors.New("exporter: a bound is negative")
	}
	if o.Peer == nil {
		o.Peer = func(*http.Request) string { return "" }
	}
	o.LogBytes = cmp.Or(o.LogBytes, 32<<20)
	o.MaxRecord = cmp.Or(o.MaxRecord, defaultMaxRecord)
	o.Gather = cmp.Or(o.Gather, 10*time.Millisecond)
	o.Heartbeat = cmp.Or(o.Heartbeat, time.Second)
	o.Stall = cmp.Or(o.Stall, time.Minute)
	o.Audit = cmp.Or(o.Audit, 5*time.Minute)
	return nil
}

// Exporter tells others what they need of the members that are judged here. Its methods are safe for concurrent use.
type Exporter struct {
	o       ExporterOptions
	metrics *exporterMetrics
	wake    trigger.Trigger
	ended   chan struct{} // closed once Run has returned

	pendingMu sync.Mutex // never held for longer than an assignment per change
	newest    Export
	pending   pending

	mu    sync.Mutex
	table table
	audit audits

	streams map[uint64]*stream // whose wants mu guards, too
	last    uint64             // the ID of the newest
}

// NewExporter returns an exporter. It has nothing to say before the first call of Changed.
func NewExporter(o ExporterOptions) (*Exporter, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	x := &Exporter{o: o, wake: trigger.New(), ended: make(chan struct{}), table: newTable(o.LogBytes), streams: map[uint64]*stream{}, audit: audits{turn: make(chan struct{}, 1), known: map[ScopeOf]audited{}}}
	x.metrics = newExporterMetrics(x)
	return x, nil
}

// maxPending is how many objects may wait to be looked at by name. Beyond that their scopes are.
const maxPending = 200_000

// pending is what may have changed since the last step.
type pending struct {
	all     bool
	members map[string]bool // true: it was not judged meanwhile
	scopes  map[ScopeOf]renewal
	objects map[aggregate.Ref]struct{}
}

// renewal is what a scope was meanwhile.
type renewal struct {
	version string
	all     bool // its records are all looked at
}

func (p *pending) empty() bool {
	return !p.all && len(p.members) == 0 && len(p.scopes) == 0 && len(p.objects) == 0
}

// add adds changes that led to an export. What came and left again, or the reverse, is new.
func (p *pending) add(now Export, c Changes) {
	if p.all = p.all || c.All; p.all {
		*p = pending{all: true}
		return
	}
	if p.members == nil {
		*p = pending{members: map[string]bool{}, scopes: map[ScopeOf]renewal{}, objects: map[aggregate.Ref]struct{}{}}
	}
	for _, m := range c.Members {
		_, judged := now.Member(m)
		p.members[m] = p.members[m] || !judged
	}
	for _, s := range c.Scopes {
		version := "\x00gone"
		if info, ok := now.Scope(s.Member, s.Kind); ok {
			version = info.Version
		}
		was, before := p.scopes[s]
		p.scopes[s] = renewal{version, was.all || before && was.version != version}
	}
	for _, ref := range c.Objects {
		p.objects[ref] = struct{}{}
	}
	if len(p.objects) > maxPending {
		for ref := range p.objects {
			p.renew(ScopeOf{ref.Member, ref.Kind})
		}
		p.objects = map[aggregate.Ref]struct{}{}
	}
}

// renew has all records of a scope looked at.
func (p *pending) renew(of ScopeOf) {
	was := p.scopes[of]
	was.all = true
	p.scopes[of] = was
}

// Changed says that there is a newer export, and how it differs from that of the call before. The first call's changes are
// those from nothing. It never blocks.
func (x *Exporter) Changed(now Export, c Changes) {
	x.pendingMu.Lock()
	if x.newest == nil {
		c.All = true
	}
	x.newest = now
	x.pending.add(now, c)
	x.pendingMu.Unlock()
	x.wake.Fire()
}

// Run keeps what importers are told until the context ends, and then ends all streams.
func (x *Exporter) Run(ctx context.Context) error {
	defer close(x.ended)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-x.wake:
		}
		x.pendingMu.Lock()
		now, todo := x.newest, x.pending
		x.pending = pending{}
		x.pendingMu.Unlock()
		if now == nil {
			continue
		}
		if err := x.step(ctx, now, todo); err != nil {
			return nil // the context ended
		}
		if err := sleep.For(ctx, x.o.Gather); err != nil {
			return nil
		}
	}
}

// step brings the table to an export.
func (x *Exporter) step(ctx context.Context, now Export, todo pending) error {
	s := step{x: x, ctx: ctx, now: now}
	if !todo.empty() {
		s.look(todo)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.table.publish(now, s.updates)
	return nil
}

// noteLocked gives a stream its ID.
func (x *Exporter) noteLocked(s *stream) {
	x.last++
	s.id = x.last
	x.streams[s.id] = s
}

// forget forgets a stream that has ended.
func (x *Exporter) forget(s *stream) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.streams, s.id)
}
