package clusterinformers

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/backoff"
	"federator.dev/federator/pkg/clusterinformers/internal/catalog"
	"federator.dev/federator/pkg/clusterinformers/internal/decode"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
	"federator.dev/federator/pkg/clusterinformers/internal/quota"
)

// informer keeps one scope of the index equal to what a member has of a kind.
// It has one part for the whole member or, when the kind is narrowed to
// namespaces, one for each.
type informer struct {
	member  *member
	kind    aggregate.Kind
	res     catalog.APIResource
	rule    KindRule
	rules   decode.Rules
	note    string // condition of the held version, "" when it is the fleet's
	scope   *aggregate.Scope
	log     *slog.Logger
	metrics *scopeMetrics

	upkeep int64 // bytes that the member is charged while the informer runs

	seen  int           // the member's resets when it was started
	delay time.Duration // before the first list

	encoding atomic.Int32 // decode.Encoding
	restarts atomic.Int64
	fallback atomic.Uint64
	heard    atomic.Int64 // unix nanoseconds of the last that the member said, 0: nothing
	rested   atomic.Bool  // the scope has come to rest once

	// items serialises the making of items, which parts share.
	items sync.Mutex

	// mu makes the parts one writer. Under it: what follows.
	mu         sync.Mutex
	parts      []*part
	stake      quota.Usage // in the member's account: what follows, and what parts are ahead
	objects    int64
	bytes      int64
	afforded   int64 // of upkeep, charged
	relists    map[string]int
	applied    string
	leftBefore int         // objects left out when last told of
	waiting    []time.Time // when the events were read that are not committed yet
}

func newInformer(m *member, kind aggregate.Kind, res catalog.APIResource, rule KindRule, note string) (*informer, error) {
	scope, err := m.manager.opts.Index.OpenScopeAs(m.name, kind, res.GVK.GroupVersion().String(), res.GVR.Resource)
	if err != nil {
		return nil, err
	}
	i := &informer{
		member: m, kind: kind, res: res, rule: rule, note: note, scope: scope,
		rules:   decode.Rules{Drop: splitPaths(rule.Drop), Redact: !m.manager.opts.KeepSecretValues && decode.Sensitive(kind)},
		log:     m.log.With("kind", kind),
		metrics: m.manager.metrics.scope(m.name, kind),
		relists: map[string]int{},
	}
	i.encoding.Store(int32(decode.JSON))
	if m.speaksProtobuf() && decode.Supports(res.GVK) {
		i.encoding.Store(int32(decode.Protobuf))
	}
	if !m.account.AddScope() {
		i.upkeep = informerBytes
	}
	objects, bytes := scope.Size()
	i.charge(objects, bytes)
	namespaces := []string{""}
	if res.Namespaced && len(rule.Namespaces) > 0 {
		namespaces = rule.Namespaces
	}
	for _, ns := range namespaces {
		i.parts = append(i.parts, newPart(i, ns))
	}
	return i, nil
}

// run follows the member until ctx is done, and then gives the scope up.
func (i *informer) run(ctx context.Context) {
	defer i.scope.Close()
	defer i.member.conn.over(string(i.kind))
	defer func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.member.account.RemoveScope(&i.stake)
		i.objects, i.bytes = 0, 0
	}()
	i.publishState()
	if backoff.Sleep(ctx, i.delay) != nil {
		return
	}
	if !i.afford(ctx) {
		return
	}
	var wg sync.WaitGroup
	for _, p := range i.parts {
		wg.Go(func() { i.guard(ctx, p) })
	}
	wg.Wait()
}

