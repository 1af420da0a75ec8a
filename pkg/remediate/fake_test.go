package remediate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// fleet is a hub and members in memory, within a bubble of synctest: as much of their API
// servers as a dispatcher uses. The tests of the executor hold the dispatcher to real ones.
type fleet struct {
	// onWrite is called before a write to a member, dry runs excepted, and may refuse it.
	onWrite func(target string) *metav1.Status
	// onDryRun is called before each dry run.
	onDryRun func(target string)
	// onRequest is called with the context of each request to write to a member, dry runs
	// excepted, after onWrite; its error is that of the request.
	onRequest func(context.Context) error
	// ownConflicts has applies refused that are not forced, as of what federator has written
	// before.
	ownConflicts bool
	// marks are more of the metadata of ConfigMaps, such as "labels":{}.
	marks string
	// onHub is called before each request to the hub, and may refuse it.
	onHub func(method, path string) *metav1.Status
	// hangs reports whether a member does not answer; nil: all do.
	hangs func(member string) bool
	// delay delays the answers of members.
	delay time.Duration

	mu      sync.Mutex
	start   time.Time
	version int
	objects map[string][]byte // by host and path
	writes  []string          // targets of requests to write, and when
	// conflicts are requests refused because of ownConflicts.
	conflicts int
	lists     int // requests for all Actions
	puts      int // changes of PolicyStates
}

func newFleet() *fleet { return &fleet{start: time.Now(), objects: map[string][]byte{}} }

// client is a REST client of the hub or a member.
func (f *fleet) client(host string, gv schema.GroupVersion) rest.Interface {
	api := "/apis"
	if gv.Group == "" {
		api = "/api"
	}
	c, err := rest.RESTClientForConfigAndClient(&rest.Config{
		Host: "http://" + host, APIPath: api, QPS: -1,
		ContentConfig: rest.ContentConfig{GroupVersion: &gv, NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	}, &http.Client{Transport: f})
	if err != nil {
		panic(err)
	}
	return c
}

// Client implements remediate.ClientFactory.
func (f *fleet) Client(member string, _ policy.Kind, _ string) (*remediate.Client, error) {
	return &remediate.Client{REST: f.client(member, schema.GroupVersion{Version: "v1"}), Resource: "configmaps", Namespaced: true}, nil
}

// put sets a ConfigMap that violates the policy, in the version that an intent names.
func (f *fleet) put(i *remediate.Intent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := i.Remedy.Target
	f.objects[t.Member+"/api/v1/namespaces/"+t.Namespace+"/configmaps/"+t.Name] = fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":%q%s},"data":{"a":"bad"}}`,
		t.Name, t.Namespace, i.UID, i.ResourceVersion, f.marks)
}

// correct gives a ConfigMap the content that its correction would.
func (f *fleet) correct(i *remediate.Intent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := i.Remedy.Target
	key := t.Member + "/api/v1/namespaces/" + t.Namespace + "/configmaps/" + t.Name
	f.objects[key] = bytes.Replace(f.objects[key], []byte(`"bad"`), []byte(`"b"`), 1)
}

// record records an Action on the hub.
func (f *fleet) record(t *testing.T, a *v1alpha1.Action) {
	t.Helper()
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.objects["hub/apis/federator.dev/v1alpha1/actions/"+a.Name] = text
}

// actions are those of the hub.
func (f *fleet) actions() []v1alpha1.Action {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.actionsLocked()
}

func (f *fleet) actionsLocked() []v1alpha1.Action {
	var out []v1alpha1.Action
	for key, text := range f.objects {
		if strings.HasPrefix(key, "hub/") && strings.Contains(key, "/actions/") {
			var a v1alpha1.Action
			if err := json.Unmarshal(text, &a); err != nil {
				panic(err)
			}
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b v1alpha1.Action) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// acknowledged returns whose acknowledgements the Actions name.
func (f *fleet) acknowledged() []string {
	var out []string
	for _, a := range f.actions() {
		if a.Status.AcknowledgedBy != "" {
			out = append(out, a.Status.AcknowledgedBy+" "+a.Status.AcknowledgedHalt)
		}
	}
	return out
}

// listed returns how often all Actions were listed.
func (f *fleet) listed() int {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists
}

// written returns the writes to members since the last call, in order.
func (f *fleet) written() string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.writes)
	text := strings.Join(f.writes, ", ")
	f.writes = nil
	return text
}

