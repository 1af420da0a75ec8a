package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"

	"golang.org/x/time/rate"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/trigger"
)

// Limits of Events.
const (
	eventsPerMinute  = 60
	eventsInterval   = 30 * time.Second
	eventsPending    = 1000
	eventsBatchDelay = time.Second     // how long events that are aggregated wait for others
	eventsRetry      = 5 * time.Second // after a failure
)

// eventController is the reportingController of Events.
const eventController = "federator.dev/federator"

// EventsOptions configure Events. Config and IsLeader are required.
type EventsOptions struct {
	Config   *rest.Config // of the hub
	IsLeader func() bool  // whether this process writes Events that are not of itself
	// Instance is the reportingInstance of Events, such as a Pod's name. Defaults to
	// federator.
	Instance string
	// PerMinute is the maximum number of Events written in any minute. 0 means 60.
	PerMinute int
	// Interval is the minimum time between Events with the same reason about the same
	// FleetPolicy and member, for changed verdicts and corrections. 0 means 30 seconds.
	Interval time.Duration
	Logger   *slog.Logger // nil: none
}

// Events records Events (events.k8s.io/v1) about FleetPolicies and PolicySources. They
// are in namespace default, as those of all cluster-scoped objects, where more people may
// read them than may read members: they name members and Actions, never objects of
// members.
//
// Events are aggregated by object, member and reason, so that there are as many Events
// for 10,000 violations as for one. A slow hub delays only Events. All methods may be
// called on a nil *Events, which does nothing.
type Events struct {
	opts      EventsOptions
	client    typedeventsv1.EventsV1Interface
	triggered trigger.Trigger

	// What follows belongs to Run.
	limiter         *rate.Limiter
	rejectionLogged bool // that the hub rejects Events has been logged

	mu          sync.Mutex
	seq         uint64
	pending     map[eventKey]*pendingEvent
	lastWritten map[eventKey]time.Time // until Interval is over
	dropped     map[types.UID]int      // Events about an object that were dropped because there were too many
}

// eventKey identifies what an Event is about.
type eventKey struct {
	uid     types.UID
	reason  string
	subject string // a member, or what distinguishes an immediate Event
	own     bool   // of this process, which writes it without leading, too
}

// pendingEvent is an Event to be written. Events with the same key are merged.
type pendingEvent struct {
	eventKey
	regarding corev1.ObjectReference
	warning   bool
	action    string
	immediate bool // not aggregated
	transient bool // the state may resolve itself: written unless it is canceled meanwhile
	text      string

	count    int // of corrections; 0: text is the message
	from, to *v1alpha1.Verdicts

	seq uint64
	at  time.Time
}

// NewEvents returns Events; nothing is written before Run.
func NewEvents(opts EventsOptions) (*Events, error) {
	if opts.Config == nil || opts.IsLeader == nil {
		return nil, errors.New("Events: Config and IsLeader are required")
	}
	if opts.PerMinute < 0 || opts.Interval < 0 {
		return nil, errors.New("Events: PerMinute and Interval must not be negative")
	}
	if opts.PerMinute == 0 {
		opts.PerMinute = eventsPerMinute
	}
	if opts.Interval == 0 {
		opts.Interval = eventsInterval
	}
	if opts.Instance = clip.Text(opts.Instance, 128); opts.Instance == "" {
		opts.Instance = "federator"
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	client, err := typedeventsv1.NewForConfig(opts.Config)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	// A full bucket allows a burst, and within a minute as many as refill it.
	burst := (opts.PerMinute + 1) / 2
	return &Events{
		opts: opts, client: client, limiter: rate.NewLimiter(rate.Limit(float64(opts.PerMinute-burst)/time.Minute.Seconds()), burst),
		triggered: trigger.New(), pending: map[eventKey]*pendingEvent{}, lastWritten: map[eventKey]time.Time{}, dropped: map[types.UID]int{},
	}, nil
}

// add queues an Event, merged with a pending one of the same key.
func (e *Events) add(n *pendingEvent) {
	if e == nil {
		return
	}
	n.uid = n.regarding.UID
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seq++
	n.seq, n.at = e.seq, time.Now()
	switch was := e.pending[n.eventKey]; {
	case was != nil:
		n.seq, n.at, n.from = was.seq, was.at, was.from
		n.count += was.count
	case len(e.pending) >= eventsPending:
		e.dropped[n.uid]++
		return
	}
	e.pending[n.eventKey] = n
	e.triggered.Fire()
}

// cancel drops an Event that has not been written.
func (e *Events) cancel(k eventKey) {
	if e == nil {
		return
	}
	e.mu.Lock()
	delete(e.pending, k)
	e.mu.Unlock()
}

// Run writes Events until the context ends.
func (e *Events) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(e.flush(ctx))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.triggered:
		case <-timer.C:
		}
	}
}

