package hubreader

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/policyquery"
)

const (
	pageSize    = 250 // objects: Actions may be large
	watchFor    = 5 * time.Minute
	retryAfter  = time.Second
	retryAtMost = 30 * time.Second
)

// sink takes in objects. Its methods are called by one goroutine, and put and remove after begin only.
type sink[T any] interface {
	begin()        // of a list
	put(T)         // of the list
	end()          // of the list
	set(T)         // an object that has changed
	remove(T)      // one that was deleted
	setStale(bool) // whether the hub is out of reach
}

// page is a page of a list.
type page[T any] struct {
	metav1.ListMeta
	items []T
}

// follower keeps a sink at what the hub has of a resource.
type follower[T metav1.Object] struct {
	resource policyquery.HubResource
	sink     sink[T]
	page     func(context.Context, metav1.ListOptions) (page[T], error)
	watch    func(context.Context, metav1.ListOptions) (watch.Interface, error)
	changed  func(policyquery.HubResource)
	log      *slog.Logger
}

// run follows until the context ends.
func (f *follower[T]) run(ctx context.Context) {
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
			f.sink.setStale(true)
			f.changed(f.resource)
		}
		if sleep.For(ctx, wait) != nil {
			return
		}
		wait = min(2*wait, retryAtMost)
	}
}

// step lists or, where something is known, watches, and returns up to where all is known then.
func (f *follower[T]) step(ctx context.Context, at string) (string, error) {
	if at == "" {
		return f.list(ctx)
	}
	seconds := int64(watchFor / time.Second)
	ctx, cancel := context.WithTimeout(ctx, watchFor+requestTimeout) // where the hub does not end it
	defer cancel()
	w, err := f.watch(ctx, metav1.ListOptions{ResourceVersion: at, AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
	if err != nil {
		return at, err
	}
	defer w.Stop()
	f.sink.setStale(false)
	f.changed(f.resource)
	for e := range w.ResultChan() {
		o, ok := e.Object.(T)
		switch {
		case e.Type == watch.Error:
			return at, apierrors.FromObject(e.Object)
		case !ok:
			continue
		case e.Type == watch.Deleted:
			f.sink.remove(o)
		case e.Type != watch.Bookmark:
			f.sink.set(o)
		}
		at = o.GetResourceVersion()
		if e.Type != watch.Bookmark {
			f.changed(f.resource)
		}
	}
	return at, nil
}

// list lists page by page, so that the objects are never in memory at once.
func (f *follower[T]) list(ctx context.Context) (string, error) {
	f.sink.begin()
	opts := metav1.ListOptions{Limit: pageSize}
	for {
		p, err := f.onePage(ctx, opts)
		if err != nil {
			return "", err
		}
		for _, o := range p.items {
			f.sink.put(o)
		}
		if opts.Continue = p.Continue; opts.Continue == "" {
			f.sink.end()
			f.changed(f.resource)
			return p.ResourceVersion, nil
		}
	}
}

func (f *follower[T]) onePage(ctx context.Context, opts metav1.ListOptions) (page[T], error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return f.page(ctx, opts)
}

// listOf returns a function that lists pages of one of federator's resources.
func listOf[L any, P interface {
	*L
	runtime.Object
}, T any](r *Reader, resource policyquery.HubResource, of func(*L) page[T]) func(context.Context, metav1.ListOptions) (page[T], error) {
	return func(ctx context.Context, opts metav1.ListOptions) (page[T], error) {
		list := new(L)
		err := r.client.Get().Resource(string(resource)).VersionedParams(&opts, metav1.ParameterCodec).Do(ctx).Into(P(list))
		return of(list), err
	}
}

// watch returns a function that watches one of federator's resources.
func (r *Reader) watch(resource policyquery.HubResource) func(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		opts.Watch = true
		return r.client.Get().Resource(string(resource)).VersionedParams(&opts, metav1.ParameterCodec).Watch(ctx)
	}
}

func (r *Reader) configMaps(ctx context.Context, opts metav1.ListOptions) (page[*corev1.ConfigMap], error) {
	list, err := r.core.CoreV1().ConfigMaps(r.opts.Namespace).List(ctx, opts)
	if err != nil {
		return page[*corev1.ConfigMap]{}, err
	}
	return page[*corev1.ConfigMap]{list.ListMeta, pointers(list.Items)}, nil
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}
