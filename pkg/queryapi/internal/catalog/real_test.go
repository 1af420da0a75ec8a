package catalog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
	"federator.dev/federator/test/kube"
)

const (
	corpusGlob = "../../../../../shared/corpus/*.jsonl"
	memberName = "fleet/one"
	patience   = 60 * time.Second
)

// real is an API server with real objects, and an index that follows it.
type real struct {
	member  *kube.ControlPlane
	config  *rest.Config
	index   *aggregate.Index
	catalog *catalog.Catalog
	served  map[schema.GroupVersionKind]metav1.APIResource
	stored  sync.Map // aggregate.Kind of what was created → true
}

// source adapts the manager as main does.
type source struct{ manager *clusterinformers.Manager }

func (s source) Resources() ([]catalog.ServedResource, <-chan struct{}) {
	list, changed := s.manager.Resources()
	out := make([]catalog.ServedResource, len(list))
	for i, r := range list {
		out[i] = catalog.ServedResource(r)
	}
	return out, changed
}

// one finds one member, and holds it.
type one struct{ spec clusterinformers.Spec }

func (o one) Run(ctx context.Context, set func(clusterinformers.View)) error {
	set(clusterinformers.View{Members: []clusterinformers.Spec{o.spec}})
	<-ctx.Done()
	return nil
}

