package clusterinformers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"
	"unique"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/catalog"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/pkg/clusterinformers/internal/upstream"
)

// discoveryRetries are the delays after which discovery is repeated once something
// hints at a change: a CRD is served some time after it is written.
var discoveryRetries = []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 8 * time.Second}

// sweepInterval is how often scopes are looked at: watches that do not end in time have no timer
// of their own.
const sweepInterval = 30 * time.Second

// loop decides which scopes there are, until ctx is done. Discovery runs beside it: it may take
// as long as the member does.
func (mb *member) loop(ctx context.Context) {
	d := newDiscoverer(mb)
	defer d.running.Wait()
	asking, cancel := context.WithCancel(ctx) // scopes go on when the loop fails
	defer cancel()
	defer d.timer.Stop()
	mb.applySpec(ctx)
	tick, sweep := time.NewTicker(mb.manager.opts.DiscoveryInterval), time.NewTicker(sweepInterval)
	giveUp := time.NewTimer(0)
	defer tick.Stop()
	defer sweep.Stop()
	defer giveUp.Stop()
	var known connectionState
	for {
		// Get the channels before reading what they signal, so that no change in
		// between is missed.
		connChanged, catalogChanged := mb.conn.changes(), mb.manager.catalog.Changed()
		if contact, reason, _, _ := mb.conn.state(); known != (connectionState{contact, reason}) {
			known = connectionState{contact, reason}
			if mb.stateChanged() {
				d.start(asking)
			}
		}
		mb.reconcile(ctx, catalogChanged, known)
		giveUp.Reset(mb.reviewGivenUp(known, time.Now()))
		select {
		case <-ctx.Done():
			return
		case <-mb.specChanged:
			mb.applySpec(ctx)
		case <-mb.discoveryTriggered:
			d.retries = discoveryRetries
			d.timer.Reset(d.retries[0])
		case <-d.timer.C:
			d.start(asking)
		case <-tick.C:
			d.start(asking)
		case found := <-d.found:
			d.took(asking, found)
		case <-sweep.C:
			mb.sweepScopes(time.Now())
		case <-giveUp.C:
		case <-connChanged:
		case <-catalogChanged:
		}
	}
}

// discoverer has a member discovered, once at a time. It belongs to the member's loop.
type discoverer struct {
	member  *member
	timer   *time.Timer     // to the next discovery
	retries []time.Duration // that are left; the first is what the timer runs for
	asking  bool
	again   bool // another is due once the one under way is over
	found   chan discovered
	running sync.WaitGroup
}

// discovered is what a discovery has found.
type discovered struct {
	client    *memberclient.Client
	started   time.Time
	resets    int // of the member at that time
	last      catalog.APIResources
	resources catalog.APIResources
	silent    map[string]bool           // groups whose discovery failed
	rejected  map[aggregate.Kind]string // and why
	facts     *upstream.Facts           // where the member is read at another federator
	err       error
}

func newDiscoverer(mb *member) *discoverer {
	return &discoverer{member: mb, timer: time.NewTimer(0), found: make(chan discovered, 1)}
}

// start discovers the member, unless it is out of reach: then that is done once it is back.
func (d *discoverer) start(ctx context.Context) {
	mb := d.member
	if d.asking {
		d.again = true
		return
	}
	if contact, _, _, _ := mb.conn.state(); contact != connection.Connected {
		return
	}
	now := time.Now()
	f := discovered{client: mb.conn.current(), started: now}
	if f.client == nil || now.Before(mb.nextDiscovery) {
		d.timer.Reset(discoveryRetry)
		return
	}
	mb.mu.Lock()
	f.last, f.resets = mb.resources, mb.resets
	mb.mu.Unlock()
	d.asking = true
	d.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
		defer cancel()
		err := recoverPanic(func() error {
			last := f.last
			if was := mb.facts.Load(); was != nil && was.Serves == nil {
				last = nil // what was answered then was not taken
			}
			f.resources, f.silent, f.rejected, f.err = catalog.Discover(ctx, f.client, last)
			if spec := mb.currentSpec(); spec.Upstream != nil && (f.err == nil || errors.Is(f.err, catalog.ErrUnchanged)) {
				var err error
				if f.facts, err = factsOf(ctx, f.client, spec.Upstream.Member); err != nil {
					f.err = err
				}
			}
			return nil
		})
		if err != nil {
			f.err = err
		}
		d.found <- f
	})
}

// took takes the outcome of a discovery, and sees to the next.
func (d *discoverer) took(ctx context.Context, f discovered) {
	d.asking = false
	switch {
	case !d.member.discovered(f):
		d.timer.Reset(discoveryRetry)
	case len(d.retries) > 1:
		d.retries = d.retries[1:]
		d.timer.Reset(d.retries[0])
	}
	if d.again {
		d.again = false
		d.start(ctx)
	}
}

