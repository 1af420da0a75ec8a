package mcp_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/mcp"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/queryserver"
)

func TestMain(m *testing.M) {
	klog.StopFlushDaemon()
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // what the machinery says of refused callers
	goleak.VerifyTestMain(m)
}

// hub is one that knows everybody by the token, and allows what may says.
type hub struct {
	may atomic.Pointer[func(user string, a *authorizationv1.ResourceAttributes) bool]
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any
	var err error
	if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
		var review authenticationv1.TokenReview
		err = json.NewDecoder(r.Body).Decode(&review)
		review.Status.Authenticated = !strings.HasPrefix(review.Spec.Token, "wrong")
		review.Status.User.Username, review.Status.Audiences = review.Spec.Token, review.Spec.Audiences
		answer = review
	} else {
		var review authorizationv1.SubjectAccessReview
		if err = json.NewDecoder(r.Body).Decode(&review); err == nil && review.Spec.ResourceAttributes != nil {
			review.Status.Allowed = (*h.may.Load())(review.Spec.User, review.Spec.ResourceAttributes)
		}
		answer = review
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(answer)
}

// kinds are what the members serve.
var kinds = queryserver.Fleet{
	{Kind: "ConfigMap", Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Singular: "configmap", ShortNames: []string{"cm"}, Namespaced: true},
	{Kind: "Deployment.apps", Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Singular: "deployment", ShortNames: []string{"deploy"}, Namespaced: true},
	{Kind: "Node", Resource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, Singular: "node"},
	{Kind: "Pod", Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Singular: "pod", ShortNames: []string{"po"}, Namespaced: true},
	{Kind: "ReplicaSet.apps", Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, Singular: "replicaset", ShortNames: []string{"rs"}, Namespaced: true},
	{Kind: "Service", Resource: schema.GroupVersionResource{Version: "v1", Resource: "services"}, Singular: "service", ShortNames: []string{"svc"}, Namespaced: true},
}

// namespaces are for worlds in which members grant what is in some of them.
var namespaces = queryapi.ServedResource{Kind: "Namespace", Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Singular: "namespace"}

func kindsServed() (map[aggregate.Kind]bool, <-chan struct{}) {
	served := map[aggregate.Kind]bool{}
	for _, k := range append(kinds[:len(kinds):len(kinds)], namespaces) {
		served[k.Kind] = true
	}
	return served, nil
}

// resourceOf returns the resource of a kind.
func resourceOf(kind aggregate.Kind) queryapi.ServedResource {
	if kind == namespaces.Kind {
		return namespaces
	}
	return kinds[slices.IndexFunc(kinds, func(r queryapi.ServedResource) bool { return r.Kind == kind })]
}

// object is what a member has.
type object struct {
	ref    aggregate.Ref
	uid    string
	labels map[string]string
	notes  map[string]string // annotations
	owner  *object
	body   map[string]any

	version string // "": 7
}

func (o *object) record() *aggregate.Record {
	version := cmp.Or(o.version, "7")
	r := &aggregate.Record{Namespace: o.ref.Namespace, Name: o.ref.Name, UID: o.uid, ResourceVersion: version}
	for _, key := range slices.Sorted(maps.Keys(o.labels)) {
		r.Labels = append(r.Labels, aggregate.Label{Key: key, Value: o.labels[key]})
	}
	meta := map[string]any{"name": o.ref.Name, "resourceVersion": version, "uid": o.uid}
	if o.ref.Namespace != "" {
		meta["namespace"] = o.ref.Namespace
	}
	if o.labels != nil {
		meta["labels"] = o.labels
	}
	if o.notes != nil {
		meta["annotations"] = o.notes
	}
	if o.owner != nil {
		kind, _ := o.owner.ref.Kind.Split()
		of := aggregate.Owner{APIVersion: resourceOf(o.owner.ref.Kind).Resource.GroupVersion().String(), Kind: kind, Name: o.owner.ref.Name, UID: o.owner.uid, Controller: true}
		r.Owners = []aggregate.Owner{of}
		meta["ownerReferences"] = []any{map[string]any{"apiVersion": of.APIVersion, "kind": of.Kind, "name": of.Name, "uid": of.UID, "controller": true}}
	}
	kind, _ := o.ref.Kind.Split()
	body := map[string]any{"apiVersion": resourceOf(o.ref.Kind).Resource.GroupVersion().String(), "kind": kind, "metadata": meta}
	maps.Copy(body, o.body)
	var text bytes.Buffer
	e := json.NewEncoder(&text) // keys of maps are sorted
	e.SetEscapeHTML(false)
	if err := e.Encode(body); err != nil {
		panic(err)
	}
	r.Body = bytes.TrimSpace(text.Bytes())
	return r
}

