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

	"federator.dev/federator/pkg/remediate"
)

// StopName is the ConfigMap whose existence keeps all processes from writing to members.
// It is an object of its own, and not an annotation of the Lease, because whoever may
// stop everything need not be able to take the lease away, because the leader rewrites
// the Lease every other second, and because kubectl create and delete do, should there be
// no federator at hand.
const StopName = "federator-stop"

// stopReason is the key of the ConfigMap that says why.
const stopReason = "reason"

// stopUnread says that nothing is known of a stop yet.
const stopUnread = "whether somebody has stopped them has not been read yet"

// Times of following the stop.
const (
	stopTimeout  = 10 * time.Second       // of a request
	stopRetry    = 250 * time.Millisecond // after a failure
	stopRewatch  = 5 * time.Minute        // watches end by themselves
	mostStopText = 512                    // bytes of a reason
)

// StopOptions configure a Stop. All but Changed and Logger are required.
type StopOptions struct {
	Config     *rest.Config // of the hub
	Namespace  string       // where the ConfigMap is
	Dispatcher *remediate.Dispatcher
	Changed    func() // told when it may be another; must not block
	Logger     *slog.Logger
}

// Stop stops a Dispatcher as long as the hub says so, and as long as it is not known
// whether the hub says so.
type Stop struct {
	opts   StopOptions
	client kubernetes.Interface

	mu    sync.Mutex
	known bool
	text  string
}

// NewStop returns a Stop that has stopped the Dispatcher, and looks at the hub when it
// runs.
func NewStop(opts StopOptions) (*Stop, error) {
	if opts.Config == nil || opts.Namespace == "" || opts.Dispatcher == nil {
		return nil, errors.New("Stop: Config, Namespace and Dispatcher are required")
	}
	if opts.Changed == nil {
		opts.Changed = func() {}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	client, err := kubernetes.NewForConfig(opts.Config)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	s := &Stop{opts: opts, client: client, text: stopUnread}
	opts.Dispatcher.Stop(s.text)
	return s, nil
}

// State returns who has stopped all actions, since when and why, "" when nobody has, and
// whether that is known.
func (s *Stop) State() (text string, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text, s.known
}

// Run follows the hub until the context ends.
func (s *Stop) Run(ctx context.Context) error {
	for {
		err := s.follow(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			continue // the watch has run out
		}
		s.unknown(err)
		t := time.NewTimer(stopRetry)
		select {
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}

// follow reads the stop and follows it until the watch ends.
func (s *Stop) follow(ctx context.Context) error {
	maps := s.client.CoreV1().ConfigMaps(s.opts.Namespace)
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", StopName).String()}
	listing, cancel := context.WithTimeout(ctx, stopTimeout)
	list, err := maps.List(listing, only)
	cancel()
	if err != nil {
		return err
	}
	if len(list.Items) > 0 {
		s.set(StopText(&list.Items[0]), true)
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
				s.set(StopText(m), true)
			}
		case watch.Deleted:
			s.set("", true)
		case watch.Error:
			err := apierrors.FromObject(e.Object)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return nil // it is read anew
			}
			return err
		}
	}
	return nil
}

// unknown stops for as long as the hub does not say.
func (s *Stop) unknown(err error) {
	s.set(fmt.Sprintf("whether somebody has stopped them cannot be read (ConfigMap %s/%s): %s", s.opts.Namespace, StopName, clip(err.Error(), mostStopText)), false)
}

// set takes over what is known; Run calls it, and nobody else.
func (s *Stop) set(text string, known bool) {
	s.mu.Lock()
	was, wasKnown := s.text, s.known
	s.text, s.known = text, known
	s.mu.Unlock()
	if was == text && wasKnown == known {
		return
	}
	if text == "" {
		s.opts.Dispatcher.Resume()
	} else {
		s.opts.Dispatcher.Stop(text)
	}
	switch {
	case text != "":
		s.opts.Logger.Warn("all actions are stopped", "stop", text)
	case wasKnown:
		s.opts.Logger.Info("actions are not stopped any more", "stop", was)
	}
	s.opts.Changed()
}

// StopText says who has stopped all actions, since when and why.
func StopText(m *corev1.ConfigMap) string {
	text := "since " + m.CreationTimestamp.UTC().Format(time.RFC3339)
	if by := managerOf(m.ManagedFields, ""); by != "" {
		text = "by " + by + " " + text
	}
	if why := oneLine(m.Data[stopReason]); why != "" {
		text += ": " + why
	}
	return text
}

// StopAll makes the ConfigMap that stops all actions, in the name of somebody, and
// returns it; or the one that is there, with false.
func StopAll(ctx context.Context, client kubernetes.Interface, namespace, by, reason string) (*corev1.ConfigMap, bool, error) {
	maps := client.CoreV1().ConfigMaps(namespace)
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: StopName}}
	if reason = oneLine(reason); reason != "" {
		m.Data = map[string]string{stopReason: reason}
	}
	m.Labels = map[string]string{"app.kubernetes.io/managed-by": "federator"} // managedFields are of some field
	made, err := maps.Create(ctx, m, metav1.CreateOptions{FieldManager: by})
	if !apierrors.IsAlreadyExists(err) {
		return made, true, err
	}
	made, err = maps.Get(ctx, StopName, metav1.GetOptions{})
	return made, false, err
}

// ResumeAll removes the ConfigMap that stops all actions, and returns it; nil if there
// is none.
func ResumeAll(ctx context.Context, client kubernetes.Interface, namespace string) (*corev1.ConfigMap, error) {
	maps := client.CoreV1().ConfigMaps(namespace)
	m, err := maps.Get(ctx, StopName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // No stop is no error.
	}
	if err != nil {
		return nil, err
	}
	// Not one that somebody else makes meanwhile.
	err = maps.Delete(ctx, StopName, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &m.UID}})
	return m, err
}

// managerOf is who wrote a field, as far as managedFields tell; any field for "".
func managerOf(entries []metav1.ManagedFieldsEntry, field string) string {
	for _, m := range entries {
		if m.FieldsV1 != nil && strings.Contains(m.FieldsV1.GetRawString(), field) {
			return m.Manager
		}
	}
	return ""
}

// oneLine makes a text printable, and bounds it.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	return clip(strings.TrimSpace(s), mostStopText)
}
