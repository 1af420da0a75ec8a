package resources_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"

	"federator.dev/federator/internal/federation"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
	"federator.dev/federator/pkg/queryapi/internal/flat"
	"federator.dev/federator/pkg/queryapi/internal/resources"
	"federator.dev/federator/pkg/queryapi/internal/route"
	"federator.dev/federator/pkg/queryapi/internal/selection"
	"federator.dev/federator/test/seed"
)

func TestMain(m *testing.M) {
	klog.StopFlushDaemon()
	goleak.VerifyTestMain(m)
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// random returns a source whose seed is printed.
func random(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(seed.Of(t), 0))
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

const (
	pods  aggregate.Kind = "Pod"
	nodes aggregate.Kind = "Node"
	hpas  aggregate.Kind = "HorizontalPodAutoscaler.autoscaling"

	widgets aggregate.Kind = "Widget.shop.example"
	fleets  aggregate.Kind = "Fleet.shop.example" // a/one is alone in that they have no namespaces
)

// versions are those that the kinds are held at.
var versions = map[aggregate.Kind]string{pods: "v1", nodes: "v1", hpas: "autoscaling/v2", "Namespace": "v1", fleets: "shop.example/v1"}

// source is what members serve.
type source struct{}

var never = make(chan struct{})

func (source) Resources() ([]catalog.ServedResource, <-chan struct{}) {
	served := func(kind aggregate.Kind, version, plural string, namespaced bool) catalog.ServedResource {
		name, group := kind.Split()
		return catalog.ServedResource{
			Kind: kind, Namespaced: namespaced, Singular: strings.ToLower(name),
			Resource: schema.GroupVersionResource{Group: group, Version: version, Resource: plural},
		}
	}
	contested := served(fleets, "v1", "fleets", true)
	contested.ScopeDiffers = []string{"a/one"}
	return []catalog.ServedResource{
		contested, served(pods, "v1", "pods", true), served(nodes, "v1", "nodes", false), served("Namespace", "v1", "namespaces", false),
		served(widgets, "v1", "widgets", true),
		served(hpas, "v2", "horizontalpodautoscalers", true), served(hpas, "v1", "horizontalpodautoscalers", true),
	}, never
}

// caller may read what grants says, with the verb.
type caller struct {
	name   string
	grants func(verb string) (*authz.Grants, error)
}

func (c caller) User() user.Info { return &user.DefaultInfo{Name: c.name} }

func (c caller) Grants(_ context.Context, verb string, _ aggregate.Kind, _ *aggregate.Snapshot) (*authz.Grants, error) {
	return c.grants(verb)
}

// granted is somebody who always has the same grants.
func granted(g *authz.Grants) caller {
	return caller{fmt.Sprintf("alice%p", g), func(string) (*authz.Grants, error) { return g, nil }}
}

var all = granted(authz.Everything(time.Time{}))

// testObject is an object as the tests keep it, apart from the index.
type testObject struct {
	kind                    aggregate.Kind
	member, namespace, name string
	uid, version            string // version is the member's own resourceVersion
	labels                  map[string]string
	node, phase             string
}

func (o testObject) key() string { return o.member + " " + o.namespace + " " + o.name }

// fleet is an index with its writers, what was put into it, and a Handler.
type fleet struct {
	t       testing.TB
	index   *aggregate.Index
	handler *resources.Handler
	scopes  map[string]*aggregate.Scope
	members map[string]map[string]string // labels
	objects map[aggregate.Kind]map[string]testObject
	uids    map[string]int
	count   int // of versions
	now     time.Time
	reader  string                  // another federator that makes the requests; "": nobody such
	slow    bool                    // clients of watches do not read from the start
	bridges [][2]aggregate.Revision // of what was loaded
}

// settings of a fleet beside the defaults.
type settings struct {
	block           uint64
	revisions       aggregate.Revision // of the block that it has; 0: all
	logBytes        int64
	stall, bookmark time.Duration
	clock           func() time.Time // nil: the fleet's now
	protobuf        int              // bytes of a list
	grants          resources.GrantMemory
}

func newFleet(t testing.TB, o settings) *fleet {
	t.Helper()
	if o.block == 0 {
		o.block = 7
	}
	revisions := aggregate.Block(o.block)
	if o.revisions > 0 {
		revisions.End = revisions.First + o.revisions
	}
	x, err := aggregate.New(aggregate.Options{
		Revisions: revisions, LogBytes: o.logBytes, Fields: map[aggregate.Kind][]string{pods: {"spec.nodeName"}},
	})
	ok(t, err)
	sealer, err := selection.NewTokenCodec(bytes.Repeat([]byte{byte(o.block)}, 32), x.First())
	ok(t, err)
	pins, err := selection.NewPins(selection.PinOptions{})
	ok(t, err)
	f := &fleet{
		t: t, index: x, scopes: map[string]*aggregate.Scope{}, members: map[string]map[string]string{},
		objects: map[aggregate.Kind]map[string]testObject{}, uids: map[string]int{}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	if o.clock == nil {
		o.clock = func() time.Time { return f.now }
	}
	served := catalog.New(source{})
	f.handler, err = resources.New(resources.Options{
		Index: x, Tokens: sealer, Pins: pins, WriteTimeout: o.stall, BookmarkInterval: o.bookmark, Now: o.clock, MaxProtobufBytes: o.protobuf, Grants: o.grants,
		LastContact: func(string, aggregate.Kind) time.Time { return time.Time{} },
		View: func(s *aggregate.Snapshot, target route.Target) *catalog.View {
			view := served.View(s)
			if target.Member != "" {
				view = view.ForMember(s, target.Member)
			}
			return view
		},
	})
	ok(t, err)
	return f
}

// join lets a member join, or gives one that has other labels.
func (f *fleet) join(name string, labels ...string) {
	f.t.Helper()
	if f.members[name] == nil {
		f.uids[name]++
	}
	m := aggregate.Member{
		Name: name, UID: fmt.Sprint(name, f.uids[name]), Version: "v1.36.0",
		APIs: []string{"autoscaling/v1", "autoscaling/v2", "shop.example/v1", "v1"},
	}
	f.members[name] = map[string]string{}
	for i := 0; i < len(labels); i += 2 {
		f.members[name][labels[i]] = labels[i+1]
		m.Labels = append(m.Labels, aggregate.Label{Key: labels[i], Value: labels[i+1]})
	}
	ok(f.t, f.index.PutMember(m))
}

func (f *fleet) leave(name string) {
	f.t.Helper()
	f.index.RemoveMember(name)
	delete(f.members, name)
	maps.DeleteFunc(f.scopes, func(key string, _ *aggregate.Scope) bool { return strings.HasPrefix(key, name+" ") })
	for _, of := range f.objects {
		maps.DeleteFunc(of, func(_ string, o testObject) bool { return o.member == name })
	}
}

func (f *fleet) scope(member string, kind aggregate.Kind) *aggregate.Scope {
	f.t.Helper()
	key := member + " " + string(kind)
	if f.scopes[key] == nil {
		s, err := f.index.OpenScope(member, kind, versions[kind])
		ok(f.t, err)
		s.SetStatus(aggregate.Status{State: aggregate.Synced})
		f.scopes[key] = s
	}
	return f.scopes[key]
}

// item makes the index's item of an object, as a new version of it.
func (f *fleet) item(o *testObject) aggregate.Item {
	f.t.Helper()
	f.count++
	o.version = fmt.Sprint(f.count)
	if o.uid == "" {
		o.uid = fmt.Sprint("uid-", f.count)
	}
	name, _ := o.kind.Split()
	meta := map[string]any{"name": o.name, "uid": o.uid, "resourceVersion": o.version, "annotations": map[string]string{"note": o.version}}
	if o.namespace != "" {
		meta["namespace"] = o.namespace
	}
	rec := &aggregate.Record{Namespace: o.namespace, Name: o.name, UID: o.uid, ResourceVersion: o.version}
	if len(o.labels) > 0 {
		meta["labels"] = o.labels
		for _, k := range slices.Sorted(maps.Keys(o.labels)) {
			rec.Labels = append(rec.Labels, aggregate.Label{Key: k, Value: o.labels[k]})
		}
	}
	body := map[string]any{"apiVersion": versions[o.kind], "kind": name, "metadata": meta}
	switch o.kind {
	case pods:
		body["spec"] = map[string]any{"containers": []any{map[string]any{"name": "main", "image": "web"}}, "nodeName": o.node}
		body["status"] = map[string]any{"phase": o.phase}
	case hpas:
		body["spec"] = map[string]any{"maxReplicas": 3, "scaleTargetRef": map[string]any{"kind": "Deployment", "name": o.name}}
	}
	var err error
	rec.Body, err = json.Marshal(body)
	ok(f.t, err)
	return f.scope(o.member, o.kind).Item(rec)
}

// put adds or updates objects, without a commit.
func (f *fleet) put(objects ...testObject) {
	f.t.Helper()
	for _, o := range objects {
		if held := f.objects[o.kind][o.key()]; o.uid == "" {
			o.uid = held.uid
		}
		item := f.item(&o)
		f.scope(o.member, o.kind).Upsert(item)
		f.record(o)
	}
}

func (f *fleet) record(o testObject) {
	if f.objects[o.kind] == nil {
		f.objects[o.kind] = map[string]testObject{}
	}
	f.objects[o.kind][o.key()] = o
}

func (f *fleet) remove(o testObject) {
	f.t.Helper()
	f.scope(o.member, o.kind).Delete(o.namespace, o.name)
	delete(f.objects[o.kind], o.key())
}

func (f *fleet) commit() aggregate.Revision {
	f.t.Helper()
	for _, key := range slices.Sorted(maps.Keys(f.scopes)) {
		_, err := f.scopes[key].Commit()
		ok(f.t, err)
	}
	return f.index.Snapshot().Revision()
}

func pod(member, namespace, name string, labels ...string) testObject {
	o := testObject{kind: pods, member: member, namespace: namespace, name: name, labels: map[string]string{}}
	for i := 0; i < len(labels); i += 2 {
		o.labels[labels[i]] = labels[i+1]
	}
	return o
}

// answer is what came back.
type answer struct {
	code   int
	header http.Header
	body   []byte
	status metav1.Status // of an error
	list   list          // of JSON
}

// list is an answer's list or, where it is none, object.
type list struct {
	Kind, APIVersion string
	Metadata         struct {
		ResourceVersion, Continue string
		RemainingItemCount        *int64
		Annotations               map[string]string
		Name                      string
	}
	Items             []map[string]any
	Rows              []metav1.TableRow
	ColumnDefinitions []metav1.TableColumnDefinition
}

func (a answer) reason() metav1.StatusReason { return a.status.Reason }

// request makes a request as the chain hands it on: serve has its target.
func (f *fleet) request(ctx context.Context, path string, query url.Values, accept string) *http.Request {
	f.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://federator"+path+"?"+query.Encode(), nil)
	ok(f.t, err)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	if f.reader != "" {
		r.Header.Set(federation.ReaderHeader, f.reader)
	}
	return r
}

// serve has the Handler answer a request, and writes its error as a Status.
func (f *fleet) serve(w http.ResponseWriter, r *http.Request, c resources.Caller) (status metav1.Status) {
	fail := func(_ http.ResponseWriter, _ *http.Request, err error) {
		var known apierrors.APIStatus
		if !errors.As(err, &known) {
			f.t.Errorf("%s: %v is no Status", r.URL, err)
			return
		}
		status = known.Status()
	}
	route.Filter(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := f.handler.Serve(w, r, c); err != nil {
			fail(w, r, err)
		}
	}), fail).ServeHTTP(w, r)
	return status
}

