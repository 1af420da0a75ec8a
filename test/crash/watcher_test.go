package crash

import (
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"federator.dev/federator/test/kube"
)

// version is a version of an object.
type version struct {
	deleted                 bool
	action, resourceVersion string
}

// watcher watches the objects of the member: an API server may execute a write and answer it
// with an error, because the client is gone.
type watcher struct {
	mu       sync.Mutex
	versions map[string][]version
	writes   chan struct{} // closed at the next write of a process
	err      watch.EventType
}

func newWatcher(t *testing.T, of *kube.ControlPlane) *watcher {
	t.Helper()
	w := &watcher{versions: map[string][]version{}, writes: make(chan struct{})}
	maps := of.Client().CoreV1().ConfigMaps(namespace)
	now, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := watchtools.NewRetryWatcherWithContext(t.Context(), now.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: maps.Watch,
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for e := range events.ResultChan() {
			w.observe(e)
		}
	}()
	t.Cleanup(func() {
		events.Stop()
		<-ended
	})
	return w
}

func (w *watcher) observe(e watch.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, ok := e.Object.(*corev1.ConfigMap)
	if !ok {
		w.err = e.Type
		return
	}
	v := version{deleted: e.Type == watch.Deleted, action: m.Annotations["federator.dev/action"], resourceVersion: m.ResourceVersion}
	w.versions[m.Name] = append(w.versions[m.Name], v)
	if v.deleted || v.action != "" {
		close(w.writes)
		w.writes = make(chan struct{})
	}
}

// next returns a channel that is closed at the next write of a process.
func (w *watcher) next() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

// changes returns the versions that processes have written, by name.
func (w *watcher) changes(t *testing.T) map[string][]version {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != "" {
		t.Fatalf("the watch has ended: %s", w.err)
	}
	changed := map[string][]version{}
	for name, versions := range w.versions {
		for _, v := range versions {
			if v.deleted || v.action != "" {
				changed[name] = append(changed[name], v)
			}
		}
	}
	return changed
}
