package sim_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/test/sim"
	"federator.dev/federator/test/sim/siblings"
)

var (
	cmResource  = schema.GroupResource{Resource: "configmaps"}
	podResource = schema.GroupResource{Resource: "pods"}
)

// member starts a fleet of one and a typed client for it.
func member(t *testing.T, opts sim.Options) (*sim.Member, kubernetes.Interface) {
	t.Helper()
	opts.Members = 1
	m := start(t, opts).Members()[0]
	return m, clientFor(t, m.RESTConfig())
}

func clientFor(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"k": "v"}}
}

func mustCreate(t *testing.T, m *sim.Member, objs ...sim.Object) {
	t.Helper()
	for _, obj := range objs {
		if err := m.Create(obj); err != nil {
			t.Fatal(err)
		}
	}
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
		return condition(), nil
	})
	if err != nil {
		t.Fatalf("not so in 20 s: %s", what)
	}
}

func watchConfigMaps(t *testing.T, c kubernetes.Interface, rv string) watch.Interface {
	t.Helper()
	w, err := c.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: rv, AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

func TestMember_WritesReachWatches(t *testing.T) {
	m, client := member(t, sim.Options{})
	w := watchConfigMaps(t, client, m.ResourceVersion())
	cm := configMap("a")
	mustCreate(t, m, cm)
	cm.Data["k"] = "w"
	if err := m.Update(cm); err != nil {
		t.Fatal(err)
	}
	if err := m.Patch(cmResource, "default", "a", []byte(`{"data":{"n":"1"}}`)); err != nil {
		t.Fatal(err)
	}
	if err := m.Modify(cmResource, "default", "a", func(o sim.Object) { o.SetLabels(map[string]string{"l": "1"}) }); err != nil {
		t.Fatal(err)
	}
	if err := m.Delete(cmResource, "default", "a"); err != nil {
		t.Fatal(err)
	}
	last := expect(t, w, "ADDED a", "MODIFIED a", "MODIFIED a", "MODIFIED a", "DELETED a").(*corev1.ConfigMap)
	if fmt.Sprint(last.Data, last.Labels) != "map[k:w n:1] map[l:1]" || last.ResourceVersion != m.ResourceVersion() {
		t.Errorf("the last was %v %v at %s of %s", last.Data, last.Labels, last.ResourceVersion, m.ResourceVersion())
	}
	if err := m.Delete(cmResource, "default", "a"); !apierrors.IsNotFound(err) {
		t.Errorf("deleting again: %v", err)
	}
	if _, err := m.Get(cmResource, "default", "a"); !apierrors.IsNotFound(err) || m.Len(cmResource) != 0 {
		t.Errorf("get: %v, and %d are left", err, m.Len(cmResource))
	}
}

func TestMember_CompactExpiresOldWatches(t *testing.T) {
	m, client := member(t, sim.Options{})
	before := m.ResourceVersion()
	running := watchConfigMaps(t, client, before)
	mustCreate(t, m, configMap("a"))
	expect(t, running, "ADDED a")
	m.Compact(cmResource)
	ev, _ := nextEvent(t, watchConfigMaps(t, client, before))
	if ev.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(ev.Object)) {
		t.Errorf("%s %v", ev.Type, ev.Object)
	}
	_, err := client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{ResourceVersion: before, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("an exact list: %v", err)
	}
	mustCreate(t, m, configMap("b"))
	expect(t, running, "ADDED b")
}

func TestMember_HistoryIsAWindow(t *testing.T) {
	m, client := member(t, sim.Options{History: 8})
	before := m.ResourceVersion()
	for i := range 20 {
		mustCreate(t, m, configMap(fmt.Sprintf("cm-%d", i)))
	}
	ev, _ := nextEvent(t, watchConfigMaps(t, client, before))
	if ev.Type != watch.Error {
		t.Errorf("%s %v", ev.Type, ev.Object)
	}
	mustCreate(t, m, configMap("x"))
	rv := m.ResourceVersion()
	mustCreate(t, m, configMap("y"))
	expect(t, watchConfigMaps(t, client, rv), "ADDED y")
}

func TestMember_DroppedWatchesMayResume(t *testing.T) {
	m, client := member(t, sim.Options{})
	w := watchConfigMaps(t, client, m.ResourceVersion())
	mustCreate(t, m, configMap("a"))
	rv := expect(t, w, "ADDED a").GetResourceVersion()
	m.DropWatches(cmResource)
	if ev, ok := nextEvent(t, w); ok {
		t.Errorf("%s %v", ev.Type, ev.Object)
	}
	mustCreate(t, m, configMap("b"))
	expect(t, watchConfigMaps(t, client, rv), "ADDED b")
}