// heldActions are what the hub has of federator.
type heldActions struct {
	policyquery.Hub // nothing else is asked

	actions []*v1alpha1.Action // the newest first
}

func (h heldActions) Actions() (iter.Seq[*policyquery.ActionSummary], policyquery.HubState, error) {
	return func(yield func(*policyquery.ActionSummary) bool) {
		for _, a := range h.actions {
			if !yield(policyquery.SummaryOf(a)) {
				return
			}
		}
	}, policyquery.HubState{}, nil
}

func (h heldActions) Action(_ context.Context, name string) (*v1alpha1.Action, error) {
	for _, a := range h.actions {
		if a.Name == name {
			return a, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "actions"}, name)
}

func (heldActions) PolicySources() (policyquery.HubObjects[*v1alpha1.PolicySource], error) {
	return policyquery.HubObjects[*v1alpha1.PolicySource]{}, nil
}

// world is what a fleet has.
type world struct {
	members  []aggregate.Member
	objects  []*object
	states   map[aggregate.Ref]aggregate.Status // of scopes that are not Synced: member and kind
	rego     []string
	bindings []policy.Binding
	actions  []*v1alpha1.Action // the newest first
	withNS   bool               // members have Namespaces

	past           []past           // what became of objects, the oldest first
	author, commit string           // of the policies
	gaps           []history.Record // that are recorded besides
}

// kinds are what its members serve.
func (w *world) kinds() queryserver.Fleet {
	if w.withNS {
		return append(kinds[:len(kinds):len(kinds)], namespaces)
	}
	return kinds
}

// fleet is a query API over a world.
type fleet struct {
	t        testing.TB
	server   *queryserver.Server
	hub      *hub
	registry *prometheus.Registry
	index    *aggregate.Index
	past     *recording
}

// start runs a query API until the test ends.
func start(t testing.TB, w *world, change func(*queryapi.Options)) *fleet {
	t.Helper()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, hub: &hub{}, registry: prometheus.NewRegistry(), index: index}
	f.allow(func(string, *authorizationv1.ResourceAttributes) bool { return true })
	f.past = record(t, index)
	scopes := w.fill(t, index)
	var src policy.Source
	for i, text := range w.rego {
		src.Files = append(src.Files, policy.File{Path: fmt.Sprintf("%d.rego", i), Data: []byte(text)})
	}
	set, err := policy.Load([]policy.Source{src}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	loop, err := enforce.New(enforce.Options{Index: index, Set: set, Bindings: w.bindings})
	if err != nil {
		t.Fatal(err)
	}
	looping, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(looping) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	f.past.follow(loop)
	f.past.until()
	w.pass(t, scopes)
	f.past.until()
	f.past.tell(w)
	at := httptest.NewServer(f.hub)
	t.Cleanup(at.Close)
	held := heldActions{actions: w.actions}
	listed := policyquery.Actions{Kinds: kindsServed, Index: index, Hub: held}
	rego := &policyquery.Rego{Index: index, Kinds: kindsServed, State: loop.State}
	o := queryapi.Options{
		Index: index, Fleet: w.kinds(), Metrics: f.registry, Hub: &rest.Config{Host: at.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}},
		Queries: map[string]queryapi.Query{
			"violations": policyquery.Violations{Kinds: kindsServed, Loop: loop}, "rego": rego,
			"explain": policyquery.Explain{Kinds: kindsServed, Loop: loop, Rego: rego, Hub: held},
			"actions": listed, "actions/{name}": policyquery.Action{Actions: listed},
			"history": policyquery.History{Kinds: kindsServed, Index: index, History: f.past.History, Hub: held, State: loop.State},
		},
	}
	if o.MCP, err = mcp.New(mcp.Options{Version: "test", Logger: slog.New(slog.DiscardHandler), Metrics: f.registry}); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&o)
	}
	f.server = queryserver.Start(t, o)
	return f
}

// fill writes what the world is at first into an index, and returns its scopes, by member and kind.
func (w *world) fill(t testing.TB, index *aggregate.Index) map[aggregate.Ref]*aggregate.Scope {
	t.Helper()
	first, scopes := w.first(), map[aggregate.Ref]*aggregate.Scope{}
	for _, m := range w.members {
		if err := index.PutMember(m); err != nil {
			t.Fatal(err)
		}
		for _, k := range w.kinds() {
			scope, err := index.OpenScopeAs(m.Name, k.Kind, k.Resource.GroupVersion().String(), k.Resource.Resource)
			if err != nil {
				t.Fatal(err)
			}
			scopes[aggregate.Ref{Member: m.Name, Kind: k.Kind}] = scope
			var items []aggregate.Item
			for _, o := range first {
				if o.ref.Member == m.Name && o.ref.Kind == k.Kind {
					items = append(items, scope.Item(o.record()))
				}
			}
			status, ok := w.states[aggregate.Ref{Member: m.Name, Kind: k.Kind}]
			if !ok {
				status.State = aggregate.Synced
			}
			if _, err := scope.Replace(items, status); err != nil {
				t.Fatal(err)
			}
		}
	}
	return scopes
}

