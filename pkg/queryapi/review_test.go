package queryapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/queryserver"
)

// typed is a stock client of what is below a prefix.
func (s *server) typed(t *testing.T, prefix, token string) kubernetes.Interface {
	t.Helper()
	config := &rest.Config{
		Host: "https://" + s.Address + prefix, BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: s.CertificateAuthority()},
	}
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	client, err := kubernetes.NewForConfigAndClient(config, c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// can asks as kubectl auth can-i does.
func can(t *testing.T, c kubernetes.Interface, verb, group, resource, subresource string) (bool, string) {
	t.Helper()
	review, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: group, Resource: resource, Subresource: subresource,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed, review.Status.Reason
}

func TestServer_CallersLearnWhatTheyMay(t *testing.T) {
	s := start(t, nil)
	account := fresh("rita")
	rita := queryserver.UserOf(account)
	token := tokenFor(t, account, "federator")
	allow(t, rita, "blue", members("list", "pods"))
	named := members("list", "deployments.apps")
	named.ResourceNames = []string{"eu-1"}
	allow(t, rita, "red", named)
	for _, c := range []struct {
		prefix, verb, group, resource, sub string
		allowed                            bool
		reason                             string
	}{
		{"/fleet", "list", "", "pods", "", true, "in 2 members"},
		{"/fleet", "list", "apps", "deployments", "", true, "in 1 members"},
		{"/fleet", "list", "", "secrets", "", false, "in no member"},
		{"/fleet", "get", "", "pods", "", false, "in no member"},
		{"/fleet", "delete", "", "pods", "", false, `the query API is read-only: verb "delete" is not supported`},
		{"/fleet", "*", "*", "*", "", false, `the query API is read-only: verb "*" is not supported`},
		{"/fleet", "list", "*", "*", "", false, "in no member"},
		{"/fleet", "get", "", "pods", "log", false, "subresources are not served: send the request to the API server of the member, for example with kubectl --context"},
		{"/members/blue/eu-1", "list", "", "pods", "", true, "in blue/eu-1"},
		{"/members/red/eu-1", "list", "", "pods", "", false, "not in this member"},
		{"/members/red/eu-1", "list", "apps", "deployments", "", true, "in red/eu-1"},
		{"/members/red/none", "list", "", "pods", "", false, "not in this member"},
		{"/flat", "list", "", "pods", "", true, "in 2 members"},
		{"/flat", "list", "", "secrets", "", false, "in no member"},
	} {
		allowed, reason := can(t, s.typed(t, c.prefix, token), c.verb, c.group, c.resource, c.sub)
		if allowed != c.allowed || reason != c.reason {
			t.Errorf("%s: %s %s.%s/%s: %v, %q; want %v, %q", c.prefix, c.verb, c.resource, c.group, c.sub, allowed, reason, c.allowed, c.reason)
		}
	}
	rules, err := s.typed(t, "/fleet", token).AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []authorizationv1.ResourceRule{
		{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		{Verbs: []string{"list"}, APIGroups: []string{"apps"}, Resources: []string{"deployments"}},
	}
	if fmt.Sprint(rules.Status.ResourceRules) != fmt.Sprint(want) || !rules.Status.Incomplete {
		t.Errorf("rules %+v, want %+v, in some members only", rules.Status, want)
	}
}

// TestServer_FlatReviewsAreOfOneMember: names that are flat lead to a member, and the answer
// is of what the caller may do there.
func TestServer_FlatReviewsAreOfOneMember(t *testing.T) {
	s := start(t, nil)
	account := fresh("rita")
	rita := queryserver.UserOf(account)
	token := tokenFor(t, account, "federator")
	allow(t, rita, "blue", members("list", "pods"))
	allow(t, rita, "blue", members("get", "namespaces"))
	client := s.typed(t, "/flat", token).AuthorizationV1()
	for _, c := range []struct {
		verb, resource, namespace, name string
		allowed                         bool
		reason                          string
	}{
		{"list", "pods", "blue.eu-1.shop", "", true, "in blue/eu-1"},
		{"list", "pods", "red.eu-1.shop", "", false, "not in this member"},
		{"list", "pods", "red.none.shop", "", false, "not in this member"},
		{"get", "pods", "blue.eu-1.shop", "web", false, "not in this member"},
		{"list", "pods", "shop", "", false, `no namespace is called "shop" here`},
		{"get", "namespaces", "default", "blue.eu-1.shop", true, "in blue/eu-1"},
		{"get", "namespaces", "", "red.eu-1.shop", false, "not in this member"},
		{"get", "namespaces", "", "shop", false, `no object is called "shop" here`},
		{"get", "namespaces", "default", "", true, "in 2 members"},
	} {
		review, err := client.SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: c.verb, Resource: c.resource, Namespace: c.namespace, Name: c.name,
			}},
		}, metav1.CreateOptions{})
		if err != nil || review.Status.Allowed != c.allowed || !strings.HasPrefix(review.Status.Reason, c.reason) {
			t.Errorf("%s %s %q in %q: %+v, %v; want %v, %s", c.verb, c.resource, c.name, c.namespace, review.Status, err, c.allowed, c.reason)
		}
	}
	pods := authorizationv1.ResourceRule{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}}
	namespaces := authorizationv1.ResourceRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"namespaces"}}
	for namespace, want := range map[string]struct {
		rules      []authorizationv1.ResourceRule
		incomplete bool
	}{
		"blue.eu-1.shop": {[]authorizationv1.ResourceRule{namespaces, pods}, false},
		"red.eu-1.shop":  {nil, false},
		"shop":           {[]authorizationv1.ResourceRule{namespaces, pods}, true},
		"":               {[]authorizationv1.ResourceRule{namespaces, pods}, true},
	} {
		review, err := client.SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
		}, metav1.CreateOptions{})
		if err != nil || fmt.Sprint(review.Status.ResourceRules) != fmt.Sprint(want.rules) || review.Status.Incomplete != want.incomplete {
			t.Errorf("rules in %q: %+v, %v; want %+v", namespace, review.Status, err, want)
		}
	}
}