func TestMember_BookmarksComeAtTheirInterval(t *testing.T) {
	m, client := member(t, sim.Options{Bookmark: 20 * time.Millisecond})
	w := watchConfigMaps(t, client, m.ResourceVersion())
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}} // of another kind: only a bookmark reports it
	mustCreate(t, m, ns)
	ev, _ := nextEvent(t, w)
	if o, ok := ev.Object.(*corev1.ConfigMap); ev.Type != watch.Bookmark || !ok || o.ResourceVersion != ns.ResourceVersion {
		t.Errorf("%s %v, want a bookmark at %s", ev.Type, ev.Object, ns.ResourceVersion)
	}
}

func TestMember_ForbidAndAllow(t *testing.T) {
	m, client := member(t, sim.Options{})
	m.Forbid(cmResource)
	_, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `cannot list resource "configmaps" in API group "" in the namespace "default"`) {
		t.Errorf("forbidden: %v", err)
	}
	if _, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("another kind: %v", err)
	}
	m.Allow(cmResource)
	if _, err := client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("allowed: %v", err)
	}
}

func TestMember_RotatedCredentialsAreRefused(t *testing.T) {
	m, client := member(t, sim.Options{})
	token := clientFor(t, m.TokenConfig())
	list := func(c kubernetes.Interface) error {
		_, err := c.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := errors.Join(list(client), list(token)); err != nil {
		t.Fatal(err)
	}
	if err := m.Rotate(); err != nil {
		t.Fatal(err)
	}
	if err := list(client); !apierrors.IsUnauthorized(err) {
		t.Errorf("old certificate: %v", err)
	}
	if err := list(token); !apierrors.IsUnauthorized(err) {
		t.Errorf("old token: %v", err)
	}
	file, err := m.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(list(clientFor(t, config)), list(clientFor(t, m.TokenConfig()))); err != nil {
		t.Errorf("new credentials: %v", err)
	}
}

func TestMember_RefusesCredentialsOfOthers(t *testing.T) {
	fleet := start(t, sim.Options{Members: 2})
	a, b := fleet.Members()[0], fleet.Members()[1]
	config := a.RESTConfig()
	config.Host = b.RESTConfig().Host
	if _, err := clientFor(t, config).Discovery().ServerVersion(); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a's authority at b: %v", err)
	}
	config.CAData = b.RESTConfig().CAData
	if _, err := clientFor(t, config).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a's certificate at b: %v", err)
	}
}

func TestMember_RestoreKeepsTheAddress(t *testing.T) {
	m, client := member(t, sim.Options{})
	mustCreate(t, m, configMap("a"))
	w := watchConfigMaps(t, client, m.ResourceVersion())
	m.Cut()
	for {
		if ev, ok := nextEvent(t, w); !ok || ev.Type == watch.Error {
			break
		}
	}
	if _, err := client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("while cut: %v", err)
	}
	if err := m.Restore(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the client reads again", func() bool {
		list, err := client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 1
	})
}

func TestFleet_MembersComeAndGo(t *testing.T) {
	fleet := start(t, sim.Options{Members: 2})
	m, err := fleet.Add("late")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fleet.Add("late"); err == nil {
		t.Error("a name twice")
	}
	if _, err := clientFor(t, m.RESTConfig()).Discovery().ServerVersion(); err != nil {
		t.Error(err)
	}
	fleet.Remove(m)
	if n := len(fleet.Members()); n != 2 {
		t.Errorf("%d members", n)
	}
	if err := m.Restore(); err == nil {
		t.Error("a removed member came back")
	}
	fleet.Close()
	if _, err := fleet.Add("later"); err == nil {
		t.Error("added to a closed fleet")
	}
}

func TestOptions_TakeEffect(t *testing.T) {
	for _, bad := range []sim.Options{{Members: -1}, {History: -1}, {Bookmark: -1}, {Kinds: []sim.Kind{{Kind: "X"}}}} {
		if fleet, err := sim.New(bad); err == nil {
			fleet.Close()
			t.Errorf("%+v was taken", bad)
		}
	}
	log := &lockedBuilder{}
	m, client := member(t, sim.Options{
		Version: "v1.31.4", Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Kinds: []sim.Kind{{Kind: "Pod", Resource: "pods", Versions: []string{"v1"}, Namespaced: true}, {Group: "e.example", Kind: "Gadget", Resource: "gadgets", Versions: []string{"v1beta1"}}},
	})
	if info, err := client.Discovery().ServerVersion(); err != nil || info.Minor != "31" || info.GitVersion != "v1.31.4" {
		t.Errorf("%v, %v", info, err)
	}
	_, lists, err := client.Discovery().ServerGroupsAndResources()
	if err != nil || len(lists) != 2 {
		t.Errorf("%v, %v", lists, err)
	}
	gadget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "e.example/v1beta1", "kind": "Gadget", "metadata": map[string]any{"name": "g"}}}
	mustCreate(t, m, gadget)
	if m.Len(schema.GroupResource{Group: "e.example", Resource: "gadgets"}) != 1 || gadget.GetUID() == "" {
		t.Errorf("created %v", gadget)
	}
	m.Cut()
	eventually(t, "the log says that the server ended", func() bool { return strings.Contains(log.String(), "API server ends") })
}