// allow sets what callers may do.
func (f *fleet) allow(may func(user string, a *authorizationv1.ResourceAttributes) bool) {
	f.hub.may.Store(&may)
}

// bearer sends a token.
type bearer struct {
	http.RoundTripper
	token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(r)
}

// session is one of the SDK's own client, as a user, over HTTP.
func (f *fleet) session(t testing.TB, user string) *sdk.ClientSession {
	t.Helper()
	return f.sessionBy(t, bearer{f.server.Transport(t), user})
}

func (f *fleet) sessionBy(t testing.TB, by http.RoundTripper) *sdk.ClientSession {
	t.Helper()
	transport := &sdk.StreamableClientTransport{Endpoint: "https://" + f.server.Address + "/mcp", HTTPClient: &http.Client{Transport: by}, MaxRetries: -1}
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// schemas are those of the tools' answers, of all servers.
var schemas sync.Map

// outputs returns them, as a client is told.
func outputs(t testing.TB, s *sdk.ClientSession) map[string]*jsonschema.Resolved {
	t.Helper()
	if known, ok := schemas.Load("outputs"); ok {
		return known.(map[string]*jsonschema.Resolved)
	}
	list, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*jsonschema.Resolved{}
	for _, tool := range list.Tools {
		text, err := json.Marshal(tool.OutputSchema)
		var schema jsonschema.Schema
		if err == nil {
			err = json.Unmarshal(text, &schema)
		}
		if err == nil {
			out[tool.Name], err = schema.Resolve(nil)
		}
		if err != nil {
			t.Fatalf("%s: %v", tool.Name, err)
		}
	}
	schemas.Store("outputs", out)
	return out
}

// call calls a tool, and returns the JSON of its answer.
func call(t testing.TB, s *sdk.ClientSession, tool string, args any) (text string, failed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), queryserver.Patience)
	defer cancel()
	r, err := s.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s %v: %v", tool, args, err)
	}
	if len(r.Content) != 1 {
		t.Fatalf("%s %v: %d contents", tool, args, len(r.Content))
	}
	text = r.Content[0].(*sdk.TextContent).Text
	if r.IsError {
		return text, true
	}
	structured, err := json.Marshal(r.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	if err := outputs(t, s)[tool].Validate(r.StructuredContent); err != nil {
		t.Errorf("%s %v: %v: %s", tool, args, err, structured)
	}
	if len(text) >= 8<<10 || len(structured) >= 8<<10 {
		t.Errorf("%s %v: %d bytes of text, %d of structured content", tool, args, len(text), len(structured))
	}
	return text, false
}

// into calls a tool, which must answer.
func into[T any](t testing.TB, s *sdk.ClientSession, tool string, args any) *T {
	t.Helper()
	text, failed := call(t, s, tool, args)
	var out T
	if err := json.Unmarshal([]byte(text), &out); err != nil || failed {
		t.Fatalf("%s %v: %v: %s", tool, args, err, text)
	}
	return &out
}

func labels(pairs ...string) (out []aggregate.Label) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, aggregate.Label{Key: pairs[i], Value: pairs[i+1]})
	}
	return out
}

// newAction is an Action on an object.
func newAction(name, binding string, at time.Time, target *object, phase v1alpha1.ActionPhase, violation string) *v1alpha1.Action {
	a := &v1alpha1.Action{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(at)}}
	a.Spec.Binding, a.Spec.Verb, a.Spec.Violation = binding, "patch", violation
	a.Spec.Target.Member, a.Spec.Target.Kind, a.Spec.Target.Namespace, a.Spec.Target.Name = target.ref.Member, v1alpha1.Kind(target.ref.Kind), target.ref.Namespace, target.ref.Name
	a.Status.Phase = phase
	return a
}

// countedCalls is the counter of the calls of a tool with a result.
func countedCalls(t testing.TB, f *fleet, tool, result string) prometheus.Counter {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "calls", Help: "calls"})
	for _, family := range families {
		for _, m := range family.Metric {
			is := map[string]string{}
			for _, l := range m.Label {
				is[l.GetName()] = l.GetValue()
			}
			if family.GetName() == "federator_mcp_calls_total" && is["tool"] == tool && is["result"] == result {
				c.Add(m.Counter.GetValue())
			}
		}
	}
	return c
}
