package queryapi_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/queryserver"
)

// sharedKinds are what members of shared fleets serve.
var sharedKinds = queryserver.Fleet{
	{Kind: "ConfigMap", Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Singular: "configmap", Namespaced: true},
	{Kind: "Namespace", Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Singular: "namespace"},
	{Kind: "Node", Resource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, Singular: "node"},
	{Kind: "Pod", Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Singular: "pod", ShortNames: []string{"po"}, Namespaced: true},
}

// process is one of several that share a fleet.
type process struct {
	*queryserver.Server
	id         string
	index      *aggregate.Index
	assignment atomic.Pointer[queryapi.Assignment]
	peers      *httptest.Server
	slow       atomic.Bool // its listener for peers answers nothing

	mu   sync.Mutex
	open map[string]*aggregate.Scope
}

// Assignment implements queryapi.Peers.
func (p *process) Assignment() *queryapi.Assignment { return p.assignment.Load() }

// sharedFleet is some processes that share a fleet, and one that has all of it.
type sharedFleet struct {
	t         testing.TB
	processes []*process
	whole     *process
	judges    map[string]*process
	standbys  map[string]*process
	changed   chan struct{}
	dead      map[*process]bool
}

func newProcess(t testing.TB, id string, block uint64) *process {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(block)})
	if err != nil {
		t.Fatal(err)
	}
	return &process{id: id, index: index, open: map[string]*aggregate.Scope{}}
}

// share starts n processes, and one that is alone. All revisions have nine digits.
func share(t testing.TB, n int, change func(*queryapi.Options)) *sharedFleet {
	t.Helper()
	f := &sharedFleet{t: t, judges: map[string]*process{}, standbys: map[string]*process{}, changed: make(chan struct{}), dead: map[*process]bool{}, whole: newProcess(t, "whole", 2)}
	f.start(f.whole, change, 0)
	for i := range n {
		p := newProcess(t, fmt.Sprintf("p-%d", i), uint64(3+2*i%4))
		f.processes = append(f.processes, p)
	}
	f.publish()
	for i, p := range f.processes {
		f.start(p, change, uint64(4+2*i%4))
	}
	f.publish()
	return f
}

// start starts a process, with revisions to mint of a block; 0: it is alone.
func (f *sharedFleet) start(p *process, change func(*queryapi.Options), block uint64) {
	f.t.Helper()
	o := queryapi.Options{Index: p.index, Fleet: sharedKinds, Local: true}
	if block != 0 {
		o.Peers, o.Minted = p, aggregate.Block(block)
	}
	if change != nil {
		change(&o)
	}
	p.Server = queryserver.Start(f.t, o)
	if block == 0 {
		return
	}
	handler := p.PeersHandler()
	p.peers = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.slow.Load() {
			<-r.Context().Done()
			return
		}
		handler.ServeHTTP(w, r)
	}))
	p.peers.EnableHTTP2 = true
	p.peers.StartTLS()
	f.t.Cleanup(p.peers.Close)
	f.t.Cleanup(p.peers.CloseClientConnections)
}

// publish tells all processes who judges what.
func (f *sharedFleet) publish() {
	was := f.changed
	f.changed = make(chan struct{})
	for _, p := range f.processes {
		a := &queryapi.Assignment{Self: p.id, Judges: map[string]string{}, Standbys: map[string]string{}, Changed: f.changed}
		for member, judge := range f.judges {
			a.Judges[member] = judge.id
		}
		for member, standby := range f.standbys {
			a.Standbys[member] = standby.id
		}
		for _, o := range f.processes {
			if o != p && o.peers != nil && !f.dead[o] {
				a.Peers = append(a.Peers, queryapi.Peer{ID: o.id, Epoch: o.index.First(), URL: o.peers.URL, Client: o.peers.Client()})
			}
		}
		p.assignment.Store(a)
	}
	close(was)
}

// kill ends the listener of a process for its peers.
func (f *sharedFleet) kill(p *process) {
	p.peers.Listener.Close()
	p.peers.CloseClientConnections()
}

