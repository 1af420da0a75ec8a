package clusterinformers

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/catalog"
	"federator.dev/federator/pkg/clusterinformers/internal/lateness"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/pkg/clusterinformers/internal/quota"
	"federator.dev/federator/pkg/clusterinformers/internal/runqueue"
	"federator.dev/federator/pkg/clusterinformers/internal/serverurls"
)

// Manager keeps the index equal to what the members hold that its sources find.
type Manager struct {
	opts       Options
	metrics    *metrics
	catalog    *catalog.Catalog
	required   requiredKinds
	slots      *quota.Slots
	fleetQuota *quota.Fleet
	queue      *runqueue.Queue // scopes that have something to do
	readers    readers
	servers    serverurls.Set[*member]
	lateness   lateness.Monitor
	starts     *quota.Slots    // members that start
	changed    trigger.Trigger // a source's view is another
	audits     fleetBudget
	started    time.Time
	away       atomic.Int64 // members that are out of reach

	mu           sync.Mutex
	views        []*View // by source, nil until its first
	viewsPending bool    // views have changed since the last reconcile
	members      map[string]*member
	loaded       map[string]*loaded // what the index was loaded with, of members that have not come yet
	leaving      map[string]*member // under way out; a successor waits for it
	shadowed     map[string]bool    // members that two sources describe, as was logged
	readyAt      aggregate.Revision // of the index when every member had synced; 0: not all have
}

// New returns a manager, or all that is wrong with its options.
func New(opts Options) (*Manager, error) {
	opts, err := opts.validate()
	if err != nil {
		return nil, err
	}
	m := &Manager{
		opts: opts, catalog: catalog.New(opts.heldVersions()), slots: quota.NewSlots(opts.ParallelSyncs), fleetQuota: quota.NewFleet(opts.Budget.FleetBytes),
		starts: quota.NewSlots(maxStarting),
		queue:  runqueue.New(), changed: trigger.New(), views: make([]*View, len(opts.Sources)),
		members: map[string]*member{}, leaving: map[string]*member{}, shadowed: map[string]bool{}, started: time.Now(), metrics: newMetrics(),
	}
	m.audits.budget.Requests = opts.Audit.FleetRequestsPerSecond
	if opts.Metrics != nil {
		if err := opts.Metrics.Register(metricsCollector{m}); err != nil {
			return nil, fmt.Errorf("clusterinformers: metrics: %w", err)
		}
	}
	return m, nil
}

// Run runs the members until ctx is done, or until a source fails. It
// returns when everything that it started has ended. What is in the index
// stays.
func (m *Manager) Run(ctx context.Context) error {
	outer := ctx
	ctx, cancel := context.WithCancelCause(outer)
	defer cancel(nil)
	defer m.startWorkers(ctx)() // after the members, whose scopes they end
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { m.catalog.Run(ctx) })
	wg.Go(func() { m.lateness.Run(ctx) })
	for i, source := range m.opts.Sources {
		wg.Go(func() {
			err := recoverPanic(func() error { return source.Run(ctx, func(view View) { m.setView(i, view) }) })
			if err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("source %T: %w", source, err))
			}
		})
	}
	for {
		select {
		case <-m.changed:
			m.reconcile(ctx, &wg)
		case <-ctx.Done():
			if outer.Err() != nil {
				return nil
			}
			return context.Cause(ctx)
		}
	}
}

// startWorkers starts what runs the scopes. It returns what ends them.
func (m *Manager) startWorkers(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.queue.Run(ctx, runtime.GOMAXPROCS(0))
	}()
	return func() {
		cancel()
		<-done
	}
}

func (m *Manager) setView(source int, view View) {
	view.Members = slices.Clone(view.Members)
	m.mu.Lock()
	m.views[source] = &view
	m.viewsPending = true
	m.mu.Unlock()
	m.changed.Fire()
}

// describedMember is a member as the first source describes it that names it.
type describedMember struct {
	Spec

	source int
	early  bool // an earlier source has not spoken, and may have the name
}

// specsLocked merges the views: where two sources name one member, the first has
// it. It also returns whether all sources have spoken, and whether there are no other members
// than these. m.mu must be held.
func (m *Manager) specsLocked() (specs map[string]describedMember, spoken, complete bool) {
	specs, spoken, complete = map[string]describedMember{}, true, true
	for i, view := range m.views {
		if view == nil {
			spoken, complete = false, false
			continue
		}
		complete = complete && !view.Partial
		for _, s := range view.Members {
			if _, taken := specs[s.Name]; !taken {
				specs[s.Name] = describedMember{s, i, !spoken}
			}
		}
	}
	return specs, spoken, complete
}

