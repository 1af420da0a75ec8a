package client

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// memberKey is the annotation that names the member an object was read from.
const memberKey = "federator.dev/member"

// Object is the type of an Informer's objects: a pointer to a generated type such as
// *corev1.Pod, or *unstructured.Unstructured.
type Object interface {
	runtime.Object
	metav1.Object
}

// ErrNoMember is returned for an object without the annotation that names its member: the
// server is not federator, or the request was for one member only.
var ErrNoMember = errors.New("object has no annotation " + memberKey)

// KeyOf returns the key of an object that was read from /fleet. Its only error
// wraps ErrNoMember.
func KeyOf(obj metav1.Object) (Key, error) {
	member := obj.GetAnnotations()[memberKey]
	if member == "" {
		return Key{}, fmt.Errorf("%s/%s: %w", obj.GetNamespace(), obj.GetName(), ErrNoMember)
	}
	return Key{Member: member, Namespace: obj.GetNamespace(), Name: obj.GetName()}, nil
}

// Handler is notified of changes. A nil function is not called.
type Handler[T Object] struct {
	Added   func(key Key, obj T)
	Updated func(key Key, before, after T)
	Deleted func(key Key, last T)
}

// Options configure an Informer. Everything is optional.
type Options[T Object] struct {
	Handlers []Handler[T]
	// Indexers are further indexes by name: each returns the values by which Lister.ByIndex
	// finds an object.
	Indexers map[string]func(T) []string
}

// Informer keeps the objects of one kind in all members of a fleet.
type Informer[T Object] struct {
	lw      cache.ListerWatcher
	example T
	store   *store[T]
}

// NewInformer returns an informer of what lw lists and watches: the result of ListWatch or a
// typed client of /fleet. Example is an object of the expected type, such as &corev1.Pod{}.
func NewInformer[T Object](lw cache.ListerWatcher, example T, opts Options[T]) (*Informer[T], error) {
	if lw == nil {
		return nil, errors.New("the informer has nothing to list and watch")
	}
	s, err := newStore(opts)
	if err != nil {
		return nil, err
	}
	return &Informer[T]{lw: lw, example: example, store: s}, nil
}

// Run lists and watches until ctx is done. It may be called once.
func (i *Informer[T]) Run(ctx context.Context) error {
	if !i.store.running.CompareAndSwap(false, true) {
		return errors.New("Run was called twice")
	}
	r := cache.NewReflectorWithOptions(pagesOnly{i.lw, cache.ToListerWatcherWithContext(i.lw)}, i.example, i.store, cache.ReflectorOptions{
		Name: fmt.Sprintf("federator client of %T", i.example),
	})
	r.RunWithContext(ctx)
	return nil
}

// Synced returns a channel that is closed once the first list is stored and the handlers
// have been called for all of it.
func (i *Informer[T]) Synced() <-chan struct{} { return i.store.synced }

// HasSynced reports whether Synced is closed, for cache.WaitForCacheSync.
func (i *Informer[T]) HasSynced() bool {
	select {
	case <-i.store.synced:
		return true
	default:
		return false
	}
}

// Lister returns a lister of the informer's objects.
func (i *Informer[T]) Lister() Lister[T] { return Lister[T]{objects: i.store.objects} }

// pagesOnly hides the server's support for streaming lists (see the package's trade-offs).
type pagesOnly struct {
	cache.ListerWatcher
	cache.ListerWatcherWithContext // cancels requests in flight when Run ends
}

// IsWatchListSemanticsUnSupported makes client-go's Reflector list.
func (pagesOnly) IsWatchListSemanticsUnSupported() bool { return true }
