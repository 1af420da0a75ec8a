package client

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
)

// store is the Reflector's store. Only the Reflector changes it, one change at a time; reads
// may come from any goroutine.
type store[T Object] struct {
	objects  cache.ThreadSafeStore // by Key.String
	handlers []Handler[T]

	running atomic.Bool
	synced  chan struct{}
	once    sync.Once // closes synced
}

// Names of the indexes that every informer has.
const (
	byMember    = "federator.dev/member"
	byNamespace = "federator.dev/namespace" // <member>/<namespace>
)

func newStore[T Object](opts Options[T]) (*store[T], error) {
	indexers := cache.Indexers{
		byMember: func(obj any) ([]string, error) {
			k, err := KeyOf(obj.(T))
			return []string{k.Member}, err
		},
		byNamespace: func(obj any) ([]string, error) {
			k, err := KeyOf(obj.(T))
			return []string{k.Member + "/" + k.Namespace}, err
		},
	}
	for _, name := range slices.Sorted(maps.Keys(opts.Indexers)) {
		index := opts.Indexers[name]
		if _, taken := indexers[name]; taken || name == "" || index == nil {
			return nil, fmt.Errorf("indexer %q: the name is taken or empty, or there is no function", name)
		}
		indexers[name] = func(obj any) ([]string, error) { return index(obj.(T)), nil }
	}
	return &store[T]{
		objects:  cache.NewThreadSafeStore(indexers, cache.Indices{}),
		handlers: slices.Clone(opts.Handlers),
		synced:   make(chan struct{}),
	}, nil
}

// Add implements cache.ReflectorStore.
func (s *store[T]) Add(obj any) error { return s.put(obj) }

// Update implements cache.ReflectorStore.
func (s *store[T]) Update(obj any) error { return s.put(obj) }

// Delete implements cache.ReflectorStore.
func (s *store[T]) Delete(obj any) error {
	last, key, err := s.object(obj)
	if err != nil {
		return err
	}
	id := key.String()
	if _, held := s.objects.Get(id); !held {
		return nil
	}
	s.objects.Delete(id)
	s.deleted(key, last)
	return nil
}

// Replace implements cache.ReflectorStore: it reports the differences from the previous
// content.
func (s *store[T]) Replace(list []any, _ string) error {
	listed := make(map[string]bool, len(list))
	var errs []error
	for _, obj := range list {
		_, key, err := s.object(obj)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		listed[key.String()] = true
	}
	if len(errs) > 0 { // an invalid list removes nothing
		return errors.Join(errs...)
	}
	for _, id := range s.objects.ListKeys() {
		if listed[id] {
			continue
		}
		if held, ok := s.objects.Get(id); ok {
			if err := s.Delete(held); err != nil {
				return err
			}
		}
	}
	for _, obj := range list {
		if err := s.put(obj); err != nil {
			return err
		}
	}
	s.once.Do(func() { close(s.synced) })
	return nil
}

// Resync implements cache.ReflectorStore. It does nothing: handlers miss no changes.
func (s *store[T]) Resync() error { return nil }

func (s *store[T]) put(obj any) error {
	after, key, err := s.object(obj)
	if err != nil {
		return err
	}
	id := key.String()
	held, ok := s.objects.Get(id)
	if !ok {
		s.objects.Add(id, after)
		s.added(key, after)
		return nil
	}
	before := held.(T)
	switch {
	case before.GetUID() != after.GetUID():
		s.objects.Delete(id)
		s.deleted(key, before)
		s.objects.Add(id, after)
		s.added(key, after)
	case before.GetResourceVersion() != after.GetResourceVersion():
		s.objects.Update(id, after)
		s.updated(key, before, after)
	}
	return nil
}

func (s *store[T]) object(obj any) (T, Key, error) {
	o, ok := obj.(T)
	if !ok {
		return o, Key{}, fmt.Errorf("got a %T, expected a %T", obj, o)
	}
	key, err := KeyOf(o)
	return o, key, err
}

func (s *store[T]) added(key Key, obj T) {
	for _, h := range s.handlers {
		if h.Added != nil {
			h.Added(key, obj)
		}
	}
}

func (s *store[T]) updated(key Key, before, after T) {
	for _, h := range s.handlers {
		if h.Updated != nil {
			h.Updated(key, before, after)
		}
	}
}

func (s *store[T]) deleted(key Key, last T) {
	for _, h := range s.handlers {
		if h.Deleted != nil {
			h.Deleted(key, last)
		}
	}
}
