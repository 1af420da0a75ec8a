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

// Object is what an Informer holds: a pointer to a generated type such as
// *corev1.Pod, or *unstructured.Unstructured.
type Object interface {
	runtime.Object
	metav1.Object
}

// ErrNoMember is returned for an object that does not say which member it is
// of: the server is no federator, or it was asked for one member only.
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

// Handler is told of changes. A nil function is not called.
type Handler[T Object] struct {
	Added   func(key Key, obj T)
	Updated func(key Key, before, after T)
	Deleted func(key Key, last T)
}

// Options configure an Informer. Everything is optional.
type Options[T Object] struct {
	Handlers []Handler[T]
	// Indexers name further ways to find objects: each gives the values that
	// an object is found by with Lister.ByIndex.
	Indexers map[string]func(T) []string
}

// Informer keeps the objects of one kind in all members of a fleet.
type Informer[T Object] struct {
	lw      cache.ListerWatcher
	example T
	store   *store[T]
}

// NewInformer returns an informer of what lw lists and watches, as ListWatch
// gives it or a typed client of /fleet does. Example is an object of the type
// that is expected, such as &corev1.Pod{}.
func NewInformer[T Object](lw cache.ListerWatcher, example T, opts Options[T]) (*Informer[T], error) {
	if lw == nil {
		return nil, errors.New("an informer needs something to list and watch")
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
		return errors.New("the informer has been run before")
	}
	r := cache.NewReflectorWithOptions(pagesOnly{i.lw, cache.ToListerWatcherWithContext(i.lw)}, i.example, i.store, cache.ReflectorOptions{
		Name: fmt.Sprintf("federator client of %T", i.example),
	})
	r.RunWithContext(ctx)
	return nil
}

// Synced returns a channel that is closed once the first list is held and the
// handlers have been told of all of it.
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

// Lister returns a view of what the informer holds.
func (i *Informer[T]) Lister() Lister[T] { return Lister[T]{objects: i.store.objects} }

// pagesOnly hides that its server can stream lists (see the package's
// trade-offs).
type pagesOnly struct {
	cache.ListerWatcher
	cache.ListerWatcherWithContext // ends what is under way when Run does
}

// IsWatchListSemanticsUnSupported tells client-go's Reflector to list.
func (pagesOnly) IsWatchListSemanticsUnSupported() bool { return true }