// warnShadowedLocked warns once of each member that two sources describe. m.mu must be held.
func (m *Manager) warnShadowedLocked(specs map[string]describedMember) {
	maps.DeleteFunc(m.shadowed, func(name string, _ bool) bool { _, is := specs[name]; return !is })
	for _, view := range m.views {
		if view == nil {
			continue
		}
		for i := range view.Members {
			s := &view.Members[i]
			if m.shadowed[s.Name] || reflect.DeepEqual(specs[s.Name].Object, s.Object) {
				continue
			}
			m.shadowed[s.Name] = true
			m.opts.Logger.Warn("two sources describe the member: the first one counts", "member", s.Name,
				"used", describes(specs[s.Name].Object), "ignored", describes(s.Object))
		}
	}
}

// describes names what describes a member on the hub.
func describes(o *corev1.ObjectReference) string {
	if o == nil {
		return "configuration"
	}
	return strings.Trim(o.Kind+" "+o.Namespace+"/"+o.Name, " /")
}

// reconcile lets members join, change and leave. A member that was recreated
// under its name joins when the old one has left.
func (m *Manager) reconcile(ctx context.Context, wg *sync.WaitGroup) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.viewsPending = false
	specs, _, complete := m.specsLocked()
	m.warnShadowedLocked(specs)
	for name, mb := range m.members {
		spec, named := specs[name]
		switch {
		case named && spec.sameMember(mb.currentSpec()):
			continue
		case named && spec.early: // whose the name is, is not known yet
			delete(specs, name)
			continue
		case !named && !m.gaveUpLocked(mb.source, name):
			continue
		}
		mb.leaving.Store(true)
		mb.leave()
		m.servers.Remove(mb)
		m.leaving[name] = mb
		delete(m.members, name)
	}
	for name, spec := range specs {
		if mb, ok := m.members[name]; ok {
			mb.source = spec.source
			mb.update(spec.Spec)
			continue
		}
		if spec.early && spec.Object != nil {
			continue // it has the name only if no earlier source has
		}
		before := m.leaving[name]
		mb := newMember(m, spec.Spec)
		mb.source = spec.source
		m.adoptLocked(mb)
		var mctx context.Context
		mctx, mb.leave = context.WithCancel(ctx)
		m.members[name] = mb
		m.servers.Add(mb)
		wg.Go(func() {
			if before != nil {
				<-before.done
			}
			mb.run(mctx)
		})
	}
	m.dropLoadedLocked(specs, complete)
	for name, mb := range m.leaving {
		select {
		case <-mb.done:
			delete(m.leaving, name)
		default:
		}
	}
}

// gaveUpLocked reports whether a source says that a member that it does not name has gone. m.mu must be held.
func (m *Manager) gaveUpLocked(source int, name string) bool {
	view := m.views[source]
	if view == nil || !view.Partial {
		return view != nil
	}
	_, left := slices.BinarySearch(view.Left, name)
	return left
}

func (mb *member) currentSpec() Spec {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return mb.spec
}

// currentMembers returns the members in no order.
func (m *Manager) currentMembers() []*member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.AppendSeq(make([]*member, 0, len(m.members)), maps.Values(m.members))
}

// sortedMembers returns the members by name.
func (m *Manager) sortedMembers() []*member {
	out := m.currentMembers()
	slices.SortFunc(out, func(a, b *member) int { return strings.Compare(a.name, b.name) })
	return out
}

// Members returns what is known of every member, by name, with their scopes.
func (m *Manager) Members() []MemberStatus {
	out, _ := m.Select(MemberQuery{Details: true})
	return out
}

// Known reports whether readers of the index see all members: every source has said which there are, as far
// as it may know. Until then, what the index does not show may well be.
func (m *Manager) Known() bool {
	m.mu.Lock()
	specs, spoken, _ := m.specsLocked()
	pending := m.viewsPending
	m.mu.Unlock()
	if !spoken || pending {
		return false
	}
	snap := m.opts.Index.Snapshot()
	for name, spec := range specs {
		if _, known := snap.Member(name); !known && spec.inFleet() {
			return false
		}
	}
	return true
}

// Ready reports whether every member has synced, is refused for a reason that
// does not pass by itself, or has been given up on, and readers of the index see it; otherwise
// which members, or what else, are waited for.
func (m *Manager) Ready() (bool, []string) {
	m.mu.Lock()
	_, spoken, _ := m.specsLocked()
	pending := m.viewsPending
	m.mu.Unlock()
	if !spoken || pending {
		return false, []string{"member sources"}
	}
	var waiting []string
	for _, mb := range m.sortedMembers() {
		mb.checkSynced()
		if !mb.synced.Load() && !mb.permanentlyRefused() && !mb.givenUp() {
			waiting = append(waiting, mb.name)
		}
	}
	if !m.shown(len(waiting) == 0) && len(waiting) == 0 {
		waiting = []string{"what was read to be on disk"}
	}
	return len(waiting) == 0, waiting
}

