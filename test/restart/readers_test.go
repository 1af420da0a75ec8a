package restart

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// reader is a stock client of one member through federator, and all that it has seen.
type reader struct {
	what  string
	lists atomic.Int64 // requests by which all is listed
	opens atomic.Int64 // watches that were answered

	mu       sync.Mutex
	last     map[string]uint64          // resourceVersion, by name
	seen     map[string]map[uint64]bool // resourceVersions, by name
	present  map[string]uint64          // resourceVersion of what is there, by name
	problems []string
}

func newReader(what string) *reader {
	return &reader{what: what, last: map[string]uint64{}, seen: map[string]map[uint64]bool{}, present: map[string]uint64{}}
}

// counting counts the requests that list.
func (r *reader) counting(c *rest.Config) *rest.Config {
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(q *http.Request) (*http.Response, error) {
			if v := q.URL.Query(); v.Get("watch") == "" || v.Get("sendInitialEvents") == "true" {
				r.lists.Add(1)
			}
			answer, err := next.RoundTrip(q)
			if err == nil && answer.StatusCode == http.StatusOK && q.URL.Query().Get("watch") != "" {
				r.opens.Add(1)
			}
			return answer, err
		})
	})
	return c
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

// saw takes note of a version of an object: each comes once, in order.
func (r *reader) saw(obj any) {
	o := obj.(*unstructured.Unstructured)
	rv, err := strconv.ParseUint(o.GetAnnotations()["federator.dev/resource-version"], 10, 64)
	r.mu.Lock()
	defer r.mu.Unlock()
	key := o.GetNamespace() + "/" + o.GetName()
	switch {
	case err != nil:
		r.problems = append(r.problems, fmt.Sprintf("%s: %v", key, err))
	case rv == r.last[key]:
		r.problems = append(r.problems, fmt.Sprintf("%s at %d came twice", key, rv))
	case rv < r.last[key]:
		r.problems = append(r.problems, fmt.Sprintf("%s at %d came after %d", key, rv, r.last[key]))
	}
	r.last[key], r.present[key] = rv, rv
	if r.seen[key] == nil {
		r.seen[key] = map[uint64]bool{}
	}
	r.seen[key][rv] = true
}

// gone takes note that an object was deleted.
func (r *reader) gone(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	o := obj.(*unstructured.Unstructured)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.present, o.GetNamespace()+"/"+o.GetName())
}

// follow runs an informer.
func (r *reader) follow(ctx context.Context, rig *rig, member string) error {
	informer := dynamicinformer.NewFilteredDynamicInformer(rig.dynamic(r.counting(rig.config(member))), configMaps, "default", 0, cache.Indexers{}, nil).Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: r.saw,
		UpdateFunc: func(_, obj any) {
			r.saw(obj)
		},
		DeleteFunc: r.gone,
	})
	if err != nil {
		return err
	}
	informer.RunWithContext(ctx)
	return nil
}

// watch lists, and runs a RetryWatcher from there.
func (r *reader) watch(ctx context.Context, rig *rig, member string) error {
	maps := rig.dynamic(r.counting(rig.config(member))).Resource(configMaps).Namespace("default")
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		r.saw(&list.Items[i])
	}
	w, err := toolswatch.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return maps.Watch(ctx, o) },
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		switch e.Type {
		case watch.Added, watch.Modified:
			r.saw(e.Object)
		case watch.Deleted:
			r.gone(e.Object)
		case watch.Error:
			return fmt.Errorf("the watch has ended: %v", e.Object)
		}
	}
	return nil
}
