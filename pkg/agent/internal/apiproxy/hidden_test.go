package apiproxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestHidden_AreNeitherReadNorWritten by any request that names them or is of their namespace.
func TestHidden_AreNeitherReadNorWritten(t *testing.T) {
	h := hidden{{Namespace: "own", Name: "key"}, {Namespace: "own", Name: "token"}}
	const refused = "refused"
	for request, want := range map[string]string{
		"GET /api/v1/namespaces/own/secrets/key":                                       refused,
		"GET /api/v1/namespaces/own/secrets/token?watch=true":                          refused,
		"PATCH /api/v1/namespaces/own/secrets/key":                                     refused,
		"DELETE /api/v1/namespaces/own/secrets/token":                                  refused,
		"GET /api/v1/secrets/key":                                                      refused,
		"POST /api/v1/namespaces/own/secrets":                                          refused,
		"POST /api/v1/secrets":                                                         refused,
		"GET /api/v1/secrets?fieldSelector=a%3Db&fieldSelector=":                       refused,
		"GET /api/v1/secrets?a=%zz":                                                    refused,
		"GET /api/v1/secrets?a;b":                                                      refused,
		"GET /api/v1/secrets?limit=5":                                                  "metadata.name!=key,metadata.name!=token",
		"GET /api/v1/secrets?watch=1&fieldSelector=metadata.name%3Dkey":                "metadata.name=key,metadata.name!=key,metadata.name!=token",
		"GET /api/v1/namespaces/own/secrets?fieldSelector=type%21%3Da":                 "type!=a,metadata.name!=key,metadata.name!=token",
		"GET /api/v1/namespaces/other/secrets":                                         "",
		"GET /api/v1/namespaces/other/secrets/key":                                     "",
		"POST /api/v1/namespaces/other/secrets":                                        "",
		"GET /api/v1/namespaces/own/secrets/other":                                     "",
		"PATCH /api/v1/namespaces/own/secrets/other":                                   "",
		"GET /api/v1/namespaces/own/configmaps/key":                                    "",
		"GET /api/v1/namespaces/secrets":                                               "",
		"GET /api/v1/pods":                                                             "",
		"GET /apis/example.com/v1/namespaces/own/secrets/key?fieldSelector=spec.a%3Db": "spec.a=b",
	} {
		method, path, _ := strings.Cut(request, " ")
		r := httptest.NewRequest(method, "/", nil)
		var query string
		r.URL.Path, query, _ = strings.Cut(path, "?")
		r.URL.RawQuery = query
		out, why := h.apply(r)
		got := refused
		if why == "" {
			got = out.URL.Query().Get("fieldSelector")
		}
		if got != want || why == "" && out.URL.Query().Get("limit") != r.URL.Query().Get("limit") || r.URL.RawQuery != query {
			t.Errorf("%s: %q %s, want %q", request, got, why, want)
		}
	}
	if out, why := (hidden{}).apply(httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/own/secrets/key", nil)); why != "" || out == nil {
		t.Error("without any, some is refused")
	}
}
