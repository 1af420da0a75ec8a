package queryapi_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
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
	allow(t, userOf(disco), "blue", members("watch", "deployments.apps"))
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
	allow(t, userOf(quest), "blue", members("list", "pods"))
	resp, body := s.get(t, "/query/v1/count?resource=pods&groupBy=member", token)
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, "blue/eu-1") || strings.Contains(body, "red/") {
		t.Errorf("count: %d %s", resp.StatusCode, body)
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
