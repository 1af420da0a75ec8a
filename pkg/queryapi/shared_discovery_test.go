package queryapi_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
)

var hashes = regexp.MustCompile(`hash=[0-9A-F]+`)

const widgetDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.shop.example","uid":"w"},"spec":{"group":"shop.example","names":{"kind":"Widget","plural":"widgets","singular":"widget"},"scope":"Namespaced","versions":[{"additionalPrinterColumns":[{"jsonPath":".spec.size","name":"Size","type":"string"}],"name":"v1","schema":{"openAPIV3Schema":{"properties":{"spec":{"properties":{"size":{"type":"string"}},"type":"object"}},"type":"object"}},"served":true,"storage":true}]}}`

// TestShared_DiscoveryIsOfAllProcesses: what only members of one process serve is found at another.
func TestShared_DiscoveryIsOfAllProcesses(t *testing.T) {
	n := 0
	f := share(t, 3, func(o *queryapi.Options) {
		if n++; n == 1 || n >= 3 { // the whole, the second and the third
			o.Fleet = append(slices.Clone(sharedKinds), queryapi.ServedResource{
				Kind: "Widget.shop.example", Resource: schema.GroupVersionResource{Group: "shop.example", Version: "v1", Resource: "widgets"}, Singular: "widget", Namespaced: true,
			}, queryapi.ServedResource{
				Kind: "CustomResourceDefinition.apiextensions.k8s.io", Singular: "customresourcedefinition",
				Resource: schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
			})
		}
	})
	f.join("a/eu-1", "a/eu-2", "a/eu-3")
	for _, p := range []*process{f.whole, f.processes[1]} {
		for kind, o := range map[aggregate.Kind]aggregate.Record{
			"Widget.shop.example":                           {Namespace: "blue", Name: "w", UID: "w", ResourceVersion: "7", Body: []byte(`{"apiVersion":"shop.example/v1","kind":"Widget","metadata":{"name":"w","namespace":"blue","uid":"w"},"spec":{"size":"XL"}}`)},
			"CustomResourceDefinition.apiextensions.k8s.io": {Name: "widgets.shop.example", UID: "w", ResourceVersion: "7", Body: []byte(widgetDefinition)},
		} {
			version := map[bool]string{true: "shop.example/v1", false: "apiextensions.k8s.io/v1"}[kind == "Widget.shop.example"]
			s, err := p.index.OpenScope("a/eu-2", kind, version)
			f.must(err)
			s.SetStatus(aggregate.Status{State: aggregate.Synced})
			s.Upsert(s.Item(&o))
			_, err = s.Commit()
			f.must(err)
		}
	}
	check := func(path, accept string) {
		t.Helper()
		header := http.Header{"Accept": {accept}}
		want, err := f.whole.ask(t, f.whole.Client(t), path, header, f.whole.Token())
		f.must(err)
		for _, p := range f.processes {
			got, err := p.ask(t, p.Client(t), path, header, p.Token())
			f.must(err)
			got.body, want.body = hashes.ReplaceAllString(got.body, "HASH"), hashes.ReplaceAllString(want.body, "HASH")
			if address := regexp.MustCompile(regexp.QuoteMeta(p.Address)); true {
				got.body = address.ReplaceAllString(got.body, f.whole.Address)
			}
			if got.code != want.code || got.body != want.body || got.headers != want.headers {
				t.Errorf("%s (%s) of %s:\n got %d %s %.1500s\nwant %d %s %.1500s", path, accept, p.id, got.code, got.headers, got.body, want.code, want.headers, want.body)
			}
		}
	}
	for _, path := range []string{
		"/fleet", "/fleet/version", "/fleet/api", "/fleet/apis", "/flat/apis", "/fleet/api/v1", "/fleet/apis/shop.example", "/fleet/apis/shop.example/v1", "/fleet/apis/none", "/fleet/openapi/v3", "/fleet/openapi/v3/apis/shop.example/v1", "/fleet/healthz",
		"/members/a/eu-2/apis/shop.example/v1", "/members/a/eu-1/apis/shop.example/v1", "/fleet/apis/shop.example/v1/widgets", "/fleet/apis/shop.example/v1/namespaces/blue/widgets/w", "/query/v1/count?resource=widgets", "/query/v1/find?resource=widgets&resource=pods&namePrefix=ww",
	} {
		check(path, "application/json")
	}
	check("/fleet/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")
	check("/fleet/apis/shop.example/v1/widgets", "application/json;as=Table;v=v1;g=meta.k8s.io")
	other, err := f.processes[2].index.OpenScope("a/eu-3", "CustomResourceDefinition.apiextensions.k8s.io", "apiextensions.k8s.io/v1")
	f.must(err)
	other.Upsert(other.Item(&aggregate.Record{Name: "widgets.shop.example", UID: "w", ResourceVersion: "7", Body: []byte(strings.ReplaceAll(widgetDefinition, "Size", "Extent"))}))
	other.SetStatus(aggregate.Status{State: aggregate.Synced})
	_, err = other.Commit()
	f.must(err)
	of, err := f.processes[2].index.OpenScope("a/eu-3", "Widget.shop.example", "shop.example/v1")
	f.must(err)
	of.SetStatus(aggregate.Status{State: aggregate.Synced})
	_, err = of.Commit()
	f.must(err)
	a, err := f.processes[0].ask(t, f.processes[0].Client(t), "/fleet/apis/shop.example/v1/widgets", http.Header{"Accept": {"application/json;as=Table;v=v1;g=meta.k8s.io"}}, f.processes[0].Token())
	f.must(err)
	if a.code != http.StatusOK || strings.Contains(a.body, "Size") || !strings.Contains(a.body, `"name":"Age"`) || !strings.Contains(a.body, `"cells":["a/eu-2","w",`) || !strings.Contains(a.headers, "different columns") {
		t.Errorf("different columns: %d %s %s", a.code, a.headers, a.body)
	}
	f.kill(f.processes[1])
	if a, err := f.processes[0].ask(t, f.processes[0].Client(t), "/fleet/apis/shop.example/v1", nil, f.processes[0].Token()); err != nil || a.code != http.StatusOK {
		t.Errorf("what a lost process said is forgotten: %d %s %v", a.code, a.body, err)
	}
	if a, err := f.processes[0].ask(t, f.processes[0].Client(t), "/fleet/apis/shop.example/v1/widgets", nil, f.processes[0].Token()); err != nil || a.code != http.StatusOK || !strings.Contains(a.headers, "a/eu-2;state=Unknown") {
		t.Errorf("a list of what a lost process has: %d %s %v", a.code, a.body, err)
	}
}
