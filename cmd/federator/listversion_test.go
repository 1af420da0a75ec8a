package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/test/clitest"
)

// listed summarizes the response to a list.
func listed(t *testing.T, config *rest.Config, query string) (words, version, next string) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/api/v1/namespaces/shop/configmaps?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Reason   string
		Metadata struct {
			ResourceVersion, Continue string
			RemainingItemCount        *int64
		}
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatalf("%s: %s", query, body)
	}
	words = fmt.Sprintf("%d %s", resp.StatusCode, answer.Reason)
	if resp.StatusCode == http.StatusOK {
		var names []string
		for _, i := range answer.Items {
			names = append(names, i.Metadata.Name)
		}
		words = fmt.Sprintf("%v, more %t", names, answer.Metadata.Continue != "")
		if n := answer.Metadata.RemainingItemCount; n != nil {
			words += fmt.Sprintf(", %d remaining", *n)
		}
	}
	return words, answer.Metadata.ResourceVersion, answer.Metadata.Continue
}

// TestList_TreatsLimitAndResourceVersionAsAnAPIServer, also where
// resourceVersionMatch is not set: beside the member's own answers.
func TestList_TreatsLimitAndResourceVersionAsAnAPIServer(t *testing.T) {
	members, kubeconfig := clitest.RealFleet(t, "one")
	manifests := "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
	for i := range 5 {
		manifests += fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d, namespace: shop}\n", i)
	}
	if err := members[0].Apply(t.Context(), []byte(manifests)); err != nil {
		t.Fatal(err)
	}
	server := start(t, "--kubeconfig", kubeconfig, "--contexts", "one", "--kinds", "ConfigMap")
	fleet, err := clientcmd.BuildConfigFromFlags("", server.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	real := members[0].DirectRESTConfig()
	clitest.Eventually(t, "the objects are there", func() error {
		if got, _, _ := listed(t, fleet, "fieldSelector=metadata.name=c4"); got != "[c4], more false" {
			return fmt.Errorf("%w: %s", clitest.ErrNotYet, got)
		}
		return nil
	})
	type side struct{ version, next string }
	var sides [2]side
	configs := [2]*rest.Config{real, fleet}
	for i, config := range configs {
		_, sides[i].version, sides[i].next = listed(t, config, "limit=2")
	}
	// With continue and resourceVersion=0 an API server's cache gives all that is left,
	// whatever the limit: that is not copied.
	for _, query := range []string{
		"limit=2", "limit=2&continue=NEXT", "limit=2&resourceVersion=VERSION", "limit=10&resourceVersion=VERSION",
		"resourceVersion=VERSION", "resourceVersion=0", "limit=10&resourceVersion=0",
		"limit=2&resourceVersion=VERSION&resourceVersionMatch=Exact", "limit=2&resourceVersionMatch=Exact&resourceVersion=0",
		"resourceVersion=VERSION&resourceVersionMatch=NotOlderThan", "resourceVersion=0&resourceVersionMatch=NotOlderThan",
		"resourceVersionMatch=Exact", "resourceVersionMatch=NotOlderThan", "resourceVersion=VERSION&resourceVersionMatch=Foo",
		"limit=2&continue=NEXT&resourceVersion=VERSION",
		"limit=2&continue=NEXT&resourceVersionMatch=NotOlderThan", "limit=2&continue=NEXT&resourceVersion=VERSION&resourceVersionMatch=Exact",
		"limit=2&resourceVersion=x", "limit=2&continue=junk",
	} {
		var got [2]string
		for i, config := range configs {
			got[i], _, _ = listed(t, config, strings.NewReplacer("VERSION", sides[i].version, "NEXT", url.QueryEscape(sides[i].next)).Replace(query))
		}
		// An API server's list at 0 is from its cache, which may be without the root's own.
		if got[0] = strings.Replace(got[0], "kube-root-ca.crt ", "", 1); got[0] != got[1] {
			t.Errorf("%s: %s, and of an API server %s", query, got[1], got[0])
		}
	}
}
