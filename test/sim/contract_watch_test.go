package sim_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func (s *subject) dynamic(t *testing.T) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// watchers open the same watch as protobuf and as JSON.
func (s *subject) watchers(t *testing.T, opts metav1.ListOptions) map[string]watch.Interface {
	t.Helper()
	typed, err := s.typed.CoreV1().ConfigMaps(s.ns).Watch(s.ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(typed.Stop)
	dyn, err := s.dynamic(t).Resource(configMaps).Namespace(s.ns).Watch(s.ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dyn.Stop)
	return map[string]watch.Interface{"protobuf": typed, "JSON": dyn}
}

// expect reads events of objects with one-letter names and compares them as "TYPE name".
func expect(t *testing.T, w watch.Interface, want ...string) (last metav1.Object) {
	t.Helper()
	for i := 0; i < len(want); {
		ev, ok := nextEvent(t, w)
		if !ok {
			t.Errorf("the watch ended before %q", want[i])
			return last
		}
		obj, err := meta.Accessor(ev.Object)
		if err != nil {
			t.Errorf("%s %v", ev.Type, ev.Object)
			return last
		}
		if len(obj.GetName()) > 1 || ev.Type == watch.Bookmark && obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "" {
			continue // kube-root-ca.crt and periodic bookmarks
		}
		if got := fmt.Sprintf("%s %s", ev.Type, obj.GetName()); got != want[i] {
			t.Errorf("event %d is %q, want %q", i, got, want[i])
		}
		last = obj
		i++
	}
	return last
}

func testWatch(t *testing.T, s *subject) {
	client := s.typed.CoreV1().ConfigMaps(s.ns)
	first := s.create(t, "a", nil)
	s.create(t, "b", nil)
	fromRV := s.watchers(t, metav1.ListOptions{ResourceVersion: first.ResourceVersion})
	fromStart := s.watchers(t, metav1.ListOptions{})
	next := first.DeepCopy()
	next.Data = map[string]string{"k": "w"}
	next, err := client.Update(s.ctx, next, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(s.ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.create(t, "c", nil)
	for name, w := range fromRV {
		t.Run(name, func(t *testing.T) {
			expect(t, w, "ADDED b", "MODIFIED a")
			deleted := expect(t, w, "DELETED a")
			if rv := deleted.GetResourceVersion(); rv == next.ResourceVersion || deleted.GetUID() != first.UID {
				t.Errorf("deleted at %s, uid %s; it was %s and %s", rv, deleted.GetUID(), next.ResourceVersion, first.UID)
			}
			expect(t, w, "ADDED c")
		})
	}
	for name, w := range fromStart {
		t.Run("from_the_start_"+name, func(t *testing.T) {
			expect(t, w, "ADDED a", "ADDED b", "MODIFIED a", "DELETED a", "ADDED c")
		})
	}
}

func testWatchSelector(t *testing.T, s *subject) {
	client := s.typed.CoreV1().ConfigMaps(s.ns)
	opts := metav1.ListOptions{LabelSelector: "app=x", ResourceVersion: s.create(t, "z", nil).ResourceVersion}
	watchers := s.watchers(t, opts)
	cm := s.create(t, "a", map[string]string{"app": "y"})
	relabel := func(value string) *corev1.ConfigMap {
		cm.Labels = map[string]string{"app": value}
		var err error
		if cm, err = client.Update(s.ctx, cm, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		return cm
	}
	relabel("x")
	left := relabel("y")
	relabel("x")
	if err := client.Delete(s.ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, w := range watchers {
		t.Run(name, func(t *testing.T) {
			expect(t, w, "ADDED a")
			gone := expect(t, w, "DELETED a")
			if gone.GetLabels()["app"] != "x" || gone.GetResourceVersion() != left.ResourceVersion {
				t.Errorf("what left the selector has labels %v at %s, want app=x at %s", gone.GetLabels(), gone.GetResourceVersion(), left.ResourceVersion)
			}
			expect(t, w, "ADDED a", "DELETED a")
		})
	}
}

func testWatchList(t *testing.T, s *subject) {
	yes := true
	s.create(t, "a", nil)
	b := s.create(t, "b", nil)
	for _, rv := range []string{"", "0", b.ResourceVersion} {
		watchers := s.watchers(t, metav1.ListOptions{
			ResourceVersion: rv, SendInitialEvents: &yes, AllowWatchBookmarks: true,
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		})
		for name, w := range watchers {
			t.Run(fmt.Sprintf("rv=%q_%s", rv, name), func(t *testing.T) {
				bookmark := expect(t, w, "ADDED a", "ADDED b", "BOOKMARK ")
				if order, err := resourceversion.CompareResourceVersion(bookmark.GetResourceVersion(), b.ResourceVersion); err != nil || order < 0 {
					t.Errorf("bookmark at %s, b is of %s: %v", bookmark.GetResourceVersion(), b.ResourceVersion, err)
				}
			})
		}
		live := "c" + rv
		if len(live) > 1 {
			continue // one live event is enough
		}
		s.create(t, live, nil)
		for _, w := range watchers {
			expect(t, w, "ADDED c")
		}
		if err := s.typed.CoreV1().ConfigMaps(s.ns).Delete(s.ctx, live, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		// A watch from 0 begins with what the server's cache has: that knows of the delete
		// once a watch has told of it.
		for _, w := range watchers {
			expect(t, w, "DELETED c")
		}
	}
}

func testBookmarkAtTimeout(t *testing.T, s *subject) {
	rv := s.create(t, "a", nil).ResourceVersion
	five := int64(5)
	watchers := s.watchers(t, metav1.ListOptions{
		ResourceVersion: rv, AllowWatchBookmarks: true, TimeoutSeconds: &five, FieldSelector: "metadata.name=absent",
	})
	s.create(t, "b", nil) // a bookmark must have something newer to report
	for name, w := range watchers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bookmarks := 0
			for {
				ev, ok := nextEvent(t, w)
				if !ok {
					break
				}
				if ev.Type == watch.Bookmark {
					bookmarks++
				} else {
					t.Errorf("%s %v", ev.Type, ev.Object)
				}
			}
			if bookmarks == 0 {
				t.Error("no bookmark before the timeout")
			}
		})
	}
}

// A record of the events of an informer, by name.
type record struct {
	mu   sync.Mutex
	seen []string
}

func (r *record) add(what string, obj any) {
	if tomb, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tomb.Obj
	}
	o, err := meta.Accessor(obj)
	if err != nil || len(o.GetName()) > 1 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, what+" "+o.GetName())
}

func (r *record) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

func testInformers(t *testing.T, s *subject) {
	client := s.typed.CoreV1().ConfigMaps(s.ns)
	s.create(t, "a", nil)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	typed := informers.NewSharedInformerFactoryWithOptions(s.typed, 0, informers.WithNamespace(s.ns))
	defer typed.Shutdown()
	dyn := dynamicinformer.NewFilteredDynamicSharedInformerFactory(s.dynamic(t), 0, s.ns, nil)
	defer dyn.Shutdown()
	defer cancel()
	records := map[string]*record{}
	for name, informer := range map[string]cache.SharedIndexInformer{
		"typed": typed.Core().V1().ConfigMaps().Informer(), "dynamic": dyn.ForResource(configMaps).Informer(),
	} {
		r := &record{}
		records[name] = r
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { r.add("add", o) }, UpdateFunc: func(_, o any) { r.add("update", o) }, DeleteFunc: func(o any) { r.add("delete", o) },
		}); err != nil {
			t.Fatal(err)
		}
	}
	typed.StartWithContext(ctx)
	dyn.Start(ctx.Done())
	typed.WaitForCacheSync(ctx.Done())
	dyn.WaitForCacheSync(ctx.Done())
	b := s.create(t, "b", nil)
	b.Data = map[string]string{"k": "w"}
	if _, err := client.Update(s.ctx, b, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(s.ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want := []string{"add a", "add b", "update b", "delete a"}
	for name, r := range records {
		err := wait.PollUntilContextTimeout(s.ctx, 10*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
			return slices.Equal(r.list(), want), nil
		})
		if err != nil {
			t.Errorf("%s informer saw %v, want %v", name, r.list(), want)
		}
	}
}