func TestServer_WhoMayDoAllLearnsIt(t *testing.T) {
	s := start(t, local)
	c := s.typed(t, "/fleet", s.Token())
	if ok, reason := can(t, c, "list", "*", "*", ""); !ok || reason != "in every member" {
		t.Errorf("list everything: %v, %q", ok, reason)
	}
	rules, err := c.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{}, metav1.CreateOptions{})
	if err != nil || rules.Status.Incomplete || len(rules.Status.ResourceRules) != 1 || rules.Status.ResourceRules[0].Resources[0] != "*" {
		t.Errorf("rules %+v, %v", rules, err)
	}
	path, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/apis/apps"}},
	}, metav1.CreateOptions{})
	if err != nil || !path.Status.Allowed {
		t.Errorf("discovery: %+v, %v", path, err)
	}
}

func TestServer_ReviewsThatAreNoneAreRefused(t *testing.T) {
	s := start(t, local)
	const base = "/fleet/apis/authorization.k8s.io/v1/"
	review := func(spec string) string {
		return `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":` + spec + `}`
	}
	for what, c := range map[string]struct {
		path, body string
		code       int
	}{
		"nothing":          {"selfsubjectaccessreviews", "", 400},
		"not JSON":         {"selfsubjectaccessreviews", "{", 400},
		"another kind":     {"selfsubjectaccessreviews", `{"apiVersion":"v1","kind":"Pod"}`, 400},
		"the wrong review": {"selfsubjectrulesreviews", review(`{"resourceAttributes":{"verb":"get"}}`), 400},
		"no attributes":    {"selfsubjectaccessreviews", review(`{}`), 400},
		"both attributes":  {"selfsubjectaccessreviews", review(`{"resourceAttributes":{"verb":"get"},"nonResourceAttributes":{"verb":"get"}}`), 400},
		"a dry run":        {"selfsubjectaccessreviews?dryRun=Some", review(`{"resourceAttributes":{"verb":"get"}}`), 400},
		"of others":        {"subjectaccessreviews", review(`{}`), 405},
	} {
		resp, body := s.ask(t, s.client(t), "POST", base+c.path, s.Token(), http.Header{"Content-Type": {"application/json"}}, []byte(c.body))
		wantStatus(t, what, resp, body, c.code)
	}
}

