package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	certutil "k8s.io/client-go/util/cert"

	"federator.dev/federator/client"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/kube/tcpproxy"
	"federator.dev/federator/test/seed"
)

var configMapsGVR = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// listCounter counts the requests by which an informer lists everything again.
type listCounter struct {
	next  http.RoundTripper
	lists atomic.Int64
}

func (c *listCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	if q := r.URL.Query(); q.Get("watch") == "" || q.Get("sendInitialEvents") == "true" {
		c.lists.Add(1)
	}
	return c.next.RoundTrip(r)
}

// counted returns a dynamic client whose lists are counted.
func counted(t *testing.T, config *rest.Config) (dynamic.Interface, *listCounter) {
	t.Helper()
	counter := &listCounter{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		counter.next = next
		return counter
	})
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return dyn, counter
}

// followers are informers of ConfigMaps: a stock one of each member, ours of the
// fleet, and a stock one of the fleet under flat keys.
type followers struct {
	stock  map[string]cache.SharedIndexInformer
	flat   cache.SharedIndexInformer
	ours   *client.Informer[*unstructured.Unstructured]
	counts map[string]*listCounter
	events atomic.Int64
}

func (r *queryRig) follow(t *testing.T) *followers {
	t.Helper()
	f := &followers{stock: map[string]cache.SharedIndexInformer{}, counts: map[string]*listCounter{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for _, target := range append(slices.Clone(r.names), "fleet", "flat") {
		config, err := r.api.config(target, "administrator", "system:masters")
		if err != nil {
			t.Fatal(err)
		}
		dyn, counter := counted(t, config)
		f.counts[target] = counter
		if target != "fleet" {
			informer := dynamicinformer.NewFilteredDynamicInformer(dyn, configMapsGVR, "", 0, cache.Indexers{}, nil).Informer()
			if target == "flat" {
				f.flat = informer
			} else {
				f.stock[target] = informer
			}
			running.Go(func() { informer.RunWithContext(ctx) })
			continue
		}
		note := func(client.Key, *unstructured.Unstructured) { f.events.Add(1) }
		f.ours, err = client.NewInformer(client.ListWatch(dyn, configMapsGVR, client.Selection{}), &unstructured.Unstructured{},
			client.Options[*unstructured.Unstructured]{Handlers: []client.Handler[*unstructured.Unstructured]{{Added: note, Deleted: note}}})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := f.ours.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	return f
}

// truth is what the members' own servers say: uid and resourceVersion by key.
func (r *queryRig) truth(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	for i, name := range r.names {
		list, err := r.members[i].Client().CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, cm := range list.Items {
			out[name+"/"+cm.Namespace+"/"+cm.Name] = string(cm.UID) + "@" + cm.ResourceVersion
		}
	}
	return out, nil
}

func seenAt(member string, o metav1.Object) (key, version string) {
	return member + "/" + o.GetNamespace() + "/" + o.GetName(), string(o.GetUID()) + "@" + o.GetAnnotations()["federator.dev/resource-version"]
}

// equal waits until all informers hold what the members do.
func (r *queryRig) equal(t *testing.T, f *followers) {
	t.Helper()
	err := until(t.Context(), 2*patience, func() error {
		want, err := r.truth(t.Context())
		if err != nil {
			return err
		}
		stock, ours, flat := map[string]string{}, map[string]string{}, map[string]string{}
		for _, obj := range f.flat.GetStore().List() {
			o := obj.(*unstructured.Unstructured)
			member, original := o.GetAnnotations()["federator.dev/member"], o.GetAnnotations()["federator.dev/original-namespace"]
			if want := strings.Replace(member, "/", ".", 1) + "." + original; o.GetNamespace() != want {
				return fmt.Errorf("namespace %s, want %s", o.GetNamespace(), want)
			}
			o = o.DeepCopy()
			o.SetNamespace(original)
			key, version := seenAt(member, o)
			flat[key] = version
		}
		for name, informer := range f.stock {
			for _, obj := range informer.GetStore().List() {
				key, version := seenAt(name, obj.(*unstructured.Unstructured))
				stock[key] = version
			}
		}
		for _, obj := range f.ours.Lister().List(nil) {
			key, version := seenAt(obj.GetAnnotations()["federator.dev/member"], obj)
			ours[key] = version
		}
		alone := maps.Clone(want) // members that have joined since have no informer of their own
		maps.DeleteFunc(alone, func(key, _ string) bool {
			parts := strings.SplitN(key, "/", 3)
			return f.stock[parts[0]+"/"+parts[1]] == nil
		})
		return errors.Join(same("stock informers", stock, alone), same("the fleet's informer", ours, want), same("a stock informer of flat keys", flat, want))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func same(what string, got, want map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if got[key] != want[key] {
			return fmt.Errorf("%s: %s is %q, want %q (%d objects, want %d)", what, key, got[key], want[key], len(got), len(want))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[key]; !ok {
			return fmt.Errorf("%s: %s is still there", what, key)
		}
	}
	return nil
}

// write makes random changes in random members.
func (r *queryRig) write(t *testing.T, rng *rand.Rand, times int) {
	t.Helper()
	for n := range times {
		c := r.members[rng.IntN(len(r.members))].Client().CoreV1().ConfigMaps("default")
		name := fmt.Sprintf("cm-%d", rng.IntN(25))
		data := map[string]string{"n": fmt.Sprint(n)}
		var err error
		switch rng.IntN(4) {
		case 0:
			err = c.Delete(t.Context(), name, metav1.DeleteOptions{})
		case 1:
			_, err = c.Patch(t.Context(), name, "application/merge-patch+json", fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n), metav1.PatchOptions{})
		default:
			_, err = c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// TestClientInformers_FollowTheFleet runs random writes, cuts, joins and leaves
// beneath informers: they end equal to the members without one forced relist.
// After a restart, and on another replica, they list again and are equal again.
func TestClientInformers_FollowTheFleet(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 0)) // a mix, not a secret
	cert, key := ownCertificate(t)
	r := newQueryRigWith(t, "informers", 2, func(o *queryapi.Options) { o.TLS.CertFile, o.TLS.KeyFile = cert, key })
	r.exact(t)
	f := r.follow(t)
	r.equal(t, f)
	for round := range 6 {
		r.write(t, rng, 40)
		switch round % 3 {
		case 0:
			proxy := r.members[rng.IntN(2)].Proxy
			if err := proxy.Set(tcpproxy.Mode{State: tcpproxy.Cut}); err != nil {
				t.Fatal(err)
			}
			r.write(t, rng, 20) // around the proxy
			if err := proxy.Set(tcpproxy.Mode{}); err != nil {
				t.Fatal(err)
			}
		case 1:
			r.join(t, fmt.Sprintf("late%d", round))
			r.write(t, rng, 20)
		case 2:
			r.leave(t, len(r.names)-1)
			r.write(t, rng, 20)
		}
	}
	r.equal(t, f)
	for target, c := range f.counts {
		if n := c.lists.Load(); n != 1 {
			t.Errorf("the informer of %s has listed %d times, want once", target, n)
		}
	}
	address := r.api.address
	t.Run("restart", func(t *testing.T) {
		if err := errors.Join(r.api.stop(), r.story.fed.stop()); err != nil {
			t.Fatal(err)
		}
		r.story.fed, r.story.api = nil, nil
		r.write(t, rng, 20)
		r.serveAt(t, address, func(o *queryapi.Options) { o.TLS.CertFile, o.TLS.KeyFile = cert, key })
		r.write(t, rng, 20)
		r.equal(t, f)
	})
	t.Run("another replica", func(t *testing.T) {
		other := newReplica(t, r)
		r.write(t, rng, 20)
		if err := r.api.stop(); err != nil {
			t.Fatal(err)
		}
		other.serve(t, address, cert, key)
		r.write(t, rng, 20)
		r.equal(t, f)
	})
	for target, c := range f.counts {
		t.Logf("the informer of %s has listed %d times", target, c.lists.Load())
	}
}

// leave takes the member away again and waits until it is gone from the index.
func (r *queryRig) leave(t *testing.T, i int) {
	t.Helper()
	name := r.names[i]
	_, short, _ := strings.Cut(name, "/")
	if err := r.story.hub.Unregister(t.Context(), r.story.namespace, short); err != nil {
		t.Fatal(err)
	}
	delete(r.story.joined, short)
	r.names, r.members = slices.Delete(r.names, i, i+1), slices.Delete(r.members, i, i+1)
	if err := until(t.Context(), patience, func() error { return expectations["gone"].check(r.story, []string{name}) }); err != nil {
		t.Fatal(err)
	}
}

// replica is another federator over the same hub.
type replica struct {
	r   *queryRig
	fed *federator
}

func newReplica(t *testing.T, r *queryRig) *replica {
	t.Helper()
	fed, err := startFederator(config{}, clusters(r.story.hub, r.story.namespace, false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fed.stop(); err != nil {
			t.Error(err)
		}
	})
	err = until(t.Context(), patience, func() error {
		if ok, waiting := fed.manager.Ready(); !ok || len(fed.manager.Members()) != len(r.names) {
			return fmt.Errorf("waiting for %v", waiting)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return &replica{r, fed}
}

func (p *replica) serve(t *testing.T, address, cert, key string) {
	t.Helper()
	api, err := serveQueriesAt(p.fed, p.r.story.hub, t.TempDir(), address, func(o *queryapi.Options) { o.TLS.CertFile, o.TLS.KeyFile = cert, key })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.stop(); err != nil {
			t.Error(err)
		}
	})
}

// ownCertificate writes a certificate for 127.0.0.1 that outlives a server.
func ownCertificate(t *testing.T) (cert, key string) {
	t.Helper()
	certPEM, keyPEM, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if err := errors.Join(os.WriteFile(cert, certPEM, 0o600), os.WriteFile(key, keyPEM, 0o600)); err != nil {
		t.Fatal(err)
	}
	return cert, key
}