type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuilder) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuilder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestMember_KindsComeAndGo(t *testing.T) {
	m, client := member(t, sim.Options{})
	kind := sim.Kind{Group: "e.example", Kind: "Gadget", Resource: "gadgets", Versions: []string{"v1"}}
	if err := m.AddKind(kind); err != nil {
		t.Fatal(err)
	}
	if list, err := client.Discovery().ServerResourcesForGroupVersion("e.example/v1"); err != nil || list.APIResources[0].Kind != "Gadget" {
		t.Errorf("%v, %v", list, err)
	}
	m.RemoveKind(kind.GroupResource())
	if _, err := client.Discovery().ServerResourcesForGroupVersion("e.example/v1"); !apierrors.IsNotFound(err) {
		t.Errorf("removed: %v", err)
	}
	if err := m.AddKind(sim.Kind{Kind: "X"}); err == nil {
		t.Error("a kind without versions was taken")
	}
}

func TestMember_LoadedSiblingsReadAsTheyWereMade(t *testing.T) {
	m, client := member(t, sim.Options{})
	pods, err := siblings.Open("").Pods(1200, 20, 9)
	if err != nil {
		t.Fatal(err)
	}
	old := watchPods(t, client, m.ResourceVersion())
	if err := m.Load(podResource, pods); err != nil {
		t.Fatal(err)
	}
	if ev, ok := nextEvent(t, old); ok {
		t.Errorf("a load is no series of writes, but: %s %v", ev.Type, ev.Object)
	}
	if err := m.Load(podResource, pods); err == nil {
		t.Error("the same names twice")
	}
	want := map[string]*corev1.Pod{}
	for i := range pods.Len() {
		pod := pods.Pod(i)
		want[pod.Namespace+"/"+pod.Name] = pod
	}
	for _, accept := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		config := m.RESTConfig()
		config.ContentType, config.AcceptContentTypes = accept, accept
		c, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		list, err := c.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != len(want) {
			t.Errorf("%d pods as %s", len(list.Items), accept)
		}
		for _, got := range list.Items {
			pod := want[got.Namespace+"/"+got.Name]
			if pod == nil {
				t.Fatalf("%s/%s was not made", got.Namespace, got.Name)
			}
			pod = pod.DeepCopy()
			pod.ResourceVersion = got.ResourceVersion
			a, errA := pod.Marshal()
			b, errB := got.Marshal()
			if string(a) != string(b) || errors.Join(errA, errB) != nil {
				t.Fatalf("%s differs as %s", got.Name, accept)
			}
		}
	}
	// A loaded object changes and goes like any other.
	w := watchPods(t, client, m.ResourceVersion())
	ns, name := pods.Name(17)
	if err := m.Modify(podResource, ns, name, func(o sim.Object) { siblings.Touch(o.(*corev1.Pod), 4) }); err != nil {
		t.Fatal(err)
	}
	ns2, name2 := pods.Name(18)
	if err := m.Delete(podResource, ns2, name2); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		kind watch.EventType
		name string
	}{{watch.Modified, name}, {watch.Deleted, name2}} {
		ev, _ := nextEvent(t, w)
		pod, ok := ev.Object.(*corev1.Pod)
		if !ok || ev.Type != want.kind || pod.Name != want.name {
			t.Fatalf("%s %v, want %+v", ev.Type, ev.Object, want)
		}
		if want.kind == watch.Modified && pod.Status.ContainerStatuses[0].RestartCount != 4 {
			t.Errorf("the change is missing: %v", pod.Status)
		}
	}
}

func watchPods(t *testing.T, c kubernetes.Interface, rv string) watch.Interface {
	t.Helper()
	w, err := c.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: rv})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

func TestMember_CountsRequests(t *testing.T) {
	m, client := member(t, sim.Options{})
	m.Requests().Reset()
	reflector := cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", "", fields.Everything()), client),
		&corev1.ConfigMap{}, cache.NewStore(cache.MetaNamespaceKeyFunc), cache.ReflectorOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		reflector.RunWithContext(ctx)
	}()
	eventually(t, "the reflector has synced", func() bool { return reflector.LastSyncResourceVersion() != "" })
	cancel()
	<-done
	r := m.Requests()
	if r.Count("watchlist", cmResource) != 1 || r.Verb("list") != 0 || r.Total() != r.Verb("watchlist")+r.Verb("watch") {
		t.Errorf("a reflector's requests: %v", r.All())
	}
}
