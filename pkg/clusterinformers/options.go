package clusterinformers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/audit"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/pkg/tracing"
)

// Options configure a Manager. Index, Sources and Logger are required; the
// zero value of every other field means the default that is named there.
type Options struct {
	Index   *aggregate.Index
	Sources []Source
	Logger  *slog.Logger
	Metrics prometheus.Registerer // nil: not exported

	Kinds   []KindRule         // nil: every kind that can be listed and watched, but Event and Lease
	Budget  Budget             // of each member
	Network connection.Network // where members may be
	Agents  Agents             // of members that are reached by their agents; nil: those are refused
	Held    []HeldVersion      // configured held versions

	// DiscoveryInterval is how often a member is discovered, in addition
	// to when a CustomResourceDefinition or APIService changes. 0: 1 minute.
	DiscoveryInterval time.Duration
	// ParallelSyncs bounds the large first lists under way at once over all members: one of
	// more than 64 KiB waits for others for 2 s at most. 0: 32.
	ParallelSyncs int
	// GiveUpAfter is when a member that has not synced no longer holds back
	// Ready. 0: 2 minutes.
	GiveUpAfter time.Duration
	// PingInterval and PingTimeout detect a connection that has gone silent.
	// 0: 3 s each.
	PingInterval, PingTimeout time.Duration
	// StockTransport reaches members by net/http instead of by a client for thousands of
	// watches.
	StockTransport bool
	// MetricsPerScope exports everything by kind, too: a kilobyte a scope and scrape.
	MetricsPerScope bool
	// Clock says what time it is, for freezes of members. nil: time.Now.
	Clock func() time.Time
	// Audit says how often what is held is compared with what members have, and what that may cost.
	Audit Audit
	// OnLoss is called when an audit has found that events were lost; it must not block. nil: it is
	// only logged, counted and shown.
	OnLoss func(Loss)
	// Installation is the ID of this installation, for other federators whose members are read. "": it has none.
	Installation string
	// KeepSecretValues turns the redaction of Secret and ConfigMap values off.
	KeepSecretValues bool
	// Tracer is told when changes were read, decoded and committed. nil: nobody is.
	Tracer *tracing.Tracer
	// TakeOver is called for a member that joins and that nothing was loaded of, before it is read, where several processes share
	// the fleet: it adds what another one holds of it to the index, Stale, with how far that was read, and returns of which kinds,
	// and when each was last known to be what the member has (zero: never). It returns soon once ctx is done. nil: there is no
	// other process, and nobody goes on with what is held here.
	TakeOver func(ctx context.Context, t TakeOver) map[aggregate.Kind]time.Time
}

// Agents has the connections that the agents of members have opened.
type Agents interface {
	// DialAgent returns a connection to the agent of a member, by name and UID, over which the agent serves HTTP/2.
	// The agent was verified to be that of the member. Close does not wait for the agent.
	DialAgent(ctx context.Context, member, uid string) (net.Conn, error)
}

// KindRule selects kinds, and what of them is kept. The first rule that matches
// a kind decides.
type KindRule struct {
	// Kind is a kind as kubectl writes it ("Pod", "Deployment.apps"), "*" for
	// every kind, or "*.<group>" for every kind of a group.
	Kind string `json:"kind"`
	// Exclude leaves the kind out.
	Exclude bool `json:"exclude,omitempty"`
	// Namespaces, Labels and Fields narrow what is listed and watched; Drop
	// names field paths ("status", "metadata.annotations") that are not kept.
	// Each makes the scope Partial.
	Namespaces []string `json:"namespaces,omitempty"`
	Labels     string   `json:"labels,omitempty"`
	Fields     string   `json:"fields,omitempty"`
	Drop       []string `json:"drop,omitempty"`
	// TTL is how long an object is kept after it last changed, and Share how much
	// of the member's budget the kind may have, in percent: what is older leaves.
	// Each makes the scope Partial. 0 means no bound, of Events an hour and 10%.
	TTL   time.Duration `json:"ttl,omitempty"`
	Share int           `json:"share,omitempty"`
}

// HeldVersion fixes the version that a kind is held at.
type HeldVersion struct {
	Kind    aggregate.Kind `json:"kind"`
	Version string         `json:"version"` // e.g. "v1"
}

