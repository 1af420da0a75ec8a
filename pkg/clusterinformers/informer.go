package clusterinformers

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/catalog"
	"federator.dev/federator/pkg/clusterinformers/internal/decode"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
	"federator.dev/federator/pkg/clusterinformers/internal/quota"
	"federator.dev/federator/pkg/tracing"
)

// informer keeps one scope of the index equal to what a member has of a kind.
// It has one listWatch for the entire member or, when the kind is narrowed to
// namespaces, one for each.
type informer struct {
	member   *member
	kind     aggregate.Kind
	resource unique.Handle[catalog.APIResource] // the same in most members
	rule     *KindRule
	note     string // condition of the held version, "" when it is the fleet's
	scope    *aggregate.Scope
	metrics  *scopeMetrics

	overhead int64 // bytes that the member is charged while the informer runs

	resets     int                    // the member's resets when it was started
	cluster    string                 // UID of the cluster that answered then; "" where it was not known
	servedText atomic.Pointer[string] // how the kind is served, for what is persisted
	continues  bool                   // what an earlier process has read

	ctx     context.Context // the member's
	ended   atomic.Bool     // end was called
	running atomic.Int32    // listWatches that have not ended
	done    chan struct{}   // closed when all have

	encoding atomic.Int32 // decode.Encoding
	restarts atomic.Int64
	fallback atomic.Uint64
	lastRead atomic.Int64 // unix nanoseconds of the last that the member said, 0: nothing
	synced   atomic.Bool  // the scope has synced or failed once
	read     atomic.Bool  // all of it was, as published

	// itemsMu serialises the making of items, which listWatches share.
	itemsMu sync.Mutex

	// mu makes the listWatches one writer. It guards what follows.
	mu              sync.Mutex
	listWatches     []*listWatch
	usage           quota.Usage // charged to the member: what follows, and what listWatches are ahead
	objects         int64
	bytes           int64
	overheadCharged int64 // bytes of overhead that the member is charged
	relists         [len(relistCauses)]uint32
	applied         string
	committed       string           // as applied, of what the index has
	leftOutReported bool             // something was left out when last counted
	stamps          []tracing.Stamp  // of changes that are not committed yet; none where nothing is traced
	traced          tracing.Exemplar // of the last commit
}

// newInformer opens the scope of a kind, and continues from how far it was read, as far as that is
// known and the member serves it as it did; "" lists. It ends with ctx, once end is called.
func newInformer(ctx context.Context, m *member, kind aggregate.Kind, res catalog.APIResource, rule KindRule, note, served string) (*informer, error) {
	scope, err := m.manager.opts.Index.OpenScopeAs(m.name, kind, res.GVK.GroupVersion().String(), res.GVR.Resource)
	if err != nil {
		return nil, err
	}
	i := &informer{
		ctx: ctx, member: m, kind: kind, resource: unique.Make(res), rule: &keepAll, note: note, scope: scope,
		metrics: m.manager.metrics.scope(m.name, kind),
		done:    make(chan struct{}),
	}
	if rule.narrows() {
		i.rule = &rule
	}
	parts := continued(scope, served)
	i.continues = len(parts) > 0
	i.encoding.Store(int32(decode.JSON))
	if m.speaksProtobuf() && !m.federated.Load() && decode.Supports(res.GVK) {
		i.encoding.Store(int32(decode.Protobuf))
	}
	if !m.quota.AddScope() {
		i.overhead = informerBytes
	}
	objects, bytes := scope.Size()
	i.chargeLocked(objects, bytes)
	namespaces := []string{""}
	if res.Namespaced && len(rule.Namespaces) > 0 {
		namespaces = rule.Namespaces
	}
	for _, ns := range namespaces {
		i.listWatches = append(i.listWatches, newListWatch(i, ns, held(parts, ns)))
	}
	i.running.Store(int32(len(i.listWatches)))
	return i, nil
}

// start keeps the scope up to date until stop is called.
func (i *informer) start(delay time.Duration) {
	i.publish()
	now := time.Now()
	for _, p := range i.listWatches {
		if delay > 0 {
			p.machine.Restart(now, delay)
		}
		p.task.Wake()
	}
}

// end ends the informer. done is closed once it has.
func (i *informer) end() {
	i.ended.Store(true)
	for _, p := range i.listWatches {
		p.cancel()
		p.task.Wake()
	}
}

// finish takes the end of a listWatch. The last one closes the scope.
func (i *informer) finish() {
	if i.running.Add(-1) > 0 {
		return
	}
	i.mu.Lock()
	i.member.quota.RemoveScope(&i.usage)
	i.objects, i.bytes = 0, 0
	i.mu.Unlock()
	i.member.conn.clearError(string(i.kind))
	i.scope.Close()
	close(i.done)
}

// chargeOverhead charges the member for the informer itself, and reports whether its budget is
// good for it: kinds without end cost, however little there is of each.
func (i *informer) chargeOverhead() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.overheadCharged < i.overhead && i.member.quota.Charge(&i.usage, 0, i.overhead) {
		i.overheadCharged = i.overhead
	}
	return i.overheadCharged == i.overhead
}

// informerBytes is what an informer costs in addition to its objects, in bytes: itself, an empty
// scope of the index, its watch and what of it is being read.
const informerBytes = 16 << 10

// panicError is a panic of a worker, as an error.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

// recoverPanic turns a panic of f into its error.
func recoverPanic(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	return f()
}

// relistedLocked counts a list by its cause. i.mu must be held.
func (i *informer) relistedLocked(cause string) {
	i.relists[relistCause(cause)]++
	i.metrics.relist(cause)
}

// res is the resource that is listed and watched.
func (i *informer) res() catalog.APIResource { return i.resource.Value() }