// RoundTrip implements http.RoundTripper.
func (f *fleet) RoundTrip(r *http.Request) (*http.Response, error) {
	body := map[string]any{}
	if r.Body != nil {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &body); err != nil {
			return nil, err
		}
	}
	dryRun := r.URL.Query().Has("dryRun") || body["dryRun"] != nil
	if r.URL.Host != "hub" && f.hangs != nil && f.hangs(r.URL.Host) {
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	if r.URL.Host != "hub" {
		if status := f.memberRequest(r, dryRun); status != nil {
			return answer(r, int(status.Code), status)
		}
		if f.onRequest != nil && r.Method != http.MethodGet && !dryRun {
			if err := f.onRequest(r.Context()); err != nil {
				return nil, err
			}
		}
		if f.delay > 0 {
			select {
			case <-r.Context().Done():
				return nil, context.Cause(r.Context())
			case <-time.After(f.delay):
			}
		}
	}
	if r.URL.Host == "hub" && f.onHub != nil {
		if status := f.onHub(r.Method, r.URL.Path); status != nil {
			return answer(r, int(status.Code), status)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	object, status := f.serveLocked(r, body, dryRun)
	if status != nil {
		return answer(r, int(status.Code), status)
	}
	return answer(r, http.StatusOK, object)
}

// memberRequest reports a request to a member, and returns why it is refused.
func (f *fleet) memberRequest(r *http.Request, dryRun bool) *metav1.Status {
	if r.Method == http.MethodGet {
		return nil
	}
	target := r.URL.Host + " " + path.Base(r.URL.Path)
	if f.ownConflicts && r.URL.Query().Get("force") != "true" {
		f.mu.Lock()
		f.conflicts++
		f.mu.Unlock()
		s := contended()
		s.Details.Causes[0].Field = ".metadata.annotations.federator.dev/action"
		return s
	}
	if dryRun {
		if f.onDryRun != nil {
			f.onDryRun(target)
		}
		return nil
	}
	f.mu.Lock()
	f.writes = append(f.writes, fmt.Sprintf("%s@%v", target, time.Since(f.start).Round(time.Second)))
	f.mu.Unlock()
	if f.onWrite == nil {
		return nil
	}
	return f.onWrite(target)
}

func (f *fleet) serveLocked(r *http.Request, body map[string]any, dryRun bool) (any, *metav1.Status) {
	key := r.URL.Host + strings.TrimSuffix(r.URL.Path, "/status")
	if r.Method == http.MethodGet && path.Base(key) == v1alpha1.Actions {
		return f.listLocked(r), nil
	}
	if r.Method == http.MethodGet && path.Base(key) == v1alpha1.PolicyStates {
		return f.statesLocked(), nil
	}
	if base := path.Base(key); r.Method == http.MethodGet && (base == "plans" || base == "planparts") {
		return f.listPlansLocked(key, r), nil
	}
	patch := body
	meta, _ := body["metadata"].(map[string]any)
	if r.Method == http.MethodPost {
		key += "/" + fmt.Sprint(meta["name"])
		if f.objects[key] != nil {
			return nil, failure(http.StatusConflict, metav1.StatusReasonAlreadyExists, path.Base(key))
		}
		meta["uid"] = fmt.Sprint(key, "-", f.version)
		if r.URL.Host == "hub" {
			meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		}
	} else if f.objects[key] == nil {
		return nil, failure(http.StatusNotFound, metav1.StatusReasonNotFound, path.Base(key))
	}
	object := map[string]any{}
	if f.objects[key] != nil {
		if err := json.Unmarshal(f.objects[key], &object); err != nil {
			panic(err)
		}
	}
	if r.Method == http.MethodGet {
		return object, nil
	}
	if now, _ := object["metadata"].(map[string]any); r.Method == http.MethodPatch || r.Method == http.MethodPut {
		for _, field := range []string{"uid", "resourceVersion"} {
			if want, ok := meta[field]; ok && want != now[field] {
				return nil, failure(http.StatusConflict, metav1.StatusReasonConflict, path.Base(key))
			}
		}
	}
	if r.Method == http.MethodDelete {
		now, _ := object["metadata"].(map[string]any)
		if seen, _ := body["preconditions"].(map[string]any); r.URL.Host == "hub" && seen["resourceVersion"] != nil && seen["resourceVersion"] != now["resourceVersion"] {
			return nil, failure(http.StatusConflict, metav1.StatusReasonConflict, path.Base(key))
		}
		if !dryRun {
			delete(f.objects, key)
		}
		return object, nil
	}
	f.version++
	if meta == nil {
		meta = map[string]any{}
		patch["metadata"] = meta
	}
	meta["resourceVersion"] = "v" + strconv.Itoa(f.version)
	if r.Method == http.MethodPut {
		f.puts++
		if strings.HasSuffix(r.URL.Path, "/status") {
			object["status"] = nil
		} else {
			object = map[string]any{}
		}
	}
	merge(object, patch)
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	if !dryRun {
		f.objects[key] = text
	}
	return object, nil
}

// listLocked returns the Actions that a field selector keeps.
func (f *fleet) listLocked(r *http.Request) any {
	f.lists++
	list := &v1alpha1.ActionList{}
	selector := strings.Split(r.URL.Query().Get("fieldSelector"), ",")
	for _, a := range f.actionsLocked() {
		other := func(s string) bool {
			return strings.HasPrefix(s, "spec.binding=") && s != "spec.binding="+a.Spec.Binding
		}
		if !slices.Contains(selector, "status.phase!="+string(a.Status.Phase)) && !slices.ContainsFunc(selector, other) {
			list.Items = append(list.Items, a)
		}
	}
	return list
}

// statesLocked returns the PolicyStates.
func (f *fleet) statesLocked() *v1alpha1.PolicyStateList {
	list := &v1alpha1.PolicyStateList{}
	for key, text := range f.objects {
		if strings.HasPrefix(key, "hub/") && strings.Contains(key, "/policystates/") {
			var s v1alpha1.PolicyState
			if err := json.Unmarshal(text, &s); err != nil {
				panic(err)
			}
			list.Items = append(list.Items, s)
		}
	}
	return list
}

// putState sets the PolicyState of a policy, as another process would.
func (f *fleet) putState(name string, status v1alpha1.PolicyStateStatus) {
	text, err := json.Marshal(&v1alpha1.PolicyState{ObjectMeta: meta(name), Status: status})
	if err != nil {
		panic(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.objects["hub/apis/federator.dev/v1alpha1/policystates/"+name] = text
}

// state returns the PolicyState of a policy.
func (f *fleet) state(name string) v1alpha1.PolicyStateStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.statesLocked().Items {
		if s.Name == name {
			return s.Status
		}
	}
	return v1alpha1.PolicyStateStatus{}
}

// merge applies a merge patch.
func merge(object, patch map[string]any) {
	for field, value := range patch {
		inner, isMap := value.(map[string]any)
		switch {
		case value == nil:
			delete(object, field)
		case isMap:
			old, _ := object[field].(map[string]any)
			if old == nil {
				old = map[string]any{}
			}
			merge(old, inner)
			object[field] = old
		default:
			object[field] = value
		}
	}
}

func answer(r *http.Request, code int, object any) (*http.Response, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), Request: r,
	}, nil
}

func failure(code int32, reason metav1.StatusReason, name string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason,
		Message: string(reason), Details: &metav1.StatusDetails{Name: name},
	}
}

