package queryapi_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/internal/rows"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/seed"
)

// TestShared_RowsAreThoseOfOneProcess, page by page, and other kinds are of the same revision.
func TestShared_RowsAreThoseOfOneProcess(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 7))
	f := share(t, 3, nil)
	f.join(manyMembers...)
	f.fill(rng, 300)
	accept := http.Header{"Accept": {rows.Accept}}
	whole := f.whole.Client(t)
	for range 20 {
		p := choose(rng, f.processes...)
		client := p.Client(t)
		v := url.Values{"columns": {"on=.spec.nodeName"}, "printerColumns": {choose(rng, "true", "false")}}
		if rng.IntN(3) > 0 {
			v.Set("limit", choose(rng, "1", "7", "50"))
		}
		path := "/fleet/api/v1/" + choose(rng, "pods", "nodes", "configmaps") + "?" + v.Encode()
		pathOfWhole := path
		for page := range 6 {
			want, err := f.whole.ask(t, whole, pathOfWhole, accept, f.whole.Token())
			f.must(err)
			got, err := p.ask(t, client, path, accept, p.Token())
			f.must(err)
			if got.code != http.StatusOK || got.headers != want.headers || got.body != want.body {
				t.Fatalf("page %d of %s of %s:\n got %d %s%s\nwant %d %s%s", page, path, p.id, got.code, got.headers, got.body, want.code, want.headers, want.body)
			}
			if want.next == "" {
				break
			}
			path, pathOfWhole = withToken(t, path, got.next), withToken(t, pathOfWhole, want.next)
		}
		client.CloseIdleConnections()
	}

	p := f.processes[0]
	client := p.Client(t)
	header := func(path string) *rows.Header {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.Address+path, http.NoBody)
		f.must(err)
		r.Header.Set("Accept", rows.Accept)
		r.Header.Set("Authorization", "Bearer "+p.Token())
		resp, err := client.Do(r)
		f.must(err)
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", path, resp.Status)
		}
		in, err := rows.NewReader(resp.Body)
		f.must(err)
		return in.Header()
	}
	first := header("/fleet/api/v1/pods?limit=10")
	at := "resourceVersionMatch=Exact&resourceVersion=" + first.Metadata.ResourceVersion
	was, err := p.ask(t, client, "/fleet/api/v1/nodes?"+at, accept, p.Token())
	f.must(err)
	f.put(900, sharedObject{manyMembers[0], "Node", "", "later", "a", "1"}, sharedObject{manyMembers[1], "Node", "", "later", "a", "1"})
	if second := header("/fleet/api/v1/nodes?limit=3&" + at); second.Metadata.ResourceVersion != first.Metadata.ResourceVersion {
		t.Errorf("revision %s, want %s", second.Metadata.ResourceVersion, first.Metadata.ResourceVersion)
	}
	is, err := p.ask(t, client, "/fleet/api/v1/nodes?"+at, accept, p.Token())
	f.must(err)
	if is.code != http.StatusOK || is.body != was.body || strings.Contains(is.body, "later") {
		t.Errorf("%d %s, want %s", is.code, is.body, was.body)
	}

	f.kill(f.processes[2])
	a, err := p.ask(t, client, "/fleet/api/v1/pods", accept, p.Token())
	f.must(err)
	if a.code != http.StatusOK || !strings.Contains(a.body, `"state":"Unknown"`) || !strings.Contains(a.body, fmt.Sprintf("%q", manyMembers[2])) {
		t.Errorf("without a process: %d %.3000s", a.code, a.body)
	}
}

// TestShared_RowsOfKindsThatSomeDoNotServe are of one revision with those of others, in any order.
func TestShared_RowsOfKindsThatSomeDoNotServe(t *testing.T) {
	started := 0
	f := share(t, 3, func(o *queryapi.Options) {
		if started++; started <= 2 { // the one that has all of it, and the first
			o.Fleet = append(slices.Clone(sharedKinds), queryapi.ServedResource{
				Kind: "Service", Resource: schema.GroupVersionResource{Version: "v1", Resource: "services"}, Singular: "service", Namespaced: true,
			})
		}
	})
	f.join(manyMembers...)
	f.put(1, sharedObject{manyMembers[0], "Service", "blue", "web", "a", "1"}, sharedObject{manyMembers[1], "Pod", "blue", "p", "a", "1"})
	accept := http.Header{"Accept": {rows.Accept}}
	for _, p := range f.processes[1:] {
		client := p.Client(t)
		for _, order := range [][2]string{{"services", "pods"}, {"pods", "services"}} {
			at := ""
			for i, kind := range order {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.Address+"/fleet/api/v1/"+kind+"?limit=5"+at, http.NoBody)
				f.must(err)
				r.Header = accept.Clone()
				r.Header.Set("Authorization", "Bearer "+p.Token())
				resp, err := client.Do(r)
				f.must(err)
				if resp.StatusCode != http.StatusOK {
					t.Fatalf("%s: %s", r.URL, resp.Status)
				}
				in, err := rows.NewReader(resp.Body)
				f.must(err)
				if _, err := in.Next(); err != nil {
					t.Errorf("%s: %v", r.URL, err)
				}
				f.must(resp.Body.Close())
				revision := in.Header().Metadata.ResourceVersion
				if at != "" && !strings.HasSuffix(at, revision) {
					t.Errorf("%s: revision %s", r.URL, revision)
				}
				at = "&resourceVersionMatch=Exact&resourceVersion=" + revision
				f.put(2+i, sharedObject{manyMembers[2], "Pod", "blue", "p", "a", "2"})
			}
		}
	}
}
