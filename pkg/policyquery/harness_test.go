package policyquery_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/kube"
)

// shared is a hub with the CRDs, for the tests that need one.
var shared kube.Shared

func TestMain(m *testing.M) {
	klog.StopFlushDaemon()
	shared.Prepare = func(ctx context.Context) error {
		return shared.Fleet.Hub.InstallCRDs(ctx, "../../charts/federator/crds")
	}
	os.Exit(shared.Main(m))
}

// patience is far beyond what anything here takes.
const patience = 30 * time.Second

// served is what the members of the tests serve.
type served struct{}

func (served) Resources() ([]queryapi.ServedResource, <-chan struct{}) {
	return []queryapi.ServedResource{{
		Kind: "Deployment.apps", Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Namespaced: true,
	}}, nil
}

func (served) Kinds() (map[aggregate.Kind]bool, <-chan struct{}) {
	return map[aggregate.Kind]bool{"Deployment.apps": true}, nil
}

func (served) LastContact(string, aggregate.Kind) time.Time { return time.Now() }

// testServer is a fleet that policies evaluate, and that is queried over HTTP.
type testServer struct {
	t        testing.TB
	index    *aggregate.Index
	loop     *enforce.Loop
	registry *prometheus.Registry
	server   *queryapi.Server
	address  string
	client   *http.Client
	scopes   map[string]*aggregate.Scope
	end      func() // of the server
	endLoop  func() // verdicts stay what they are
	token    string // of the caller; "": the server's own
	watched  *counted
	rego     *policyquery.Rego
	preview  *policyquery.Preview
	series   *policyquery.Series // which does not run
	now      atomic.Int64        // Unix, that questions see; 0: that of the machine
}

func (j *testServer) clock() time.Time {
	if at := j.now.Load(); at != 0 {
		return time.Unix(at, 0)
	}
	return time.Now()
}

// into asks a question, and decodes its answer.
func (j *testServer) into(path string, answer any) {
	j.t.Helper()
	resp := j.get(j.t.Context(), path)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		j.t.Fatalf("%s: %d, %v: %s", path, resp.StatusCode, err, text)
	}
}

// fails wants a question refused.
func (j *testServer) fails(path string, code int) string {
	j.t.Helper()
	resp := j.get(j.t.Context(), path)
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != code {
		j.t.Errorf("%s: %d, want %d: %s", path, resp.StatusCode, code, text)
	}
	return string(text)
}

// counted counts the requests of watches of violations for their grants.
type counted struct {
	policyquery.Violations
	requests atomic.Int64
	lasts    atomic.Int64 // how long the watch with the last request may, at most
}

type countedCaller struct {
	queryapi.Caller
	of *counted
}

func (c countedCaller) Visible(ctx context.Context, at *aggregate.Snapshot) ([]string, time.Time, error) {
	c.of.requests.Add(1)
	if end, ok := ctx.Deadline(); ok {
		c.of.lasts.Store(int64(time.Until(end)))
	}
	return c.Caller.Visible(ctx, at)
}

func (c *counted) Watch(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	return c.Violations.Watch(w, r, countedCaller{caller, c})
}

var errNoRequest = errors.New("the hub receives no further request")

