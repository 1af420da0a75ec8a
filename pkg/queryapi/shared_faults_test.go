package queryapi_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/queryserver"
	"federator.dev/federator/test/seed"
)

// TestShared_CallersReadWhatTheyMay compares the reads of a caller who may read some members, in some namespaces, with those
// of a process that has the whole fleet. Audit is at the process that was asked.
func TestShared_CallersReadWhatTheyMay(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 2))
	account := fresh("sharer")
	user := queryserver.UserOf(account)
	allow(t, user, "a", members("list", "pods", "configmaps"))
	allow(t, user, "a", members("get", "pods", "nodes"))
	allow(t, user, "a", members("watch", "pods"))
	one := rbacv1.PolicyRule{APIGroups: []string{"members.federator.dev"}, Verbs: []string{"list", "get"}, Resources: []string{"pods", "nodes"}, ResourceNames: []string{"us-2"}}
	allow(t, user, "b", one)
	f := share(t, 3, func(o *queryapi.Options) { o.Local, o.Hub = false, hub.RESTConfig() })
	f.join(manyMembers...)
	f.fill(rng, 200)
	token := tokenFor(t, account, "federator")
	refused, served := 0, 0
	for i := range 150 {
		path, accept := randomRead(rng)
		p := choose(rng, f.processes...)
		header := http.Header{"Accept": {accept}}
		want, err := f.whole.ask(t, f.whole.Client(t), path, header, token)
		f.must(err)
		got, err := p.ask(t, p.Client(t), path, header, token)
		f.must(err)
		if got.code != want.code || got.headers != want.headers || got.body != want.body {
			t.Fatalf("%d: %s (%s) of %s:\n got %d %s%s\nwant %d %s%s", i, path, accept, p.id, got.code, got.headers, got.body, want.code, want.headers, want.body)
		}
		switch got.code {
		case http.StatusForbidden:
			refused++
		case http.StatusOK:
			served++
		}
	}
	if refused == 0 || served == 0 {
		t.Errorf("%d were refused, and %d served", refused, served)
	}
}

// TestShared_LostProcesses: what a lost process has is said to be missing; a request about one of its members is to
// come again; a watch ends, and its client lists again.
func TestShared_LostProcesses(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 3))
	f := share(t, 3, nil)
	f.join(manyMembers...)
	for i, m := range manyMembers {
		f.put(7, sharedObject{m, "Pod", "blue", fmt.Sprint("p", i), "a", "1"})
	}
	p, lost := f.processes[0], f.processes[1]
	client := p.Client(t)
	watcher := f.follow(t, p, "/fleet/api/v1/pods", url.Values{}, "application/json", rng.IntN(2) == 0)
	until(t, "all is there", func() bool {
		watcher.mu.Lock()
		defer watcher.mu.Unlock()
		return len(watcher.state) == len(manyMembers)
	})
	token, err := p.ask(t, client, "/fleet/api/v1/pods?limit=2", nil, p.Token())
	f.must(err)

	f.kill(lost)
	var there, gone []string
	for m, judge := range f.judges {
		if judge == lost {
			gone = append(gone, m)
		} else {
			there = append(there, m)
		}
	}
	slices.Sort(gone)
	for _, said := range []bool{false, true} { // before the others have heard of it, and after
		a, err := p.ask(t, client, "/fleet/api/v1/pods", nil, p.Token())
		f.must(err)
		if a.code != http.StatusOK || strings.Count(a.body, `"kind":"Pod"`) != len(there) {
			t.Errorf("a list, said %t: %d %s", said, a.code, a.body)
		}
		for _, m := range gone {
			if !strings.Contains(a.headers, m+";state=Unknown") || !strings.Contains(a.body, m) || !strings.Contains(a.headers, "Pod may be incomplete or old: "+gone[0]) {
				t.Errorf("said %t: nothing is said of %s: %s", said, m, a.headers)
			}
		}
		a, err = p.ask(t, client, "/fleet/api/v1/pods?require=synced", nil, p.Token())
		f.must(err)
		if a.code != http.StatusServiceUnavailable {
			t.Errorf("a list that requires all: %d %s", a.code, a.body)
		}
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.Address+"/members/"+gone[0]+"/api/v1/pods", http.NoBody)
		r.Header.Set("Authorization", "Bearer "+p.Token())
		resp, err := client.Do(r)
		f.must(err)
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("a request of its member: %d %s", resp.StatusCode, text)
		}
		a, err = p.ask(t, client, withToken(t, "/fleet/api/v1/pods?limit=2", token.next), nil, p.Token())
		f.must(err)
		if a.code != http.StatusServiceUnavailable && a.code != http.StatusGone {
			t.Errorf("the next page: %d %s", a.code, a.body)
		}
		a, err = p.ask(t, client, "/fleet/api/v1/namespaces/blue/pods/none", nil, p.Token())
		f.must(err)
		if a.code != http.StatusServiceUnavailable {
			t.Errorf("a name that the lost members may have: %d %s", a.code, a.body)
		}
		f.dead[lost] = true
		f.publish()
	}
	until(t, "the watcher knows", func() bool {
		watcher.mu.Lock()
		defer watcher.mu.Unlock()
		return watcher.counts["expired"] > 0 && len(watcher.state) == len(there)
	})
}

