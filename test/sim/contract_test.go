package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// contract asserts what a stock client sees, whichever server is behind the config.
// Everything is done through HTTP, as an administrator.
func contract(t *testing.T, config *rest.Config) {
	s := newSubject(t, config)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *subject)
	}{
		{"health and version are public", testPublic},
		{"discovery is the same aggregated and legacy", testDiscovery},
		{"wrong token is 401, none is 403, unknown is 404", testRefusals},
		{"writes keep their preconditions", testWrites},
		{"protobuf and JSON carry the same object", testEncodings},
		{"lists of metadata", testMetadata},
		{"pages are of one moment", testPages},
		{"list at a resourceVersion", testListResourceVersion},
		{"selectors", testSelectors},
		{"watch from a resourceVersion", testWatch},
		{"watch translates events through a selector", testWatchSelector},
		{"WatchList ends with its bookmark", testWatchList},
		{"bookmark before the timeout", testBookmarkAtTimeout},
		{"informers follow", testInformers},
		{"a CRD comes, changes with 410 and goes", testCRD},
	} {
		t.Run(strings.ReplaceAll(test.name, " ", "_"), func(t *testing.T) {
			test.run(t, s.in(t))
		})
	}
}

// A subject is a server under test, through typed protobuf clients.
type subject struct {
	config *rest.Config
	typed  kubernetes.Interface
	ns     string // of its own, made for each test
	ctx    context.Context
}

func newSubject(t *testing.T, config *rest.Config) *subject {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	proto := rest.CopyConfig(config)
	proto.ContentType = runtime.ContentTypeProtobuf
	proto.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(proto)
	if err != nil {
		t.Fatal(err)
	}
	return &subject{config: config, typed: client}
}

func (s *subject) in(t *testing.T) *subject {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	ns, err := s.typed.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "contract-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &subject{config: s.config, typed: s.typed, ns: ns.Name, ctx: ctx}
}

func (s *subject) create(t *testing.T, name string, labels map[string]string) *corev1.ConfigMap {
	t.Helper()
	cm, err := s.typed.CoreV1().ConfigMaps(s.ns).Create(s.ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"k": "v"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cm
}

// get sends a bare GET and gives the response's code, content type and body.
func (s *subject) get(t *testing.T, config *rest.Config, path, accept string) (code int, contentType string, body []byte) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.ProtoMajor != 2 {
		t.Errorf("%s over %s", path, res.Proto)
	}
	body, err = io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header.Get("Content-Type"), body
}

func testPublic(t *testing.T, s *subject) {
	anonymous := rest.AnonymousClientConfig(s.config)
	for _, path := range []string{"/readyz", "/livez", "/version"} {
		if code, _, body := s.get(t, anonymous, path, "*/*"); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	info, err := s.typed.Discovery().ServerVersion()
	if err != nil || info.Major != "1" || !strings.HasPrefix(info.GitVersion, "v1.") {
		t.Errorf("version %+v, %v", info, err)
	}
	ns, err := s.typed.CoreV1().Namespaces().Get(s.ctx, "kube-system", metav1.GetOptions{})
	if err != nil || ns.UID == "" {
		t.Errorf("kube-system has uid %q, %v", ns.UID, err)
	}
}

func testDiscovery(t *testing.T, s *subject) {
	type resource struct {
		Kind, Scope string
		Watch       bool
	}
	read := func(lists []*metav1.APIResourceList, err error) map[string]resource {
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]resource{}
		for _, l := range lists {
			for _, r := range l.APIResources {
				if strings.Contains(r.Name, "/") || strings.Contains(l.GroupVersion, "authentication") || strings.Contains(l.GroupVersion, "authorization.k8s.io/v1") {
					continue
				}
				out[l.GroupVersion+"/"+r.Name] = resource{r.Kind, fmt.Sprint(r.Namespaced), slices.Contains(r.Verbs, "watch")}
			}
		}
		return out
	}
	_, lists, err := s.typed.Discovery().ServerGroupsAndResources()
	aggregated := read(lists, err)
	_, lists, err = s.typed.Discovery().WithLegacy().ServerGroupsAndResources()
	legacy := read(lists, err)
	if diff := cmp.Diff(aggregated, legacy); diff != "" {
		t.Errorf("aggregated and legacy discovery differ:\n%s", diff)
	}
	for key, want := range map[string]resource{
		"v1/pods": {"Pod", "true", true}, "v1/nodes": {"Node", "false", true},
		"apps/v1/deployments": {"Deployment", "true", true}, "networking.k8s.io/v1/ingresses": {"Ingress", "true", true},
		"apiextensions.k8s.io/v1/customresourcedefinitions": {"CustomResourceDefinition", "false", true},
	} {
		if aggregated[key] != want {
			t.Errorf("%s is %+v, want %+v", key, aggregated[key], want)
		}
	}
	const v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for _, path := range []string{"/api", "/apis"} {
		code, contentType, body := s.get(t, s.config, path, v2+",application/json")
		if code != http.StatusOK || contentType != v2 {
			t.Errorf("%s: %d %q %.200s", path, code, contentType, body)
		}
		testConditional(t, s, path, v2)
	}
}

