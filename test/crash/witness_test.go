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

// version is one that an object has had.
type version struct {
	deleted                 bool
	action, resourceVersion string
}

// witness follows the objects of the member: an API server may answer a write with an
// error, because whoever asked for it is gone, and have done it.
type witness struct {
	mu       sync.Mutex
	versions map[string][]version
	writes   chan struct{} // closed when a process has written something
	err      watch.EventType
}

func newWitness(t *testing.T, of *kube.ControlPlane) *witness {
	t.Helper()
	w := &witness{versions: map[string][]version{}, writes: make(chan struct{})}
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
			w.see(e)
		}
	}()
	t.Cleanup(func() {
		events.Stop()
		<-ended
	})
	return w
}

func (w *witness) see(e watch.Event) {
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

// next returns a channel that is closed when a process writes something.
func (w *witness) next() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

// changes are what processes have made of the objects, by name.
func (w *witness) changes(t *testing.T) map[string][]version {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != "" {
		t.Fatalf("the watch has ended: %s", w.err)
	}
	found := map[string][]version{}
	for name, versions := range w.versions {
		for _, v := range versions {
			if v.deleted || v.action != "" {
				found[name] = append(found[name], v)
			}
		}
	}
	return found
}