// loaded loads files of Rego.
func loaded(t testing.TB, texts ...string) *policy.Set {
	t.Helper()
	var src policy.Source
	for i, text := range texts {
		src.Files = append(src.Files, policy.File{Path: fmt.Sprintf("%d.rego", i), Data: []byte(text)})
	}
	set, err := policy.Load([]policy.Source{src}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func load(t testing.TB, severity string) *policy.Set {
	t.Helper()
	return loaded(t, `# METADATA
# title: Replicas
# custom: {severity: `+severity+`, kinds: ["Deployment.apps"]}
package replicas

violation contains {"msg": sprintf("%d replicas", [input.object.spec.replicas])} if input.object.spec.replicas < 3

violation contains {"msg": input.object.spec.text} if input.object.spec.text
`, `# METADATA
# title: Names are of one member
# custom: {severity: low, kinds: ["Deployment.apps"], subject: view.names}
package names

view.names[input.ref.name] contains input.ref.member

violation contains {"msg": sprintf("%s is in %d members", [input.key, count(input.entries)])} if count(input.entries) > 1
`)
}

var bindings = []policy.Binding{{Name: "names", Package: "names"}, {Name: "replicas", Package: "replicas"}}

func start(t testing.TB, change func(*queryapi.Options, *policyquery.Violations)) *testServer {
	t.Helper()
	return startWith(t, nil, change)
}

// startWith is start with another loop.
func startWith(t testing.TB, changeLoop func(*enforce.Options), change func(*queryapi.Options, *policyquery.Violations)) *testServer {
	t.Helper()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	j := &testServer{t: t, index: index, registry: prometheus.NewRegistry(), scopes: map[string]*aggregate.Scope{}}
	looped := enforce.Options{Index: index, Set: load(t, "high"), Bindings: bindings}
	if changeLoop != nil {
		changeLoop(&looped)
	}
	if j.loop, err = enforce.New(looped); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	question := policyquery.Violations{Kinds: served{}.Kinds, Loop: j.loop}
	o := queryapi.Options{Index: index, Fleet: served{}, Logger: slog.New(slog.DiscardHandler), Metrics: j.registry, Listener: l, Local: true}
	if change != nil {
		change(&o, &question)
	}
	j.watched = &counted{Violations: question}
	j.series = policyquery.NewSeries(policyquery.SeriesOptions{Kinds: question.Kinds, Loop: j.loop, Index: index, Clock: j.clock})
	rego := &policyquery.Rego{Index: index, Kinds: question.Kinds, State: j.loop.State}
	j.rego, j.preview = rego, &policyquery.Preview{Kinds: question.Kinds, Loop: j.loop}
	more := o.Queries
	o.Queries = map[string]queryapi.Query{
		"violations": j.watched, "rego": rego, "preview": j.preview,
		"policies": &policyquery.Policies{Kinds: question.Kinds, Loop: j.loop, Series: j.series, Clock: j.clock, Tested: func(source string) policyquery.TestedBy {
			return map[string]policyquery.TestedBy{"git": policyquery.TestedByGate, "own": policyquery.TestedAtBuild}[source]
		}},
		"series":  j.series,
		"explain": policyquery.Explain{Kinds: question.Kinds, Loop: j.loop, Rego: rego},
	}
	maps.Copy(o.Queries, more)
	if j.server, err = queryapi.New(o); err != nil {
		t.Fatal(err)
	}
	j.address = "https://" + l.Addr().String()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(j.server.CertificateAuthority())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	j.client = &http.Client{Transport: transport}
	looping, endLoop := context.WithCancel(context.Background())
	serving, endServer := context.WithCancel(context.Background())
	ended, served := make(chan error, 1), make(chan error, 1)
	go func() { ended <- j.loop.Run(looping) }()
	go func() { served <- j.server.Run(serving) }()
	once := false
	j.endLoop = func() {
		endLoop()
		err := <-ended
		ended <- err
	}
	j.end = func() {
		if once {
			return
		}
		once = true
		endServer()
		select {
		case err := <-served:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("the server does not end")
		}
		endLoop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		j.end()
		transport.CloseIdleConnections()
	})
	j.until(func() error {
		if j.loop.Point() == nil {
			return errors.New("nothing is testServer yet")
		}
		return nil
	})
	return j
}

func (j *testServer) until(f func() error) {
	j.t.Helper()
	if err := kube.Until(j.t.Context(), patience, f); err != nil {
		j.t.Fatal(err)
	}
}

func (j *testServer) join(member string) {
	j.t.Helper()
	if err := j.index.PutMember(aggregate.Member{Name: member, UID: member}); err != nil {
		j.t.Fatal(err)
	}
	j.serve(member, "deployments")
}

// serve has a member's Deployments read again, under a resource.
func (j *testServer) serve(member, resource string) {
	j.t.Helper()
	if before := j.scopes[member]; before != nil {
		before.Close()
	}
	scope, err := j.index.OpenScopeAs(member, "Deployment.apps", "apps/v1", resource)
	if err != nil {
		j.t.Fatal(err)
	}
	if _, err := scope.Replace(nil, aggregate.Status{State: aggregate.Synced}); err != nil {
		j.t.Fatal(err)
	}
	j.scopes[member] = scope
}

// put writes a Deployment; without replicas it is deleted.
func (j *testServer) put(member, name string, replicas int, text string) {
	j.t.Helper()
	j.putIn(member, "shop", name, replicas, text)
}

func (j *testServer) putIn(member, namespace, name string, replicas int, text string) {
	j.t.Helper()
	scope := j.scopes[member]
	if replicas == 0 {
		scope.Delete(namespace, name)
	} else {
		more := ""
		if text != "" {
			more = fmt.Sprintf(`,"text":%q`, text)
		}
		scope.Upsert(scope.Item(&aggregate.Record{
			Namespace: namespace, Name: name, UID: name, ResourceVersion: fmt.Sprint(replicas, len(text)),
			Body: fmt.Appendf(nil, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q,"namespace":%q},"spec":{"replicas":%d%s}}`, name, namespace, replicas, more),
		}))
	}
	if _, err := scope.Commit(); err != nil {
		j.t.Fatal(err)
	}
}

// awaitEvaluation waits until the loop has evaluated the index as it is.
func (j *testServer) awaitEvaluation() {
	j.t.Helper()
	j.until(func() error {
		if a, b := j.loop.Point().State().Snapshot.Revision(), j.index.Snapshot().Revision(); a != b {
			return fmt.Errorf("verdicts are of %d, the index is at %d", a, b)
		}
		return nil
	})
}

// ask asks for violations.
func (j *testServer) ask(ctx context.Context, query string) *http.Response {
	j.t.Helper()
	return j.get(ctx, "/query/v1/violations?"+query)
}

func (j *testServer) get(ctx context.Context, path string) *http.Response {
	j.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, j.address+path, nil)
	if err != nil {
		j.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+cmp.Or(j.token, j.server.Token()))
	resp, err := j.client.Do(req)
	if err != nil {
		j.t.Fatal(err)
	}
	return resp
}

// refused wants a Status.
func (j *testServer) refused(query string, code int) metav1.Status {
	j.t.Helper()
	resp := j.ask(j.t.Context(), query)
	defer resp.Body.Close()
	var status metav1.Status
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil || resp.StatusCode != code || int(status.Code) != code {
		j.t.Errorf("%s: %d, %+v, %v, want %d", query, resp.StatusCode, status, err, code)
	}
	return status
}

// list returns what is found now.
func (j *testServer) list(query string) (*policyquery.ViolationList, table) {
	j.t.Helper()
	resp := j.ask(j.t.Context(), query)
	defer resp.Body.Close()
	var found policyquery.ViolationList
	if err := json.NewDecoder(resp.Body).Decode(&found); err != nil || resp.StatusCode != http.StatusOK {
		j.t.Fatalf("%s: %d, %v", query, resp.StatusCode, err)
	}
	t := table{}
	for _, i := range found.Items {
		t.set(i)
	}
	return &found, t
}

// table is what a client knows: findings without what no event is sent for.
type table map[string]string

func (t table) set(f policyquery.Finding) {
	f.Gaps, f.Revision = nil, 0
	text, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	t[f.Policy+" "+f.Subject.Member+" "+f.Subject.Name+f.Subject.Key] = string(text)
}

// event is a line of a watch.
type event struct {
	Type   string
	Object json.RawMessage
}

// stream is a watch that a client reads.
type stream struct {
	j          *testServer
	body       io.ReadCloser
	lines      *bufio.Reader
	knows      table
	mark       policyquery.Bookmark // the newest
	eventTypes []string             // in order
	stop       context.CancelFunc
}

// watch opens a watch whose client knows something already.
func (j *testServer) watch(query string, knows table) *stream {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	resp := j.ask(ctx, "watch=true&"+query)
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		j.t.Fatalf("%s: %d %s", query, resp.StatusCode, text)
	}
	s := &stream{j: j, body: resp.Body, lines: bufio.NewReader(resp.Body), knows: table{}, stop: cancel}
	for k, v := range knows {
		s.knows[k] = v
	}
	j.t.Cleanup(s.close)
	return s
}

func (s *stream) close() {
	s.stop()
	_ = s.body.Close()
}

// next takes in one event.
func (s *stream) next() (event, error) {
	line, err := s.lines.ReadBytes('\n')
	if err != nil {
		return event{}, err
	}
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		return e, err
	}
	s.eventTypes = append(s.eventTypes, e.Type)
	switch e.Type {
	case "BOOKMARK":
		s.mark = policyquery.Bookmark{}
		return e, json.Unmarshal(e.Object, &s.mark)
	case "ERROR":
		return e, nil
	}
	var f policyquery.Finding
	if err := json.Unmarshal(e.Object, &f); err != nil {
		return e, err
	}
	key := f.Policy + " " + f.Subject.Member + " " + f.Subject.Name + f.Subject.Key
	switch _, known := s.knows[key]; {
	case e.Type == "ADDED" && known:
		return e, fmt.Errorf("%s is added twice", key)
	case e.Type != "ADDED" && !known:
		return e, fmt.Errorf("%s: %s, which was not known", key, e.Type)
	case e.Type == "DELETED":
		delete(s.knows, key)
	default:
		s.knows.set(f)
	}
	return e, nil
}

// reach reads until the watch is at a version.
func (s *stream) reach(version string) {
	s.j.t.Helper()
	for s.mark.ResourceVersion != version {
		if _, err := s.next(); err != nil {
			s.j.t.Fatalf("at %s on the way to %s: %v", s.mark.ResourceVersion, version, err)
		}
	}
}