// join adds members, judged by the processes in turn.
func (f *sharedFleet) join(members ...string) {
	f.t.Helper()
	for _, m := range members {
		p := f.processes[len(f.judges)%len(f.processes)]
		f.judges[m] = p
	}
	f.publish()
	for _, m := range members {
		namespace, name, _ := strings.Cut(m, "/")
		for _, p := range []*process{f.whole, f.judges[m]} {
			member := aggregate.Member{Name: m, UID: "uid-" + name, Version: "v1.36.3", Labels: []aggregate.Label{{Key: "region", Value: name[:2]}, {Key: "team", Value: namespace}}}
			if err := p.index.PutMember(member); err != nil {
				f.t.Fatal(err)
			}
			for _, k := range sharedKinds {
				p.scope(f.t, m, k.Kind)
			}
		}
	}
}

func (p *process) scope(t testing.TB, member string, kind aggregate.Kind) *aggregate.Scope {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	key := member + " " + string(kind)
	s := p.open[key]
	if s == nil {
		var err error
		if s, err = p.index.OpenScope(member, kind, "v1"); err != nil {
			t.Fatal(err)
		}
		s.SetStatus(aggregate.Status{State: aggregate.Synced})
		if _, err := s.Commit(); err != nil {
			t.Fatal(err)
		}
		p.open[key] = s
	}
	return s
}

// sharedObject is an object of a member.
type sharedObject struct {
	member                      string
	kind                        aggregate.Kind
	namespace, name, app, value string
}

func (o *sharedObject) record(version int) *aggregate.Record {
	namespace := ""
	if o.namespace != "" {
		namespace = `"namespace":"` + o.namespace + `",`
	}
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"labels":{"app":%q},"name":%q,%s"resourceVersion":"%d","uid":"u-%s"},"spec":{"nodeName":%q}}`,
		o.kind, o.app, o.name, namespace, version, o.name, o.value)
	if o.kind == "ConfigMap" {
		body = strings.Replace(body, `"spec":{"nodeName"`, `"data":{"value"`, 1)
		body = strings.Replace(body, `{"apiVersion":"v1",`, `{"apiVersion":"v1","data":`+fmt.Sprintf("{%q:%q},", "value", o.value), 1)
		body = body[:strings.LastIndex(body, `,"data":{`)] + "}"
	}
	return &aggregate.Record{Namespace: o.namespace, Name: o.name, UID: "u-" + o.name, ResourceVersion: fmt.Sprint(version), Labels: []aggregate.Label{{Key: "app", Value: o.app}}, Body: []byte(body)}
}

// put puts an object where it belongs, and remove removes it.
func (f *sharedFleet) put(version int, objects ...sharedObject) {
	f.t.Helper()
	for i := range objects {
		o := &objects[i]
		for _, p := range []*process{f.whole, f.judges[o.member]} {
			s := p.scope(f.t, o.member, o.kind)
			s.Upsert(s.Item(o.record(version)))
			if _, err := s.Commit(); err != nil {
				f.t.Fatal(err)
			}
		}
	}
}

func (f *sharedFleet) remove(o sharedObject) {
	f.t.Helper()
	for _, p := range []*process{f.whole, f.judges[o.member]} {
		s := p.scope(f.t, o.member, o.kind)
		s.Delete(o.namespace, o.name)
		if _, err := s.Commit(); err != nil {
			f.t.Fatal(err)
		}
	}
}

// answer is a response, without what differs from process to process.
type answer struct {
	code    int
	headers string
	body    string
	next    string // the continue token
}

var (
	revisions = regexp.MustCompile(`\b[1-9][0-9]{8}\b|\t[1-9][0-9]{8}`)
	proceed   = regexp.MustCompile(`[A-Za-z0-9_-]{80,}`)
)

// ask asks a process.
func (p *process) ask(t testing.TB, client *http.Client, path string, header http.Header, token string) (answer, error) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.Address+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		r.Header[k] = v
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{code: resp.StatusCode, next: string(proceed.Find(body))}
	a.body = revisions.ReplaceAllString(proceed.ReplaceAllString(string(body), "TOKEN"), "REVISION")
	for _, name := range []string{"Content-Type", "Federator-Not-Synced", "Link"} {
		a.headers += fmt.Sprintln(name, resp.Header.Values(name))
	}
	warnings := slices.Clone(resp.Header.Values("Warning"))
	a.headers += fmt.Sprintln("Warning", warnings)
	return a, nil
}