func testRefusals(t *testing.T, s *subject) {
	wrong := rest.AnonymousClientConfig(s.config)
	wrong.BearerToken = "wrong"
	anonymous := rest.AnonymousClientConfig(s.config)
	for _, test := range []struct {
		config *rest.Config
		path   string
		code   int
		reason metav1.StatusReason
	}{
		{wrong, "/api/v1/pods", 401, metav1.StatusReasonUnauthorized},
		{wrong, "/version", 401, metav1.StatusReasonUnauthorized},
		{anonymous, "/api/v1/pods", 403, metav1.StatusReasonForbidden},
		{anonymous, "/api/v1/namespaces/default/pods?watch=true", 403, metav1.StatusReasonForbidden},
		{s.config, "/api/v1/namespaces/default/pods/absent", 404, metav1.StatusReasonNotFound},
		{s.config, "/api/v1/pods?resourceVersion=abc", 400, metav1.StatusReasonBadRequest},
		{s.config, "/api/v1/pods?resourceVersionMatch=Exact", 422, metav1.StatusReasonInvalid},
		{s.config, "/api/v1/pods?watch=true&sendInitialEvents=true", 422, metav1.StatusReasonInvalid},
		{s.config, "/api/v1/pods?continue=nonsense", 400, metav1.StatusReasonBadRequest},
		{s.config, "/api/v1/pods?fieldSelector=spec.unheard=1", 400, metav1.StatusReasonBadRequest},
	} {
		code, contentType, body := s.get(t, test.config, test.path, "application/json")
		var status metav1.Status
		if err := json.Unmarshal(body, &status); err != nil {
			t.Errorf("%s: %v in %.100s", test.path, err, body)
			continue
		}
		if code != test.code || status.Reason != test.reason || status.Kind != "Status" || contentType != "application/json" {
			t.Errorf("%s: %d %q as %s, want %d %q", test.path, code, status.Reason, contentType, test.code, test.reason)
		}
	}
	if code, _, _ := s.get(t, s.config, "/apis/unheard.example/v1/things", "application/json"); code != 404 {
		t.Errorf("unknown group: %d", code)
	}
	if code, _, _ := s.get(t, s.config, "/api/v1/pods", "image/png"); code != 406 {
		t.Errorf("image/png: %d", code)
	}
}