func startReal(t *testing.T) *real {
	t.Helper()
	fleet := kube.StartTest(t, kube.Options{Members: 1, NoHub: true, APIServerArgs: []string{
		// Objects are stored as they are, wherever they say they belong.
		"--disable-admission-plugins=ServiceAccount,NamespaceLifecycle,LimitRanger,ResourceQuota,Priority,PodSecurity,RuntimeClass,TaintNodesByCondition,DefaultStorageClass,DefaultIngressClass,StorageObjectInUseProtection," +
			"MutatingAdmissionWebhook,ValidatingAdmissionWebhook",
	}})
	r := &real{member: fleet.Members[0], config: fleet.Members[0].DirectRESTConfig(), served: map[schema.GroupVersionKind]metav1.APIResource{}}
	r.config.QPS = -1
	r.config.WarningHandler = rest.NoWarnings{}
	ok(t, r.member.Apply(t.Context(), []byte(definitionsYAML)))
	ok(t, r.member.Apply(t.Context(), []byte(scalerYAML)))
	r.discover(t)
	r.store(t)
	var err error
	if r.index, err = aggregate.New(aggregate.Options{Revisions: aggregate.Block(3)}); err != nil {
		t.Fatal(err)
	}
	manager, err := clusterinformers.New(clusterinformers.Options{
		Index: r.index, Logger: slog.New(slog.DiscardHandler), Kinds: []clusterinformers.KindRule{
			{Kind: "CSIDriver.storage.k8s.io", Exclude: true},
			{Kind: "*"},
			{Kind: "Event"},
			{Kind: "Event.events.k8s.io"},
			{Kind: "Lease.coordination.k8s.io"},
		},
		Sources: []clusterinformers.Source{one{clusterinformers.Spec{
			Name: memberName, UID: "uid", Kubeconfig: r.member.Kubeconfig(), Trusted: true,
		}}},
	})
	ok(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := manager.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	until(t, "the member is synced", func() bool { ready, _ := manager.Ready(); return ready })
	r.catalog = catalog.New(source{manager})
	return r
}

// scalerYAML is of a kind with two versions, also where the corpus is absent.
const scalerYAML = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: default}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 3
  metrics:
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}
`

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %s in vain: %s", patience, what)
		}
	}
}

// discover learns what the server serves, widgets included.
func (r *real) discover(t *testing.T) {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(r.config)
	ok(t, err)
	shop := schema.GroupVersion{Group: "shop.example", Version: "v1"}
	until(t, "widgets and bins are served", func() bool {
		_, lists, err := client.ServerGroupsAndResources()
		if err != nil {
			return false
		}
		for _, list := range lists {
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			ok(t, err)
			for _, res := range list.APIResources {
				if !strings.Contains(res.Name, "/") {
					r.served[gv.WithKind(res.Kind)] = res
				}
			}
		}
		_, widgets := r.served[shop.WithKind("Widget")]
		_, bins := r.served[shop.WithKind("Bin")]
		return widgets && bins
	})
}

// mostOfAKind bounds the objects of one kind.
const mostOfAKind = 25

// store creates objects of every kind that the server has: widgets, and those
// of the corpus.
func (r *real) store(t *testing.T) {
	t.Helper()
	client, err := dynamic.NewForConfig(r.config)
	ok(t, err)
	samples := []*unstructured.Unstructured{}
	for _, line := range strings.Split(strings.TrimSpace(widgetsJSON), "\n") {
		samples = append(samples, parse(t, []byte(line)))
	}
	paths, err := filepath.Glob(corpusGlob)
	ok(t, err)
	if len(paths) == 0 {
		t.Log("the corpus is absent: only objects that the server has of itself are tried")
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		ok(t, err)
		n := 0
		for line := range bytes.Lines(b) {
			if n == mostOfAKind {
				break
			}
			object := parse(t, line)
			if _, served := r.served[object.GroupVersionKind()]; served {
				samples = append(samples, object)
				n++
			}
		}
	}
	var wg sync.WaitGroup
	work := make(chan *unstructured.Unstructured)
	for range 8 {
		wg.Go(func() {
			for object := range work {
				r.create(t.Context(), client, object)
			}
		})
	}
	for i, object := range samples {
		object.SetName(fmt.Sprintf("%.40s-%d", strings.Trim(strings.NewReplacer(":", "-", "/", "-").Replace(object.GetName()), ".-"), i))
		work <- object
	}
	close(work)
	wg.Wait()
}

func parse(t *testing.T, line []byte) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	ok(t, object.UnmarshalJSON(line))
	return object
}

// create stores an object with its status. What validation refuses is left out.
func (r *real) create(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured) {
	gvk := object.GroupVersionKind()
	res := r.served[gvk]
	for _, field := range []string{"uid", "resourceVersion", "managedFields", "ownerReferences", "finalizers", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	status := object.Object["status"]
	var c dynamic.ResourceInterface = client.Resource(gvk.GroupVersion().WithResource(res.Name))
	if res.Namespaced {
		c = client.Resource(gvk.GroupVersion().WithResource(res.Name)).Namespace(object.GetNamespace())
	}
	created, err := c.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return
	}
	r.stored.Store(aggregate.MakeKind(gvk.Kind, gvk.Group), true)
	if status != nil {
		created.Object["status"] = status
		_, _ = c.UpdateStatus(ctx, created, metav1.UpdateOptions{}) //nolint:errcheck // not every kind has one, and not every status is let in
	}
}

// get reads a path of the server.
func (r *real) get(t *testing.T, path, accept string, into any) {
	t.Helper()
	client, err := rest.HTTPClientFor(r.config)
	ok(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.config.Host+path, nil)
	ok(t, err)
	request.Header.Set("Accept", accept)
	response, err := client.Do(request)
	ok(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s", path, response.Status)
	}
	ok(t, json.NewDecoder(response.Body).Decode(into))
	client.CloseIdleConnections()
}

const definitionsYAML = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.shop.example}
spec:
  group: shop.example
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, shortNames: [wd], categories: [all, shop]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Ratio, type: number, jsonPath: .spec.ratio}
    - {name: Sold, type: boolean, jsonPath: .spec.sold}
    - {name: Tags, type: string, jsonPath: ".spec.tags[*]"}
    - {name: Ready, type: string, description: Whether it is ready., jsonPath: '.spec.conditions[?(@.type=="Ready")].status'}
    - {name: Whole, type: string, jsonPath: .spec, priority: 1}
    - {name: Made, type: date, jsonPath: .spec.made}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A Widget is for sale.
        properties:
          spec:
            type: object
            description: What the widget is.
            properties:
              size: {type: integer, description: Its size in millimetres.}
              ratio: {type: number}
              sold: {type: boolean}
              made: {type: string}
              tags: {type: array, items: {type: string}}
              conditions: {type: array, items: {type: object, properties: {type: {type: string}, status: {type: string}}}}
  - name: v1beta1
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: bins.shop.example}
spec:
  group: shop.example
  scope: Cluster
  names: {kind: Bin, plural: bins}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const widgetsJSON = `
{"apiVersion":"shop.example/v1","kind":"Widget","metadata":{"name":"full","namespace":"shop"},"spec":{"size":3,"ratio":0.5,"sold":true,"made":"2020-01-02T03:04:05Z","tags":["a","b"],"conditions":[{"type":"Other","status":"x"},{"type":"Ready","status":"True"}]}}
{"apiVersion":"shop.example/v1","kind":"Widget","metadata":{"name":"empty","namespace":"shop"}}
{"apiVersion":"shop.example/v1","kind":"Widget","metadata":{"name":"odd","namespace":"shop"},"spec":{"ratio":2,"made":"yesterday","tags":[],"conditions":[]}}
{"apiVersion":"shop.example/v1","kind":"Bin","metadata":{"name":"bin"},"spec":{"anything":[1,2]}}
`
