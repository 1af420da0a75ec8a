package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"federator.dev/federator/internal/clip"
)

// secretWatcher watches Secrets by name, with a goroutine for each.
type secretWatcher struct {
	client   typedcorev1.SecretsGetter
	allowed  []string // namespaces
	onChange func()

	watchers map[secretName]*watcher // used by watchOnly and stop

	mu    sync.Mutex
	cache map[secretName]cachedSecret
}

type watcher struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// cachedSecret is the content of a Secret, or why there is none.
type cachedSecret struct {
	version string // resourceVersion
	data    map[string][]byte
	fault   problem
}

func newSecretWatcher(c typedcorev1.SecretsGetter, allowed []string, changed func()) *secretWatcher {
	return &secretWatcher{client: c, allowed: allowed, onChange: changed, watchers: map[secretName]*watcher{}, cache: map[secretName]cachedSecret{}}
}

// watchOnly starts and stops watches so that exactly the named Secrets are watched.
func (s *secretWatcher) watchOnly(ctx context.Context, named map[secretName]bool) {
	s.stopWatchers(func(n secretName) bool { return !named[n] })
	for n := range named {
		if s.watchers[n] != nil || !slices.Contains(s.allowed, n.namespace) {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		f := &watcher{cancel: cancel, done: make(chan struct{})}
		s.watchers[n] = f
		go func() {
			defer close(f.done)
			s.keepWatching(ctx, n)
		}()
	}
}

func (s *secretWatcher) stop() { s.stopWatchers(func(secretName) bool { return true }) }

// stopWatchers ends watchers and waits for them.
func (s *secretWatcher) stopWatchers(which func(secretName) bool) {
	var ending []*watcher
	for n, f := range s.watchers {
		if which(n) {
			f.cancel()
			ending = append(ending, f)
			delete(s.watchers, n)
			defer s.forget(n)
		}
	}
	for _, f := range ending {
		<-f.done
	}
}

func (s *secretWatcher) forget(n secretName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.cache, n)
}

// get returns the data of a watched Secret, or why there is none.
func (s *secretWatcher) get(n secretName) (map[string][]byte, problem) {
	if !slices.Contains(s.allowed, n.namespace) {
		return nil, problem{"SecretNotAllowed", fmt.Sprintf("Secret %s is in a namespace whose Secrets federator is not configured to read", n)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.cache[n]
	if !ok {
		return nil, problem{secretPending, fmt.Sprintf("Secret %s has not been read yet", n)}
	}
	return h.data, h.fault
}

// secretPending is the reason of a Secret that has not been read yet.
const secretPending = "SecretPending"

const (
	minSecretBackoff = time.Second
	maxSecretBackoff = 30 * time.Second
)

// keepWatching watches a Secret until the context ends. Its last content stays while the
// hub does not respond.
func (s *secretWatcher) keepWatching(ctx context.Context, n secretName) {
	wait := minSecretBackoff
	for {
		err := s.watch(ctx, n)
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		_, known := s.cache[n]
		s.mu.Unlock()
		switch {
		case err == nil:
			wait = minSecretBackoff // watches end regularly
		case apierrors.IsForbidden(err) || !known:
			s.set(n, cachedSecret{fault: problem{"SecretUnreadable", fmt.Sprintf("Secret %s cannot be read: %s", n, clip.Text(err.Error(), 256))}})
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		wait = min(2*wait, maxSecretBackoff)
	}
}

var errWatch = errors.New("the watch failed")

// watch reads the Secret at each event of a watch, until the watch ends. The watch starts
// first, so that no change is missed.
func (s *secretWatcher) watch(ctx context.Context, n secretName) error {
	w, err := s.client.Secrets(n.namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, n.name).String(),
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	if err := s.read(ctx, n); err != nil {
		return err
	}
	for event := range w.ResultChan() {
		switch event.Type {
		case watch.Error:
			return errWatch
		case watch.Bookmark:
			continue
		}
		if o, ok := event.Object.(*corev1.Secret); ok && event.Type != watch.Deleted && s.isCached(n, o.ResourceVersion) {
			continue
		}
		if err := s.read(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (s *secretWatcher) isCached(n secretName, version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cache[n].version == version
}

// read gets the Secret from the hub.
func (s *secretWatcher) read(ctx context.Context, n secretName) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	got, err := s.client.Secrets(n.namespace).Get(ctx, n.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.set(n, cachedSecret{fault: problem{"SecretNotFound", fmt.Sprintf("Secret %s does not exist", n)}})
		return nil
	case err != nil:
		return err
	}
	s.set(n, cachedSecret{version: got.ResourceVersion, data: got.Data})
	return nil
}

func (s *secretWatcher) set(n secretName, h cachedSecret) {
	s.mu.Lock()
	s.cache[n] = h
	s.mu.Unlock()
	s.onChange()
}
