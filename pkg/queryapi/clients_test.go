package queryapi_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/queryserver"
)

// TestServer_HealthIsAnsweredBelowItsPrefixes, as in kube-apiserver, for every authenticated
// caller.
func TestServer_HealthIsAnsweredBelowItsPrefixes(t *testing.T) {
	s := start(t, local)
	for _, prefix := range []string{"/fleet", "/members/blue/eu-1"} {
		for _, check := range []string{"healthz", "livez", "readyz"} {
			for path, want := range map[string]string{"": "ok", "/ping": "ok", "?verbose": "[+]ping ok\n" + check + " check passed\n"} {
				resp, body := s.get(t, prefix+"/"+check+path, s.Token())
				if resp.StatusCode != http.StatusOK || body != want || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
					t.Errorf("%s/%s%s: %d %q %q", prefix, check, path, resp.StatusCode, resp.Header.Get("Content-Type"), body)
				}
			}
		}
		resp, body := s.get(t, prefix+"/healthz/etcd", s.Token())
		wantStatus(t, "a check that there is not", resp, body, http.StatusNotFound)
	}
	resp, body := s.get(t, "/fleet/healthz", "nobody")
	wantStatus(t, "of nobody", resp, body, http.StatusUnauthorized)
	text, err := s.typed(t, "/fleet", s.Token()).Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Raw()
	if err != nil || string(text) != "ok" {
		t.Errorf("client-go: %q, %v", text, err)
	}
}

// TestServer_CallersLearnWhoTheyAre, as from kubectl auth whoami.
func TestServer_CallersLearnWhoTheyAre(t *testing.T) {
	s := start(t, nil)
	account := fresh("self")
	for _, prefix := range []string{"/fleet", "/members/blue/eu-1"} {
		client := s.typed(t, prefix, tokenFor(t, account, "federator"))
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if u := review.Status.UserInfo; u.Username != queryserver.UserOf(account) || u.UID == "" || !strings.Contains(strings.Join(u.Groups, " "), "system:serviceaccounts:default") {
			t.Errorf("%s: %+v", prefix, u)
		}
	}
	resources, err := s.typed(t, "/fleet", tokenFor(t, account, "federator")).Discovery().ServerResourcesForGroupVersion("authentication.k8s.io/v1")
	if err != nil || len(resources.APIResources) != 1 || resources.APIResources[0].Name != "selfsubjectreviews" {
		t.Errorf("discovery: %+v, %v", resources, err)
	}
	resp, body := s.ask(t, s.client(t), "POST", "/fleet/apis/authentication.k8s.io/v1/selfsubjectreviews", tokenFor(t, account, "federator"),
		http.Header{"Content-Type": {"application/json"}}, []byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview"}`))
	wantStatus(t, "another review", resp, body, http.StatusBadRequest)
}

// TestServer_OpenAPIv2DescribesAllResources, in both of its forms.
func TestServer_OpenAPIv2DescribesAllResources(t *testing.T) {
	s := start(t, local)
	doc, err := s.typed(t, "/fleet", s.Token()).Discovery().OpenAPISchema() // in protobuf
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, d := range doc.GetDefinitions().GetAdditionalProperties() {
		named[d.GetName()] = true
	}
	if doc.GetSwagger() != "2.0" || !named["io.k8s.api.core.v1.Pod"] || !named["io.k8s.api.apps.v1.DeploymentList"] {
		t.Errorf("swagger %q of %d definitions", doc.GetSwagger(), len(named))
	}
	resp, body := s.get(t, "/members/blue/eu-1/openapi/v2", s.Token())
	var asJSON struct {
		Swagger     string
		Paths       map[string]any
		Definitions map[string]any
	}
	if err := json.Unmarshal([]byte(body), &asJSON); err != nil || resp.StatusCode != http.StatusOK || asJSON.Swagger != "2.0" ||
		asJSON.Paths["/api/v1/namespaces/{namespace}/pods/{name}"] == nil || asJSON.Definitions["io.k8s.api.core.v1.Pod"] == nil {
		t.Errorf("%d, %v, %.200s", resp.StatusCode, err, body)
	}
	for name := range asJSON.Definitions {
		if !strings.Contains(body, `"#/definitions/`+name+`"`) && !strings.HasPrefix(name, "io.k8s.api") {
			t.Errorf("nothing refers to %s", name)
		}
	}
	etag := resp.Header.Get("Etag")
	resp, _ = s.ask(t, s.client(t), "GET", "/members/blue/eu-1/openapi/v2", s.Token(), http.Header{"If-None-Match": {etag}}, nil)
	if etag == "" || resp.StatusCode != http.StatusNotModified {
		t.Errorf("again with %q: %d", etag, resp.StatusCode)
	}
	resp, body = s.ask(t, s.client(t), "GET", "/fleet/openapi/v2", s.Token(), http.Header{"Accept": {"text/html"}}, nil)
	wantStatus(t, "as HTML", resp, body, http.StatusNotAcceptable)
}

// TestServer_CompressesLongResponsesOnRequest, in the coding that is requested, and
// no others are.
func TestServer_CompressesLongResponsesOnRequest(t *testing.T) {
	s := start(t, func(o *queryapi.Options) {
		local(o)
		if err := o.Index.PutMember(aggregate.Member{Name: "big/one", UID: "big"}); err != nil {
			t.Fatal(err)
		}
		scope, err := o.Index.OpenScope("big/one", "Pod", "v1")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 500 {
			name := fmt.Sprint("p", i)
			scope.Upsert(scope.Item(&aggregate.Record{Namespace: "shop", Name: name, UID: name, ResourceVersion: "1", Body: fmt.Appendf(nil,
				`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"shop"},"spec":{"nodeName":%q}}`, name, strings.Repeat("node", 100))}))
		}
		scope.SetStatus(aggregate.Status{State: aggregate.Synced})
		if _, err := scope.Commit(); err != nil {
			t.Fatal(err)
		}
	})
	client := s.client(t)
	client.Transport.(*http.Transport).DisableCompression = true
	const long, short = "/members/big/one/api/v1/pods", "/members/big/one/api/v1/namespaces/shop/pods/p1"
	plain := map[string]string{}
	for _, path := range []string{long, short, "/fleet/openapi/v2", "/fleet/apis"} {
		resp, body := s.ask(t, client, "GET", path, s.Token(), nil, nil)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Encoding") != "" {
			t.Fatalf("%s: %d %q", path, resp.StatusCode, resp.Header.Get("Content-Encoding"))
		}
		plain[path] = body
	}
	for _, c := range []struct{ path, accept, want string }{
		{long, "gzip", "gzip"},
		{long, "zstd", "zstd"},
		{long, "gzip, deflate, br, zstd", "zstd"},
		{long, "zstd;q=0, gzip;q=0.5", "gzip"},
		{long, "gzip;q=0", ""},
		{long, "br", ""},
		{long, "identity", ""},
		{short, "gzip", ""},
		{"/fleet/openapi/v2", "gzip", "gzip"},
		{"/fleet/apis", "gzip", ""},
	} {
		resp, body := s.ask(t, client, "GET", c.path, s.Token(), http.Header{"Accept-Encoding": {c.accept}}, nil)
		if got := resp.Header.Get("Content-Encoding"); got != c.want || resp.StatusCode != http.StatusOK {
			t.Errorf("%s, %q: %d %q, want %q", c.path, c.accept, resp.StatusCode, got, c.want)
			continue
		}
		if c.want != "" && len(body) > len(plain[c.path])/3 {
			t.Errorf("%s, %q: %d of %d bytes", c.path, c.accept, len(body), len(plain[c.path]))
		}
		if text := decoded(t, c.want, body); text != plain[c.path] {
			t.Errorf("%s, %q: another answer, of %d bytes rather than %d", c.path, c.accept, len(text), len(plain[c.path]))
		}
	}
	for path, code := range map[string]int{"/fleet/api/v1/nothing": http.StatusNotFound, long + "?nonsense=1": http.StatusBadRequest} {
		resp, body := s.ask(t, client, "GET", path, s.Token(), http.Header{"Accept-Encoding": {"gzip"}}, nil)
		wantStatus(t, path, resp, body, code)
	}
	for i := range 3 { // encoders are used again
		if _, body := s.ask(t, client, "GET", long, s.Token(), http.Header{"Accept-Encoding": {"zstd"}}, nil); decoded(t, "zstd", body) != plain[long] {
			t.Errorf("time %d differs", i)
		}
	}
}