// TestShared_SlowProcess: one that does not answer in time is as one that is lost.
func TestShared_SlowProcess(t *testing.T) {
	f := share(t, 2, func(o *queryapi.Options) { o.Limits.Peer = 500 * time.Millisecond })
	f.join("a/eu-1", "a/eu-2")
	f.processes[1].slow.Store(true)
	a, err := f.processes[0].ask(t, f.processes[0].Client(t), "/fleet/api/v1/pods", nil, f.processes[0].Token())
	f.must(err)
	if a.code != http.StatusOK || !strings.Contains(a.headers, "a/eu-2;state=Unknown") {
		t.Errorf("%d %s", a.code, a.headers)
	}
}

// TestShared_ListAbortedInTheMiddle: a list whose part is lost while it is sent ends by an aborted connection.
func TestShared_ListAbortedInTheMiddle(t *testing.T) {
	f := share(t, 2, nil)
	f.join("a/eu-1", "a/eu-2", "a/eu-3", "a/eu-4")
	big := strings.Repeat("x", 20_000)
	for i := range 3000 {
		f.put(7, sharedObject{manyShared[i%4], "ConfigMap", "blue", fmt.Sprintf("c%04d", i), "a", big})
	}
	p, lost := f.processes[0], f.processes[1]
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.Address+"/fleet/api/v1/configmaps", http.NoBody)
	f.must(err)
	r.Header.Set("Authorization", "Bearer "+p.Token())
	r.Header.Set("Accept-Encoding", "identity")
	resp, err := p.Client(t).Do(r)
	f.must(err)
	defer resp.Body.Close()
	if _, err := io.CopyN(io.Discard, resp.Body, 1<<20); err != nil {
		t.Fatal(err)
	}
	f.kill(lost)
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil {
		t.Errorf("a list whose part was lost ended after %d bytes as if it were whole", n)
	}
}

var manyShared = []string{"a/eu-1", "a/eu-2", "a/eu-3", "a/eu-4"}

