package queryapi_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"federator.dev/federator/test/seed"
)

func randomQuery(rng *rand.Rand) string {
	v := url.Values{}
	name := choose(rng, "count", "count", "find", "members", "related")
	resources := func() {
		for range 1 + rng.IntN(2) {
			v.Add("resource", choose(rng, "pods", "po", "configmaps", "nodes", "namespaces", "widgets"))
		}
	}
	switch name {
	case "count":
		resources()
		for range rng.IntN(3) {
			v.Add("groupBy", choose(rng, "member", "namespace", "kind", "label:app", "memberLabel:region", "field:spec.nodeName"))
		}
		if rng.IntN(3) == 0 {
			v.Set("labelSelector", choose(rng, "app=a", "federator.dev/member=a.eu-1", "member.federator.dev/region=eu"))
		}
		if rng.IntN(4) == 0 {
			v.Set("namespace", choose(rng, "blue", "none", "no.ne"))
		}
	case "find":
		resources()
		v.Set("namePrefix", choose(rng, "n0", "n1", "n33", "x", "none"))
		if rng.IntN(2) == 0 {
			v.Set("limit", choose(rng, "1", "3", "100", "x"))
		}
	case "members":
		for _, f := range []string{"details", "summary", "notSynced"} {
			if rng.IntN(3) == 0 {
				v.Set(f, "true")
			}
		}
		if rng.IntN(3) == 0 {
			v.Set("namePrefix", choose(rng, "a", "b/us", "z"))
		}
		if rng.IntN(3) == 0 {
			v.Set("labelSelector", choose(rng, "federator.dev/member-namespace=b", "member.federator.dev/region in (eu)", "app=x"))
		}
		if rng.IntN(2) == 0 {
			v.Set("limit", choose(rng, "1", "2", "5", "100"))
		}
		if rng.IntN(4) == 0 {
			resources()
		}
	case "related":
		v.Set("member", choose(rng, "a/eu-1", "b/us-2", "a/none", "x"))
		v.Set("resource", "pods")
		v.Set("namespace", "blue")
		v.Set("name", fmt.Sprintf("n%02d", rng.IntN(40)))
	}
	return "/query/v1/" + name + "?" + v.Encode()
}

var sizes = regexp.MustCompile(`"bytes":[0-9]+`)

// TestShared_QueriesAreThoseOfOneProcess compares random queries of processes that share a fleet with those of one
// that has all of it.
func TestShared_QueriesAreThoseOfOneProcess(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 5))
	f := share(t, 3, nil)
	f.join(manyMembers...)
	f.fill(rng, 300)
	whole := f.whole.Client(t)
	codes := map[int]int{}
	for i := range 400 {
		path := randomQuery(rng)
		p := choose(rng, f.processes...)
		client := p.Client(t)
		header := http.Header{"Accept": {choose(rng, "application/json", "application/json;as=Table;v=v1;g=meta.k8s.io")}}
		pathOfWhole := path
		for page := 0; ; page++ {
			want, err := f.whole.ask(t, whole, pathOfWhole, header, f.whole.Token())
			f.must(err)
			got, err := p.ask(t, client, path, header, p.Token())
			f.must(err)
			got.body, want.body = sizes.ReplaceAllString(got.body, "SIZE"), sizes.ReplaceAllString(want.body, "SIZE")
			if got.code != want.code || got.headers != want.headers || got.body != want.body {
				t.Fatalf("%d: page %d of %s of %s:\n got %d %s%s\nwant %d %s%s", i, page, path, p.id, got.code, got.headers, got.body, want.code, want.headers, want.body)
			}
			codes[got.code]++
			if want.next == "" {
				break
			}
			path, pathOfWhole = withToken(t, path, got.next), withToken(t, pathOfWhole, want.next)
		}
		client.CloseIdleConnections()
	}
	if codes[http.StatusOK] < 200 {
		t.Errorf("too few were answered: %v", codes)
	}
	lost := f.processes[2]
	f.kill(lost)
	for path, want := range map[string]string{
		"/query/v1/count?resource=pods":              `"state":"Unknown"`,
		"/query/v1/members":                          `"kind":"*","state":"Unknown"`,
		"/query/v1/members?summary=true":             `"Unknown":`,
		"/query/v1/find?namePrefix=n0&resource=pods": `"state":"Unknown"`,
	} {
		a, err := f.processes[0].ask(t, f.processes[0].Client(t), path, nil, f.processes[0].Token())
		f.must(err)
		if a.code != http.StatusOK || !strings.Contains(a.body, want) || !strings.Contains(a.headers, "state=Unknown") {
			t.Errorf("%s without a process: %d %s %s", path, a.code, a.headers, a.body)
		}
	}
	a, err := f.processes[0].ask(t, f.processes[0].Client(t), "/query/v1/whoami", nil, f.processes[0].Token())
	f.must(err)
	if a.code != http.StatusNotImplemented {
		t.Errorf("a query that cannot be shared: %d %s", a.code, a.body)
	}
}
