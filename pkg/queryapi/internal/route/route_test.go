package route_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"federator.dev/federator/pkg/queryapi/internal/route"
)

func TestParse_Targets(t *testing.T) {
	for in, want := range map[string]route.Target{
		"/":                                 {Path: "/"},
		"/fleet":                            {Prefix: "/fleet", Path: "/"},
		"/fleet/":                           {Prefix: "/fleet", Path: "/"},
		"/fleet/api/v1/pods":                {Prefix: "/fleet", Path: "/api/v1/pods"},
		"/fleet/apis/":                      {Prefix: "/fleet", Path: "/apis"},
		"/fleetx/api":                       {Path: "/fleetx/api"},
		"/flat":                             {Prefix: "/flat", Path: "/"},
		"/flat/api/v1/pods":                 {Prefix: "/flat", Path: "/api/v1/pods"},
		"/flatter/api":                      {Path: "/flatter/api"},
		"/members":                          {Path: "/members"},
		"/members/a":                        {Path: "/members/a"},
		"/members/a/b":                      {Prefix: "/members/a/b", Member: "a/b", Path: "/"},
		"/members/a/b.c/api":                {Prefix: "/members/a/b.c", Member: "a/b.c", Path: "/api"},
		"/members/a/b/apis/apps/v1?x=1":     {Prefix: "/members/a/b", Member: "a/b", Path: "/apis/apps/v1"},
		"/query/v1/count":                   {Path: "/query/v1/count"},
		"/fleet/api/v1/x/system%3Anode":     {Prefix: "/fleet", Path: "/api/v1/x/system:node"},
		"/members/members/members/members":  {Prefix: "/members/members/members", Member: "members/members", Path: "/members"},
		"/fleet/members/a/b":                {Prefix: "/fleet", Path: "/members/a/b"},
		"/fleet/api/v1/namespaces/fleet/x/": {Prefix: "/fleet", Path: "/api/v1/namespaces/fleet/x"},
	} {
		u, err := url.ParseRequestURI(in)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := route.Parse(u); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", in, got, err, want)
		}
	}
}

func TestParse_RefusesHostilePaths(t *testing.T) {
	for _, in := range []string{
		"//", "/fleet//api", "//fleet/api", "/fleet/api//", "/fleet/../members/a/b", "/fleet/./api", "/fleet/%2e%2e/api", "/fleet/api/..",
		"/members/a%2fb/c", "/members/a/b%2Fc", "/fleet/%5capi", `/fleet/\api`, "/fleet/%00", "/fleet/%0a", "/fleet/%ff", "/fleet/%252f", "/fleet/%25",
		"/members/A/b", "/members/a/B", "/members/a/-", "/members/a.b/c/api", "/members/" + strings.Repeat("a", 64) + "/b", "/members/a/" + strings.Repeat("a", 254),
		"/fleet/api?a=%zz", "/fleet/api?a;b",
	} {
		u, err := url.ParseRequestURI(in)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := route.Parse(u); !apierrors.IsBadRequest(err) {
			t.Errorf("%q: %+v, %v; want 400", in, got, err)
		}
	}
	long := &url.URL{Path: "/fleet/" + strings.Repeat("a", 4096)}
	if _, err := route.Parse(long); code(err) != http.StatusRequestURITooLong {
		t.Errorf("a path of 4 KiB: %v, want 414", err)
	}
	for _, p := range []string{"", "*", "fleet"} {
		if _, err := route.Parse(&url.URL{Path: p}); !apierrors.IsBadRequest(err) {
			t.Errorf("path %q: %v, want 400", p, err)
		}
	}
}

func code(err error) int {
	if status, ok := err.(apierrors.APIStatus); ok {
		return int(status.Status().Code)
	}
	return 0
}

func TestRoute_RequestInfoIsThatOfTheKubernetesPath(t *testing.T) {
	for _, c := range []struct {
		method, path string
		want         request.RequestInfo
	}{
		{"GET", "/fleet/api/v1/namespaces/a/pods", request.RequestInfo{IsResourceRequest: true, Verb: "list", APIPrefix: "api", APIVersion: "v1", Namespace: "a", Resource: "pods"}},
		{"GET", "/members/a/b/apis/apps/v1/deployments?watch=1", request.RequestInfo{IsResourceRequest: true, Verb: "watch", APIPrefix: "apis", APIGroup: "apps", APIVersion: "v1", Resource: "deployments"}},
		{"GET", "/members/a/b/api/v1/namespaces/n/pods/p/log", request.RequestInfo{IsResourceRequest: true, Verb: "get", APIPrefix: "api", APIVersion: "v1", Namespace: "n", Resource: "pods", Name: "p", Subresource: "log"}},
		{"DELETE", "/fleet/api/v1/nodes", request.RequestInfo{IsResourceRequest: true, Verb: "deletecollection", APIPrefix: "api", APIVersion: "v1", Resource: "nodes"}},
		{"GET", "/fleet/version", request.RequestInfo{Verb: "get"}},
		{"GET", "/query/v1/count", request.RequestInfo{Verb: "get"}},
		{"POST", "/api/v1/pods", request.RequestInfo{Verb: "post"}},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		var got *request.RequestInfo
		route.Filter(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got, _ = request.RequestInfoFrom(r.Context())
		}), func(_ http.ResponseWriter, _ *http.Request, err error) { t.Errorf("%s: %v", c.path, err) }).ServeHTTP(nil, r)
		c.want.Path = strings.Split(c.path, "?")[0]
		if got == nil {
			continue
		}
		got.Parts = nil
		if !equal(*got, c.want) {
			t.Errorf("%s %s:\n got %+v\nwant %+v", c.method, c.path, *got, c.want)
		}
	}
}

