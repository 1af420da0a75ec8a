package clusterinformers

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/catalog"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
	"federator.dev/federator/pkg/clusterinformers/internal/quota"
	"federator.dev/federator/pkg/clusterinformers/internal/runqueue"
	"federator.dev/federator/pkg/clusterinformers/internal/upstream"
)

// member keeps the index equal to one member. Everything it starts ends with run.
type member struct {
	manager            *Manager
	name               string
	log                *slog.Logger
	conn               *conn
	quota              quota.Member
	listSlots          quota.MemberSlots // its share of the first lists
	tasks              *runqueue.Group   // of its scopes
	openers            *openers
	auditor            *auditor
	discoveryTriggered trigger.Trigger // discovery is worth a look
	specChanged        trigger.Trigger // spec is another
	done               chan struct{}   // closed when run has returned
	leave              context.CancelFunc
	leaving            atomic.Bool // the Cluster is gone: so will be all that is held
	source             int         // that describes it; of the manager's mu
	startSlots         quota.MemberSlots
	start              atomic.Pointer[quota.Slot]

	writer     atomic.Pointer[writer] // with credentials of its own; nil: there are none
	clusterUID atomic.Pointer[string] // identity, for others

	version  atomic.Pointer[string] // of its API server
	stock    atomic.Pointer[string] // why it is reached by net/http; nil: it is not, or as configured
	identity string                 // UID of kube-system; conn.run's goroutine only
	synced   atomic.Bool            // discovered, and every scope has synced or failed once

	mu             sync.Mutex
	joined         time.Time // when it came, or had its turn to connect; zero while it waits for that
	unreadSince    time.Time // since when not all of it was read, in its turn; zero where it was
	isGivenUp      bool      // as published
	spec           Spec
	indexedUID     *string // the UID that it joined the index with; nil before
	usedKubeconfig []byte  // the kubeconfig in use
	usesAgent      bool    // its agent is
	informers      map[aggregate.Kind]*runningInformer
	resources      catalog.APIResources
	discovery      string                              // resources as text, for another process; "" where nothing is persisted
	absent         map[aggregate.Kind]aggregate.Status // scopes without an informer, as published
	proved         map[aggregate.Kind]time.Time        // as informers knew when all were ended; nil before
	resets         int                                 // times that another cluster answered, or an earlier state of it
	resetAt        time.Time                           // of the last restartScopes
	resetDelay     time.Duration                       // of the first lists after it

	definitions definitions
	loaded      atomic.Pointer[loaded] // by an earlier process, or taken over from another; nil: nothing

	federated atomic.Bool                    // it is read at another federator
	facts     atomic.Pointer[upstream.Facts] // what that has said last of what it serves; nil: nothing

	// What discovery last found in addition to the resources; loop's goroutine only.
	discoveredAt     time.Time                 // when discovery started; zero once that is not fresh
	discoveredResets int                       // resets at that time
	unavailable      map[string]bool           // groups whose discovery failed
	relisting        map[aggregate.Kind]bool   // whose informers were ended to list again
	truncated        bool                      // there may be more kinds than resources has
	changeLimiter    *rate.Limiter             // of others than the one before
	nextDiscovery    time.Time                 // when the limiter admits the next discovery
	rejected         map[aggregate.Kind]string // kinds that it serves in a way that is not believed, and why
	findings         int                       // discoveries that have found, or made known, something else
	reconciled       reconciled                // the last time
	reconcileFailed  bool                      // something of it is to be done again
	publishedVersion string                    // of its API server, as the index has it
}

// runningInformer is an informer and how to end it.
type runningInformer struct {
	*informer

	served    serving   // when it was started
	changedAt time.Time // when served was seen to be another; zero when it is not
}

// setServed takes note of how the kind is served. mb.mu must be held, but before the informer runs.
func (r *runningInformer) setServed(s serving) {
	if text := s.text(r.cluster); r.served != s || r.servedText.Load() == nil {
		r.servedText.Store(&text)
	}
	r.served = s
}

