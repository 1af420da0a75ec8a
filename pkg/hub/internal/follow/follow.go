// Package follow keeps what is held of a resource of the hub at what the hub has: by a list, page by page, and watches from there
// on. Each event of a watch is handed on: nothing is coalesced. What cannot be decoded keeps no other object from being read.
package follow

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/internal/sleep"
)

const (
	pageSize    = 250 // objects: Actions may be large
	watchFor    = 5 * time.Minute
	retryAfter  = time.Second
	retryAtMost = 30 * time.Second
)

// RequestTimeout bounds a request that is no watch.
const RequestTimeout = 15 * time.Second

// Sink takes in objects. Its methods are called by one goroutine, and Put and Remove after Begin only.
type Sink[T any] interface {
	Begin()            // of a list
	Put(T)             // of the list
	End()              // of the list
	Set(T)             // an object that has changed
	Remove(T)          // one that was deleted, or is not held any more: then it has a name and a creation only
	SetStale(bool)     // whether the hub is out of reach
	SetUnreadable(int) // how many objects there are that cannot be decoded
	Lacking() bool     // whether it has room for what it has left out: it is to be listed again
}

// page is a page of a list.
type page[T any] struct {
	metav1.ListMeta

	items      []T
	unreadable []*unreadable
}

// Follower keeps a Sink at what the hub has of a resource.
type Follower[T metav1.Object] struct {
	resource string
	sink     Sink[T]
	page     func(context.Context, metav1.ListOptions) (page[T], error)
	watch    func(context.Context, metav1.ListOptions) (watch.Interface, error)
	blank    func() T
	changed  func()
	log      *slog.Logger

	unreadable map[string]string // resourceVersions of objects that cannot be decoded, by name
}

// New returns a Follower of a resource. changed is called after each change of the sink, on the goroutine of Run, and must not block.
func New[T any, P Object[T]](from Resource[T, P], to Sink[P], changed func(), log *slog.Logger) *Follower[P] {
	return &Follower[P]{
		resource: from.Name, sink: to, page: from.page, watch: from.watch, blank: func() P { return new(T) },
		changed: changed, log: log, unreadable: map[string]string{},
	}
}

// Run follows until the context ends.
func (f *Follower[T]) Run(ctx context.Context) {
	at, wait := "", retryAfter // at: the resourceVersion up to which all is known; "": nothing is
	for ctx.Err() == nil {
		began, watched := time.Now(), at != ""
		next, err := f.step(ctx, at)
		if watched && time.Since(began) > retryAtMost {
			wait = retryAfter
		}
		switch {
		case err == nil && (!watched || time.Since(began) > retryAfter):
			at = next
			continue
		case err == nil: // a watch that ends at once would be opened without end
			at = next
		case ctx.Err() != nil:
			return
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			f.log.Debug("listing again", "resource", f.resource, "error", err)
			at = ""
		default:
			f.log.Warn("reading the hub failed", "resource", f.resource, "error", err)
			at = next
			f.sink.SetStale(true)
			f.changed()
		}
		if sleep.For(ctx, wait) != nil {
			return
		}
		wait = min(2*wait, retryAtMost)
	}
}

// step lists or, where something is known, watches, and returns up to where all is known then.
func (f *Follower[T]) step(ctx context.Context, at string) (string, error) {
	if at == "" {
		return f.list(ctx)
	}
	seconds := int64(watchFor / time.Second)
	ctx, cancel := context.WithTimeout(ctx, watchFor+RequestTimeout) // where the hub does not end it
	defer cancel()
	w, err := f.watch(ctx, metav1.ListOptions{ResourceVersion: at, AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
	if err != nil {
		return at, err
	}
	defer w.Stop()
	f.sink.SetStale(false)
	f.changed()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return at, apierrors.FromObject(e.Object)
		}
		at = f.take(e, at)
		if e.Type != watch.Bookmark {
			f.changed()
		}
		if f.sink.Lacking() {
			return "", nil
		}
	}
	return at, nil
}

// take takes in an event, and returns up to where all is known then.
func (f *Follower[T]) take(e watch.Event, at string) string {
	if u, is := e.Object.(*unreadable); is {
		if e.Type == watch.Deleted {
			delete(f.unreadable, u.Name)
		} else {
			f.skip(u, f.unreadable)
		}
		o := f.blank() // what was held of it is not what it is
		o.SetName(u.Name)
		o.SetCreationTimestamp(u.CreationTimestamp)
		f.sink.Remove(o)
		f.sink.SetUnreadable(len(f.unreadable))
		return cmp.Or(u.ResourceVersion, at)
	}
	o, ok := e.Object.(T)
	if !ok {
		return at
	}
	if _, was := f.unreadable[o.GetName()]; was && e.Type != watch.Bookmark {
		delete(f.unreadable, o.GetName())
		f.sink.SetUnreadable(len(f.unreadable))
	}
	switch e.Type {
	case watch.Deleted:
		f.sink.Remove(o)
	case watch.Bookmark:
	default:
		f.sink.Set(o)
	}
	return o.GetResourceVersion()
}

// skip notes that an object cannot be decoded. It is said once for each of its versions.
func (f *Follower[T]) skip(u *unreadable, known map[string]string) {
	if version, said := known[u.Name]; !said || version != u.ResourceVersion {
		f.log.Warn("an object of the hub cannot be decoded and is left out", "resource", f.resource, "name", u.Name, "error", u.err)
	}
	f.unreadable[u.Name] = u.ResourceVersion
}

// list lists page by page, so that the objects are never in memory at once.
func (f *Follower[T]) list(ctx context.Context) (string, error) {
	f.sink.Begin()
	known := f.unreadable
	f.unreadable = map[string]string{}
	opts := metav1.ListOptions{Limit: pageSize}
	for {
		p, err := f.onePage(ctx, opts)
		if err != nil {
			maps.Copy(f.unreadable, known) // which are held as before
			return "", err
		}
		for _, o := range p.items {
			f.sink.Put(o)
		}
		for _, u := range p.unreadable {
			f.skip(u, known)
		}
		if opts.Continue = p.Continue; opts.Continue == "" {
			f.sink.End()
			f.sink.SetUnreadable(len(f.unreadable))
			f.changed()
			return p.ResourceVersion, nil
		}
	}
}

func (f *Follower[T]) onePage(ctx context.Context, opts metav1.ListOptions) (page[T], error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return f.page(ctx, opts)
}