func equal(a, b request.RequestInfo) bool {
	return a.IsResourceRequest == b.IsResourceRequest && a.Path == b.Path && a.Verb == b.Verb && a.APIPrefix == b.APIPrefix &&
		a.APIGroup == b.APIGroup && a.APIVersion == b.APIVersion && a.Namespace == b.Namespace && a.Resource == b.Resource &&
		a.Subresource == b.Subresource && a.Name == b.Name
}

// TestLocationOf: names below /flat lead to members, and what is none leads nowhere. The
// request info has them as they were requested.
func TestLocationOf(t *testing.T) {
	for path, want := range map[string]route.Location{
		"/fleet/api/v1/pods":                                                  {},
		"/fleet/api/v1/namespaces/a.one.x/pods/p":                             {Namespace: "a.one.x", Name: "p"},
		"/members/a/one/api/v1/namespaces/x/pods/p":                           {Member: "a/one", Namespace: "x", Name: "p"},
		"/flat/api/v1/pods":                                                   {},
		"/flat/api/v1/namespaces/a.one.x/pods":                                {Member: "a/one", Namespace: "x"},
		"/flat/api/v1/namespaces/a.one_eu.x/pods/p.q.r":                       {Member: "a/one.eu", Namespace: "x", Name: "p.q.r"},
		"/flat/api/v1/namespaces/a.one.x":                                     {Member: "a/one", Namespace: "x", Name: "x"},
		"/flat/api/v1/nodes/a.one.node.of.dots":                               {Member: "a/one", Name: "node.of.dots"},
		"/flat/apis/rbac.authorization.k8s.io/v1/clusterroles/a.one.system:x": {Member: "a/one", Name: "system:x"},
		"/flat/api/v1/nodes?fieldSelector=metadata.name%3Da.one.n":            {},
		"/flat/api/v1/pods?watch=1&fieldSelector=metadata.name%3Dp":           {},
		"/flat/api/v1/namespaces/default/pods":                                {NoMember: true},
		"/flat/api/v1/namespaces/a.one/pods":                                  {NoMember: true},
		"/flat/api/v1/namespaces/a.One.x/pods/p":                              {NoMember: true, Name: "p"},
		"/flat/api/v1/nodes/node1":                                            {NoMember: true, Name: "node1"},
		"/flat/version":                                                       {},
	} {
		var got route.Location
		route.Filter(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			target, _ := route.TargetFrom(r.Context())
			info, _ := request.RequestInfoFrom(r.Context())
			got = route.LocationOf(target, info)
			if info.Namespace != "" && !strings.Contains(path, info.Namespace) {
				t.Errorf("%s: the request info says namespace %q", path, info.Namespace)
			}
		}), func(_ http.ResponseWriter, _ *http.Request, err error) { t.Errorf("%s: %v", path, err) }).ServeHTTP(nil, httptest.NewRequest(http.MethodGet, path, nil))
		if got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
}

func TestRoute_VerbsInPathsAreNotFound(t *testing.T) {
	for _, p := range []string{"/fleet/api/v1/watch/pods", "/fleet/apis/apps/v1/watch", "/members/a/b/api/v1/proxy/nodes/x"} {
		var failed error
		route.Filter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
			func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err }).ServeHTTP(nil, httptest.NewRequest(http.MethodGet, p, nil))
		if !apierrors.IsNotFound(failed) {
			t.Errorf("%s: %v, want 404", p, failed)
		}
	}
}

// FuzzParse shows that a path that is accepted reads in one way only: cleaning
// it changes nothing, and the target's parts make it up.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"/fleet/api/v1/pods", "/members/a/b/api", "/members/a/b%2fc", "/fleet/../x", "//", "/fleet/%25", "*", "/fleet?x=%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.ParseRequestURI(raw)
		if err != nil {
			return
		}
		got, err := route.Parse(u)
		if err != nil {
			if c := code(err); c < 400 || c > 499 {
				t.Fatalf("%q: %v is no client's error", raw, err)
			}
			return
		}
		clean := path.Clean(u.Path)
		if whole := got.Prefix + strings.TrimSuffix(got.Path, "/"); whole != strings.TrimSuffix(clean, "/") {
			t.Fatalf("%q: target %+v makes %q, the path is %q", raw, got, whole, clean)
		}
		if (got.Member != "") != strings.HasPrefix(got.Prefix, "/members/") || got.Member != "" && strings.Count(got.Member, "/") != 1 {
			t.Fatalf("%q: member %q below %q", raw, got.Member, got.Prefix)
		}
		route.Filter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func(_ http.ResponseWriter, _ *http.Request, err error) {
			if code(err) == 0 {
				t.Fatalf("%q: %v is no Status", raw, err)
			}
		}).ServeHTTP(nil, &http.Request{Method: http.MethodGet, URL: u})
	})
}
