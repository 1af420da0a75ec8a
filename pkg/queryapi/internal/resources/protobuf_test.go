package resources_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"federator.dev/federator/pkg/aggregate"
)

const (
	asProtobuf         = "application/vnd.kubernetes.protobuf"
	asMetadata         = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	asProtobufMetadata = asProtobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// typed decodes an answer as the stock client does, from protobuf or JSON.
func typed(t testing.TB, a answer) runtime.Object {
	t.Helper()
	var decoder runtime.Decoder = protobuf.NewSerializer(metadataScheme, metadataScheme)
	if a.header.Get("Content-Type") != asProtobuf {
		decoder = jsonDecoder{}
	}
	object, _, err := decoder.Decode(a.body, nil, nil)
	ok(t, err)
	object.GetObjectKind().SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
	return object
}

// metadataScheme has Kubernetes' kinds and those of metadata.
var metadataScheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		panic(err)
	}
	if err := metav1.AddMetaToScheme(s); err != nil {
		panic(err)
	}
	return s
}()

type jsonDecoder struct{ runtime.Decoder }

func (jsonDecoder) Decode(data []byte, _ *schema.GroupVersionKind, _ runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	var meta runtime.TypeMeta
	if err := json.Unmarshal(data, &meta); err != nil {
		return nil, nil, err
	}
	gvk := meta.GroupVersionKind()
	object, err := metadataScheme.New(gvk)
	if err != nil {
		return nil, nil, err
	}
	return object, &gvk, json.Unmarshal(data, object)
}

// bare takes out what protobuf does not carry: the kinds of a list's items, and a
// list's annotations.
func bare(t testing.TB, object runtime.Object) map[string]any {
	t.Helper()
	text, err := json.Marshal(object)
	ok(t, err)
	m := decodeJSON(t, text)
	delete(m, "kind")
	delete(m, "apiVersion")
	items, _ := m["items"].([]any)
	for _, item := range items {
		delete(item.(map[string]any), "kind")
		delete(item.(map[string]any), "apiVersion")
	}
	return m
}

func TestProtobuf_IsTheJSON(t *testing.T) {
	f := newLargeFleet(t)
	for _, path := range []string{
		"/fleet/api/v1/pods", "/members/a/west/api/v1/pods", "/fleet/api/v1/nodes", "/members/a/west/api/v1/nodes/n0",
		"/members/a/west/api/v1/namespaces/blue/pods/p07",
		"/fleet/apis/autoscaling/v1/horizontalpodautoscalers", "/fleet/apis/autoscaling/v2/horizontalpodautoscalers",
	} {
		for as, want := range map[string]string{asProtobuf: "application/json", asProtobufMetadata + "," + asMetadata: asMetadata} {
			got := f.mustAsk(all, path, nil, as)
			if kind := got.header.Get("Content-Type"); kind != asProtobuf {
				t.Errorf("%s as %s: %s", path, as, kind)
			}
			if a, b := bare(t, typed(t, got)), bare(t, typed(t, f.mustAsk(all, path, nil, want))); !reflect.DeepEqual(a, b) {
				t.Errorf("%s as %s:\n%v\nin JSON:\n%v", path, as, a, b)
			}
		}
	}
	page := typed(t, f.mustAsk(all, "/fleet/api/v1/pods", url.Values{"limit": {"3"}}, asProtobuf)).(*corev1.PodList)
	if len(page.Items) != 3 || page.Continue == "" || page.RemainingItemCount == nil {
		t.Errorf("a page: %d items, %+v", len(page.Items), page.ListMeta)
	}
	next := typed(t, f.mustAsk(all, "/fleet/api/v1/pods", url.Values{"limit": {"3"}, "continue": {page.Continue}}, asProtobuf)).(*corev1.PodList)
	if len(next.Items) != 3 || next.Items[0].Name == page.Items[0].Name && next.Items[0].Annotations["federator.dev/member"] == page.Items[0].Annotations["federator.dev/member"] {
		t.Errorf("the next page begins with %v", next.Items[0].ObjectMeta)
	}
}