// afford charges the member for the informer itself, and waits until its budget is good
// for it: kinds without end cost, however little there is of each. It reports false when
// ctx has ended.
func (i *informer) afford(ctx context.Context) bool {
	for i.upkeep > 0 && !i.member.account.Charge(&i.stake, 0, i.upkeep) {
		for _, p := range i.parts {
			p.over = fmt.Sprintf("to follow one more kind takes %d bytes: %v", i.upkeep, errOverBudget)
			i.giveUp(p)
		}
		if backoff.Sleep(ctx, overBudgetFirst+rand.N(overBudgetStir)) != nil {
			return false
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.afforded = i.upkeep
	return true
}

// informerBytes is what an informer costs beside its objects, in bytes: goroutines, a
// request under way and its buffers.
const informerBytes = 96 << 10

const (
	panicFirst = time.Second
	panicMax   = time.Minute
)

// guard is the panic boundary of a part: whatever fails inside is counted,
// shown, and started anew after a while; nothing else is harmed.
func (i *informer) guard(ctx context.Context, p *part) {
	for delay := panicFirst; ctx.Err() == nil; delay = min(2*delay, panicMax) {
		err := safely(func() error { return p.run(ctx) })
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			delay = panicFirst
			continue
		}
		i.metrics.panics.Inc()
		i.log.Error("scope failed and is started anew", "error", err)
		i.member.conn.noteOf(i.kind, err)
		i.setPart(p, aggregate.Unknown, string(connection.Panicked))
		if backoff.Sleep(ctx, delay) != nil {
			return
		}
	}
}

// panicError is a panic of a worker, as an error.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

// safely turns a panic of f into its error.
func safely(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	return f()
}

// charge sets what the scope costs the member, and reports whether the member
// is within its budget. i.mu must be held, but in the constructor.
func (i *informer) charge(objects int, bytes int64) bool {
	i.metrics.objects.Set(float64(objects))
	i.metrics.bytes.Set(float64(bytes))
	if !i.member.account.Charge(&i.stake, int64(objects)-i.objects, bytes-i.bytes) {
		return false
	}
	i.objects, i.bytes = int64(objects), bytes
	return true
}

// commit publishes what the parts have put into the scope. i.mu must be held.
func (i *informer) commit() error {
	if _, err := i.scope.Commit(); err != nil {
		return err
	}
	now := time.Now()
	for _, t := range i.waiting {
		i.metrics.latency.Observe(now.Sub(t).Seconds())
	}
	i.waiting = i.waiting[:0]
	if !slices.ContainsFunc(i.parts, func(p *part) bool { return p.state == aggregate.Syncing || p.state == aggregate.Unknown }) {
		i.rested.Store(true)
	}
	if !i.charge(i.scope.Size()) {
		return errOverBudget
	}
	return nil
}

// setPart changes the state of one part, and so perhaps the scope's.
func (i *informer) setPart(p *part, state aggregate.State, reason string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.setPartLocked(p, state, reason)
	if err := i.commit(); err != nil {
		i.log.Debug("state is not published", "error", err)
	}
}

func (i *informer) setPartLocked(p *part, state aggregate.State, reason string) {
	p.state, p.reason = state, message.Clip(reason)
	i.scope.SetStatus(i.status())
}

// setNote changes the condition of the held version, which other members may
// have brought about.
func (i *informer) setNote(note string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.note == note {
		return
	}
	i.note = note
	i.scope.SetStatus(i.status())
	if err := i.commit(); err != nil {
		i.log.Debug("state is not published", "error", err)
	}
}

// publishState shows the scope as it starts.
func (i *informer) publishState() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.scope.SetStatus(i.status())
	if err := i.commit(); err != nil {
		i.log.Debug("state is not published", "error", err)
	}
}

// gravity orders states by how much they take away: the gravest state of a part
// is the scope's.
var gravity = map[aggregate.State]int{
	aggregate.Synced: 0, aggregate.Partial: 1, aggregate.Stale: 2, aggregate.Syncing: 3,
	aggregate.Unknown: 4, aggregate.NotServed: 5, aggregate.Forbidden: 6, aggregate.OverBudget: 7,
}

// status is the scope's status as it follows from the parts. i.mu must be held.
func (i *informer) status() aggregate.Status {
	worst := i.parts[0]
	for _, p := range i.parts[1:] {
		if gravity[p.state] > gravity[worst.state] {
			worst = p
		}
	}
	s := aggregate.Status{State: worst.state, Reason: worst.reason}
	if worst.namespace != "" && s.Reason != "" {
		s.Reason = "namespace " + worst.namespace + ": " + s.Reason
	}
	if s.State != aggregate.Synced {
		return s
	}
	var reasons []string
	for _, gap := range []string{i.rule.narrowed(i.res.Namespaced), i.leftOutNote()} {
		if gap != "" {
			s.State, reasons = aggregate.Partial, append(reasons, gap)
		}
	}
	if i.note != "" {
		reasons = append(reasons, i.note)
	}
	s.Reason = strings.Join(reasons, "; ")
	return s
}

// details returns what there is to know of the scope.
func (i *informer) details() ScopeStatus {
	objects, bytes := i.scope.Size()
	i.mu.Lock()
	defer i.mu.Unlock()
	st := i.status()
	out := ScopeStatus{
		Kind: i.kind, Version: i.res.GVK.GroupVersion().String(), State: st.State, Reason: st.Reason,
		Objects: objects, Bytes: bytes + i.afforded, LeftOut: i.leftOutCount(), LeftOutExample: i.leftOutExample().object, Applied: i.applied,
		Relists: map[string]int{}, Restarts: int(i.restarts.Load()),
		Encoding: decode.Encoding(i.encoding.Load()).String(), Fallbacks: i.fallback.Load(),
	}
	for cause, n := range i.relists {
		out.Relists[cause] = n
	}
	if ns := i.heard.Load(); ns != 0 {
		t := time.Unix(0, ns)
		out.Heard = &t
	}
	return out
}

// libraryMinor is the minor version of the Kubernetes types that protobuf is
// decoded by: that of k8s.io/api in go.mod.
const libraryMinor = 36

func newerThanLibrary(v string) bool {
	parsed, err := utilversion.ParseGeneric(v)
	return err != nil || parsed.Major() != 1 || parsed.Minor() > libraryMinor
}