// Budget bounds what one member may cost. A scope that would exceed it is given
// up, OverBudget. One that holds no more than its equal share stays, so that a
// member may cost up to twice its budget while its scopes compete.
type Budget struct {
	Bytes         int64 `json:"bytes,omitempty"`         // heap bytes of its objects; 0: 4 GiB
	Objects       int   `json:"objects,omitempty"`       // 0: 2,000,000
	ResponseBytes int64 `json:"responseBytes,omitempty"` // one list page or watch event; 0: 256 MiB

	// FleetBytes bounds the heap bytes of all members together; 0: nothing does. What
	// exceeds it is emptied where a member holds more than its equal share.
	FleetBytes int64 `json:"fleetBytes,omitempty"`
}

// Audit configures the comparison of what is held with what members have.
type Audit struct {
	// Off turns it off, but for audits that somebody asks for. What an earlier process has held is
	// then taken for what the member has as soon as it is watched.
	Off bool
	// Interval is how often every kind of every member is compared, and FirstTier how often those are
	// that decide on security or that policies read. 0: 15 minutes, 2 minutes. Members that are reached by an
	// agent are compared a twelfth as often: their links may be paid for by the byte.
	Interval, FirstTier time.Duration
	// RequestsPerSecond and BytesPerSecond bound what audits cost one member, and
	// FleetRequestsPerSecond all of them together. Where they do not suffice the intervals are longer. 0: 2, 1 MiB, 200.
	RequestsPerSecond, FleetRequestsPerSecond float64
	BytesPerSecond                            int64
	// Sample is of how many objects of a kind the content is compared, other ones each time. 0: 50;
	// below 0: none.
	Sample int
}

// agentAudits is how many times as long as usual the intervals of a member are that is reached by an agent. Audits at the
// usual ones are some 30 MB a day of a member that is idle, and all else of it is two.
const agentAudits = 12

// auditPlan says how often the member is audited.
func (mb *member) auditPlan() audit.Plan {
	o := &mb.manager.opts.Audit
	if mb.byAgent() {
		return audit.Plan{Interval: agentAudits * o.Interval, FirstTier: agentAudits * o.FirstTier}
	}
	return audit.Plan{Interval: o.Interval, FirstTier: o.FirstTier}
}

// withDefaults fills in the defaults, and returns what is wrong.
func (a Audit) withDefaults() (Audit, error) {
	if a.Interval < 0 || a.FirstTier < 0 || a.RequestsPerSecond < 0 || a.FleetRequestsPerSecond < 0 || a.BytesPerSecond < 0 {
		return a, errors.New("what Audit has must not be negative, but for Sample")
	}
	if n := a.RequestsPerSecond + a.FleetRequestsPerSecond; math.IsNaN(n) || math.IsInf(n, 0) {
		return a, errors.New("what Audit has a second must be a number")
	}
	a.Interval, a.FirstTier = cmp.Or(a.Interval, defaultAuditInterval), cmp.Or(a.FirstTier, defaultAuditFirstTier)
	a.RequestsPerSecond, a.FleetRequestsPerSecond = cmp.Or(a.RequestsPerSecond, defaultAuditRequests), cmp.Or(a.FleetRequestsPerSecond, defaultAuditFleetRequests)
	a.BytesPerSecond, a.Sample = cmp.Or(a.BytesPerSecond, defaultAuditBytes), cmp.Or(a.Sample, defaultAuditSample)
	return a, nil
}

const (
	defaultAuditInterval      = 15 * time.Minute
	defaultAuditFirstTier     = 2 * time.Minute
	defaultAuditRequests      = 2
	defaultAuditFleetRequests = 200
	defaultAuditBytes         = 1 << 20
	defaultAuditSample        = 50
)

const (
	defaultDiscoveryInterval = time.Minute
	defaultParallelSyncs     = 32
	defaultGiveUpAfter       = 2 * time.Minute
	defaultBudgetBytes       = 4 << 30
	defaultBudgetObjects     = 2_000_000
	defaultResponseBytes     = 256 << 20
)

// noisyKinds are the kinds that are off unless a rule names them: they change
// without pause and few policies read them.
var noisyKinds = []aggregate.Kind{"Event", "Event.events.k8s.io", "Lease.coordination.k8s.io"}

