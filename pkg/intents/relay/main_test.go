package relay_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/intents/relay"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/memhttp"
)

var (
	shared     kube.Shared
	namespaces atomic.Int64
)

func TestMain(m *testing.M) {
	shared.Options = kube.Options{Members: 1, Audit: true}
	shared.Prepare = func(ctx context.Context) error {
		return shared.Fleet.Hub.InstallCRDs(ctx, "../../../charts/federator/crds")
	}
	os.Exit(shared.Main(m))
}

// local is a process's own access to the member.
type local struct{ config *rest.Config }

func (l local) Client(member string, kind policy.Kind, apiVersion string) (*remediate.Client, error) {
	if member != theMember || kind != "ConfigMap" {
		return nil, fmt.Errorf("%s in %s: nobody knows it", kind, member)
	}
	config := rest.CopyConfig(l.config)
	config.APIPath, config.GroupVersion, config.QPS = "/api", &schema.GroupVersion{Version: "v1"}, -1
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &remediate.Client{REST: client, Resource: "configmaps", Namespaced: true}, nil
}

const theMember = "fleet/m"

// world is a member that process "judge" judges, and process "leader" that corrects it.
type world struct {
	t         *testing.T
	namespace string
	members   dynamic.ResourceInterface
	hub       *kubernetes.Clientset

	fleet     atomic.Pointer[intents.Fleet] // as the leader knows it
	judges    atomic.Pointer[intents.Fleet] // as the judge does
	holder    atomic.Pointer[string]        // of the Lease, as the judge knows
	held      atomic.Bool
	transport *memhttp.Transport
	faults    *faults
	client    *relay.Client
	actions   chan *remediate.Action
	dispatch  *remediate.Dispatcher
}

// faults lose answers of writes.
type faults struct {
	base   http.RoundTripper
	lose   atomic.Int64 // so many
	writes atomic.Int64
}

func (f *faults) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := f.base.RoundTrip(r)
	if err != nil || r.Method == http.MethodGet || r.URL.Query().Has("dryRun") {
		return response, err
	}
	f.writes.Add(1)
	if f.lose.Add(-1) >= 0 {
		response.Body.Close()
		return nil, memhttp.ErrCut
	}
	return response, nil
}

func fleetOf(self, judge string, client *http.Client) *intents.Fleet {
	f := &intents.Fleet{Self: self, Processes: []string{"judge", "leader"}, Members: map[string]intents.Member{theMember: {UID: "u", Judge: judge}}, Peers: map[string]intents.Peer{}}
	if client != nil {
		f.Peers["judge"] = intents.Peer{ID: "judge", URL: "http://judge", Client: client}
	}
	return f
}

func newWorld(t *testing.T) *world {
	t.Helper()
	shared.Start(t)
	w := &world{t: t, namespace: fmt.Sprintf("shop-%d", namespaces.Add(1)), actions: make(chan *remediate.Action, 100)}
	member := shared.Fleet.Members[0].DirectRESTConfig()
	member.WarningHandler = rest.NoWarnings{}
	objects, err := dynamic.NewForConfig(member)
	must(t, err)
	_, err = objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": w.namespace},
	}}, metav1.CreateOptions{})
	must(t, err)
	w.members = objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(w.namespace)
	server, err := relay.NewServer(relay.ServerOptions{
		Fleet: w.judges.Load, Clients: local{member}, Leader: func() string { return *w.holder.Load() },
		Held: func(string) error {
			if w.held.Load() {
				return fmt.Errorf("it is frozen")
			}
			return nil
		},
		Peer: func(r *http.Request) string {
			if r.TLS == nil {
				return ""
			}
			return r.TLS.PeerCertificates[0].Subject.CommonName
		},
		Protected: func(target policy.Ref, _ map[string]string) string {
			if target.Name == "protected" {
				return "it is protected"
			}
			return ""
		},
	})
	must(t, err)
	w.transport = &memhttp.Transport{Handler: server, As: "leader"}
	w.faults = &faults{base: w.transport}
	w.fleet.Store(fleetOf("leader", "judge", &http.Client{Transport: w.faults}))
	w.judges.Store(fleetOf("judge", "judge", nil))
	w.lead("leader")
	w.client = &relay.Client{Local: local{&rest.Config{Host: "http://127.0.0.1:1"}}, Fleet: w.fleet.Load}
	hub := shared.Fleet.Hub.DirectRESTConfig()
	hub.QPS = -1
	w.hub, err = kubernetes.NewForConfig(hub)
	must(t, err)
	w.dispatch, err = remediate.New(remediate.Options{
		Clients: w.client, Hub: w.hub.CoreV1().RESTClient(), Corrected: func(a *remediate.Action) { w.actions <- a }, RetryAfter: time.Second, KeepSecretValues: true,
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = w.dispatch.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		w.transport.Wait()
	})
	return w
}

func (w *world) lead(process string) { w.holder.Store(&process) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// create creates a ConfigMap in the member.
func (w *world) create(name string) *unstructured.Unstructured {
	w.t.Helper()
	o, err := w.members.Create(w.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"a": "wrong"},
	}}, metav1.CreateOptions{})
	must(w.t, err)
	return o
}

func (w *world) get(name string) *unstructured.Unstructured {
	w.t.Helper()
	o, err := w.members.Get(w.t.Context(), name, metav1.GetOptions{})
	must(w.t, err)
	return o
}

// intent corrects a ConfigMap.
func (w *world) intent(o *unstructured.Unstructured) remediate.Intent {
	return remediate.Intent{
		Binding: w.namespace, Package: "p", Message: "wrong", UID: string(o.GetUID()), ResourceVersion: o.GetResourceVersion(), APIVersion: "v1",
		Remedy: policy.Remedy{
			Action: "patch", Target: policy.Ref{Member: theMember, Kind: "ConfigMap", Namespace: w.namespace, Name: o.GetName()},
			Patch: []byte(`{"data":{"a":"right"}}`),
		},
	}
}

func (w *world) correct(list ...remediate.Intent) {
	w.t.Helper()
	must(w.t, w.dispatch.SetIntents(w.namespace, remediate.RolloutSpec{Generation: "g"}, remediate.Totals{}, list, true))
}

// next returns the next Action that has ended.
func (w *world) next() *remediate.Action {
	w.t.Helper()
	select {
	case a := <-w.actions:
		return a
	case <-time.After(time.Minute):
		w.t.Fatal("no Action ends")
		return nil
	}
}