func TestServer_RejectsWrites(t *testing.T) {
	s := start(t, local)
	for _, path := range []string{"/fleet/api/v1/namespaces/shop/pods/web", "/members/blue/eu-1/api/v1/pods", "/fleet/version", "/query/v1/whoami", "/"} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"} {
			resp, body := s.ask(t, s.client(t), method, path, s.Token(), nil, nil)
			status := wantStatus(t, method+" "+path, resp, body, http.StatusMethodNotAllowed)
			if resp.Header.Get("Allow") == "" || !strings.Contains(status.Message, "--context") {
				t.Errorf("%s %s: no hint in %q, Allow %q", method, path, status.Message, resp.Header.Get("Allow"))
			}
		}
	}
}

func TestServer_UnknownPathsAreNotFound(t *testing.T) {
	s := start(t, local)
	for _, path := range []string{"/", "/api", "/fleets", "/members", "/members/blue", "/query", "/query/v1", "/query/v1/", "/query/v1/nope", "/query/v1/whoami/more", "/query/v2/whoami", "/fleet/nope", "/members/blue/none/version"} {
		resp, body := s.get(t, path, s.Token())
		wantStatus(t, path, resp, body, http.StatusNotFound)
	}
}

func TestServer_ForbiddenAndUnknownMembersReadAlike(t *testing.T) {
	s := start(t, nil)
	mole := fresh("mole")
	token := tokenFor(t, mole, "federator")
	allow(t, queryserver.UserOf(mole), "red", members("get", "pods"))
	for _, path := range []string{
		"", "/version", "/apis", "/apis/apps/v1", "/nope", "/api/v1/pods", "/api/v1/namespaces/shop/pods/web", "/api/v1/nopes", "/apis/apps/v1/deployments?watch=1",
		"/api/v1/pods?limit=-1", "/api/v1/namespaces/shop/pods/web/log",
	} {
		var texts []string
		for _, member := range []string{"blue/eu-1", "blue/none"} {
			resp, body := s.get(t, "/members/"+member+path, token)
			wantStatus(t, member+path, resp, body, http.StatusForbidden)
			texts = append(texts, strings.ReplaceAll(body, member, "M"))
		}
		if texts[0] != texts[1] {
			t.Errorf("%s: a forbidden member reads %q, an unknown one %q", path, texts[0], texts[1])
		}
	}
}

// granted responds with the pods that the caller may list, and the members that are visible
// to them.
func granted(index *aggregate.Index) queryapi.Query {
	return question(func(w http.ResponseWriter, r *http.Request, c queryapi.Caller) error {
		snapshot := index.Snapshot()
		g, err := c.Grants(r.Context(), "list", "Pod", snapshot)
		if err != nil {
			return err
		}
		visible, _, err := c.Visible(r.Context(), snapshot)
		if err != nil {
			return err
		}
		reach := map[string]queryapi.MemberGrant{}
		for _, m := range g.Members() {
			reach[m] = g.Member(m)
		}
		return json.NewEncoder(w).Encode(map[string]any{"reach": reach, "visible": visible})
	})
}

type grantedAnswer struct {
	Reach   map[string]queryapi.MemberGrant
	Visible []string
}

func (s *server) granted(t *testing.T, token string) (out grantedAnswer) {
	t.Helper()
	resp, body := s.get(t, "/query/v1/granted", token)
	if err := json.Unmarshal([]byte(body), &out); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s: %v", resp.StatusCode, body, err)
	}
	return out
}

func TestServer_QueriesGetTheGrantsOfTheCaller(t *testing.T) {
	var now atomic.Int64
	now.Store(time.Now().UnixNano())
	s := start(t, func(o *queryapi.Options) {
		o.Queries["granted"] = granted(o.Index)
		o.Authorization = queryapi.Authorization{
			AllowTTL: 5 * time.Second, DenyTTL: 2 * time.Second, Parallel: 2,
			Now: func() time.Time { return time.Unix(0, now.Load()) },
		}
	})
	quinn := fresh("quinn")
	token := tokenFor(t, quinn, "federator")
	if got := s.granted(t, token); len(got.Reach) != 0 || len(got.Visible) != 0 {
		t.Errorf("before any grant: %+v", got)
	}
	allow(t, queryserver.UserOf(quinn), "blue", members("list", "pods"))
	if got := s.granted(t, token); len(got.Reach) != 0 {
		t.Errorf("a denial was not kept: %+v", got)
	}
	now.Add(int64(5 * time.Second))
	got := s.granted(t, token)
	if len(got.Reach) != 2 || !got.Reach["blue/eu-1"].All || !got.Reach["blue/us-1"].All || !slices.Equal(got.Visible, memberNames[:2]) {
		t.Errorf("after the grant: %+v", got)
	}
}