func TestProtobuf_IsOnlyGivenWhereItCanBe(t *testing.T) {
	f := newFleet(t, settings{protobuf: 2 << 10})
	f.join("a/west")
	for _, name := range []string{"p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "p10", "p11", "p12", "p13", "p14", "p15", "p16"} {
		f.put(pod("a/west", "blue", name, "app", strings.Repeat("x", 60)))
	}
	f.commit()
	const tables = "application/json;as=Table;v=v1;g=meta.k8s.io"
	for _, tt := range []struct {
		path, accept, want string
		code               int
	}{
		{"/fleet/api/v1/namespaces/blue/pods/p1", asProtobuf, asProtobuf, 200},
		{"/fleet/api/v1/namespaces/blue/pods/p1", "application/json," + asProtobuf, "application/json", 200},
		{"/fleet/api/v1/namespaces/blue/pods/p1", "application/json;q=.5," + asProtobuf, asProtobuf, 200},
		{"/fleet/api/v1/namespaces/blue/pods/p1", asProtobuf + ";as=Table;v=v1;g=meta.k8s.io," + tables, "application/json", 200},
		{"/fleet/api/v1/namespaces/blue/pods/p1", asProtobuf + ";as=Table;v=v1;g=meta.k8s.io", "", 406},
		// A list of more than the limit is in JSON for those that take it.
		{"/fleet/api/v1/pods", asProtobuf + ",*/*", "application/json", 200},
		{"/fleet/api/v1/pods", asProtobuf, "", 413},
	} {
		got := f.ask(all, tt.path, nil, tt.accept)
		if got.code != tt.code || tt.code == http.StatusOK && got.header.Get("Content-Type") != tt.want {
			t.Errorf("%s as %s: %d %s %.200s, want %d %s", tt.path, tt.accept, got.code, got.header.Get("Content-Type"), got.body, tt.code, tt.want)
		}
	}
}

// An object that no API server would have let in costs a list nothing but its own
// fields.
func TestProtobuf_OfWhatTheTypesCannotRead(t *testing.T) {
	f := newFleet(t, settings{})
	f.join("a/west")
	f.put(pod("a/west", "blue", "good"))
	f.scope("a/west", pods).Upsert(f.scope("a/west", pods).Item(&aggregate.Record{
		Namespace: "blue", Name: "odd", UID: "odd", ResourceVersion: "9",
		Body: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":"b"},"name":"odd","namespace":"blue","uid":"odd"},"spec":{"containers":"none"}}`),
	}))
	f.scope("a/west", pods).Upsert(f.scope("a/west", pods).Item(&aggregate.Record{
		Namespace: "blue", Name: "strange", UID: "strange", ResourceVersion: "9",
		Body: []byte(`{"apiVersion":"v9","kind":"Pod","metadata":{"name":"strange","namespace":"blue","uid":"strange"},"spec":{"nodeName":"n"}}`),
	}))
	f.commit()
	list := typed(t, f.mustAsk(all, "/fleet/api/v1/pods", nil, asProtobuf)).(*corev1.PodList)
	if len(list.Items) != 3 {
		t.Fatalf("%d items", len(list.Items))
	}
	if good := list.Items[0]; good.Name != "good" || len(good.Spec.Containers) != 1 || good.Annotations["federator.dev/undecodable"] != "" {
		t.Errorf("the good one: %+v", good)
	}
	if odd := list.Items[1]; odd.Name != "odd" || odd.Labels["a"] != "b" || !strings.Contains(odd.Annotations["federator.dev/undecodable"], "containers") {
		t.Errorf("the odd one: %+v", odd.ObjectMeta)
	}
	if strange := list.Items[2]; strange.Spec.NodeName != "" || !strings.Contains(strange.Annotations["federator.dev/undecodable"], "v9") {
		t.Errorf("the one of another version: %+v", strange)
	}
}

