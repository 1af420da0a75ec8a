package queryapi_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
)

func TestOpenAPIListsTheParametersThatAreAccepted(t *testing.T) {
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
		"labelSelector": "federator.dev/member=blue.eu-1",
	}
	for _, path := range []string{"/query/v1/count", "/query/v1/related", "/query/v1/members", "/query/v1/whoami"} {
		p := doc.Paths.Paths[path]
		if p == nil || p.Get == nil {
			t.Errorf("%s is not described", path)
			continue
		}
		if path == "/query/v1/whoami" { // injected: it reads no parameters
			continue
		}
		query := url.Values{}
		for _, parameter := range p.Get.Parameters {
			if value[parameter.Name] == "" {
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
			more := url.Values{name: {v}}
			for k, vs := range query {
				more[k] = vs
			}
			resp, body := s.get(t, path+"?"+more.Encode(), s.Token())
			wantStatus(t, path+" with "+name, resp, body, http.StatusBadRequest)
		}
		for _, parameter := range p.Get.Parameters {
			if !parameter.Required {
				continue
			}
			less := url.Values{}
			for k, vs := range query {
				if k != parameter.Name {
					less[k] = vs
				}
			}
			resp, body := s.get(t, path+"?"+less.Encode(), s.Token())
			wantStatus(t, path+" without "+parameter.Name, resp, body, http.StatusBadRequest)
		}
	}
	resp, body = s.get(t, "/openapi/v3/nothing", s.Token())
	wantStatus(t, "what is not described", resp, body, http.StatusNotFound)
}
