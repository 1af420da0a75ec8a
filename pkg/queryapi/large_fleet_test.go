package queryapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/kube/assets"
)

// staleMembers adds members with a Pod each, out of reach, to an index.
func staleMembers(t testing.TB, x *aggregate.Index, n int) {
	t.Helper()
	for i := range n {
		name := fmt.Sprintf("stale/member-%05d", i)
		if err := x.PutMember(aggregate.Member{Name: name, UID: name, Version: "v1.36.3"}); err != nil {
			t.Fatal(err)
		}
		s, err := x.OpenScope(name, "Pod", "v1")
		if err != nil {
			t.Fatal(err)
		}
		item := s.Item(&aggregate.Record{Namespace: "shop", Name: "web", UID: name, ResourceVersion: "7", Body: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"}}`)})
		if _, err := s.Replace([]aggregate.Item{item}, aggregate.Status{State: aggregate.Stale}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestServer_HeadersDoNotGrowWithTheFleet: what is not fresh is said in few bytes, with a
// link to all of it.
func TestServer_HeadersDoNotGrowWithTheFleet(t *testing.T) {
	for _, members := range []int{1_000, 10_000} {
		s := start(t, func(o *queryapi.Options) {
			local(o)
			staleMembers(t, o.Index, members)
		})
		for _, path := range []string{
			"/fleet/api/v1/pods?limit=1", "/flat/api/v1/pods?limit=1", "/fleet/api/v1/namespaces/shop/pods?limit=1",
			"/fleet/api/v1/pods?watch=true&timeoutSeconds=1&resourceVersion=" + s.revision(t),
			"/query/v1/count?resource=pods", "/query/v1/members?limit=20", "/query/v1/members?summary=true",
			"/fleet/api/v1/pods?require=synced",
		} {
			resp, body := s.get(t, path, s.Token())
			size := 0
			for name, values := range resp.Header {
				size += len(name) + len(strings.Join(values, ""))
			}
			if size > 5<<10 || !strings.Contains(resp.Header.Get("Federator-Not-Synced"), ", more=") {
				t.Errorf("%d members: %s: %d with headers of %d bytes: %q", members, path, resp.StatusCode, size, resp.Header.Get("Federator-Not-Synced"))
			}
			if !strings.Contains(path, "watch") && len(body) > 128<<10 {
				t.Errorf("%d members: %s: a body of %d bytes", members, path, len(body))
			}
		}
		resp, _ := s.get(t, "/fleet/api/v1/pods?limit=1&labelSelector=federator.dev/member-namespace=stale", s.Token())
		link, _, _ := strings.Cut(strings.TrimPrefix(resp.Header.Get("Link"), "<"), ">")
		named := map[string]bool{}
		for next := ""; ; {
			resp, body := s.get(t, link+"&limit=3000&continue="+next, s.Token())
			var page struct {
				Items []struct {
					Name      string
					NotSynced []struct{ Kind, State, Reason string }
				}
				Continue string
			}
			if err := json.Unmarshal([]byte(body), &page); err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: %d, %v: %.300s", link, resp.StatusCode, err, body)
			}
			for _, m := range page.Items {
				if len(m.NotSynced) != 1 || m.NotSynced[0].Kind != "Pod" || m.NotSynced[0].State != "Stale" || m.NotSynced[0].Reason == "" {
					t.Fatalf("%+v", m)
				}
				named[m.Name] = true
			}
			if next = page.Continue; next == "" {
				break
			}
		}
		if len(named) != members {
			t.Errorf("the link %s names %d members, want %d", link, len(named), members)
		}
	}
}

// revision returns the fleet's.
func (s *server) revision(t *testing.T) string {
	t.Helper()
	_, body := s.get(t, "/query/v1/members?limit=1", s.Token())
	var list struct{ Revision string }
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	return list.Revision
}

// TestServer_KubectlReadsALargeStaleFleet, in pages, and prints what is not fresh on a line.
func TestServer_KubectlReadsALargeStaleFleet(t *testing.T) {
	const members = 1_000
	s := start(t, func(o *queryapi.Options) {
		local(o)
		staleMembers(t, o.Index, members)
	})
	built, err := assets.Ensure(t.Context(), assets.Options{}, assets.Kubectl)
	if err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["fleet"] = &clientcmdapi.Cluster{Server: "https://" + s.Address + "/fleet", CertificateAuthorityData: s.CertificateAuthority()}
	config.AuthInfos["me"] = &clientcmdapi.AuthInfo{Token: s.Token()}
	config.Contexts["fleet"] = &clientcmdapi.Context{Cluster: "fleet", AuthInfo: "me"}
	config.CurrentContext = "fleet"
	dir := t.TempDir()
	path := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), built.Binary(assets.Kubectl), "get", "pods", "-n", "shop", "--chunk-size=100", "--no-headers", "-l", "federator.dev/member-namespace=stale")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+path, "HOME="+dir)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %.500s", err, stderr.String())
	}
	if n := strings.Count(out.String(), "\n"); n != members {
		t.Errorf("%d rows, want %d", n, members)
	}
	if w := stderr.String(); !strings.Contains(w, "stale/member-00000 is Stale") || !strings.Contains(w, "and 997 more") || len(w) > 2<<10 {
		t.Errorf("warnings of %d bytes: %.500s", len(w), w)
	}
	_, body := s.get(t, "/fleet/api/v1/pods?limit=2", s.Token())
	var list metav1.PartialObjectMetadata // whose metadata has annotations, as the list's has
	if err := json.Unmarshal([]byte(body), &list); err != nil || list.Annotations["federator.dev/freshness"] == "" || list.Annotations["federator.dev/freshness-more"] == "" {
		t.Errorf("%v, annotations %.300v", err, list.Annotations)
	}
}
