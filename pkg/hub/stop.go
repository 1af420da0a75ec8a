package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/remediate"
)

// stopName is the ConfigMap that stops all corrections while it exists. It is not an
// annotation on the Lease because permission to stop should not include permission to
// take the Lease, because the leader rewrites the Lease every other second, and because
// kubectl create and delete suffice if the federator command is not available.
const stopName = "federator-stop"

// stopReasonKey is the key of the reason in the ConfigMap.
const stopReasonKey = "reason"

// stopUnknown is the state before the ConfigMap has been read.
const stopUnknown = "it is not known yet whether somebody has stopped them"

// stopUnknownBefore is the same in statuses that an earlier version has written.
const stopUnknownBefore = "whether somebody has stopped them has not been read yet"

// Timing of the watch, and a limit.
const (
	stopTimeout   = 10 * time.Second       // of a request
	stopRetry     = 250 * time.Millisecond // after a failure
	stopRewatch   = 5 * time.Minute        // timeout of a watch
	maxStopReason = 512                    // bytes
)

// StopOptions configure a Stop. All but OnChange and Logger are required.
type StopOptions struct {
	Config     *rest.Config // of the hub
	Namespace  string       // of the ConfigMap
	Dispatcher *remediate.Dispatcher
	OnChange   func() // called when the state may have changed; must not block
	Logger     *slog.Logger
}

// Stop keeps a Dispatcher stopped while the ConfigMap exists, and while it is unknown
// whether it does.
type Stop struct {
	opts   StopOptions
	client kubernetes.Interface

	mu    sync.Mutex
	known bool
	text  string
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
	s := &Stop{opts: opts, client: client, text: stopUnknown}
	opts.Dispatcher.SetStops(remediate.Stops{All: s.text})
	return s, nil
}

// state returns who has stopped all actions, since when and why, "" if they are not stopped, and
// whether that is known.
func (s *Stop) state() (text string, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text, s.known
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
		t := time.NewTimer(stopRetry)
		select {
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}

// listAndWatch reads the ConfigMap and watches it until the watch ends.
func (s *Stop) listAndWatch(ctx context.Context) error {
	maps := s.client.CoreV1().ConfigMaps(s.opts.Namespace)
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", stopName).String()}
	listing, cancel := context.WithTimeout(ctx, stopTimeout)
	list, err := maps.List(listing, only)
	cancel()
	if err != nil {
		return err
	}
	if len(list.Items) > 0 {
		s.set(describeStop(&list.Items[0]), true)
	} else {
		s.set("", true)
	}
	seconds := int64(stopRewatch / time.Second)
	only.ResourceVersion, only.TimeoutSeconds = list.ResourceVersion, &seconds
	w, err := maps.Watch(ctx, only)
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		switch e.Type {
		case watch.Added, watch.Modified:
			if m, ok := e.Object.(*corev1.ConfigMap); ok {
				s.set(describeStop(m), true)
			}
		case watch.Deleted:
			s.set("", true)
		case watch.Error:
			err := apierrors.FromObject(e.Object)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return nil // list again
			}
			return err
		}
	}
	return nil
}

// setUnknown stops the Dispatcher while the ConfigMap cannot be read.
func (s *Stop) setUnknown(err error) {
	s.set(fmt.Sprintf("it is unknown whether actions are stopped (reading ConfigMap %s/%s failed): %s", s.opts.Namespace, stopName, clip.Text(err.Error(), maxStopReason)), false)
}

// set applies a new state. Only Run calls it.
func (s *Stop) set(text string, known bool) {
	s.mu.Lock()
	was, wasKnown := s.text, s.known
	s.text, s.known = text, known
	s.mu.Unlock()
	if was == text && wasKnown == known {
		return
	}
	s.opts.Dispatcher.SetStops(remediate.Stops{All: text})
	switch {
	case text != "":
		s.opts.Logger.Warn("all actions are stopped", "stop", text)
	case wasKnown:
		s.opts.Logger.Info("actions resumed", "stop", was)
	}
	s.opts.OnChange()
}

// describeStop returns who has stopped all actions, since when and why.
func describeStop(m *corev1.ConfigMap) string {
	text := "since " + m.CreationTimestamp.UTC().Format(time.RFC3339)
	if by := fieldManagerOf(m.ManagedFields, ""); by != "" {
		text = "by " + by + " " + text
	}
	if why := oneLine(m.Data[stopReasonKey]); why != "" {
		text += ": " + why
	}
	return text
}

// StopAll creates the ConfigMap that stops all actions, with by as its field manager. It
// returns who has stopped them, since when and why, and whether they had not been stopped
// before.
func StopAll(ctx context.Context, client kubernetes.Interface, namespace, by, reason string) (text string, created bool, err error) {
	maps := client.CoreV1().ConfigMaps(namespace)
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: stopName}}
	if reason = oneLine(reason); reason != "" {
		m.Data = map[string]string{stopReasonKey: reason}
	}
	m.Labels = map[string]string{"app.kubernetes.io/managed-by": "federator"} // managedFields need a field
	made, err := maps.Create(ctx, m, metav1.CreateOptions{FieldManager: by})
	if created = !apierrors.IsAlreadyExists(err); !created {
		made, err = maps.Get(ctx, stopName, metav1.GetOptions{})
	}
	if err != nil {
		return "", false, err
	}
	return describeStop(made), created, nil
}

// ResumeAll deletes the ConfigMap that stops all actions, and returns who had stopped
// them, since when and why; "" if they were not stopped.
func ResumeAll(ctx context.Context, client kubernetes.Interface, namespace string) (string, error) {
	maps := client.CoreV1().ConfigMaps(namespace)
	m, err := maps.Get(ctx, stopName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	// Not one that was created in the meantime.
	err = maps.Delete(ctx, stopName, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &m.UID}})
	return describeStop(m), err
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