// ask gets an answer, whatever it is.
func (f *fleet) ask(c resources.Caller, path string, query url.Values, accept string) answer {
	f.t.Helper()
	w := httptest.NewRecorder()
	status := f.serve(w, f.request(f.t.Context(), path, query, accept), c)
	a := answer{code: w.Code, header: w.Header(), body: w.Body.Bytes(), status: status}
	if status.Code != 0 {
		a.code = int(status.Code)
		if w.Body.Len() > 0 {
			f.t.Errorf("%s %s: an error after %d bytes were written: %s", path, query.Encode(), w.Body.Len(), status.Message)
		}
	} else if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(a.body, &a.list); err != nil {
			f.t.Fatalf("%s %s: %v\n%s", path, query.Encode(), err, a.body)
		}
	}
	return a
}

// mustAsk gets an answer that is no error.
func (f *fleet) mustAsk(c resources.Caller, path string, query url.Values, accept string) answer {
	f.t.Helper()
	a := f.ask(c, path, query, accept)
	if a.code != http.StatusOK {
		f.t.Fatalf("%s?%s: %d %s", path, query.Encode(), a.code, a.status.Message)
	}
	return a
}

// object is an answer's object.
func (a answer) object(t testing.TB) map[string]any {
	t.Helper()
	var o map[string]any
	ok(t, json.Unmarshal(a.body, &o))
	return o
}