// discovered takes what the member serves. It reports false when that is not known.
func (mb *member) discovered(f discovered) bool {
	if contact, _, _, _ := mb.conn.state(); contact != connection.Connected {
		f.started = time.Time{} // what it said before it was lost is not fresh
	}
	kept := f.err == nil && f.last != nil && f.facts != nil && f.facts.Serves == nil // its federator has begun, say, and does not know yet
	if kept || errors.Is(f.err, catalog.ErrUnchanged) && mb.newFacts(f.facts) {
		f.resources, f.silent, f.rejected, f.err = f.last, mb.unavailable, mb.rejected, nil
	}
	if errors.Is(f.err, catalog.ErrUnchanged) {
		mb.confirmDiscovery(f.started, f.resets)
		return true
	}
	var panicked *panicError
	if errors.As(f.err, &panicked) {
		mb.manager.metrics.member(mb.name).panics.Inc()
		mb.log.Error("discovery failed", "error", f.err)
	}
	if f.err != nil {
		mb.conn.recordErrorOf(discoveryErrors, f.err)
		if classify(f.err) == connectionFailed && !errors.Is(f.err, context.Canceled) {
			mb.conn.reportFailure(f.client, f.err)
		}
		return false
	}
	if now := time.Now(); f.last != nil && !maps.EqualFunc(f.last, f.resources, slices.Equal) {
		mb.nextDiscovery = now.Add(mb.changeLimiter.ReserveN(now, 1).DelayFrom(now))
	}
	mb.findings++
	mb.discoveredAt, mb.discoveredResets, mb.unavailable, mb.truncated = f.started, f.resets, f.silent, len(f.resources) >= catalog.MaxKinds
	mb.setRejected(f.rejected)
	mb.facts.Store(f.facts)
	mb.conn.clearError(discoveryErrors)
	text := mb.describeDiscovery(f)
	mb.mu.Lock()
	mb.resources, mb.discovery = f.resources, text
	spec := mb.spec
	mb.mu.Unlock()
	mb.publish(spec)
	shared := mb.manager.catalog.Set(mb.name, f.resources)
	mb.mu.Lock()
	mb.resources = shared
	mb.mu.Unlock()
	return true
}

// describeDiscovery returns what was discovered as text, "" where nothing is persisted.
func (mb *member) describeDiscovery(f discovered) string {
	if !mb.manager.opts.Index.Holds() {
		return ""
	}
	mb.mu.Lock()
	text := mb.discovery
	mb.mu.Unlock()
	if text != "" && maps.EqualFunc(f.last, f.resources, slices.Equal) {
		return text
	}
	text, err := f.resources.Encode()
	if err != nil {
		mb.log.Error("what the member serves will not be known after a restart", "error", err)
		return ""
	}
	return unique.Make(text).Value() // most members serve the same
}

// confirmDiscovery takes note that all that discovery last found is as it was, what fails
// included.
func (mb *member) confirmDiscovery(started time.Time, resets int) {
	fresh := !mb.discoveredAt.IsZero() && mb.discoveredResets == resets
	mb.discoveredAt, mb.discoveredResets = started, resets
	mb.conn.clearError(discoveryErrors)
	if v := mb.version.Load(); fresh && !started.IsZero() && v != nil && *v == mb.publishedVersion {
		return // the index has it all
	}
	mb.findings++
	mb.publish(mb.currentSpec())
}

// setRejected records kinds that are rejected as the member serves them.
func (mb *member) setRejected(refused map[aggregate.Kind]string) {
	if maps.Equal(refused, mb.rejected) {
		return
	}
	mb.rejected = refused
	mb.manager.metrics.member(mb.name).refused.Set(float64(len(refused)))
	for i, kind := range slices.Sorted(maps.Keys(refused)) {
		if i == maxRejectionsLogged {
			mb.log.Warn("further kinds rejected", "kinds", len(refused))
			break
		}
		mb.log.Warn("kind rejected", "kind", kind, "reason", refused[kind])
	}
}

const maxRejectionsLogged = 10

// factsOf asks another federator what a member is known to serve: discovery there has what is collected.
func factsOf(ctx context.Context, client *memberclient.Client, member string) (*upstream.Facts, error) {
	body, err := client.Query(ctx, upstream.MembersPath, url.Values{"facts": {"true"}, "namePrefix": {member}, "limit": {"1"}})
	if err != nil {
		return nil, err
	}
	page, err := upstream.Parse(body, 1)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", upstream.MembersPath, err)
	}
	if len(page.Members) == 0 || page.Members[0].Name != member {
		return &upstream.Facts{}, nil // nothing is known of it
	}
	return &page.Members[0].Facts, nil
}

// newFacts reports whether facts are others than before.
func (mb *member) newFacts(f *upstream.Facts) bool {
	was := mb.facts.Load()
	return (f == nil) != (was == nil) || f != nil && !f.Equal(was)
}

// addFacts makes what is known of what a member serves no more than what its federator knows.
func (mb *member) addFacts(m *aggregate.Member) {
	if !mb.federated.Load() {
		return
	}
	f := mb.facts.Load()
	if f == nil || f.Serves == nil {
		m.Serves, m.Silent = nil, nil
		return
	}
	m.Serves = slices.Concat(m.Serves, f.Serves)
	slices.Sort(m.Serves)
	m.Serves = slices.Compact(slices.Grow(m.Serves, 1)) // not nil
	m.Silent = slices.Concat(m.Silent, f.Silent)
	slices.Sort(m.Silent)
	m.Silent = slices.Compact(m.Silent)
}

// readerOf is what this installation calls itself to the federator that a member is read at.
func (mb *member) readerOf(spec Spec) string {
	if spec.Upstream == nil {
		return ""
	}
	return cmp.Or(mb.manager.opts.Installation, "federator")
}

// Via returns the installations of federator between this one and a member, the nearest first.
func (m *Manager) Via(member string) []string {
	mb, err := m.lookup(member)
	if err != nil {
		return nil
	}
	if up := mb.currentSpec().Upstream; up != nil {
		return up.Via
	}
	return nil
}

const (
	discoveryTimeout = 30 * time.Second
	discoveryRetry   = 2 * time.Second // after one that failed

	// What a member serves is read by all others, and by clients. One that serves
	// something else each time is discovered less often once it has done so for a while.
	changeBurst    = 30
	changeInterval = 30 * time.Second
)