// shown reports whether readers see the index as it was when every member had synced: they do not
// while its commits are held.
func (m *Manager) shown(synced bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !synced:
		m.readyAt = 0
	case m.readyAt == 0:
		m.readyAt = m.opts.Index.Newest().Revision()
	}
	return synced && m.opts.Index.Snapshot().Revision() >= m.readyAt
}

// permanentlyRefused reports whether the member stays refused until something is changed.
func (mb *member) permanentlyRefused() bool {
	contact, reason, _, _ := mb.conn.state()
	return contact == connection.Refused && !reason.Transient()
}

// Spec is one member as a source describes it.
type Spec struct {
	Name string // <namespace>/<name> of its Cluster
	// UID is that of its Cluster; another UID under the same name is another
	// member. Empty while the source does not know it.
	UID    string
	Labels []aggregate.Label
	// Cluster is what policies may read of its Cluster besides the labels, bounded.
	Cluster aggregate.Cluster

	// Kubeconfig is how to reach the member, as found: it is checked before
	// use. Empty while there is none; Refused then says why.
	Kubeconfig []byte
	// Agent is set for a member that is reached by the connections that its agent opens, instead of by a
	// kubeconfig. Its UID must be known.
	Agent bool
	// Credentials names where Kubeconfig is from, as "Secret fleet/eu-1-kubeconfig"; it may be
	// empty.
	Credentials string
	// Write is with which other credentials the member is written to; nil: with Kubeconfig.
	Write *WriteAccess
	// Trusted is set for credentials that federator's operator gave it
	// directly, such as its own service account's: loopback addresses are
	// allowed for it. All other rules for kubeconfigs of a hub apply.
	Trusted bool
	// Own is set for contexts of a person's own kubeconfig, and never for a hub's
	// Secret: its exec plugin runs, and insecure-skip-tls-verify is honoured.
	Own bool
	// Plugin is set where the kubeconfig's exec plugin is the operator's own choice, which only
	// its parameters come from the hub of: it runs.
	Plugin bool

	// Refused says why the member is not connected to although it is known. A
	// member that was connected keeps its objects, Stale.
	Refused *connection.Refusal
	// Uninitialized is set while the control plane has never been up: such a
	// cluster is known, and does not belong to the fleet yet.
	Uninitialized bool
	// ReadOnly members are never written to.
	ReadOnly bool
	// Object is what describes the member on the hub, for Events; nil: nothing does.
	Object *corev1.ObjectReference
	// Hold is why the member is not written to at the moment, although it is read as all
	// others are.
	Hold connection.Hold
	// Role is what this process is to the member, where several share a fleet.
	Role aggregate.Role
	// Upstream is set for a member that is read at another federator: its scopes are never in a better state than there. It
	// should be ReadOnly.
	Upstream *Upstream
}

// Upstream is what another federator says of a member of its own.
type Upstream struct {
	Member string   // as it is called there
	Via    []string // installations of federator between this one and the member, the nearest first
	Scopes string   // something about its scopes: where it is another, what the member serves is asked for again
}

// WriteAccess is with which credentials a member is written to.
type WriteAccess struct {
	Credentials string // as Spec.Credentials
	// Kubeconfig is as found: it is checked as that of the member is. One that is refused
	// prevents writes.
	Kubeconfig []byte
}

// inFleet reports whether the member belongs to the fleet. One that has not been
// reached or identified does: what it has is not known.
func (s Spec) inFleet() bool {
	return !s.Uninitialized && (s.Refused == nil || s.Refused.Reason != connection.NotInitialized)
}

// allowed is what the member's kubeconfig may ask for beyond the rules.
func (s *Spec) allowed() memberclient.Allowed {
	if s.Own {
		return memberclient.Own()
	}
	return memberclient.Allowed{Plugin: s.Plugin}
}

// sameMember reports whether two specs of one name are of one member. One that is not
// identified may be any.
func (s Spec) sameMember(other Spec) bool {
	return s.UID == other.UID || s.UID == "" || other.UID == ""
}

// View is what a source says of its members.
type View struct {
	Members []Spec
	// Partial is set where there may be others: a source does not say then that what it does not
	// name has gone. What it named before stays, and so does what an earlier process had read.
	Partial bool
	// Left are names, sorted, of members that leave also where Partial is set: other processes read them.
	Left []string
}

// Source finds members. Run calls set with the whole current view, first as
// soon as it is known and then whenever it changes, from one goroutine at a
// time, until ctx is done; it returns when all it started is gone. set does
// not block. An error ends the source: a transient failure is retried inside.
type Source interface {
	Run(ctx context.Context, set func(View)) error
}
