package queryapi_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"testing"

	"federator.dev/federator/test/seed"
)

func choose[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// fill puts random objects into members.
func (f *sharedFleet) fill(rng *rand.Rand, n int) []sharedObject {
	var out []sharedObject
	members := []string{}
	for m := range f.judges {
		members = append(members, m)
	}
	for range n {
		o := f.object(rng, members)
		f.put(7, o)
		out = append(out, o)
	}
	return out
}

func (f *sharedFleet) object(rng *rand.Rand, members []string) sharedObject {
	o := sharedObject{member: choose(rng, members...), kind: sharedKinds[rng.IntN(len(sharedKinds))].Kind, app: choose(rng, "a", "b", "c"), value: fmt.Sprint(rng.IntN(5))}
	o.name = fmt.Sprintf("n%02d", rng.IntN(40))
	if o.kind == "Pod" || o.kind == "ConfigMap" {
		o.namespace = choose(rng, "blue", "red")
	}
	return o
}

var accepts = []string{
	"", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf,application/json",
	"application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
	"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/yaml;as=Table;v=v1;g=meta.k8s.io", "text/html",
}

// randomRead returns a path of a list or a get, and its Accept header.
func randomRead(rng *rand.Rand) (path, accept string) {
	accept = choose(rng, accepts...)
	resource := choose(rng, "pods", "configmaps", "nodes", "namespaces", "pods", "widgets")
	prefix, namespace := choose(rng, "/fleet", "/fleet", "/flat"), ""
	if rng.IntN(3) == 0 && (resource == "pods" || resource == "configmaps") {
		namespace = "/namespaces/" + choose(rng, "blue", "red", "none")
		if prefix == "/flat" {
			namespace = "/namespaces/" + choose(rng, "a.eu-1.blue", "b.us-2.red", "none", "a.xx.blue")
		}
	}
	if rng.IntN(8) == 0 {
		prefix = choose(rng, "/members/a/eu-1", "/members/b/us-2", "/members/a/none")
	}
	path = prefix + "/api/v1" + namespace + "/" + resource
	if rng.IntN(4) == 0 && (namespace != "" || resource == "nodes" || resource == "namespaces") {
		path += "/" + fmt.Sprintf("n%02d", rng.IntN(40))
		if prefix == "/flat" && namespace == "" {
			path = prefix + "/api/v1/" + resource + "/" + fmt.Sprintf("a.eu-1.n%02d", rng.IntN(40))
		}
		return path, accept
	}
	v := url.Values{}
	if rng.IntN(3) == 0 {
		v.Set("labelSelector", choose(rng, "app=a", "app!=b", "app in (a,b)", "member.federator.dev/region=eu", "federator.dev/member=a.eu-1", "federator.dev/member-namespace=b,app=c", "bad=="))
	}
	if rng.IntN(4) == 0 {
		v.Set("fieldSelector", choose(rng, "metadata.name=n01", "spec.nodeName=1", "metadata.namespace=blue", "metadata.name!=n02", "data.value=2"))
	}
	if rng.IntN(2) == 0 {
		v.Set("limit", choose(rng, "1", "2", "5", "17", "1000"))
	}
	if rng.IntN(12) == 0 {
		v.Set("bogus", "1")
	}
	if rng.IntN(6) == 0 {
		v.Set("includeObject", choose(rng, "None", "Object", "Metadata"))
	}
	if len(v) > 0 {
		path += "?" + v.Encode()
	}
	return path, accept
}

var manyMembers = []string{"a/eu-1", "a/eu-2", "a/us-1", "b/eu-1", "b/us-1", "b/us-2", "c/eu-1", "c/us-9"}

// TestShared_ListsAndGetsAreThoseOfOneProcess compares random reads of processes that share a fleet with those
// of one that has all of it, page by page.
func TestShared_ListsAndGetsAreThoseOfOneProcess(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	f := share(t, 3, nil)
	f.join(manyMembers...)
	f.fill(rng, 300)
	whole := f.whole.Client(t)
	clients := map[*process]*http.Client{}
	for _, p := range f.processes {
		clients[p] = p.Client(t)
	}
	for i := range 200 {
		path, accept := randomRead(rng)
		p := choose(rng, f.processes...)
		header := http.Header{"Accept": {accept}}
		pathOfWhole := path
		for page := 0; ; page++ {
			want, err := f.whole.ask(t, whole, pathOfWhole, header, f.whole.Token())
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.ask(t, clients[p], path, header, p.Token())
			if err != nil {
				t.Fatalf("%d: %s (%s) of %s: %v", i, path, accept, p.id, err)
			}
			if got.code != want.code || got.headers != want.headers || got.body != want.body {
				t.Fatalf("%d: page %d of %s (%s) of %s:\n got %d %s%s\nwant %d %s%s", i, page, path, accept, p.id, got.code, got.headers, got.body, want.code, want.headers, want.body)
			}
			if want.next == "" || accept == "application/json;as=Table;v=v1;g=meta.k8s.io,application/json" && got.next == "" {
				break
			}
			path, pathOfWhole = withToken(t, path, got.next), withToken(t, pathOfWhole, want.next)
		}
	}
}

func withToken(t *testing.T, path, token string) string {
	t.Helper()
	u, err := url.Parse(path)
	if err != nil {
		t.Fatal(err)
	}
	v := u.Query()
	v.Set("continue", token)
	u.RawQuery = v.Encode()
	return u.String()
}