func newMember(m *Manager, spec Spec) *member {
	mb := &member{
		manager: m, name: spec.Name, log: m.opts.Logger.With("member", spec.Name), spec: spec,
		quota: quota.Member{Limits: quota.Limits{Objects: int64(m.opts.Budget.Objects), Bytes: m.opts.Budget.Bytes}, Fleet: m.fleetQuota},
		tasks: m.queue.Group(), openers: newOpeners(),
		discoveryTriggered: trigger.New(), specChanged: trigger.New(), done: make(chan struct{}),
		joined: time.Now(), informers: map[aggregate.Kind]*runningInformer{}, absent: map[aggregate.Kind]aggregate.Status{}, relisting: map[aggregate.Kind]bool{},
		changeLimiter: rate.NewLimiter(rate.Every(changeInterval), changeBurst),
	}
	mb.federated.Store(spec.Upstream != nil)
	mb.auditor = newAuditor(mb)
	mb.conn = newConn(mb.identify, mb.wakeScopes, m.lateness.Prolong)
	mb.conn.verify, mb.conn.away = mb.verifyOrder, &m.away
	mb.conn.admit, mb.conn.refused = mb.begin, mb.endStart
	return mb
}

// maxStarting is how many members connect for the first time and list all that they have at a
// time: one after the other they are there sooner, and cost less, than all at once.
const maxStarting = 64

// begin waits for the member's turn to start. It is over once the member has synced, or makes no
// progress.
func (mb *member) begin(ctx context.Context) error {
	mb.setJoined(time.Time{})
	slot, err := mb.manager.starts.Acquire(ctx, &mb.startSlots)
	if err != nil {
		return err
	}
	mb.setJoined(time.Now())
	mb.start.Store(slot)
	return nil
}

func (mb *member) setJoined(at time.Time) {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	mb.joined = at
}

// progressed keeps the member's turn: a scope that has synced was run.
func (mb *member) progressed() {
	mb.start.Load().Progress()
	mb.checkSynced()
}

// endStart gives the turn to another member.
func (mb *member) endStart() { mb.start.Load().Release() }

// givenUp reports whether the member has had its time to sync.
func (mb *member) givenUp() bool {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return !mb.joined.IsZero() && time.Since(mb.joined) >= mb.manager.opts.GiveUpAfter
}

// reviewGivenUp publishes whether the member has had its time to be read, and was not: it is away, or
// some scope was never read. It returns when to look again. It belongs to the member's loop.
func (mb *member) reviewGivenUp(known connectionState, now time.Time) time.Duration {
	most, refused := mb.manager.opts.GiveUpAfter, mb.permanentlyRefused()
	mb.mu.Lock()
	unread := known.state != connection.Connected || mb.findings == 0 || mb.truncated || len(mb.unavailable) > 0
	for _, r := range mb.informers {
		unread = unread || !r.read.Load()
	}
	for _, status := range mb.absent {
		unread = unread || !status.Read()
	}
	switch {
	case !unread, mb.joined.IsZero(): // it waits for its turn
		mb.unreadSince = time.Time{}
	case mb.unreadSince.IsZero():
		mb.unreadSince = now
	}
	left := most
	if !mb.unreadSince.IsZero() {
		left -= now.Sub(mb.unreadSince)
	}
	is := refused || left <= 0
	changed, spec := is != mb.isGivenUp, mb.spec
	mb.isGivenUp = is
	mb.mu.Unlock()
	if changed && spec.inFleet() {
		if is {
			mb.log.Warn("policies do not wait for the member any longer: not all of it could be read", "within", most)
		}
		mb.publish(spec)
	}
	if left <= 0 {
		return most
	}
	return left
}

// run keeps the index equal to the member until ctx is done. When it is leaving, its
// objects are removed.
func (mb *member) run(ctx context.Context) {
	defer close(mb.done)
	defer mb.manager.catalog.Set(mb.name, nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { mb.guard(ctx, mb.conn.run) })
	wg.Go(func() { mb.auditor.run(ctx) })
	mb.takeOver(ctx)
	mb.guard(ctx, mb.loop)
	mb.conn.hangUp()
	mb.stopAll()
	mb.endStart()
	mb.openers.running.Wait()
	if mb.leaving.Load() {
		mb.manager.opts.Index.RemoveMember(mb.name)
		mb.manager.metrics.forget(mb.name, "")
	}
	mb.conn.setClient(nil, connection.Refuse(connection.Deleting, "the member has left"))
	mb.writer.Swap(nil).end()
	if mb.leaving.Load() {
		mb.log.Info("member removed")
	}
}