// stuck is a client that does not read.
type stuck struct {
	header http.Header
	began  chan struct{}
	read   chan struct{}
	once   sync.Once
}

func (s *stuck) Header() http.Header { return s.header }
func (s *stuck) WriteHeader(int)     {}

func (s *stuck) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.began) })
	<-s.read
	return len(p), nil
}

// Lists that are held until their clients have read them are bounded in sum, and one
// caller whose clients do not read leaves room to others.
func TestProtobuf_ListsOfManyAreBounded(t *testing.T) {
	f := newFleet(t, settings{protobuf: 4 << 10})
	f.join("a/west")
	for i := range 16 {
		f.put(pod("a/west", "blue", fmt.Sprintf("p%02d", i), "app", "x"))
	}
	f.commit()
	const path = "/fleet/api/v1/pods"
	size := len(f.mustAsk(all, path, nil, asProtobuf).body)
	if size < 3<<10 || size > 4<<10 {
		t.Fatalf("a list has %d bytes: the numbers below do not hold", size)
	}
	read := make(chan struct{})
	var slow sync.WaitGroup
	defer slow.Wait()
	done := sync.OnceFunc(func() { close(read) })
	defer done()
	stall := func(name string) {
		s := &stuck{header: http.Header{}, began: make(chan struct{}), read: read}
		slow.Go(func() {
			f.serve(s, f.request(context.Background(), path, nil, asProtobuf), caller{name, all.grants})
			s.once.Do(func() { close(s.began) })
		})
		<-s.began
	}
	may := func(what, name string, code int) {
		t.Helper()
		if a := f.ask(caller{name, all.grants}, path, nil, asProtobuf); a.code != code {
			t.Errorf("%s: %d %.200s, want %d", what, a.code, a.body, code)
		}
	}
	for range 4 {
		stall("greedy")
	}
	may("who does not read", "greedy", http.StatusTooManyRequests)
	may("another beside", "modest", http.StatusOK)
	stall("second")
	may("a third beside two", "modest", http.StatusOK)
	stall("third")
	may("when there is no room", "modest", http.StatusTooManyRequests)
	if a := f.ask(all, path, nil, asProtobuf+",application/json"); a.code != http.StatusOK || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("who takes JSON, too: %d as %s", a.code, a.header.Get("Content-Type"))
	}
	done()
	slow.Wait()
	may("once they are read", "greedy", http.StatusOK)
}

// A list that is too large for protobuf, and is sent as JSON for as long as its client
// takes to read it, leaves the room to others.
func TestProtobuf_ListsThatAreSentAsJSONHoldNoRoom(t *testing.T) {
	f := newFleet(t, settings{protobuf: 64 << 10})
	f.join("a/west")
	for i := range 320 {
		f.put(pod("a/west", "blue", fmt.Sprintf("p%03d", i), "app", "x"))
	}
	f.commit()
	const path = "/fleet/api/v1/pods"
	read := make(chan struct{})
	var slow sync.WaitGroup
	defer slow.Wait()
	defer close(read)
	for _, name := range []string{"ann", "bob", "eve", "mia"} {
		s := &stuck{header: http.Header{}, began: make(chan struct{}), read: read}
		slow.Go(func() {
			f.serve(s, f.request(context.Background(), path, nil, asProtobuf+",application/json"), caller{name, all.grants})
			s.once.Do(func() { close(s.began) })
		})
		<-s.began
		if kind := s.header.Get("Content-Type"); kind != "application/json" {
			t.Fatalf("a list of 320 is sent as %q", kind)
		}
	}
	if a := f.ask(caller{"zoe", all.grants}, path, url.Values{"limit": {"150"}}, asProtobuf); a.code != http.StatusOK {
		t.Errorf("beside four lists that are sent as JSON: %d %.200s", a.code, a.body)
	}
}
