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
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/remediate"
)

// stopUnknown is the state before the ConfigMap has been read.
const stopUnknown = "it is not known yet whether somebody has stopped them"

// stopUnknownBefore is the same in statuses that an earlier version has written.
const stopUnknownBefore = "whether somebody has stopped them has not been read yet"

// Timing of the watch, and a limit.
const (
	stopTimeout   = 10 * time.Second       // of a request
	stopRetry     = 250 * time.Millisecond // after a failure
	stopPoll      = 20 * time.Millisecond  // until a stop that was made here is seen
	stopRewatch   = 5 * time.Minute        // timeout of a watch
	maxStopReason = 512                    // bytes
	maxStopText   = 2048                   // bytes, of several stops
)

// StopOptions configure a Stop. All but OnChange, Events and Logger are required.
type StopOptions struct {
	Config     *rest.Config // of the hub
	Namespace  string       // of the ConfigMaps
	Dispatcher *remediate.Dispatcher
	OnChange   func()  // called when the state may have changed; must not block
	Events     *Events // nil: none
	Logger     *slog.Logger
}

// Stop keeps a Dispatcher stopped as the ConfigMaps of a namespace say, and altogether while
// it is unknown what they say.
type Stop struct {
	opts   StopOptions
	client kubernetes.Interface
	found  map[string]ActiveStop // by name of the ConfigMap; Run's goroutine only

	mu     sync.Mutex
	known  bool
	stops  remediate.Stops
	active []ActiveStop
}

// NewStop stops the Dispatcher and returns a Stop, which reads the hub when it runs.
func NewStop(opts StopOptions) (*Stop, error) {
	if opts.Config == nil || opts.Namespace == "" || opts.Dispatcher == nil {
		return nil, errors.New("Stop: Config, Namespace and Dispatcher are required")
	}
	if opts.OnChange == nil {
		opts.OnChange = func() {}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	client, err := kubernetes.NewForConfig(opts.Config)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	s := &Stop{opts: opts, client: client, stops: remediate.Stops{All: stopUnknown}}
	opts.Dispatcher.SetStops(s.stops)
	return s, nil
}

// state returns what is stopped, by whom, since when and why, and whether that is known.
func (s *Stop) state() (stops remediate.Stops, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stops, s.known
}

// Active returns the stops that there are, and whether that is known.
func (s *Stop) Active() (stops []ActiveStop, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.active), s.known
}

// Run watches the hub until the context ends.
func (s *Stop) Run(ctx context.Context) error {
	for {
		err := s.listAndWatch(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			continue // the watch timed out
		}
		s.setUnknown(err)
		if err := sleep.For(ctx, stopRetry); err != nil {
			return err
		}
	}
}

// StopAll stops everything on behalf of federator, until a person resumes. It returns once
// that is in effect here; then other processes know within a second.
func (s *Stop) StopAll(ctx context.Context, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if _, _, err := CreateStop(ctx, s.client, s.opts.Namespace, StopScope{}, "federator", reason); err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %w", s.opts.Namespace, stopName, err)
	}
	for {
		if stops, known := s.state(); known && stops.All != "" {
			return nil
		}
		if err := sleep.For(ctx, stopPoll); err != nil {
			return fmt.Errorf("ConfigMap %s/%s was created, and not seen: %w", s.opts.Namespace, stopName, err)
		}
	}
}

// listAndWatch reads the ConfigMaps and watches them until the watch ends. All ConfigMaps of
// the namespace are read: a label that is missing must not make a stop ineffective.
func (s *Stop) listAndWatch(ctx context.Context) error {
	configMaps := s.client.CoreV1().ConfigMaps(s.opts.Namespace)
	listing, cancel := context.WithTimeout(ctx, stopTimeout)
	list, err := configMaps.List(listing, metav1.ListOptions{})
	cancel()
	if err != nil {
		return err
	}
	s.found = map[string]ActiveStop{}
	for i := range list.Items {
		s.read(&list.Items[i])
	}
	s.publish()
	seconds := int64(stopRewatch / time.Second)
	w, err := configMaps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: &seconds})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		m, ok := e.Object.(*corev1.ConfigMap)
		switch {
		case e.Type == watch.Error:
			err := apierrors.FromObject(e.Object)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return nil // list again
			}
			return err
		case !ok:
			continue
		case e.Type == watch.Deleted:
			delete(s.found, m.Name)
		default:
			s.read(m)
		}
		s.publish()
	}
	return nil
}

