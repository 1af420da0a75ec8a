package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/clusterinformers/internal/kubeconfigtest"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
)

// aggregatedDiscovery is what a server with some kinds says of its groups, as client-go requests it.
func aggregatedDiscovery(kinds int) (core, groups []byte) {
	list := func(from, to int) []byte {
		out := apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}}
		for at := from; at < to; at += 4 {
			group := fmt.Sprintf("group%02d.example.com", at/4)
			v := apidiscoveryv2.APIVersionDiscovery{Version: "v1", Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
			for n := at; n < min(at+4, to); n++ {
				verbs := []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
				kind := fmt.Sprintf("ResourceKind%03d", n)
				v.Resources = append(v.Resources, apidiscoveryv2.APIResourceDiscovery{
					Resource: strings.ToLower(kind) + "s", SingularResource: strings.ToLower(kind), Scope: apidiscoveryv2.ScopeNamespace,
					ResponseKind: &metav1.GroupVersionKind{Group: group, Version: "v1", Kind: kind}, Verbs: verbs, ShortNames: []string{fmt.Sprintf("r%d", n)},
					Subresources: []apidiscoveryv2.APISubresourceDiscovery{{Subresource: "status", ResponseKind: &metav1.GroupVersionKind{Group: group, Version: "v1", Kind: kind}, Verbs: verbs[3:4]}},
				})
			}
			out.Items = append(out.Items, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: group}, Versions: []apidiscoveryv2.APIVersionDiscovery{v}})
		}
		body, err := json.Marshal(out)
		if err != nil {
			panic(err)
		}
		return body
	}
	return list(0, 0), list(0, kinds)
}

// discoverable returns a client of a server with some kinds, whose answers have ETags.
func discoverable(t testing.TB, kinds int) *memberclient.Client {
	t.Helper()
	core, groups := aggregatedDiscovery(kinds)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, tag := core, `"core"`
		if r.URL.Path == "/apis" {
			body, tag = groups, `"groups"`
		}
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		w.Write(body) //nolint:errcheck // the client will complain
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return clientOf(t, kubeconfigtest.New(t, server.URL, nil))
}

func clientOf(t testing.TB, kubeconfig []byte) *memberclient.Client {
	t.Helper()
	cfg, refusal := memberclient.ParseKubeconfig(kubeconfig, memberclient.Allowed{})
	if refusal != nil {
		t.Fatal(refusal)
	}
	client, err := memberclient.NewHTTPClient(cfg, memberclient.TransportOptions{Trusted: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return memberclient.New(cfg, client)
}

// heap returns the bytes that are held after f.
func heap(f func() any) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

func TestCatalog_MembersShareWhatTheyServeAlike(t *testing.T) {
	client := discoverable(t, 100)
	discover := func() APIResources {
		o, _, _, err := Discover(t.Context(), client, nil)
		if err != nil || len(o) != 100 {
			t.Fatalf("%d kinds, %v", len(o), err)
		}
		return o
	}
	discover()
	const members = 50
	own := heap(func() any {
		var all []APIResources
		for range members {
			all = append(all, discover())
		}
		return all
	})
	c := New(nil)
	name := func(n int) string { return fmt.Sprint("member-", n) }
	c.Set(name(0), discover())
	together := heap(func() any {
		for n := range members {
			c.Set(name(n+1), discover())
		}
		return c
	})
	t.Logf("a member with 100 kinds holds %d bytes on its own, %d shared", own/members, together/members)
	if together > own/10 {
		t.Errorf("%d members hold %d bytes, and %d without sharing", members, together, own)
	}

	// One that differs in a kind has a map of its own and shares the other kinds.
	other := discover()
	other["Widget.shop.example"] = offerOf("Widget", "v1")["Widget.shop.example"]
	other = c.Set(name(7), other)
	all := c.members[name(8)]
	const kind = "ResourceKind042.group10.example.com"
	if unsafe.SliceData(other[kind]) != unsafe.SliceData(all[kind]) {
		t.Error("a kind that is served alike is held twice")
	}
	if len(c.pool.all) != 2 || len(c.pool.kinds) != 101 {
		t.Errorf("%d sets of %d kinds are held", len(c.pool.all), len(c.pool.kinds))
	}
	c.Set(name(7), discover())
	if len(c.pool.all) != 1 || len(c.pool.kinds) != 100 {
		t.Errorf("%d sets of %d kinds are held once all are alike", len(c.pool.all), len(c.pool.kinds))
	}
	for n := range members + 1 {
		c.Set(name(n), nil)
	}
	if len(c.pool.all) != 0 || len(c.pool.kinds) != 0 {
		t.Errorf("%d sets of %d kinds are held when all members have left", len(c.pool.all), len(c.pool.kinds))
	}
}

// BenchmarkDiscover measures one discovery of a member with 100 kinds: of the first time, and where
// nothing has changed. The CPU time is of client and server.
func BenchmarkDiscover(b *testing.B) {
	for _, changed := range []bool{true, false} {
		name := map[bool]string{true: "full", false: "unchanged"}[changed]
		b.Run(name, func(b *testing.B) {
			client := discoverable(b, 100)
			last, _, _, err := Discover(b.Context(), client, nil)
			if err != nil {
				b.Fatal(err)
			}
			var want error
			if changed {
				last = nil
			} else {
				want = ErrUnchanged
			}
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				if _, _, _, err := Discover(b.Context(), client, last); !errors.Is(err, want) {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

// cpuTime is what the process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCatalog_Resources measures what a reader pays after a member has changed: 1,000 members with
// 100 kinds each.
func BenchmarkCatalog_Resources(b *testing.B) {
	client := discoverable(b, 100)
	o, _, _, err := Discover(b.Context(), client, nil)
	if err != nil {
		b.Fatal(err)
	}
	c := New(nil)
	for n := range 1000 {
		c.Set(fmt.Sprintf("fleet/member-%04d", n), o)
	}
	b.ReportAllocs()
	for b.Loop() {
		c.mu.Lock()
		c.merged = nil
		c.mu.Unlock()
		if all, _ := c.Resources(); len(all) != 100 {
			b.Fatal(len(all))
		}
	}
}