// guard is the panic boundary of the member's own goroutines: the member is
// refused for a while, and then reconnected.
func (mb *member) guard(ctx context.Context, f func(context.Context)) {
	for delay := minPanicDelay; ctx.Err() == nil; delay = min(2*delay, maxPanicDelay) {
		err := recoverPanic(func() error { f(ctx); return nil })
		if err == nil || ctx.Err() != nil {
			return
		}
		mb.manager.metrics.member(mb.name).panics.Inc()
		mb.log.Error("member failed, restarting it", "error", err)
		mb.conn.recordError(err)
		mb.setUsedKubeconfig(nil)
		mb.conn.setClient(nil, connection.Refuse(connection.Panicked, "%v", err))
		if sleep.For(ctx, delay) != nil {
			return
		}
		mb.triggerSpec()
	}
}

// connectionState is a state of contact that the member has acted on.
type connectionState struct {
	state  connection.State
	reason connection.Reason
}

// triggerDiscovery schedules a discovery.
func (mb *member) triggerDiscovery() {
	mb.discoveryTriggered.Fire()
}

// update gives the member its newest spec.
func (mb *member) update(spec Spec) {
	mb.mu.Lock()
	if spec.UID == "" {
		spec.UID = mb.spec.UID
	}
	same, before, told := reflect.DeepEqual(mb.spec, spec), mb.spec.Hold, mb.spec.Upstream
	mb.spec = spec
	mb.mu.Unlock()
	mb.federated.Store(spec.Upstream != nil)
	if spec.Upstream != nil && (told == nil || told.Scopes != spec.Upstream.Scopes) {
		mb.triggerDiscovery()
	}
	mb.logHold(before, spec.Hold)
	if !same {
		mb.triggerSpec()
	}
}

// logHold logs that the member is not written to, or is again.
func (mb *member) logHold(before, after connection.Hold) {
	now := mb.manager.opts.Clock()
	was, is := before.At(now), after.At(now)
	switch {
	case is != nil && (was == nil || *was != *is):
		mb.log.Info("writes to the member are held", "reason", is.Reason, "detail", is.Message)
	case is == nil && was != nil:
		mb.log.Info("writes to the member are no longer held", "reason", was.Reason)
	}
}

// triggerSpec has the newest spec taken.
func (mb *member) triggerSpec() {
	mb.specChanged.Fire()
}

// applySpec acts on the newest spec: joins the index, takes over new labels and
// exchanges the access when the kubeconfig is another one.
func (mb *member) applySpec(context.Context) {
	mb.mu.Lock()
	spec, used := mb.spec, mb.usedKubeconfig
	mb.mu.Unlock()
	if spec.inFleet() {
		mb.publish(spec)
	}
	mb.applyWriteAccess(spec)
	if spec.Refused != nil {
		mb.setUsedKubeconfig(nil)
		mb.conn.setClient(nil, spec.Refused)
		return
	}
	if spec.Agent {
		mb.applyAgent(spec)
		return
	}
	if used != nil && string(used) == string(spec.Kubeconfig) {
		return
	}
	cfg, refusal := memberclient.ParseKubeconfig(spec.Kubeconfig, spec.allowed())
	if refusal != nil {
		mb.setUsedKubeconfig(nil)
		mb.conn.setClient(nil, refusal)
		mb.log.Warn("member refused", "reason", refusal.Reason, "detail", refusal.Message)
		return
	}
	mb.stock.Store(nil)
	mb.manager.servers.Put(mb, cfg.Host)
	client, err := memberclient.NewHTTPClient(cfg, mb.transportOptions(spec))
	if err != nil {
		mb.setUsedKubeconfig(nil)
		mb.conn.setClient(nil, connection.Refuse(connection.InvalidKubeconfig, "%v", err))
		return
	}
	mb.setUsedKubeconfig(spec.Kubeconfig)
	mb.conn.setClient(memberclient.New(cfg, client), nil)
}

func (mb *member) setUsedKubeconfig(kubeconfig []byte) {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	mb.usedKubeconfig, mb.usesAgent = kubeconfig, false
}

// goneStock notes that the member is reached by net/http from now on.
func (mb *member) goneStock(why error) {
	text := message.Clip(why.Error())
	if old := mb.stock.Swap(&text); old == nil || *old != text {
		mb.log.Warn("member is reached by net/http", "error", why)
	}
}

// violatedHTTP2 counts what the member's server did.
func (mb *member) violatedHTTP2(err error) {
	mb.manager.metrics.member(mb.name).violations.Inc()
	mb.log.Debug("member violated HTTP/2", "error", err)
}

