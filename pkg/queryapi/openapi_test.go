package queryapi_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"testing"

	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
)

func TestOpenAPI_ListsTheParametersThatAreAccepted(t *testing.T) {
	s := start(t, local)
	var list handler3.OpenAPIV3Discovery
	resp, body := s.get(t, "/openapi/v3", s.Token())
	if err := json.Unmarshal([]byte(body), &list); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %v: %s", resp.StatusCode, err, body)
	}
	var doc spec3.OpenAPI
	resp, body = s.get(t, list.Paths["query/v1"].ServerRelativeURL, s.Token())
	if err := json.Unmarshal([]byte(body), &doc); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %v: %s", resp.StatusCode, err, body)
	}
	value := map[string]string{
		"resource": "pods", "groupBy": "member", "member": "blue/eu-1", "namespace": "shop", "name": "web",
		"depth": "2", "kinds": "pods", "direction": "up", "fieldSelector": "metadata.name=web",
		"labelSelector": "federator.dev/member=blue.eu-1", "pretty": "true", "require": "synced", "timeout": "30s",
		"namePrefix": "blue/", "state": "Synced", "notSynced": "false", "details": "true", "facts": "true", "summary": "false", "limit": "5", "continue": "",
	}
	for _, path := range []string{"/query/v1/count", "/query/v1/find", "/query/v1/related", "/query/v1/members", "/query/v1/whoami"} {
		p := doc.Paths.Paths[path]
		if p == nil || p.Get == nil {
			t.Errorf("%s is not described", path)
			continue
		}
		if path == "/query/v1/whoami" { // injected: it says nothing of parameters
			continue
		}
		if p.Get.Description == "" {
			t.Errorf("%s: nothing is said of it", path)
		}
		query := url.Values{}
		for _, parameter := range p.Get.Parameters {
			if _, ok := value[parameter.Name]; !ok {
				t.Errorf("%s: the test has no value for %s", path, parameter.Name)
			}
			query.Set(parameter.Name, value[parameter.Name])
		}
		if resp, body := s.get(t, path+"?"+query.Encode(), s.Token()); resp.StatusCode != http.StatusOK {
			t.Errorf("%s with all parameters: %d %s", path, resp.StatusCode, body)
		}
		for name, v := range value {
			if query.Has(name) {
				continue
			}
			more := maps.Clone(query)
			more.Set(name, v)
			resp, body := s.get(t, path+"?"+more.Encode(), s.Token())
			wantStatus(t, path+" with "+name, resp, body, http.StatusBadRequest)
		}
		for _, parameter := range p.Get.Parameters {
			less := maps.Clone(query)
			less.Del(parameter.Name)
			switch resp, body := s.get(t, path+"?"+less.Encode(), s.Token()); {
			case parameter.Required:
				wantStatus(t, path+" without "+parameter.Name, resp, body, http.StatusBadRequest)
			case parameter.Name == "namespace" && path == "/query/v1/related": // Pods have one
			case resp.StatusCode != http.StatusOK:
				t.Errorf("%s without %s: %d %s", path, parameter.Name, resp.StatusCode, body)
			}
			values(t, s, path, query, parameter)
		}
	}
	resp, body = s.get(t, "/openapi/v3/nothing", s.Token())
	wantStatus(t, "what is not described", resp, body, http.StatusNotFound)
}

// values gives a parameter what it may have, and something else, and the same twice.
func values(t *testing.T, s *server, path string, query url.Values, parameter *spec3.Parameter) {
	t.Helper()
	with := func(values ...string) (*http.Response, string) {
		changed := maps.Clone(query)
		changed[parameter.Name] = values
		return s.get(t, path+"?"+changed.Encode(), s.Token())
	}
	for _, v := range parameter.Schema.Enum {
		if resp, body := with(v.(string)); resp.StatusCode != http.StatusOK {
			t.Errorf("%s with %s %v: %d %s", path, parameter.Name, v, resp.StatusCode, body)
		}
	}
	if parameter.Schema.Enum != nil || !parameter.Schema.Type.Contains("string") && !parameter.Schema.Type.Contains("array") {
		resp, body := with("else")
		wantStatus(t, path+" with another "+parameter.Name, resp, body, http.StatusBadRequest)
	}
	resp, body := with(query.Get(parameter.Name), query.Get(parameter.Name))
	if parameter.Schema.Type.Contains("array") != (resp.StatusCode == http.StatusOK) {
		t.Errorf("%s with %s twice: %d %s", path, parameter.Name, resp.StatusCode, body)
	}
}