func decoded(t *testing.T, coding, body string) string {
	t.Helper()
	var r io.Reader = strings.NewReader(body)
	switch coding {
	case "gzip":
		g, err := gzip.NewReader(r)
		if err != nil {
			t.Fatal(err)
		}
		r = g
	case "zstd":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		r = z
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestServer_WarnsOfValuesThatAreCut: who reads Secrets whole would take empty values
// for theirs, as Helm does, which then lists no release.
func TestServer_WarnsOfValuesThatAreCut(t *testing.T) {
	for _, cut := range []bool{true, false} {
		s := start(t, func(o *queryapi.Options) {
			local(o)
			o.Fleet, o.ValuesRedacted = secretive, cut
			scope, err := o.Index.OpenScope("blue/eu-1", "Secret", "v1")
			if err != nil {
				t.Fatal(err)
			}
			scope.SetStatus(aggregate.Status{State: aggregate.Synced})
			scope.Upsert(scope.Item(&aggregate.Record{Namespace: "shop", Name: "s", UID: "s", ResourceVersion: "1", Body: []byte(
				`{"apiVersion":"v1","data":{"release":""},"kind":"Secret","metadata":{"name":"s","namespace":"shop"}}`)}))
			if _, err := scope.Commit(); err != nil {
				t.Fatal(err)
			}
		})
		for _, c := range []struct {
			path, accept string
			warned       bool
		}{
			{"/members/blue/eu-1/api/v1/secrets?labelSelector=owner%3Dhelm", "", true},
			{"/members/blue/eu-1/api/v1/namespaces/shop/secrets/s", "", true},
			{"/fleet/api/v1/secrets", "application/json;as=Table;g=meta.k8s.io;v=v1", false},
			{"/fleet/api/v1/pods", "", false},
		} {
			resp, _ := s.ask(t, s.client(t), "GET", c.path, s.Token(), http.Header{"Accept": {c.accept}}, nil)
			got := strings.Join(resp.Header.Values("Warning"), " ") // of members that are not fresh, too
			if resp.StatusCode != http.StatusOK || strings.Contains(got, "keepSecretValues") != (c.warned && cut) {
				t.Errorf("values cut %v: %s %s: %d, warning %q", cut, c.path, c.accept, resp.StatusCode, got)
			}
		}
	}
}

// secretive is a fleet whose members serve Secrets, too.
var secretive = append(slices.Clone(served), queryapi.ServedResource{
	Kind: "Secret", Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Singular: "secret", Namespaced: true,
})
