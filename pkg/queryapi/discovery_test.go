package queryapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/queryserver"
)

func TestServer_DiscoveryIsForClientGo(t *testing.T) {
	s := start(t, local)
	for _, prefix := range []string{"/fleet", "/members/blue/eu-1"} {
		client := s.typed(t, prefix, s.Token())
		_, lists, err := client.Discovery().ServerGroupsAndResources()
		if err != nil {
			t.Fatalf("%s: %v", prefix, err)
		}
		var names []string
		for _, l := range lists {
			for _, r := range l.APIResources {
				names = append(names, l.GroupVersion+"/"+r.Name)
			}
		}
		for _, want := range []string{"v1/pods", "v1/namespaces", "apps/v1/deployments", "authorization.k8s.io/v1/selfsubjectaccessreviews"} {
			if !slices.Contains(names, want) {
				t.Errorf("%s: no %s among %q", prefix, want, names)
			}
		}
		if v, err := client.Discovery().ServerVersion(); err != nil || v.GitVersion != "v1.36.3" {
			t.Errorf("%s: version %+v, %v", prefix, v, err)
		}
		if paths, err := client.Discovery().OpenAPIV3().Paths(); err != nil || paths["apis/apps/v1"] == nil {
			t.Errorf("%s: OpenAPI %v, %v", prefix, paths, err)
		}
	}
}

func TestServer_MembersAreDiscoveredByWhoMayReadThem(t *testing.T) {
	s := start(t, nil)
	disco := fresh("disco")
	token := tokenFor(t, disco, "federator")
	allow(t, queryserver.UserOf(disco), "blue", members("watch", "deployments.apps"))
	kinds := s.typed(t, "/members/blue/eu-1", token).Discovery()
	if _, err := kinds.ServerResourcesForGroupVersion("apps/v1"); err != nil {
		t.Errorf("a member of which one kind may be watched: %v", err)
	}
	for _, path := range []string{"/members/red/eu-1/apis", "/members/red/eu-1/openapi/v3"} {
		resp, body := s.get(t, path, token)
		wantStatus(t, path, resp, body, http.StatusForbidden)
	}
	if resp, body := s.get(t, "/fleet/apis", token); resp.StatusCode != http.StatusOK {
		t.Errorf("the fleet: %d %s", resp.StatusCode, body)
	}
}

func TestServer_QueriesServeWhatMayBeRead(t *testing.T) {
	s := start(t, nil)
	quest := fresh("quest")
	token := tokenFor(t, quest, "federator")
	allow(t, queryserver.UserOf(quest), "blue", members("list", "pods"))
	resp, body := s.get(t, "/query/v1/count?resource=pods&groupBy=member", token)
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, "blue/eu-1") || strings.Contains(body, "red/") {
		t.Errorf("count: %d %s", resp.StatusCode, body)
	}
	resp, body = s.get(t, "/query/v1/find?resource=pods&resource=deployments&namePrefix=we", token)
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, `"name":"web","member":"blue/eu-1","members":2`) || strings.Contains(body, "red/") || !strings.Contains(body, `"forbidden":["deployments.apps"]`) {
		t.Errorf("find: %d %s", resp.StatusCode, body)
	}
	var list struct {
		Items []struct{ Name string }
	}
	resp, body = s.get(t, "/query/v1/members", token)
	if err := json.Unmarshal([]byte(body), &list); err != nil || resp.StatusCode != http.StatusOK || len(list.Items) != 2 || list.Items[0].Name != "blue/eu-1" {
		t.Errorf("members: %d %s", resp.StatusCode, body)
	}
	resp, body = s.get(t, "/query/v1/related?member=blue/eu-1&resource=pods&namespace=shop&name=web", token)
	if resp.StatusCode != http.StatusForbidden { // getting is not granted
		wantStatus(t, "related", resp, body, http.StatusOK)
	}
	resp, body = s.get(t, "/query/v1/count?resource=pods&nope=1", token)
	wantStatus(t, "an unknown parameter", resp, body, http.StatusBadRequest)
	resp, body = s.get(t, "/query/v1/count?resource=nopes", token)
	if resp.StatusCode < 400 || resp.StatusCode > 404 {
		t.Errorf("an unknown resource: %d %s", resp.StatusCode, body)
	}
	resp, body = s.get(t, "/query/v1/count?resource=deployments", token)
	wantStatus(t, "what may not be listed", resp, body, http.StatusForbidden)
}

// TestServer_QueriesHaveAPathValue: one segment of the path, and no more or less, is a query's.
func TestServer_QueriesHaveAPathValue(t *testing.T) {
	s := start(t, func(o *queryapi.Options) {
		local(o)
		o.Queries = map[string]queryapi.Query{
			"echo/{word}": question(func(w http.ResponseWriter, r *http.Request, _ queryapi.Caller) error {
				_, err := fmt.Fprintf(w, "%s %s", r.PathValue("word"), r.URL.Query().Get("q"))
				return err
			}),
		}
	})
	for path, want := range map[string]string{"/query/v1/echo/a?q=1": "a 1", "/query/v1/echo/b.c-d/": "b.c-d ", "/query/v1/echo/%7Bword%7D": "{word} "} {
		if resp, body := s.get(t, path, s.Token()); resp.StatusCode != http.StatusOK || body != want {
			t.Errorf("%s: %d %q, want %q", path, resp.StatusCode, body, want)
		}
	}
	for _, path := range []string{"/query/v1/echo", "/query/v1/echo/a/b", "/query/v1/ech/a", "/query/v1/count/a"} {
		resp, body := s.get(t, path, s.Token())
		wantStatus(t, path, resp, body, http.StatusNotFound)
	}
	resp, body := s.get(t, "/query/v1/echo/a?watch=true", s.Token())
	wantStatus(t, "a watch", resp, body, http.StatusBadRequest)
	doc, _ := described(t, s)
	get := doc.Paths.Paths["/query/v1/echo/{word}"].Get
	if len(get.Parameters) != 1 || get.Parameters[0].In != "path" || get.Parameters[0].Name != "word" || get.OperationId != "query-echo-word" {
		t.Errorf("described as %+v with %+v", get.OperationProps, get.Parameters)
	}
	metrics, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range metrics {
		for _, metric := range family.Metric {
			for _, l := range metric.Label {
				if strings.HasPrefix(l.GetValue(), "query/") && l.GetValue() != "query/echo/{word}" {
					t.Errorf("%s has the label %v", family.GetName(), l)
				}
			}
		}
	}
}