// TestShared_Informers of client-go hold what exists, by lists and by initial events.
func TestShared_Informers(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 4))
	f := share(t, 3, nil)
	f.join(manyMembers...)
	objects := f.fill(rng, 60)
	ctx, cancel := context.WithCancel(t.Context())
	var stores []cache.Store
	var running []cache.SharedIndexInformer
	for _, p := range f.processes {
		client, err := dynamic.NewForConfig(&rest.Config{Host: "https://" + p.Address + "/flat", BearerToken: p.Token(), TLSClientConfig: rest.TLSClientConfig{CAData: p.CertificateAuthority()}})
		f.must(err)
		informer := dynamicinformer.NewFilteredDynamicInformer(client, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "", 0, cache.Indexers{}, nil).Informer()
		go informer.Run(ctx.Done())
		running = append(running, informer)
		stores = append(stores, informer.GetStore())
	}
	defer func() {
		cancel()
		until(t, "informers have ended", func() bool {
			return !slices.ContainsFunc(running, func(i cache.SharedIndexInformer) bool { return !i.IsStopped() })
		})
	}()
	for round := range 4 {
		for range 30 {
			o := f.object(rng, manyMembers)
			f.put(100+rng.IntN(900), o)
			objects = append(objects, o)
			if rng.IntN(2) == 0 {
				f.remove(objects[rng.IntN(len(objects))])
			}
		}
		if round == 3 {
			f.move("b/us-1", f.processes[rng.IntN(3)])
		}
		until(t, fmt.Sprintf("informers hold what there is in round %d", round), func() bool {
			want, _, err := f.whole.state(t.Context(), f.whole.Client(t), "/flat/api/v1/pods", nil)
			f.must(err)
			for _, s := range stores {
				if len(s.List()) != len(want) {
					return false
				}
				for _, o := range s.List() {
					u := o.(*unstructured.Unstructured)
					m := metadata{Name: u.GetName(), Namespace: u.GetNamespace(), Annotations: u.GetAnnotations()}
					if want[m.key()] != m.version() {
						return false
					}
				}
			}
			return true
		})
	}
}

// TestShared_MovingMembers: a member that two processes judge for a moment is listed once, and one whose judge is lost
// is answered for by the process that holds it, too.
func TestShared_MovingMembers(t *testing.T) {
	f := share(t, 3, nil)
	f.join("a/eu-1", "a/eu-2", "a/eu-3")
	for _, m := range manyShared[:3] {
		for i := range 5 {
			f.put(7, sharedObject{m, "Pod", "blue", fmt.Sprint("p", i), "a", "1"})
		}
	}
	first, second, third := f.processes[0], f.processes[1], f.processes[2]
	copied := func(to *process, role aggregate.Role) {
		at, _ := second.index.Snapshot().Member("a/eu-2")
		at.Role = role
		f.must(to.index.PutMember(at))
		for i := range 5 {
			o := sharedObject{"a/eu-2", "Pod", "blue", fmt.Sprint("p", i), "a", "1"}
			s := to.scope(t, "a/eu-2", "Pod")
			s.Upsert(s.Item(o.record(7)))
			_, err := s.Commit()
			f.must(err)
		}
		for _, k := range sharedKinds {
			to.scope(t, "a/eu-2", k.Kind)
		}
	}
	same := func(what, path string) {
		t.Helper()
		want, err := f.whole.ask(t, f.whole.Client(t), path, nil, f.whole.Token())
		f.must(err)
		for _, p := range []*process{first, third} {
			got, err := p.ask(t, p.Client(t), path, nil, p.Token())
			f.must(err)
			if got.body != want.body || got.headers != want.headers {
				t.Errorf("%s: %s of %s: %d %s %s\nwant %s", what, path, p.id, got.code, got.headers, got.body, want.body)
			}
		}
	}
	paths := []string{"/fleet/api/v1/pods", "/fleet/api/v1/pods?limit=7", "/query/v1/count?resource=pods&groupBy=member", "/query/v1/members", "/members/a/eu-2/api/v1/pods"}
	copied(third, aggregate.Joining)
	for _, path := range paths {
		same("joining", path)
	}
	copied(third, aggregate.Standby)
	for _, path := range paths {
		same("standing by", path)
	}
	watcher := f.follow(t, first, "/fleet/api/v1/pods", url.Values{}, "application/json", true)
	f.kill(second)
	for _, path := range paths[:4] {
		same("its judge does not answer", path)
	}
	sooner := f.follow(t, first, "/fleet/api/v1/pods", url.Values{}, "application/json", false)
	until(t, "who begins to watch has all", func() bool { sooner.mu.Lock(); defer sooner.mu.Unlock(); return len(sooner.state) == 15 })
	f.dead[second] = true
	f.publish()
	for _, path := range paths[:4] {
		same("its judge is lost", path)
	}
	until(t, "the watcher has all", func() bool {
		watcher.mu.Lock()
		defer watcher.mu.Unlock()
		return len(watcher.state) == 15
	})
	again := f.follow(t, third, "/fleet/api/v1/pods", url.Values{}, "application/json", false)
	until(t, "another has all", func() bool { again.mu.Lock(); defer again.mu.Unlock(); return len(again.state) == 15 })

	f = share(t, 3, nil)
	f.join("a/eu-1", "a/eu-2")
	first, second, third = f.processes[0], f.processes[1], f.processes[2]
	for i := range 5 {
		f.put(7, sharedObject{"a/eu-2", "Pod", "blue", fmt.Sprint("p", i), "a", "1"}, sharedObject{"a/eu-1", "Pod", "blue", fmt.Sprint("p", i), "a", "1"})
	}
	copied(third, aggregate.Standby)
	f.kill(second)
	for _, path := range paths[:4] {
		same("who holds it judges nothing", path)
	}
	f.dead[second] = true
	f.publish()
	for _, path := range paths[:4] {
		same("who holds it judges nothing, and its judge is lost", path)
	}

	f = share(t, 3, nil)
	f.join("a/eu-1", "a/eu-2", "a/eu-3")
	first, second, third = f.processes[0], f.processes[1], f.processes[2]
	for i := range 5 {
		f.put(7, sharedObject{"a/eu-2", "Pod", "blue", fmt.Sprint("p", i), "a", "1"}, sharedObject{"a/eu-1", "Pod", "blue", fmt.Sprint("p", i), "a", "1"})
	}
	copied(third, aggregate.Judge)
	for _, path := range paths[:4] {
		same("two judges", path)
	}
}

