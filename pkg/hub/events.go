package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
)

// Bounds of Events.
const (
	eventsPerMinute = 60
	eventsEvery     = 30 * time.Second
	eventsPending   = 1000            // notes
	eventsGather    = time.Second     // how long what is said in sum is gathered
	eventsRetry     = 5 * time.Second // after a failure
)

// eventController is who Events are from.
const eventController = "federator.dev/federator"

// EventsOptions configure Events. Config and Lead are required.
type EventsOptions struct {
	Config *rest.Config // of the hub
	Lead   func() bool  // whether this process writes
	// Instance is who Events are from, beside federator: a Pod's name. "" is federator.
	Instance string
	// PerMinute is how many Events are written in any minute at most. 0 means 60.
	PerMinute int
	// Every is how often it is told of one FleetPolicy and member that verdicts have
	// changed, or what came of corrections. 0 means 30 seconds.
	Every  time.Duration
	Logger *slog.Logger // nil: none
}

// Events writes Events (events.k8s.io/v1) of FleetPolicies and PolicySources. They are
// in namespace default, as those of all cluster-scoped objects, where more people read
// than may read members: they name members and Actions, never members' objects.
//
// What is told is gathered by object, member and reason, so that there are as many
// Events for 10,000 violations as for one. A hub that is slow delays nobody but Events.
// All methods may be called of a nil *Events, which tells nothing.
type Events struct {
	opts   EventsOptions
	client typedeventsv1.EventsV1Interface
	wake   chan struct{} // has room for one

	// What follows belongs to Run.
	limiter *rate.Limiter
	mute    bool // that the hub refuses them has been logged

	mu    sync.Mutex
	seq   uint64
	notes map[noteKey]*note
	last  map[noteKey]time.Time // when it was last written
	left  map[types.UID]int     // what was not told of an object, for there was too much
}

// noteKey is what one note tells of.
type noteKey struct {
	about  types.UID
	reason string
	of     string // a member, or what happens once
}

// note is an Event to come. Notes of one key become one.
type note struct {
	noteKey
	regarding corev1.ObjectReference
	warning   bool
	action    string
	once      bool // it does not wait for others
	passing   bool // it may pass by itself: it is told when nobody takes it back meanwhile
	text      string

	count    int // of what Action does; 0: text says all
	from, to *v1alpha1.Verdicts

	seq uint64
	at  time.Time
}

// NewEvents returns Events that are not written before Run.
func NewEvents(opts EventsOptions) (*Events, error) {
	if opts.Config == nil || opts.Lead == nil {
		return nil, errors.New("Events: Config and Lead are required")
	}
	if opts.PerMinute < 0 || opts.Every < 0 {
		return nil, errors.New("Events: PerMinute and Every must not be negative")
	}
	if opts.PerMinute == 0 {
		opts.PerMinute = eventsPerMinute
	}
	if opts.Every == 0 {
		opts.Every = eventsEvery
	}
	if opts.Instance = clip(opts.Instance, 128); opts.Instance == "" {
		opts.Instance = "federator"
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	client, err := typedeventsv1.NewForConfig(opts.Config)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	// A bucket that is full gives a burst, and in a minute as much as fills it again.
	burst := (opts.PerMinute + 1) / 2
	return &Events{
		opts: opts, client: client, limiter: rate.NewLimiter(rate.Limit(float64(opts.PerMinute-burst)/time.Minute.Seconds()), burst),
		wake: make(chan struct{}, 1), notes: map[noteKey]*note{}, last: map[noteKey]time.Time{}, left: map[types.UID]int{},
	}, nil
}

// add takes a note; one of the same key is told with it.
func (e *Events) add(n *note) {
	if e == nil {
		return
	}
	n.about = n.regarding.UID
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seq++
	n.seq, n.at = e.seq, time.Now()
	switch was := e.notes[n.noteKey]; {
	case was != nil:
		n.seq, n.at, n.from = was.seq, was.at, was.from
		n.count += was.count
	case len(e.notes) >= eventsPending:
		e.left[n.about]++
		return
	}
	e.notes[n.noteKey] = n
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// withdraw takes a note back that has not been told.
func (e *Events) withdraw(k noteKey) {
	if e == nil {
		return
	}
	e.mu.Lock()
	delete(e.notes, k)
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
		case <-e.wake:
		case <-timer.C:
		}
	}
}

