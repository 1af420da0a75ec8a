package queryapi_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/queryserver"
)

// hub is one real API server for all tests of the package.
var hub *kube.Hub

func TestMain(m *testing.M) {
	klog.StopFlushDaemon()
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // what the machinery says of refused callers
	fleet, err := kube.Start(context.Background(), kube.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	hub = fleet.Hub
	code := m.Run()
	if err := fleet.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// patience is how long a test waits for what must happen soon.
const patience = queryserver.Patience

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-tick.C
	}
}

// served is what members serve.
var served = queryserver.Fleet{
	{Kind: "Deployment.apps", Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Singular: "deployment", Namespaced: true},
	{Kind: "Namespace", Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Singular: "namespace"},
	{Kind: "Pod", Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Singular: "pod", ShortNames: []string{"po"}, Namespaced: true},
}

var memberNames = []string{"blue/eu-1", "blue/us-1", "red/eu-1"}

// newIndex holds a pod, a namespace and a Deployment in each of three members.
func newIndex(t testing.TB) *aggregate.Index {
	t.Helper()
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range memberNames {
		if err := x.PutMember(aggregate.Member{Name: m, UID: fmt.Sprint("uid-", i), Version: "v1.36.3"}); err != nil {
			t.Fatal(err)
		}
		for _, o := range []struct {
			kind                     aggregate.Kind
			version, namespace, name string
			body                     string
		}{
			{"Pod", "v1", "shop", "web", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop","resourceVersion":"7","uid":"p"},"spec":{"containers":[{"image":"web","name":"web"}]},"status":{"phase":"Running"}}`},
			{"Namespace", "v1", "", "shop", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","resourceVersion":"3","uid":"n"}}`},
			{"Deployment.apps", "apps/v1", "shop", "web", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","resourceVersion":"5","uid":"d"}}`},
		} {
			s, err := x.OpenScope(m, o.kind, o.version)
			if err != nil {
				t.Fatal(err)
			}
			s.Upsert(s.Item(&aggregate.Record{Namespace: o.namespace, Name: o.name, UID: "u", ResourceVersion: "7", Body: []byte(o.body)}))
			s.SetStatus(aggregate.Status{State: aggregate.Synced})
			if _, err := s.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return x
}

type question = queryserver.Question

var whoami = queryserver.WhoAmI

// server is a running server.
type server struct {
	*queryserver.Server
	registry *prometheus.Registry
}

// start runs a server against the real hub until the test ends.
func start(t *testing.T, change func(*queryapi.Options)) *server {
	t.Helper()
	s := &server{registry: prometheus.NewRegistry()}
	o := queryapi.Options{Index: newIndex(t), Fleet: served, Metrics: s.registry, Hub: hub.RESTConfig(), Queries: map[string]queryapi.Query{"whoami": whoami}}
	if change != nil {
		change(&o)
	}
	s.Server = queryserver.Start(t, o)
	return s
}

func (s *server) client(t *testing.T, certs ...tls.Certificate) *http.Client {
	return s.Client(t, certs...)
}

// ask returns the answer to a request.
func (s *server) ask(t *testing.T, c *http.Client, method, path, token string, header http.Header, body []byte) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://"+s.Address+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		r.Header[k] = v
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp, string(text)
}

func (s *server) get(t *testing.T, path, token string) (*http.Response, string) {
	t.Helper()
	return s.ask(t, s.client(t), "GET", path, token, nil, nil)
}

// wantStatus checks that an answer has a code and is a Status.
func wantStatus(t *testing.T, what string, resp *http.Response, body string, code int) metav1.Status {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal([]byte(body), &status); err != nil || status.Kind != "Status" || status.APIVersion != "v1" {
		t.Errorf("%s: %d %q is no Status", what, resp.StatusCode, body)
		return status
	}
	if resp.StatusCode != code || int(status.Code) != code || status.Status != metav1.StatusFailure || status.Message == "" {
		t.Errorf("%s: code %d, %+v; want %d", what, resp.StatusCode, status, code)
	}
	if ct := resp.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("%s: content type %q", what, ct)
	}
	return status
}

// tokenFor returns a token of a service account of namespace default, for an
// audience.
func tokenFor(t *testing.T, account, audience string) string {
	t.Helper()
	if audience == "" {
		return queryserver.TokenFor(t, hub, account)
	}
	return queryserver.TokenFor(t, hub, account, audience)
}

// fresh returns the name of an account that no test has granted anything.
func fresh(name string) string { return fmt.Sprintf("%s-%d", name, time.Now().UnixNano()) }

// allow grants a user what the rule says, in one hub namespace or, where it is
// "", in all, and waits until the hub says so.
func allow(t *testing.T, user, namespace string, rule rbacv1.PolicyRule) {
	t.Helper()
	ctx, rbac := t.Context(), hub.Client().RbacV1()
	name := strings.ReplaceAll(strings.ToLower(fmt.Sprintf("%s-%s-%d", t.Name(), namespace, time.Now().UnixNano())), "/", "-")
	name = strings.ReplaceAll(name, "_", "-")
	meta := metav1.ObjectMeta{Name: name}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	subjects := []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}}
	_, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	if err == nil && namespace == "" {
		_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}, metav1.CreateOptions{})
	} else if err == nil {
		err = hub.Apply(ctx, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+"}\n"))
		if err == nil {
			_, err = rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}, metav1.CreateOptions{})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	attributes := &authorizationv1.ResourceAttributes{Group: rule.APIGroups[0], Resource: rule.Resources[0], Verb: rule.Verbs[0], Namespace: namespace}
	if len(rule.ResourceNames) > 0 {
		attributes.Name = rule.ResourceNames[0]
	}
	until(t, "the hub knows of the grant", func() bool {
		r, err := hub.Client().AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: attributes},
		}, metav1.CreateOptions{})
		return err == nil && r.Status.Allowed
	})
}

// members is a rule of the query API's grants.
func members(verb string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"members.federator.dev"}, Verbs: []string{verb}, Resources: resources}
}