// flush writes the Events that are due, and returns the time until the next one is.
func (e *Events) flush(ctx context.Context) time.Duration {
	for ctx.Err() == nil {
		if !e.opts.IsLeader() { // it may be no more, and others come while one is written
			e.dropOthers()
		}
		n, wait := e.next(time.Now())
		if n == nil {
			return wait
		}
		r := e.limiter.ReserveN(time.Now(), 1)
		if delay := r.Delay(); delay > 0 || !r.OK() {
			r.Cancel()
			e.requeue(n)
			return max(delay, time.Second)
		}
		if err := e.write(ctx, n); err != nil {
			if isPermanent(err) {
				if !e.rejectionLogged {
					e.rejectionLogged = true
					e.opts.Logger.Warn("Event rejected by the hub", "reason", n.reason, "regarding", n.regarding.Name, "error", err)
				}
				continue
			}
			e.requeue(n)
			e.opts.Logger.Debug("writing an Event failed, retrying", "reason", n.reason, "regarding", n.regarding.Name, "error", err)
			return eventsRetry
		}
		e.rejectionLogged = false
	}
	return time.Hour
}

// dropOthers drops what only the leader writes.
func (e *Events) dropOthers() {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.pending, func(k eventKey, _ *pendingEvent) bool { return !k.own })
	maps.DeleteFunc(e.lastWritten, func(k eventKey, _ time.Time) bool { return !k.own })
	clear(e.dropped)
}

// isPermanent reports whether a request that failed with err is not worth retrying.
func isPermanent(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) ||
		apierrors.IsAlreadyExists(err)
}

// next removes and returns the Event that is due, immediate ones first; or nil and the
// time until one will be.
func (e *Events) next(now time.Time) (*pendingEvent, time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for k, at := range e.lastWritten {
		if now.Sub(at) >= e.opts.Interval {
			delete(e.lastWritten, k)
		}
	}
	var due []*pendingEvent
	soonest := time.Hour
	for k, n := range e.pending {
		if n.from != nil && *n.from == *n.to {
			delete(e.pending, k) // verdicts are as in the last Event
			continue
		}
		at := n.at
		switch {
		case n.transient:
			at = at.Add(e.opts.Interval / 2)
		case !n.immediate:
			at = n.at.Add(min(eventsBatchDelay, e.opts.Interval))
			if last, ok := e.lastWritten[k]; ok && last.Add(e.opts.Interval).After(at) {
				at = last.Add(e.opts.Interval)
			}
		}
		if wait := at.Sub(now); wait > 0 {
			soonest = min(soonest, wait)
			continue
		}
		due = append(due, n)
	}
	if len(due) == 0 {
		return nil, soonest
	}
	n := slices.MinFunc(due, func(a, b *pendingEvent) int {
		if a.immediate != b.immediate {
			return map[bool]int{true: -1, false: 1}[a.immediate]
		}
		return cmp.Compare(a.seq, b.seq)
	})
	delete(e.pending, n.eventKey)
	return n, 0
}

// requeue keeps an Event for later, merged with one that was added in the meantime.
func (e *Events) requeue(n *pendingEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := e.pending[n.eventKey]; now != nil {
		now.seq, now.at, now.from = n.seq, n.at, n.from
		now.count += n.count
		return
	}
	e.pending[n.eventKey] = n
}

func (e *Events) write(ctx context.Context, n *pendingEvent) error {
	e.mu.Lock()
	left := e.dropped[n.uid]
	e.mu.Unlock()
	note := n.message()
	if left > 0 {
		note = fmt.Sprintf("%s (%d more Events were dropped)", clip.Text(note, maxText-64), left)
	}
	namespace := cmp.Or(n.regarding.Namespace, metav1.NamespaceDefault)
	name := strings.TrimRight(n.regarding.Name[:min(len(n.regarding.Name), 200)], "-.") // as names may end
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", name, time.Now().UnixNano())},
		EventTime:  metav1.NewMicroTime(n.at), ReportingController: eventController, ReportingInstance: e.opts.Instance,
		Action: n.action, Reason: n.reason, Regarding: n.regarding, Note: clip.Text(note, maxText), Type: corev1.EventTypeNormal,
	}
	if n.warning {
		event.Type = corev1.EventTypeWarning
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if _, err := e.client.Events(namespace).Create(ctx, event, metav1.CreateOptions{FieldManager: "federator"}); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dropped[n.uid] -= left; e.dropped[n.uid] <= 0 {
		delete(e.dropped, n.uid)
	}
	if !n.immediate {
		e.lastWritten[n.eventKey] = time.Now()
	}
	return nil
}

// message returns the note of the Event.
func (n *pendingEvent) message() string {
	switch {
	case n.from != nil:
		return verdictsMessage(n.subject, n.from, n.to)
	case n.count > 1:
		return fmt.Sprintf("%d corrections on %s, the last one: %s", n.count, n.subject, n.text)
	case n.count == 1:
		return fmt.Sprintf("1 correction on %s: %s", n.subject, n.text)
	}
	return n.text
}

// verdictsMessage describes how verdicts of a policy have changed.
func verdictsMessage(member string, from, to *v1alpha1.Verdicts) string {
	text := fmt.Sprintf("%s: %d violations (were %d)", member, to.Violations, from.Violations)
	for _, more := range []struct {
		name    string
		was, is int64
	}{{"errors", from.Errors, to.Errors}, {"exempt", from.Exempt, to.Exempt}, {"unknown", from.Unknown, to.Unknown}} {
		if more.was != more.is || more.is > 0 {
			text += fmt.Sprintf(", %d %s", more.is, more.name)
		}
	}
	return text
}