func testWrites(t *testing.T, s *subject) {
	client := s.typed.CoreV1().ConfigMaps(s.ns)
	cm := s.create(t, "a", nil)
	if cm.UID == "" || cm.ResourceVersion == "" || cm.CreationTimestamp.IsZero() {
		t.Errorf("created without identity: %+v", cm.ObjectMeta)
	}
	if _, err := client.Create(s.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("creating it again: %v", err)
	}
	same, err := client.Update(s.ctx, cm.DeepCopy(), metav1.UpdateOptions{})
	if err != nil || same.ResourceVersion != cm.ResourceVersion {
		t.Errorf("an update without change: %q after %q, %v", same.ResourceVersion, cm.ResourceVersion, err)
	}
	next := cm.DeepCopy()
	next.Data["k"] = "w"
	next, err = client.Update(s.ctx, next, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if order, err := resourceversion.CompareResourceVersion(next.ResourceVersion, cm.ResourceVersion); err != nil || order <= 0 {
		t.Errorf("resourceVersion %s after %s, %v", next.ResourceVersion, cm.ResourceVersion, err)
	}
	stale := cm.DeepCopy()
	stale.Data["k"] = "x"
	if _, err := client.Update(s.ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a stale update: %v", err)
	}
	patched, err := client.Patch(s.ctx, "a", types.MergePatchType, []byte(`{"data":{"k":null,"n":"5"}}`), metav1.PatchOptions{})
	if err != nil || !cmp.Equal(patched.Data, map[string]string{"n": "5"}) {
		t.Errorf("patched: %v, %v", patched, err)
	}
	other := types.UID("00000000-0000-4000-8000-000000000000")
	err = client.Delete(s.ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	if !apierrors.IsConflict(err) {
		t.Errorf("deleting another uid: %v", err)
	}
	if err := client.Delete(s.ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &cm.UID}}); err != nil {
		t.Errorf("deleting: %v", err)
	}
	if _, err := client.Get(s.ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the deletion: %v", err)
	}
	if err := client.Delete(s.ctx, "a", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("deleting again: %v", err)
	}

	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}}}
	if _, err := client.Create(s.ctx, held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(s.ctx, "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := client.Get(s.ctx, "held", metav1.GetOptions{}); err != nil || got.DeletionTimestamp == nil {
		t.Errorf("an object with a finalizer, deleted: %v, %v", got, err)
	}
	if _, err := client.Patch(s.ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(s.ctx, "held", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("without its finalizer: %v", err)
	}
}

func testEncodings(t *testing.T, s *subject) {
	s.create(t, "a", map[string]string{"l": "1"})
	s.create(t, "b", nil)
	base := "/api/v1/namespaces/" + s.ns + "/configmaps"
	code, contentType, body := s.get(t, s.config, base, runtime.ContentTypeProtobuf)
	if code != 200 || contentType != runtime.ContentTypeProtobuf || !strings.HasPrefix(string(body), "k8s\x00") {
		t.Fatalf("list as protobuf: %d %s %.40q", code, contentType, body)
	}
	var u runtime.Unknown
	var fromProto, fromJSON corev1.ConfigMapList
	if err := errors.Join(u.Unmarshal(body[4:]), fromProto.Unmarshal(u.Raw)); err != nil {
		t.Fatal(err)
	}
	if u.Kind != "ConfigMapList" || u.APIVersion != "v1" {
		t.Errorf("envelope says %+v", u.TypeMeta)
	}
	code, contentType, body = s.get(t, s.config, base, "application/json")
	if code != 200 || contentType != "application/json" {
		t.Fatalf("list as JSON: %d %s", code, contentType)
	}
	if err := json.Unmarshal(body, &fromJSON); err != nil {
		t.Fatal(err)
	}
	if fromJSON.Kind != "ConfigMapList" || len(fromJSON.Items) < 2 || fromJSON.Items[0].Kind != "" {
		t.Errorf("JSON list %+v with %d items", fromJSON.TypeMeta, len(fromJSON.Items))
	}
	if diff := cmp.Diff(fromProto.Items, fromJSON.Items); diff != "" {
		t.Errorf("protobuf and JSON differ:\n%s", diff)
	}
	code, _, body = s.get(t, s.config, base+"/a", "application/json")
	var one corev1.ConfigMap
	if err := json.Unmarshal(body, &one); err != nil || code != 200 || one.Kind != "ConfigMap" || one.APIVersion != "v1" || one.Labels["l"] != "1" {
		t.Errorf("get: %d %s, %v", code, body, err)
	}
	for _, accept := range []string{"application/json", runtime.ContentTypeProtobuf + ";stream=watch"} {
		code, contentType, body = s.get(t, s.config, base+"?watch=true&timeoutSeconds=1", accept)
		if code != 200 || contentType != accept || len(body) == 0 {
			t.Errorf("watch as %s: %d %s %.60q", accept, code, contentType, body)
		}
	}
}

func testPages(t *testing.T, s *subject) {
	client := s.typed.CoreV1().ConfigMaps(s.ns)
	for i := range 25 {
		s.create(t, fmt.Sprintf("page-%02d", i), nil)
	}
	options := metav1.ListOptions{Limit: 10, LabelSelector: ""}
	var names []string
	var rv string
	for pages := 0; pages == 0 || options.Continue != ""; pages++ {
		list, err := client.List(s.ctx, options)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case pages == 0:
			rv = list.ResourceVersion
			if list.RemainingItemCount == nil || *list.RemainingItemCount < 15 || *list.RemainingItemCount > 16 {
				t.Errorf("remaining %v", list.RemainingItemCount)
			}
			// Neither is of the moment that the pages are of.
			if err := client.Delete(s.ctx, "page-20", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			s.create(t, "page-99", nil)
		case list.ResourceVersion != rv:
			t.Errorf("page %d is of %s, the first of %s", pages, list.ResourceVersion, rv)
		}
		for _, cm := range list.Items {
			if strings.HasPrefix(cm.Name, "page-") {
				names = append(names, cm.Name)
			}
		}
		options.Continue = list.Continue
	}
	if len(names) != 25 || !slices.IsSorted(names) || slices.Contains(names, "page-99") || !slices.Contains(names, "page-20") {
		t.Errorf("%d names: %v", len(names), names)
	}
	list, err := client.List(s.ctx, metav1.ListOptions{Limit: 3, ResourceVersion: "0"})
	if err != nil || len(list.Items) < 20 {
		t.Errorf("resourceVersion 0 ignores the limit: got %d, %v", len(list.Items), err)
	}
}

func testListResourceVersion(t *testing.T, s *subject) {
	client := s.typed.CoreV1().ConfigMaps(s.ns)
	s.create(t, "a", nil)
	before := s.create(t, "b", nil)
	s.create(t, "c", nil)
	if err := client.Delete(s.ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	names := func(opts metav1.ListOptions) (out []string, rv string) {
		list, err := client.List(s.ctx, opts)
		if err != nil {
			t.Errorf("%+v: %v", opts, err)
			return nil, ""
		}
		for _, cm := range list.Items {
			if len(cm.Name) == 1 {
				out = append(out, cm.Name)
			}
		}
		return out, list.ResourceVersion
	}
	got, rv := names(metav1.ListOptions{ResourceVersion: before.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if !slices.Equal(got, []string{"a", "b"}) || rv != before.ResourceVersion {
		t.Errorf("exactly at %s: %v at %s", before.ResourceVersion, got, rv)
	}
	got, rv = names(metav1.ListOptions{})
	if !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("now: %v", got)
	}
	for _, match := range []metav1.ResourceVersionMatch{"", metav1.ResourceVersionMatchNotOlderThan} {
		if got, _ := names(metav1.ListOptions{ResourceVersion: rv, ResourceVersionMatch: match}); !slices.Equal(got, []string{"b", "c"}) {
			t.Errorf("not older than %s (%q): %v", rv, match, got)
		}
	}
	// Not by a client: it would wait and ask again, ten times.
	code, _, body := s.get(t, s.config, "/api/v1/configmaps?resourceVersion=999999999999", "application/json")
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err != nil {
		t.Fatal(err)
	}
	if err := apierrors.FromObject(&status); code != 504 || !apierrors.IsTimeout(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		t.Errorf("a future resourceVersion: %d %s", code, body)
	}
}

func testSelectors(t *testing.T, s *subject) {
	client := s.typed.CoreV1().ConfigMaps(s.ns)
	s.create(t, "a", map[string]string{"app": "x", "tier": "1"})
	s.create(t, "b", map[string]string{"app": "x"})
	s.create(t, "c", map[string]string{"app": "y"})
	for _, typ := range []corev1.SecretType{"cluster.x-k8s.io/secret", "Opaque"} {
		name := strings.ToLower(strings.NewReplacer("/", "-", ".", "-").Replace(string(typ)))
		if _, err := s.typed.CoreV1().Secrets(s.ns).Create(s.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: typ}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		labels, fields string
		want           []string
	}{
		{"app=x", "", []string{"a", "b"}},
		{"app=x,tier", "", []string{"a"}},
		{"app in (x,y),!tier", "", []string{"b", "c"}},
		{"app", "metadata.name=c", []string{"c"}},
		{"app", "metadata.name!=c", []string{"a", "b"}},
		{"app", "metadata.namespace=other", nil},
	} {
		list, err := client.List(s.ctx, metav1.ListOptions{LabelSelector: test.labels, FieldSelector: test.fields})
		if err != nil {
			t.Errorf("%+v: %v", test, err)
			continue
		}
		var got []string
		for _, cm := range list.Items {
			got = append(got, cm.Name)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%+v: got %v", test, got)
		}
	}
	secrets, err := s.typed.CoreV1().Secrets(s.ns).List(s.ctx, metav1.ListOptions{FieldSelector: "type=cluster.x-k8s.io/secret"})
	if err != nil || len(secrets.Items) != 1 || secrets.Items[0].Type != "cluster.x-k8s.io/secret" {
		t.Errorf("secrets by type: %v, %v", secrets, err)
	}
}

// nextEvent waits for an event; ok is false when the watch has ended.
func nextEvent(t *testing.T, w watch.Interface) (ev watch.Event, ok bool) {
	t.Helper()
	select {
	case ev, ok = <-w.ResultChan():
		return ev, ok
	case <-time.After(30 * time.Second):
		t.Fatal("no event in 30 s")
		return ev, false
	}
}