var (
	crds    = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets = schema.GroupVersionResource{Group: "sim.example", Version: "v1", Resource: "widgets"}
)

func widgetCRD(served ...string) *unstructured.Unstructured {
	keep := true
	crd := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{Kind: "CustomResourceDefinition", APIVersion: "apiextensions.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.sim.example"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "sim.example", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget"},
		},
	}
	for _, v := range served {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: v, Served: true, Storage: v == "v1",
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep}},
		})
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		panic(err)
	}
	delete(content, "status")
	return &unstructured.Unstructured{Object: content}
}

// served waits until discovery shows exactly these versions of widgets.
func (s *subject) served(t *testing.T, versions ...string) {
	t.Helper()
	var got []string
	err := wait.PollUntilContextTimeout(s.ctx, 50*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		groups, err := s.typed.Discovery().ServerGroups()
		if err != nil {
			return false, nil
		}
		got = nil
		for _, g := range groups.Groups {
			for _, v := range g.Versions {
				if g.Name == "sim.example" {
					got = append(got, v.Version)
				}
			}
		}
		return slices.Equal(got, versions), nil
	})
	if err != nil {
		t.Fatalf("discovery shows %v of widgets, want %v", got, versions)
	}
}

func testCRD(t *testing.T, s *subject) {
	client := s.dynamic(t)
	if _, err := client.Resource(widgets).List(s.ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("before the CRD: %v", err)
	}
	if _, err := client.Resource(crds).Create(s.ctx, widgetCRD("v1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // also when the test ends early
		_ = client.Resource(crds).Delete(context.WithoutCancel(s.ctx), "widgets.sim.example", metav1.DeleteOptions{})
	})
	s.served(t, "v1")

	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "sim.example/v1", "kind": "Widget", "metadata": map[string]any{"name": "a", "labels": map[string]any{"l": "1"}},
		"spec": map[string]any{"size": int64(1) << 53, "aaa": []any{nil, map[string]any{}, "x"}},
	}}
	// A new kind may take a moment to be stored although discovery shows it.
	var created *unstructured.Unstructured
	if err := wait.PollUntilContextTimeout(s.ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		var err error
		created, err = client.Resource(widgets).Namespace(s.ns).Create(ctx, widget, metav1.CreateOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	}); err != nil {
		t.Fatal(err)
	}
	if size, _, _ := unstructured.NestedInt64(created.Object, "spec", "size"); size != 1<<53 {
		t.Errorf("size %d", size)
	}
	path := "/apis/sim.example/v1/namespaces/" + s.ns + "/widgets"
	if code, _, _ := s.get(t, s.config, path, runtime.ContentTypeProtobuf); code != http.StatusNotAcceptable {
		t.Errorf("protobuf of a custom kind: %d", code)
	}
	code, contentType, _ := s.get(t, s.config, path, runtime.ContentTypeProtobuf+",application/json")
	if code != 200 || contentType != "application/json" {
		t.Errorf("protobuf or JSON of a custom kind: %d %s", code, contentType)
	}
	list, err := client.Resource(widgets).List(s.ctx, metav1.ListOptions{LabelSelector: "l=1", FieldSelector: "metadata.name=a"})
	if err != nil || len(list.Items) != 1 || list.GetKind() != "WidgetList" || list.Items[0].GetKind() != "Widget" || list.Items[0].GetUID() != created.GetUID() {
		t.Fatalf("listed %v, %v", list, err)
	}

	// A second version: the same objects under both.
	crd, err := client.Resource(crds).Get(s.ctx, "widgets.sim.example", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	crd.Object["spec"] = widgetCRD("v1", "v2").Object["spec"]
	if _, err := client.Resource(crds).Update(s.ctx, crd, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.served(t, "v2", "v1")
	v2 := widgets.GroupResource().WithVersion("v2")
	if err := wait.PollUntilContextTimeout(s.ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		got, err := client.Resource(v2).Namespace(s.ns).Get(ctx, "a", metav1.GetOptions{})
		return err == nil && got.GetAPIVersion() == "sim.example/v2" && got.GetUID() == created.GetUID(), nil
	}); err != nil {
		t.Errorf("under the second version: %v", err)
	}

	// The change has made the server forget the history of the kind.
	old, err := client.Resource(widgets).Namespace(s.ns).Watch(s.ctx, metav1.ListOptions{ResourceVersion: created.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Stop()
	if ev, _ := nextEvent(t, old); ev.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(ev.Object)) {
		t.Errorf("a watch from before the change: %s %v", ev.Type, ev.Object)
	}
	if ev, ok := nextEvent(t, old); ok {
		t.Errorf("after the error: %s %v", ev.Type, ev.Object)
	}

	list, err = client.Resource(widgets).Namespace(s.ns).List(s.ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.Resource(widgets).Namespace(s.ns).Watch(s.ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := client.Resource(crds).Delete(s.ctx, "widgets.sim.example", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, w, "DELETED a")
	for {
		if _, ok := nextEvent(t, w); !ok {
			break
		}
	}
	s.served(t)
	if _, err := client.Resource(widgets).List(s.ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the CRD: %v", err)
	}
}