// TestShared_ProcessEndsWhilePeersWatch: a process that ends does not wait for what its peers read.
func TestShared_ProcessEndsWhilePeersWatch(t *testing.T) {
	f := share(t, 2, nil)
	f.join("a/eu-1", "a/eu-2")
	f.put(7, sharedObject{"a/eu-2", "Pod", "blue", "p", "a", "1"})
	watcher := f.follow(t, f.processes[0], "/fleet/api/v1/pods", url.Values{}, "application/json", true)
	of := f.follow(t, f.processes[0], "/members/a/eu-2/api/v1/pods", url.Values{}, "application/json", true)
	for _, w := range []*follower{watcher, of} {
		until(t, "all is there", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.state) == 1 })
	}
	ended := make(chan error, 1)
	go func() { ended <- f.processes[1].End() }()
	select {
	case err := <-ended:
		f.must(err)
	case <-time.After(patience):
		t.Fatal("the process does not end")
	}
	f.dead[f.processes[1]] = true
	f.publish()
	until(t, "the watcher knows", func() bool { watcher.mu.Lock(); defer watcher.mu.Unlock(); return len(watcher.state) == 0 })
}

// TestShared_NothingIsAnsweredBeforeTheFleetIsKnown: a process that has started while the hub is away has what it kept of its own
// members, and does not know that there are others.
func TestShared_NothingIsAnsweredBeforeTheFleetIsKnown(t *testing.T) {
	f := share(t, 2, nil)
	f.join("a/eu-1", "b/us-2")
	p := f.processes[0]
	known := p.assignment.Load()
	p.assignment.Store(&queryapi.Assignment{})
	for _, path := range []string{"/fleet/api/v1/pods", "/flat/api/v1/pods", "/query/v1/members", "/query/v1/count?resource=pods", "/fleet/apis", "/members/b/us-2/api/v1/pods", "/fleet/api/v1/pods?watch=1"} {
		a, err := p.ask(t, p.Client(t), path, nil, p.Token())
		f.must(err)
		if a.code != http.StatusTooManyRequests {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
	p.assignment.Store(known)
	a, err := p.ask(t, p.Client(t), "/fleet/api/v1/pods", nil, p.Token())
	f.must(err)
	if a.code != http.StatusOK {
		t.Errorf("when the fleet is known: %d %s", a.code, a.body)
	}
}