func TestServer_UsesMemberReviewsIfConfigured(t *testing.T) {
	s := start(t, func(o *queryapi.Options) {
		o.Queries["granted"] = granted(o.Index)
		o.Authentication.ClientCAFile = caFile(t, hub.RESTConfig().CAData)
		o.Authorization.UserPrefix = "fed:"
		o.Authorization.Members = reviewer(func(member string, review *authorizationv1.SubjectAccessReview) (bool, error) {
			a := review.Spec.ResourceAttributes
			ok := member == "red/eu-1" && a.Resource == "pods" && a.Namespace == "shop" && review.Spec.User == "fed:mia" && slices.Equal(review.Spec.Groups, []string{"fed:ops"})
			return ok, nil
		})
	})
	mia := s.client(t, clientCert(t, "mia", time.Hour, "ops"))
	_, body := s.ask(t, mia, "GET", "/query/v1/granted", "", nil, nil)
	var got grantedAnswer
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(body)
	}
	if len(got.Reach) != 1 || !slices.Equal(got.Reach["red/eu-1"].Namespaces, []string{"shop"}) || !slices.Equal(got.Visible, []string{"red/eu-1"}) {
		t.Errorf("mia: %+v", got)
	}
}

// TestServer_GrantsInANamespaceAreNoneOfWhatHasNone: as of an API server.
func TestServer_GrantsInANamespaceAreNoneOfWhatHasNone(t *testing.T) {
	var within atomic.Int64
	s := start(t, func(o *queryapi.Options) {
		o.Authentication.ClientCAFile = caFile(t, hub.RESTConfig().CAData)
		o.Authorization.UserPrefix = "fed:"
		o.Authorization.Members = reviewer(func(_ string, review *authorizationv1.SubjectAccessReview) (bool, error) {
			a := review.Spec.ResourceAttributes
			if a.Resource == "namespaces" && a.Namespace != "" {
				within.Add(1)
			}
			return a.Namespace == "shop", nil // an administrator of this namespace
		})
	})
	mia := s.client(t, clientCert(t, "mia", time.Hour, "ops"))
	for path, code := range map[string]int{"pods": http.StatusOK, "namespaces": http.StatusForbidden} {
		for _, prefix := range []string{"/fleet", "/members/red/eu-1"} {
			if resp, body := s.ask(t, mia, "GET", prefix+"/api/v1/"+path, "", nil, nil); resp.StatusCode != code {
				t.Errorf("%s of %s: %d, want %d: %s", path, prefix, resp.StatusCode, code, body)
			}
		}
		review := fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"list","resource":%q}}}`, path)
		_, body := s.ask(t, mia, "POST", "/fleet/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "", http.Header{"Content-Type": {"application/json"}}, []byte(review))
		if allowed := strings.Contains(body, `"allowed":true`); allowed != (code == http.StatusOK) {
			t.Errorf("whether %s may be listed: %s", path, body)
		}
	}
	if n := within.Load(); n > 0 {
		t.Errorf("members received %d requests about namespaces in a namespace", n)
	}
}

func TestServer_RequestsAreCounted(t *testing.T) {
	s := start(t, local)
	s.get(t, "/query/v1/whoami", s.Token())
	s.get(t, "/query/v1/whoami", "wrong")
	counted := func() (got []string) {
		families, err := s.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "federator_query_requests_total" {
				continue
			}
			for _, m := range f.GetMetric() {
				var labels []string
				for _, l := range m.GetLabel() {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
				got = append(got, strings.Join(labels, " "))
			}
		}
		slices.Sort(got)
		return got
	}
	want := []string{"code=200 resource=query/whoami verb=get", "code=401 resource= verb=get"}
	until(t, "both requests are counted", func() bool { return slices.Equal(counted(), want) })
}