// flush writes what is due, and returns when to look again.
func (e *Events) flush(ctx context.Context) time.Duration {
	if !e.opts.Lead() {
		e.mu.Lock()
		clear(e.notes)
		clear(e.last)
		clear(e.left)
		e.mu.Unlock()
		return time.Hour // who does not lead has nothing to tell
	}
	for ctx.Err() == nil {
		n, wait := e.next(time.Now())
		if n == nil {
			return wait
		}
		r := e.limiter.ReserveN(time.Now(), 1)
		if delay := r.Delay(); delay > 0 || !r.OK() {
			r.Cancel()
			e.giveBack(n)
			return max(delay, time.Second)
		}
		if err := e.write(ctx, n); err != nil {
			if refused(err) {
				if !e.mute {
					e.mute = true
					e.opts.Logger.Warn("an Event is refused", "reason", n.reason, "regarding", n.regarding.Name, "err", err)
				}
				continue
			}
			e.giveBack(n)
			e.opts.Logger.Debug("an Event is not written yet", "reason", n.reason, "regarding", n.regarding.Name, "err", err)
			return eventsRetry
		}
		e.mute = false
	}
	return time.Hour
}

// refused reports whether an answer of the hub is final.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) ||
		apierrors.IsAlreadyExists(err)
}

// next takes the note that is due, what happens once before what is said in sum; or
// says when one will be.
func (e *Events) next(now time.Time) (*note, time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for k, at := range e.last {
		if now.Sub(at) >= e.opts.Every {
			delete(e.last, k)
		}
	}
	var due []*note
	soonest := time.Hour
	for k, n := range e.notes {
		if n.from != nil && *n.from == *n.to {
			delete(e.notes, k) // it is as it was told last
			continue
		}
		at := n.at
		switch {
		case n.passing:
			at = at.Add(e.opts.Every / 2)
		case !n.once:
			at = n.at.Add(min(eventsGather, e.opts.Every))
			if last, ok := e.last[k]; ok && last.Add(e.opts.Every).After(at) {
				at = last.Add(e.opts.Every)
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
	n := slices.MinFunc(due, func(a, b *note) int {
		if a.once != b.once {
			return map[bool]int{true: -1, false: 1}[a.once]
		}
		return cmp.Compare(a.seq, b.seq)
	})
	delete(e.notes, n.noteKey)
	return n, 0
}

// giveBack keeps a note for later, with what came meanwhile.
func (e *Events) giveBack(n *note) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := e.notes[n.noteKey]; now != nil {
		now.seq, now.at, now.from = n.seq, n.at, n.from
		now.count += n.count
		return
	}
	e.notes[n.noteKey] = n
}

func (e *Events) write(ctx context.Context, n *note) error {
	e.mu.Lock()
	left := e.left[n.about]
	e.mu.Unlock()
	text := n.say()
	if left > 0 {
		text = fmt.Sprintf("%s (%d more were too many to tell)", clip(text, maxText-64), left)
	}
	namespace := cmp.Or(n.regarding.Namespace, metav1.NamespaceDefault)
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", clip(n.regarding.Name, 200), time.Now().UnixNano())},
		EventTime:  metav1.NewMicroTime(n.at), ReportingController: eventController, ReportingInstance: e.opts.Instance,
		Action: n.action, Reason: n.reason, Regarding: n.regarding, Note: strings.ToValidUTF8(clip(text, maxText), ""), Type: corev1.EventTypeNormal,
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
	if e.left[n.about] -= left; e.left[n.about] <= 0 {
		delete(e.left, n.about)
	}
	if !n.once {
		e.last[n.noteKey] = time.Now()
	}
	return nil
}

// say is the text of a note.
func (n *note) say() string {
	switch {
	case n.from != nil:
		return changeText(n.of, n.from, n.to)
	case n.count > 1:
		return fmt.Sprintf("%d corrections on %s; the last: %s", n.count, n.of, n.text)
	case n.count == 1:
		return fmt.Sprintf("a correction on %s: %s", n.of, n.text)
	}
	return n.text
}

// changeText says how verdicts of a policy have changed.
func changeText(member string, from, to *v1alpha1.Verdicts) string {
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