// read takes a ConfigMap into account.
func (s *Stop) read(m *corev1.ConfigMap) {
	if f, is := readStop(m); is {
		s.found[m.Name] = f
	} else {
		delete(s.found, m.Name)
	}
}

// publish applies what the ConfigMaps say.
func (s *Stop) publish() {
	stops := remediate.Stops{Policies: map[string]string{}, Members: map[string]string{}, Sources: map[string]string{}}
	active := make([]ActiveStop, 0, len(s.found))
	for _, name := range slices.Sorted(maps.Keys(s.found)) {
		f := s.found[name]
		active = append(active, f)
		switch f.Scope {
		case StopPolicy:
			stops.Policies[f.Name] = f.Text
		case StopMember:
			stops.Members[f.Name] = f.Text
		case StopSource:
			stops.Sources[f.Name] = f.Text
		default:
			stops.All = clip.Text(strings.TrimPrefix(stops.All+"; "+f.Text, "; "), maxStopText)
		}
	}
	s.mu.Lock()
	s.active = active
	s.mu.Unlock()
	s.set(stops, true)
}

// setUnknown stops the Dispatcher while the ConfigMaps cannot be read. What was stopped
// before stays so.
func (s *Stop) setUnknown(err error) {
	s.mu.Lock()
	stops := s.stops
	s.mu.Unlock()
	stops.All = fmt.Sprintf("it is unknown whether actions are stopped (reading the ConfigMaps of namespace %s failed): %s", s.opts.Namespace, clip.Text(err.Error(), maxStopReason))
	s.set(stops, false)
}

// set applies a new state. Only Run calls it.
func (s *Stop) set(stops remediate.Stops, known bool) {
	s.mu.Lock()
	was, wasKnown := s.stops, s.known
	s.stops, s.known = stops, known
	s.mu.Unlock()
	before, now := describeStops(&was), describeStops(&stops)
	if maps.Equal(before, now) && wasKnown == known {
		return
	}
	s.opts.Dispatcher.SetStops(stops)
	for _, of := range slices.SortedFunc(maps.Keys(now), compareScopes) {
		if before[of] != now[of] {
			s.opts.Logger.Warn(of.sentence(), "stop", now[of])
			s.record(wasKnown && known, true, of, eventStopped, of.sentence()+": "+now[of])
		}
	}
	for _, of := range slices.SortedFunc(maps.Keys(before), compareScopes) {
		if now[of] == "" && (wasKnown || before[of] != stopUnknown) {
			s.opts.Logger.Info("actions resumed", "stopped", of.String(), "stop", before[of])
			s.record(wasKnown && known, false, of, eventResumed, "resumed: "+of.sentence()+": "+before[of])
		}
	}
	s.opts.OnChange()
}

// record records an Event about a stop that has changed while federator was running: others
// have their Event already. The stop of everything, of a policy and of a source are in Events
// about their FleetPolicies, too.
func (s *Stop) record(changed, warning bool, of StopScope, reason, text string) {
	if !changed {
		return
	}
	s.opts.Events.add(&pendingEvent{
		eventKey: eventKey{reason: reason, subject: of.String() + text}, warning: warning, immediate: true, action: "Enforce", text: text,
		regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: s.opts.Namespace, Name: of.configMap()},
	})
}

// describeStops returns the text of each stop.
func describeStops(stops *remediate.Stops) map[StopScope]string {
	out := map[StopScope]string{}
	if stops.All != "" {
		out[StopScope{Scope: StopAll}] = stops.All
	}
	for scope, of := range map[string]map[string]string{StopPolicy: stops.Policies, StopMember: stops.Members, StopSource: stops.Sources} {
		for name, text := range of {
			out[StopScope{scope, name}] = text
		}
	}
	return out
}

func compareScopes(a, b StopScope) int {
	return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Name, b.Name))
}

// fieldManagerOf returns who wrote a field according to managedFields; any field for "".
func fieldManagerOf(entries []metav1.ManagedFieldsEntry, field string) string {
	for _, m := range entries {
		if m.FieldsV1 != nil && strings.Contains(m.FieldsV1.GetRawString(), field) {
			return m.Manager
		}
	}
	return ""
}

// oneLine returns a printable text of limited length.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	return clip.Text(strings.TrimSpace(s), maxStopReason)
}
