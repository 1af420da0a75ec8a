package hostile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/sim"
)

// asks are requests as federator makes them.
var asks = []string{
	"/version", "/api", "/apis", "/api/v1/pods", "/api/v1/configmaps?limit=500",
	"/api/v1/configmaps?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
	"/api/v1/pods?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
	"/api/v1/services?limit=500", "/apis/apps/v1/deployments?limit=500", "/apis/networking.k8s.io/v1/ingresses?limit=500",
	"/api/v1/configmaps?watch=1&resourceVersion=%RV&allowWatchBookmarks=true",
}

// responses are what came back for each of asks: a digest of at most a few MiB.
type responses [11]string

// requestAll sends all of asks at once.
func requestAll(t *testing.T, client *http.Client, host, version string) (out responses) {
	t.Helper()
	var asking sync.WaitGroup
	for i, ask := range asks {
		asking.Go(func() { out[i] = say(t, client, host, strings.ReplaceAll(ask, "%RV", version)) })
	}
	asking.Wait()
	return out
}

func say(t *testing.T, client *http.Client, host, ask string) string {
	watch := strings.Contains(ask, "watch=1")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+ask, nil)
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Accept", "application/json")
	if strings.Count(ask, "/") == 1 {
		req.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")
	}
	// Who falls silent has said all there is.
	silent := time.AfterFunc(3*time.Second, cancel)
	defer silent.Stop()
	resp, err := client.Do(req)
	if err != nil {
		return "no answer"
	}
	defer resp.Body.Close()
	// What a member sends without end is not all read.
	sum, n, buf := sha256.New(), 0, make([]byte, 64<<10)
	for n < 1<<20 {
		silent.Reset(time.Second)
		m, err := resp.Body.Read(buf[:min(len(buf), 1<<20-n)])
		sum.Write(buf[:m])
		n += m
		if err == nil {
			continue
		}
		if !watch && err != io.EOF {
			return fmt.Sprintf("%d cut", resp.StatusCode)
		}
		break
	}
	return fmt.Sprintf("%d %d %x", resp.StatusCode, len(resp.Header), sum.Sum(nil))
}

// member is a simulated one with a few objects, and a version after which one changed.
func member(t *testing.T) (m *sim.Member, version string) {
	t.Helper()
	fleet, err := sim.New(sim.Options{Members: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fleet.Close)
	m = fleet.Members()[0]
	for i := range 30 {
		meta := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("sent-%d", i), Labels: map[string]string{"i": fmt.Sprint(i)}, CreationTimestamp: metav1.Unix(1, 0)}
		for _, o := range []sim.Object{
			&corev1.ConfigMap{ObjectMeta: *meta.DeepCopy(), Data: map[string]string{"k": "v"}},
			&corev1.Pod{ObjectMeta: *meta.DeepCopy(), Spec: corev1.PodSpec{NodeName: "n"}},
			&appsv1.Deployment{ObjectMeta: *meta.DeepCopy()}, &networkingv1.Ingress{ObjectMeta: *meta.DeepCopy()},
		} {
			if err := m.Create(o); err != nil {
				t.Fatal(err)
			}
			version = o.GetResourceVersion()
		}
	}
	// What a watch from there on has.
	if err := m.Patch(configMaps, "default", "sent-1", []byte(`{"data":{"k":"w"}}`)); err != nil {
		t.Fatal(err)
	}
	return m, version
}

// startProxy returns a proxy in front of a member, and its client.
func startProxy(t *testing.T, m *sim.Member) (p *Proxy, client *http.Client, host string) {
	t.Helper()
	p, err := Listen(m.RESTConfig(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	raw, err := p.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil {
		t.Fatal(err)
	}
	config.DisableCompression = true
	if client, err = rest.HTTPClientFor(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return p, client, config.Host
}

// TestHostile_EveryClassChangesAnswers checks that each class but the one without effect changes
// some answer of a member, and that a proxy whose attacks have ended changes
// nothing.
func TestHostile_EveryClassChangesAnswers(t *testing.T) {
	m, version := member(t)
	want := func() responses {
		p, client, host := startProxy(t, m)
		digests := requestAll(t, client, host, version)
		if p.Requests(List) == 0 {
			t.Error("the proxy received no list")
		}
		return digests
	}()
	var checking sync.WaitGroup
	slots := make(chan struct{}, 16)
	for _, class := range Classes() {
		if class.Draw(rand.New(rand.NewPCG(0, 7))).truthful() { // a mix, not a secret
			if class.Name != "quiet" {
				t.Errorf("%s has no hook", class.Name)
			}
			continue
		}
		p, client, host := startProxy(t, m)
		checking.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			const draws = 20
			changed := false
			for seed := uint64(0); seed < draws && !changed; seed++ {
				p.SetAttacks(0, class.Draw(rand.New(rand.NewPCG(seed, 7)))) // a mix, not a secret
				changed = requestAll(t, client, host, version) != want || p.Tampered() > 0
			}
			if !changed {
				t.Errorf("%s: of %d attacks none changed anything", class.Name, draws)
			}
			p.SetAttacks(0)
			err := kube.Until(t.Context(), patience, func() error {
				if after := requestAll(t, client, host, version); after != want {
					return fmt.Errorf("after the attacks:\n%v\nwant\n%v", after, want)
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", class.Name, err)
			}
		})
	}
	checking.Wait()
}

// TestHostile_NewAttacksMakeWatchesListAgain shows that a watch ends when other attacks become
// active, and that the next from a version ends once as too old.
func TestHostile_NewAttacksMakeWatchesListAgain(t *testing.T) {
	m, version := member(t)
	p, client, host := startProxy(t, m)
	watch := func() (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, host+"/api/v1/pods?watch=1&resourceVersion="+version, nil)
		if err != nil {
			t.Fatal(err)
		}
		return client.Do(req)
	}
	resp, err := watch()
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", resp, err)
	}
	p.SetAttacks(5)
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("the watch ended in order, as if its time were over")
	}
	resp.Body.Close()
	for _, want := range []int{http.StatusGone, http.StatusOK} {
		resp, err := watch()
		if err != nil || resp.StatusCode != want {
			t.Fatalf("%v, %v, want %d", resp, err, want)
		}
		resp.Body.Close()
	}
}

// TestHostile_MarksAreRenamedInEveryEncoding shows that a member that shares a server with
// another is distinguished in JSON and protobuf, lists and watches.
func TestHostile_MarksAreRenamedInEveryEncoding(t *testing.T) {
	fleet, err := sim.New(sim.Options{Members: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fleet.Close)
	m := fleet.Members()[0]
	for i := range 200 {
		if err := m.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("mark-one-%d", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Listen(m.RESTConfig(), func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("mark-one"), []byte("mark-two")) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	raw, err := p.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		for _, query := range []string{"", "?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"} {
			ctx, cancel := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/api/v1/pods"+query, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept", accept)
			if query != "" && accept != "application/json" {
				req.Header.Set("Accept", accept+";stream=watch")
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			for buf := make([]byte, 4096); !bytes.Contains(got.Bytes(), []byte("mark-two-99")); {
				n, err := resp.Body.Read(buf)
				got.Write(buf[:n])
				if err != nil {
					break
				}
			}
			cancel()
			resp.Body.Close()
			if bytes.Contains(got.Bytes(), []byte("mark-one")) || !bytes.Contains(got.Bytes(), []byte("mark-two-99")) {
				t.Errorf("%s%s: status %d, %d bytes, with the marks of the other", accept, query, resp.StatusCode, got.Len())
			}
		}
	}
}
