package queries_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/queries"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

func TestMain(m *testing.M) {
	klog.StopFlushDaemon()
	goleak.VerifyTestMain(m)
}

// resources are those of the tests.
var resources = map[aggregate.Kind]queries.Resource{}

func init() {
	for _, r := range []struct {
		kind, plural, group string
		namespaced          bool
	}{
		{"Pod", "pods", "", true},
		{"Node", "nodes", "", false},
		{"Service", "services", "", true},
		{"ConfigMap", "configmaps", "", true},
		{"Secret", "secrets", "", true},
		{"PersistentVolumeClaim", "persistentvolumeclaims", "", true},
		{"ServiceAccount", "serviceaccounts", "", true},
		{"EndpointSlice", "endpointslices", "discovery.k8s.io", true},
		{"Deployment", "deployments", "apps", true},
		{"ReplicaSet", "replicasets", "apps", true},
	} {
		kind := aggregate.MakeKind(r.kind, r.group)
		resources[kind] = queries.Resource{GroupResource: schema.GroupResource{Group: r.group, Resource: r.plural}, Kind: kind, Namespaced: r.namespaced}
	}
}

// view finds the resources.
type view struct{}

func (view) ByName(name string) (queries.Resource, bool) {
	for _, r := range resources {
		if name == r.Resource || name == r.GroupResource.String() {
			return r, true
		}
	}
	return queries.Resource{}, false
}

// reader is a caller with grants by verb and resource.
type reader struct {
	grants  map[string]*authz.Grants // "list pods"; nil: everything
	seen    []string
	seesAll bool
}

func (r reader) User() user.Info { return &user.DefaultInfo{Name: "alice"} }

func (r reader) Grants(_ context.Context, verb string, kind aggregate.Kind, _ *aggregate.Snapshot) (*authz.Grants, error) {
	if r.grants == nil {
		return authz.Everything(time.Time{}), nil
	}
	if kind == queries.EveryKind {
		return r.grants[verb+" *"], nil
	}
	return r.grants[verb+" "+resources[kind].GroupResource.String()], nil
}

func (r reader) GrantsIn(ctx context.Context, verb string, kind aggregate.Kind, at *aggregate.Snapshot, _ []string) (*authz.Grants, error) {
	return r.Grants(ctx, verb, kind, at)
}

func (r reader) Visible(context.Context, *aggregate.Snapshot) ([]string, time.Time, error) {
	return r.seen, time.Time{}, nil
}

func (r reader) VisibleIn(_ context.Context, members []string) ([]string, time.Time, error) {
	if r.seesAll {
		return slices.Clone(members), time.Time{}, nil
	}
	return slices.DeleteFunc(slices.Clone(members), func(m string) bool { return !slices.Contains(r.seen, m) }), time.Time{}, nil
}

// fleet is an index with its writers.
type fleet struct {
	t      testing.TB
	index  *aggregate.Index
	scopes map[string]*aggregate.Scope
	now    time.Time
	rv     int
}

func newFleet(t testing.TB) *fleet {
	t.Helper()
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(7), Fields: map[aggregate.Kind][]string{"Pod": {"spec.nodeName", "status.phase"}}})
	if err != nil {
		t.Fatal(err)
	}
	return &fleet{t: t, index: x, scopes: map[string]*aggregate.Scope{}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (f *fleet) join(names ...string) {
	f.t.Helper()
	for _, name := range names {
		err := f.index.PutMember(aggregate.Member{Name: name, UID: "uid-" + name, Version: "v1.36.3", Labels: []aggregate.Label{{Key: "env", Value: name[:1]}}})
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// object is an object as maps.
type object = map[string]any

// testObject is an object that tests put into a fleet.
type testObject struct {
	ref    aggregate.Ref
	uid    string
	labels map[string]string
	owners []aggregate.Owner
	body   object // spec, data, …
}

func (f *fleet) scope(member string, kind aggregate.Kind) *aggregate.Scope {
	f.t.Helper()
	key := member + " " + string(kind)
	if f.scopes[key] == nil {
		_, group := kind.Split()
		version := "v1"
		if group != "" {
			version = group + "/v1"
		}
		s, err := f.index.OpenScope(member, kind, version)
		if err != nil {
			f.t.Fatal(err)
		}
		s.SetStatus(aggregate.Status{State: aggregate.Synced})
		f.scopes[key] = s
	}
	return f.scopes[key]
}

func (f *fleet) put(objects ...testObject) {
	f.t.Helper()
	for _, o := range objects {
		meta := object{"name": o.ref.Name}
		if o.ref.Namespace != "" {
			meta["namespace"] = o.ref.Namespace
		}
		body := object{"kind": "x", "apiVersion": "v1", "metadata": meta}
		maps.Copy(body, o.body)
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(body); err != nil {
			f.t.Fatal(err)
		}
		f.rv++
		rec := &aggregate.Record{
			Namespace: o.ref.Namespace, Name: o.ref.Name, UID: o.uid, ResourceVersion: fmt.Sprint(f.rv), Owners: o.owners,
			Body: bytes.TrimSuffix(b.Bytes(), []byte("\n")),
		}
		for _, k := range slices.Sorted(maps.Keys(o.labels)) {
			rec.Labels = append(rec.Labels, aggregate.Label{Key: k, Value: o.labels[k]})
		}
		s := f.scope(o.ref.Member, o.ref.Kind)
		s.Upsert(s.Item(rec))
	}
}

func (f *fleet) commit() {
	f.t.Helper()
	for _, s := range f.scopes {
		if _, err := s.Commit(); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fleet) server(o queries.Options) *queries.Handler {
	f.t.Helper()
	o.Index = f.index
	o.View = func(*aggregate.Snapshot) queries.View { return view{} }
	o.Now = func() time.Time { return f.now }
	var err error
	if o.Tokens, err = selection.NewTokenCodec(bytes.Repeat([]byte{7}, 32), f.index.First()); err != nil {
		f.t.Fatal(err)
	}
	if o.Pins, err = selection.NewPins(selection.PinOptions{}); err != nil {
		f.t.Fatal(err)
	}
	s, err := queries.New(o)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// ask runs a query and decodes its response from JSON.
func ask[T any](t testing.TB, s *queries.Handler, question, query string, r reader) (T, error) {
	t.Helper()
	var out T
	w, err := send(s, question, query, "application/json", r)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatalf("%s?%s: %v\n%s", question, query, err, w.Body)
	}
	return out, nil
}

func send(s *queries.Handler, question, query, accept string, r reader) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	req := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/query/v1/" + question, RawQuery: query}, Header: http.Header{"Accept": {accept}}}
	answer := map[string]func(http.ResponseWriter, *http.Request, queries.Caller) error{"count": s.Count, "find": s.Find, "related": s.Related, "members": s.Members}[question]
	return w, answer(w, req, r)
}

func code(err error) int32 {
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		return 0
	}
	return s.Status().Code
}

func table(t testing.TB, s *queries.Handler, question, query string) *metav1.Table {
	t.Helper()
	w, err := send(s, question, query, "application/json;as=Table;g=meta.k8s.io;v=v1, application/json", reader{seen: []string{"a/one", "a/two"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Header().Get("Content-Type"); !strings.Contains(got, "as=Table") {
		t.Errorf("content type %q", got)
	}
	out := &metav1.Table{}
	if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
		t.Fatal(err)
	}
	return out
}
