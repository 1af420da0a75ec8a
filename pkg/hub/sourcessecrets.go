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
)

// secrets follows Secrets by name, a goroutine each.
type secrets struct {
	client  typedcorev1.SecretsGetter
	allowed []string // namespaces
	changed func()

	following map[secretName]*follower // follow's and stop's

	mu   sync.Mutex
	held map[secretName]heldSecret
}

type follower struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// heldSecret is a Secret, or why there is none.
type heldSecret struct {
	version string // resourceVersion
	data    map[string][]byte
	fault   fault
}

func newSecrets(c typedcorev1.SecretsGetter, allowed []string, changed func()) *secrets {
	return &secrets{client: c, allowed: allowed, changed: changed, following: map[secretName]*follower{}, held: map[secretName]heldSecret{}}
}

// follow makes the Secrets that are followed those that are named.
func (s *secrets) follow(ctx context.Context, named map[secretName]bool) {
	s.end(func(n secretName) bool { return !named[n] })
	for n := range named {
		if s.following[n] != nil || !slices.Contains(s.allowed, n.namespace) {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		f := &follower{cancel: cancel, done: make(chan struct{})}
		s.following[n] = f
		go func() {
			defer close(f.done)
			s.run(ctx, n)
		}()
	}
}

func (s *secrets) stop() { s.end(func(secretName) bool { return true }) }

// end ends followers and joins them.
func (s *secrets) end(which func(secretName) bool) {
	var ending []*follower
	for n, f := range s.following {
		if which(n) {
			f.cancel()
			ending = append(ending, f)
			delete(s.following, n)
			defer s.forget(n)
		}
	}
	for _, f := range ending {
		<-f.done
	}
}

func (s *secrets) forget(n secretName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, n)
}

// get returns the data of a Secret that is followed, or why there is none.
func (s *secrets) get(n secretName) (map[string][]byte, fault) {
	if !slices.Contains(s.allowed, n.namespace) {
		return nil, fault{"SecretNotAllowed", fmt.Sprintf("Secret %s is in a namespace that federator is not configured to read Secrets of", n)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.held[n]
	if !ok {
		return nil, fault{"SecretPending", fmt.Sprintf("Secret %s has not been read yet", n)}
	}
	return h.data, h.fault
}

const (
	leastSecretBackoff = time.Second
	mostSecretBackoff  = 30 * time.Second
)

// run follows a Secret until the context ends. What the hub last said of it stays
// while it does not answer.
func (s *secrets) run(ctx context.Context, n secretName) {
	wait := leastSecretBackoff
	for {
		err := s.watch(ctx, n)
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		_, known := s.held[n]
		s.mu.Unlock()
		switch {
		case err == nil:
			wait = leastSecretBackoff // watches end now and then
		case apierrors.IsForbidden(err) || !known:
			s.set(n, heldSecret{fault: fault{"SecretUnreadable", fmt.Sprintf("Secret %s cannot be read: %s", n, clip(err.Error(), 256))}})
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		wait = min(2*wait, mostSecretBackoff)
	}
}

var errWatch = errors.New("the watch failed")

// watch reads the Secret whenever a watch says something of it, until the watch ends.
// The watch comes first, so that nothing is missed between the two.
func (s *secrets) watch(ctx context.Context, n secretName) error {
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
		if o, ok := event.Object.(*corev1.Secret); ok && event.Type != watch.Deleted && s.has(n, o.ResourceVersion) {
			continue
		}
		if err := s.read(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (s *secrets) has(n secretName, version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[n].version == version
}

// read asks the hub for the Secret.
func (s *secrets) read(ctx context.Context, n secretName) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	got, err := s.client.Secrets(n.namespace).Get(ctx, n.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.set(n, heldSecret{fault: fault{"SecretNotFound", fmt.Sprintf("there is no Secret %s", n)}})
		return nil
	case err != nil:
		return err
	}
	s.set(n, heldSecret{version: got.ResourceVersion, data: got.Data})
	return nil
}

func (s *secrets) set(n secretName, h heldSecret) {
	s.mu.Lock()
	s.held[n] = h
	s.mu.Unlock()
	s.changed()
}