// publish adds the member to the index, or updates what is known of it. One that joins
// before it is identified stays there as it is: a fleet without it, if only for
// a moment, would be another fleet.
func (mb *member) publish(spec Spec) {
	v := ""
	if p := mb.version.Load(); p != nil {
		v = *p
	}
	mb.publishedVersion = v
	m := aggregate.Member{Name: spec.Name, Labels: spec.Labels, Cluster: spec.Cluster, Version: v, Role: mb.role(&spec)}
	mb.mu.Lock()
	m.APIs, m.Discovery = mb.resources.GroupVersions(), mb.discovery
	if mb.indexedUID == nil {
		mb.indexedUID = &spec.UID
	}
	m.UID = *mb.indexedUID
	if !mb.discoveredAt.IsZero() && mb.discoveredResets == mb.resets && !mb.truncated {
		m.Serves = slices.Concat(slices.Collect(maps.Keys(mb.resources)), slices.Collect(maps.Keys(mb.rejected)))
		slices.Sort(m.Serves)
		m.Serves = slices.Compact(slices.Grow(m.Serves, 1)) // not nil
		m.Silent = slices.Sorted(maps.Keys(mb.unavailable))
		mb.addFacts(&m)
	}
	m.GivenUp = mb.isGivenUp
	mb.mu.Unlock()
	err := mb.manager.opts.Index.PutMember(m)
	if err != nil {
		mb.log.Error("adding the member to the index failed", "error", err)
		mb.conn.recordError(err)
	}
}

// role is what this process is to the member. The judge knows more than one that stands by, and has not read it all yet: policies go on
// with what that tells. There may be a kind that cannot be read, for good.
func (mb *member) role(spec *Spec) aggregate.Role {
	if spec.Role == aggregate.Standby && !mb.synced.Load() {
		return aggregate.StandbyUnread
	}
	return spec.Role
}

// identify is the first request of a client: which cluster answers, at which
// version. Another cluster behind the same member makes every
// resourceVersion meaningless, so its scopes restart.
func (mb *member) identify(ctx context.Context, client *memberclient.Client) error {
	info, err := client.Version(ctx)
	if err != nil {
		return err
	}
	uid, err := mb.verifyCluster(ctx, client)
	var malformed *memberclient.MalformedError
	switch {
	case err == nil:
		mb.conn.clearError(identityErrors)
	case errors.As(err, &malformed): // what else is served is read all the same
		mb.conn.recordErrorOf(identityErrors, err)
		uid = mb.identity
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		uid = mb.identity // it may not be known: then it cannot be checked
	default:
		return err
	}
	if mb.identity != "" && uid != mb.identity {
		mb.mu.Lock()
		mb.resets++
		mb.mu.Unlock()
		mb.triggerDiscovery()
		mb.log.Warn("the cluster UID of the member changed, restarting its scopes", "previous", mb.identity, "current", uid)
	}
	mb.identity = uid
	mb.clusterUID.Store(&uid)
	mb.version.Store(&info)
	return nil
}

// stateChanged acts on the connection's state: facts that were discovered
// are not fresh while the member is out of reach. It reports whether it is within reach.
func (mb *member) stateChanged() bool {
	contact, reason, message, _ := mb.conn.state()
	up := contact == connection.Connected
	if !up {
		mb.wakeScopes() // watches of a client that has ended do not know
		mb.expireDiscovery()
		if reason != connection.Connecting {
			mb.log.Info("member not connected", "state", contact, "reason", reason, "detail", message)
		}
		return false
	}
	mb.log.Info("member connected")
	return true
}

// expireDiscovery takes note that what discovery last said is not fresh any more.
func (mb *member) expireDiscovery() {
	if mb.discoveredAt.IsZero() {
		return
	}
	mb.discoveredAt = time.Time{}
	mb.findings++
	mb.mu.Lock()
	spec := mb.spec
	mb.mu.Unlock()
	mb.publish(spec)
}

// speaksProtobuf reports whether the member's API server is not newer than the
// types that we decode by: newer ones have fields that we would not see.
func (mb *member) speaksProtobuf() bool {
	v := mb.version.Load()
	return v != nil && !newerThanLibrary(*v)
}

// isDefinition reports kinds whose changes change what is served.
func isDefinition(kind aggregate.Kind) bool {
	return kind == definitionKind || kind == "APIService.apiregistration.k8s.io"
}