// wantRefusal holds an answer to an error's code and reason.
func wantRefusal(t testing.TB, what string, a answer, code int, reason metav1.StatusReason) {
	t.Helper()
	if a.code != code || a.reason() != reason {
		t.Errorf("%s: %d %s %q, want %d %s", what, a.code, a.reason(), a.status.Message, code, reason)
	}
}

func values(pairs ...string) url.Values {
	out := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		out.Set(pairs[i], pairs[i+1])
	}
	return out
}

// field returns a nested string of an object.
func field(o map[string]any, path ...string) string {
	for _, p := range path[:len(path)-1] {
		o, _ = o[p].(map[string]any)
	}
	s, _ := o[path[len(path)-1]].(string)
	return s
}

// keyOf is testObject.key of an object that was sent. What is said of a flat key that is
// not its own object's is no key.
func keyOf(o map[string]any) string {
	member, namespace := field(o, "metadata", "annotations", "federator.dev/member"), field(o, "metadata", "namespace")
	if original := field(o, "metadata", "annotations", "federator.dev/original-namespace"); original != "" {
		if m, n, _ := flat.Split(namespace); m != member || n != original {
			return fmt.Sprintf("%s of %s in %s?", namespace, original, member)
		}
		namespace = original
	}
	return member + " " + namespace + " " + field(o, "metadata", "name")
}

// versionOf is testObject.version of an object that was sent.
func versionOf(o map[string]any) string {
	return field(o, "metadata", "annotations", "federator.dev/resource-version")
}