// validate returns the options with defaults filled in, or all that is wrong
// with them.
func (o Options) validate() (Options, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Index == nil {
		bad("Index is required")
	}
	if o.Logger == nil {
		bad("Logger is required")
	}
	if len(o.Sources) == 0 {
		bad("at least one of Sources is required")
	}
	if err := ValidateKinds(o.Kinds, o.Held); err != nil {
		errs = append(errs, err)
	}
	var err error
	if o.Audit, err = o.Audit.withDefaults(); err != nil {
		errs = append(errs, err)
	}
	for _, d := range []struct {
		name string
		at   *time.Duration
		def  time.Duration
	}{
		{"DiscoveryInterval", &o.DiscoveryInterval, defaultDiscoveryInterval},
		{"GiveUpAfter", &o.GiveUpAfter, defaultGiveUpAfter},
		{"PingInterval", &o.PingInterval, memberclient.DefaultPingInterval},
		{"PingTimeout", &o.PingTimeout, memberclient.DefaultPingTimeout},
	} {
		if *d.at < 0 {
			bad("%s is %s, must not be negative", d.name, *d.at)
		}
		if *d.at == 0 {
			*d.at = d.def
		}
	}
	if o.ParallelSyncs < 0 || o.Budget.Bytes < 0 || o.Budget.Objects < 0 || o.Budget.ResponseBytes < 0 || o.Budget.FleetBytes < 0 {
		bad("ParallelSyncs and Budget must not be negative")
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.ParallelSyncs == 0 {
		o.ParallelSyncs = defaultParallelSyncs
	}
	if o.Budget.Bytes == 0 {
		o.Budget.Bytes = defaultBudgetBytes
	}
	if o.Budget.Objects == 0 {
		o.Budget.Objects = defaultBudgetObjects
	}
	if o.Budget.ResponseBytes == 0 {
		o.Budget.ResponseBytes = defaultResponseBytes
	}
	if len(errs) > 0 {
		return o, fmt.Errorf("clusterinformers: %w", errors.Join(errs...))
	}
	return o, nil
}

// ValidateKinds checks the rules and held versions of a configuration and
// returns all that is wrong with them.
func ValidateKinds(rules []KindRule, held []HeldVersion) error {
	var errs []error
	for i, r := range rules {
		at := fmt.Sprintf("kinds[%d]", i)
		if r.Kind == "" {
			errs = append(errs, fmt.Errorf("%s.kind is required", at))
		}
		if strings.Contains(strings.TrimPrefix(r.Kind, "*"), "*") || strings.HasPrefix(r.Kind, "*") && r.Kind != "*" && !strings.HasPrefix(r.Kind, "*.") {
			errs = append(errs, fmt.Errorf("%s.kind %q: a * stands alone or before a group", at, r.Kind))
		}
		if _, err := labels.Parse(r.Labels); err != nil {
			errs = append(errs, fmt.Errorf("%s.labels: %w", at, err))
		}
		if _, err := fields.ParseSelector(r.Fields); err != nil {
			errs = append(errs, fmt.Errorf("%s.fields: %w", at, err))
		}
		if r.TTL < 0 || r.TTL > 0 && r.TTL < time.Second {
			errs = append(errs, fmt.Errorf("%s.ttl: %s is less than a second", at, r.TTL))
		}
		if r.Share < 0 || r.Share > 100 {
			errs = append(errs, fmt.Errorf("%s.share: %d is not a percentage", at, r.Share))
		}
		for _, p := range r.Drop {
			if p == "" || slices.Contains(strings.Split(p, "."), "") || p == "metadata" || p == "apiVersion" || p == "kind" ||
				p == "metadata.name" || p == "metadata.namespace" || p == "metadata.uid" || p == "metadata.resourceVersion" {
				errs = append(errs, fmt.Errorf("%s.drop: %q is not a field that can be dropped", at, p))
			}
		}
	}
	for i, h := range held {
		if h.Kind == "" || h.Version == "" || strings.Contains(h.Version, "/") {
			errs = append(errs, fmt.Errorf("held[%d]: kind and version (without group) are required", i))
		}
	}
	return errors.Join(errs...)
}

// heldVersions are the configured held versions by kind.
func (o *Options) heldVersions() map[aggregate.Kind]string {
	out := make(map[aggregate.Kind]string, len(o.Held))
	for _, h := range o.Held {
		out[h.Kind] = h.Version
	}
	return out
}

// matchRule returns the first rule that matches a kind.
func (o *Options) matchRule(kind aggregate.Kind) (KindRule, bool) {
	_, group := kind.Split()
	for _, r := range o.Kinds {
		named := r.Kind == string(kind)
		if named || r.Kind == "*" && !slices.Contains(noisyKinds, kind) || r.Kind == "*."+group && group != "" && !slices.Contains(noisyKinds, kind) {
			return r.withDefaults(kind), true
		}
	}
	return KindRule{}, false
}

// Bounds of Events, which come without end, and which members forget after an hour
// themselves unless they lie.
const (
	eventTTL   = time.Hour
	eventShare = 10
)

// withDefaults fills in the bounds of kinds that have some by default.
func (r KindRule) withDefaults(kind aggregate.Kind) KindRule {
	if kind == "Event" || kind == "Event.events.k8s.io" {
		r.TTL, r.Share = cmp.Or(r.TTL, eventTTL), cmp.Or(r.Share, eventShare)
	}
	return r
}

// keepsUnmatched reports whether a kind is kept that no rule matches.
func (o *Options) keepsUnmatched(kind aggregate.Kind) bool {
	return o.Kinds == nil && !slices.Contains(noisyKinds, kind)
}

// narrowingNote says in words what a rule leaves out of a kind, "" when it keeps
// everything.
func (r KindRule) narrowingNote(namespaced bool) string {
	var parts []string
	if namespaced && len(r.Namespaces) > 0 {
		parts = append(parts, "only namespaces "+strings.Join(r.Namespaces, ","))
	}
	if r.Labels != "" {
		parts = append(parts, "only labels "+r.Labels)
	}
	if r.Fields != "" {
		parts = append(parts, "only fields "+r.Fields)
	}
	if len(r.Drop) > 0 {
		parts = append(parts, "without "+strings.Join(r.Drop, ","))
	}
	if bounds := r.retentionNote(); bounds != "" {
		parts = append(parts, bounds)
	}
	return strings.Join(parts, "; ")
}

// keepAll is the rule of kinds that no rule narrows.
var keepAll KindRule

// narrows reports whether less is kept than all.
func (r *KindRule) narrows() bool {
	return len(r.Namespaces) > 0 || r.Labels != "" || r.Fields != "" || len(r.Drop) > 0 || r.TTL > 0 || r.Share > 0
}

// requiredKinds are the kinds that are read, in addition to those that the rules of the options
// select, and since when each is.
type requiredKinds struct {
	mu    sync.RWMutex
	since map[aggregate.Kind]time.Time
}

// set exchanges the kinds and reports whether there are others than before, and
// whether some are new.
func (w *requiredKinds) set(kinds []aggregate.Kind, now time.Time) (changed, added bool) {
	next := make(map[aggregate.Kind]time.Time, len(kinds))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range kinds {
		since, known := w.since[kind]
		if !known {
			since, added = now, true
		}
		next[kind] = since
	}
	changed = added || len(next) != len(w.since)
	w.since = next
	return changed, added
}

// sinceWhen returns since when a kind has been required, and whether it is.
func (w *requiredKinds) sinceWhen(kind aggregate.Kind) (time.Time, bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	since, ok := w.since[kind]
	return since, ok
}

func (w *requiredKinds) kinds() []aggregate.Kind {
	w.mu.RLock()
	defer w.mu.RUnlock()
	kinds := make([]aggregate.Kind, 0, len(w.since))
	for kind := range w.since {
		kinds = append(kinds, kind)
	}
	return kinds
}

// RequireKinds sets the kinds that are read, such as by the policies that are loaded;
// kinds that are not named any more are no longer required. They are
// held as though rules for them came after those of Options.Kinds: one that
// excludes a kind, or narrows it, holds. In a member that does not serve a kind
// that is required, or that a rule names without *, the kind's scope is NotServed,
// which means known to be empty; it is so once the member was discovered after
// the kind was required. Scopes of kinds that are not required and no rule selects are
// taken out of the index. RequireKinds may be called before Run, and at any time.
func (m *Manager) RequireKinds(kinds []aggregate.Kind) {
	changed, added := m.required.set(kinds, time.Now())
	if !changed {
		return
	}
	m.catalog.Notify()
	if !added {
		return
	}
	for _, mb := range m.sortedMembers() {
		mb.triggerDiscovery()
	}
}

// Requires reports whether a kind is required.
func (m *Manager) Requires(kind aggregate.Kind) bool {
	_, is := m.required.sinceWhen(kind)
	return is
}

// rule returns the rule that decides on a kind, and whether the kind is kept.
func (m *Manager) rule(kind aggregate.Kind) (KindRule, bool) {
	if r, ok := m.opts.matchRule(kind); ok {
		return r, !r.Exclude
	}
	_, wanted := m.required.sinceWhen(kind)
	return KindRule{}, wanted || m.opts.keepsUnmatched(kind)
}

// namedKinds are the kinds that must have a scope in every member, served or not.
func (m *Manager) namedKinds() []aggregate.Kind {
	kinds := m.required.kinds()
	for _, r := range m.opts.Kinds {
		if kind := aggregate.Kind(r.Kind); r.Kind[0] != '*' && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}