// forbidden refuses a write for good.
func forbidden() *metav1.Status {
	return failure(http.StatusForbidden, metav1.StatusReasonForbidden, "")
}

// contended refuses a write of fields that kubectl manages.
func contended() *metav1.Status {
	s := failure(http.StatusConflict, metav1.StatusReasonConflict, "")
	s.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "kubectl" using v1`, Field: ".data.a"}}
	return s
}

// running is a dispatcher of a fleet that runs until the test ends.
type running struct {
	*remediate.Dispatcher
	*fleet
}

func run(t *testing.T, f *fleet, opts remediate.Options) *running {
	t.Helper()
	opts.Clients, opts.Hub, opts.KeepSecretValues = f, f.client("hub", v1alpha1.SchemeGroupVersion()), true
	d, err := remediate.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return &running{d, f}
}

// leaseOf is a lease without an end, held while check returns nil.
func leaseOf(check func() error) func() (time.Time, error) {
	return func() (time.Time, error) { return time.Time{}, check() }
}

// expect compares the writes since the last call with what they should be.
func (d *running) expect(t *testing.T, what, want string) {
	t.Helper()
	if got := d.written(); got != want {
		t.Errorf("%s: corrected %q, want %q", what, got, want)
	}
}

// set has policy b violated by the targets of intents, as these name them.
func (d *running) set(t *testing.T, spec remediate.RolloutSpec, subjects int, intents []remediate.Intent) {
	t.Helper()
	for n := range intents {
		d.put(&intents[n])
	}
	totals := remediate.Totals{Fleet: subjects, Members: map[string]int{"m1": subjects / 2, "m2": subjects / 2}}
	if err := d.SetIntents("b", spec, totals, intents, true); err != nil {
		t.Fatal(err)
	}
}

// intents are corrections of ConfigMaps in the version that was evaluated. A target is a
// member and a name.
func intents(version string, targets ...string) []remediate.Intent {
	var out []remediate.Intent
	for _, t := range targets {
		member, name, _ := strings.Cut(t, " ")
		out = append(out, remediate.Intent{
			Binding: "b", MemberUID: "uid-" + member, UID: "u-" + t, ResourceVersion: version,
			Remedy: policy.Remedy{
				Action: "patch", Target: policy.Ref{Member: member, Kind: "ConfigMap", Namespace: "shop", Name: name},
				Patch: []byte(`{"data":{"a":"b"}}`),
			},
		})
	}
	return out
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID("u-" + name), ResourceVersion: "1"}
}