// log returns a logger that names the scope.
func (i *informer) log() *slog.Logger { return i.member.log.With("kind", i.kind) }

// chargeLocked sets what the scope costs the member, and reports whether the member
// is within its budget. i.mu must be held, but in the constructor.
func (i *informer) chargeLocked(objects int, bytes int64) bool {
	i.metrics.objects.Set(float64(objects))
	i.metrics.bytes.Set(float64(bytes))
	if !i.member.quota.Charge(&i.usage, int64(objects)-i.objects, bytes-i.bytes) {
		return false
	}
	i.objects, i.bytes = int64(objects), bytes
	return true
}

// commitLocked publishes what the listWatches have put into the scope. i.mu must be held.
func (i *informer) commitLocked() error {
	i.reachedLocked()
	changes := 0
	if len(i.stamps) > 0 {
		changes = i.scope.Pending()
	}
	revision, err := i.scope.Commit()
	if len(i.stamps) > 0 {
		i.traceLocked(revision, changes, err)
	}
	if err != nil {
		return err
	}
	i.committed = i.applied
	read := !slices.ContainsFunc(i.listWatches, func(p *listWatch) bool { return !p.statusLocked().Read() })
	if i.read.Store(read); read {
		i.synced.Store(true)
	}
	if !i.chargeLocked(i.scope.Size()) {
		return errOverBudget
	}
	return nil
}

// setState changes the state of one listWatch, and so perhaps the scope's.
func (i *informer) setState(p *listWatch, state aggregate.State, reason string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.showLocked(p, state, reason)
}

// showLocked is setState. i.mu must be held.
func (i *informer) showLocked(p *listWatch, state aggregate.State, reason string) {
	if p.state != state {
		p.since = time.Now()
	}
	p.state, p.reason = state, message.Clip(reason)
	p.loaded = p.loaded && state != aggregate.Synced
	i.publishLocked()
}

// statusLocked is the listWatch's part of the scope's status. p.informer.mu must be held.
func (p *listWatch) statusLocked() aggregate.Status {
	s := aggregate.Status{State: p.state, Reason: p.reason, Unread: p.loaded || p.state == aggregate.Unknown || p.state == aggregate.Syncing}
	if p.federated {
		return combine(s, p.upstream)
	}
	return s
}

// combine returns the status of what is read at another federator: it is never better than there.
func combine(own, there aggregate.Status) aggregate.Status {
	if statePrecedence[there.State] <= statePrecedence[own.State] {
		return own
	}
	s := aggregate.Status{State: there.State, Reason: "at its federator", Unread: own.Unread || !there.Read()}
	if there.Reason != "" {
		s.Reason = message.Clip(s.Reason + ": " + there.Reason)
	}
	return s
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
	i.publishLocked()
}

// publish shows the scope as it starts.
func (i *informer) publish() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.publishLocked()
}

// publishLocked publishes the scope's status. A budget that is exceeded is found out by the next
// commit of objects. i.mu must be held.
func (i *informer) publishLocked() {
	i.scope.SetStatus(i.statusLocked())
	if err := i.commitLocked(); err != nil {
		i.log().Debug("publishing the scope's state failed", "error", err)
	}
}

// statePrecedence orders states by how much they take away: the worst state of a
// listWatch is the scope's.
var statePrecedence = map[aggregate.State]int{
	aggregate.Synced: 0, aggregate.Partial: 1, aggregate.Stale: 2, aggregate.Syncing: 3,
	aggregate.Unknown: 4, aggregate.NotServed: 5, aggregate.Forbidden: 6, aggregate.OverBudget: 7,
}

// statusLocked is the scope's status as it follows from the listWatches. i.mu must be held.
func (i *informer) statusLocked() aggregate.Status {
	worst, s := i.listWatches[0], i.listWatches[0].statusLocked()
	for _, p := range i.listWatches[1:] {
		if is := p.statusLocked(); statePrecedence[is.State] > statePrecedence[s.State] {
			worst, s = p, is
		}
	}
	s.Unread = slices.ContainsFunc(i.listWatches, func(p *listWatch) bool { return !p.statusLocked().Read() })
	if worst.namespace != "" && s.Reason != "" {
		s.Reason = "namespace " + worst.namespace + ": " + s.Reason
	}
	if s.State != aggregate.Synced && s.State != aggregate.Partial {
		return s
	}
	var reasons []string
	if s.Reason != "" {
		reasons = append(reasons, s.Reason)
	}
	for _, gap := range []string{i.rule.narrowingNote(i.res().Namespaced), i.leftOutNoteLocked()} {
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

// scopeStatus returns what there is to know of the scope.
func (i *informer) scopeStatus() ScopeStatus {
	objects, bytes := i.scope.Size()
	i.mu.Lock()
	defer i.mu.Unlock()
	st := i.statusLocked()
	left, more := i.leftOutCountLocked()
	out := ScopeStatus{
		Kind: i.kind, Version: i.res().GVK.GroupVersion().String(), State: st.State, Reason: st.Reason,
		Objects: objects, Bytes: bytes + i.overheadCharged, LeftOut: left, LeftOutMore: more, LeftOutExample: i.leftOutExampleLocked().object, Applied: i.applied,
		Relists: map[string]int{}, Restarts: int(i.restarts.Load()),
		Encoding: decode.Encoding(i.encoding.Load()).String(), Fallbacks: i.fallback.Load(),
	}
	for cause, n := range i.relists {
		if n > 0 {
			out.Relists[relistCauses[cause]] = int(n)
		}
	}
	out.Proved = i.provedLocked()
	if ns := i.lastRead.Load(); ns != 0 {
		t := time.Unix(0, ns)
		out.LastContact = &t
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
