package catalog_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
)

const definitions aggregate.Kind = "CustomResourceDefinition.apiextensions.k8s.io"

// widgetDefinition defines widgets with one column.
func widgetDefinition(column, jsonPath string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.shop.example","resourceVersion":%q},
		"spec":{"group":"shop.example","names":{"kind":"Widget","plural":"widgets"},"versions":[{"name":"v1","additionalPrinterColumns":[{"name":%q,"type":"string","jsonPath":%q}]}]}}`,
		column+jsonPath, column, jsonPath)
}

const widget aggregate.Kind = "Widget.shop.example"

func widgets(version string) catalog.ServedResource {
	s := served("Widget", "shop.example", version, "widgets", true)
	s.ShortNames = []string{"wd"}
	return s
}

func columns(t *testing.T, v *catalog.View, kind aggregate.Kind) []string {
	t.Helper()
	r, found := v.Kind(kind)
	if !found {
		t.Fatalf("%s is not served", kind)
	}
	var names []string
	for _, c := range r.Columns() {
		names = append(names, c.Name)
	}
	return names
}

func versionsOf(v *catalog.View, kind aggregate.Kind) []string {
	var out []string
	for r := range v.Resources() {
		if r.Kind == kind {
			out = append(out, r.Resource.GroupVersion().String())
		}
	}
	return out
}

func TestView_ReportsWhyAResourceIsNotServed(t *testing.T) {
	f := newFleet(t)
	f.join("fleet/a", "v1.36.0", "shop.example/v1", "v1")
	f.keep("fleet/a", widget, "shop.example/v1")
	v := catalog.New(newFakeFleet(widgets("v1"), widgets("v1beta1"), served("Secret", "", "v1", "secrets", true))).View(f.index.Snapshot())
	for _, tt := range []struct {
		group, version, resource string
		why                      catalog.MissingReason
		versions                 []string
		says                     string
	}{
		{"shop.example", "v1beta1", "widgets", catalog.OtherVersion, []string{"shop.example/v1"}, "shop.example/v1"},
		{"", "v1", "secrets", catalog.NotCollected, nil, "not kept"},
		{"shop.example", "v1", "gadgets", catalog.NoMember, nil, "no member"},
	} {
		_, err := v.Resource(tt.group, tt.version, tt.resource)
		var missing *catalog.NotServedError
		if !errors.As(err, &missing) || missing.Reason != tt.why || !slices.Equal(missing.Versions, tt.versions) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.resource, err)
		}
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v is no 404", tt.resource, err)
		}
	}
	if r, err := v.Resource("shop.example", "v1", "widgets"); err != nil || r.Held != "shop.example/v1" {
		t.Errorf("widgets: %+v, %v", r, err)
	}
}

func TestCatalog_BuiltInKindsAreServedAtEveryVersionThatConverts(t *testing.T) {
	f := newFleet(t)
	f.join("fleet/a", "v1.36.0", "autoscaling/v1", "autoscaling/v2")
	f.join("fleet/b", "v1.36.0", "autoscaling/v2")
	hpa := aggregate.Kind("HorizontalPodAutoscaler.autoscaling")
	f.keep("fleet/a", hpa, "autoscaling/v2")
	f.keep("fleet/b", hpa, "autoscaling/v2")
	f.keep("fleet/a", widget, "shop.example/v1")
	at := func(version string) catalog.ServedResource {
		return served("HorizontalPodAutoscaler", "autoscaling", version, "horizontalpodautoscalers", true)
	}
	v := catalog.New(newFakeFleet(at("v1"), at("v2"), at("v99"), widgets("v1"), widgets("v2"))).View(f.index.Snapshot())
	if got := versionsOf(v, hpa); !slices.Equal(got, []string{"autoscaling/v2", "autoscaling/v1"}) {
		t.Errorf("autoscalers at %v", got)
	}
	if got := versionsOf(v, widget); !slices.Equal(got, []string{"shop.example/v1"}) {
		t.Errorf("widgets at %v", got)
	}
	if got := versionsOf(v.ForMember(f.index.Snapshot(), "fleet/b"), hpa); !slices.Equal(got, []string{"autoscaling/v2"}) {
		t.Errorf("autoscalers of b at %v", got)
	}
	r, err := v.Resource("autoscaling", "v1", "horizontalpodautoscalers")
	ok(t, err)
	body := canonical(t, []byte(`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"a","namespace":"n"},"spec":{"maxReplicas":3,
		"scaleTargetRef":{"kind":"Deployment","name":"d"},"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":70}}}]}}`))
	got, err := r.AppendAt([]byte("x"), body)
	ok(t, err)
	if s := string(got); !strings.HasPrefix(s, `x{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler"`) || !strings.Contains(s, `"targetCPUUtilizationPercentage":70`) {
		t.Errorf("converted to %s", s)
	}
	held, _ := v.Kind(hpa)
	if same, err := held.AppendAt(nil, body); err != nil || string(same) != string(body) {
		t.Errorf("the held version became %s (%v)", same, err)
	}
}

func TestCatalog_CustomKindsAreNotConverted(t *testing.T) {
	r, found := viewOf(t, widgets("v1"), "shop.example/v1").Kind(widget)
	if !found {
		t.Fatal("widgets are not served")
	}
	out, err := r.AppendAt([]byte("kept"), []byte(`{"apiVersion":"shop.example/v1beta1","kind":"Widget","metadata":{"name":"a"}}`))
	var conversion *catalog.ConversionError
	if !errors.As(err, &conversion) || conversion.From != "shop.example/v1beta1" || string(out) != "kept" || apierrors.ReasonForError(err) != "NotAcceptable" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := r.AppendAt(nil, []byte(`{}`)); err == nil {
		t.Error("a body without apiVersion is taken")
	}
}

func TestView_ByNameAgreesWithKubectl(t *testing.T) {
	f := newFleet(t)
	f.join("fleet/a", "v1.36.0")
	var list []catalog.ServedResource
	add := func(s catalog.ServedResource) {
		list = append(list, s)
		f.keep("fleet/a", s.Kind, s.Resource.GroupVersion().String())
	}
	pods := served("Pod", "", "v1", "pods", true)
	pods.ShortNames = []string{"po"}
	thief := served("Thief", "bad.example", "v1", "thieves", true)
	thief.ShortNames = []string{"po", "pods"}
	add(thief)
	add(pods)
	add(served("Event", "events.k8s.io", "v1", "events", true))
	add(served("Event", "", "v1", "events", true))
	add(served("Application", "z.example", "v1", "applications", true))
	add(served("Application", "a.example", "v1", "applications", true))
	v := catalog.New(newFakeFleet(list...)).View(f.index.Snapshot())
	for name, want := range map[string]aggregate.Kind{
		"pods": "Pod", "pod": "Pod", "Pod": "Pod", "PO": "Pod", "events": "Event", "event": "Event",
		"events.events.k8s.io": "Event.events.k8s.io", "Event.events.k8s.io": "Event.events.k8s.io",
		"application": "Application.a.example", "applications.z.example": "Application.z.example",
		"applications.v1.z.example": "Application.z.example", "po.bad.example": "Thief.bad.example",
		"nothing": "", "pods.example": "", "": "",
	} {
		r, found := v.ByName(name)
		if found != (want != "") || found && r.Kind != want {
			t.Errorf("%q means %+v, want %q", name, r, want)
		}
	}
}

func TestCatalog_CachesViewsUntilTheyChange(t *testing.T) {
	f := newFleet(t)
	f.join("fleet/a", "v1.36.0", "shop.example/v1")
	f.keep("fleet/a", widget, "shop.example/v1")
	f.keep("fleet/a", definitions, "apiextensions.k8s.io/v1", widgetDefinition("One", ".spec.one"))
	source := newFakeFleet(widgets("v1"))
	c := catalog.New(source)
	past := f.index.Snapshot()
	first := c.View(past)
	if got := columns(t, first, widget); !slices.Equal(got, []string{"Name", "One"}) {
		t.Errorf("columns %v", got)
	}
	f.keep("fleet/a", widget, "shop.example/v1", `{"apiVersion":"shop.example/v1","kind":"Widget","metadata":{"name":"a","namespace":"n","resourceVersion":"1"}}`)
	if c.View(f.index.Snapshot()) != first {
		t.Error("an object that comes makes another view")
	}
	f.keep("fleet/a", definitions, "apiextensions.k8s.io/v1", widgetDefinition("Two", ".spec.two"))
	second := c.View(f.index.Snapshot())
	if got := columns(t, second, widget); !slices.Equal(got, []string{"Name", "Two"}) {
		t.Errorf("columns %v", got)
	}
	if c.View(past) != first || c.View(f.index.Snapshot()) != second {
		t.Error("asking for an older snapshot rebuilds views")
	}
	source.serve(widgets("v1"), served("Pod", "", "v1", "pods", true))
	f.keep("fleet/a", "Pod", "v1")
	if _, err := c.View(f.index.Snapshot()).Resource("", "v1", "pods"); err != nil {
		t.Error(err)
	}
	source.serve(served("Pod", "", "v1", "pods", true))
	if _, found := c.View(f.index.Snapshot()).Kind(widget); found {
		t.Error("widgets are served though no member has them")
	}
}

func TestView_ForMemberUsesItsOwnDefinitions(t *testing.T) {
	f := newFleet(t)
	for name, column := range map[string]string{"fleet/a": "Odd", "fleet/b": "Same", "fleet/c": "Same"} {
		f.join(name, "v1.36.0", "shop.example/v1")
		f.keep(name, widget, "shop.example/v1")
		f.keep(name, definitions, "apiextensions.k8s.io/v1", widgetDefinition(column, ".spec."+column))
	}
	f.join("fleet/d", "v1.36.0")
	f.keep("fleet/d", widget, "")
	f.state("fleet/d", widget, aggregate.NotServed)
	v := catalog.New(newFakeFleet(widgets("v1"))).View(f.index.Snapshot())
	for member, want := range map[string]string{"": "Same", "fleet/a": "Odd", "fleet/b": "Same"} {
		view := v
		if member != "" {
			view = v.ForMember(f.index.Snapshot(), member)
			if view != v.ForMember(f.index.Snapshot(), member) {
				t.Errorf("%s: the view is rebuilt though nothing changed", member)
			}
		}
		if got := columns(t, view, widget); !slices.Equal(got, []string{"Name", want}) {
			t.Errorf("%q: columns %v", member, got)
		}
	}
	for _, member := range []string{"fleet/d", "no/body"} {
		_, err := v.ForMember(f.index.Snapshot(), member).Resource("shop.example", "v1", "widgets")
		if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), member) {
			t.Errorf("%s: %v", member, err)
		}
	}
}

func TestCatalog_HostileDefinitionsHarmTheirKindOnly(t *testing.T) {
	many := `{"name":"c","type":"string","jsonPath":".x"}` + strings.Repeat(`,{"name":"c","type":"string","jsonPath":".x"}`, 5000)
	for name, definition := range map[string]string{
		"a path that cannot be parsed": widgetDefinition("Bad", ".spec[?(@.a"),
		"a costly path":                widgetDefinition("Bad", "..a..b..c"),
		"a long path":                  widgetDefinition("Bad", "."+strings.Repeat("a", 5000)),
		"no spec":                      `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"x"}}`,
		"a spec of another shape":      `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"x"},"spec":[1]}`,
		"many columns":                 strings.Replace(widgetDefinition("Bad", ".x"), `{"name":"Bad","type":"string","jsonPath":".x"}`, many, 1),
		"a schema that refers to itself": strings.Replace(widgetDefinition("Bad", ".x"), `"name":"v1",`,
			`"name":"v1","served":true,"schema":{"openAPIV3Schema":{"$ref":"#/definitions/x","type":["a"]}},`, 1),
	} {
		f := newFleet(t)
		f.join("fleet/a", "v1.36.0", "shop.example/v1", "v1")
		f.keep("fleet/a", widget, "shop.example/v1")
		f.keep("fleet/a", "Pod", "v1")
		f.keep("fleet/a", definitions, "apiextensions.k8s.io/v1", definition)
		v := catalog.New(newFakeFleet(widgets("v1"), served("Pod", "", "v1", "pods", true))).View(f.index.Snapshot())
		r, found := v.Kind(widget)
		if !found {
			t.Fatalf("%s: widgets are not served", name)
		}
		row, err := r.Row([]byte(`{"apiVersion":"shop.example/v1","kind":"Widget","metadata":{"name":"a"}}`))
		if err != nil || len(row.Cells) != len(r.Columns()) || len(row.Cells) > 100 || row.Cells[0] != "a" {
			t.Errorf("%s: row %v of %d columns: %v", name, row.Cells, len(r.Columns()), err)
		}
		if len(columns(t, v, "Pod")) < 5 {
			t.Errorf("%s: pods have columns %v", name, columns(t, v, "Pod"))
		}
		for _, path := range []string{"/openapi/v3", "/openapi/v3/apis/shop.example/v1", "/openapi/v3/api/v1"} {
			if code, body := ask(t, v, f.index.Snapshot(), path); code != 200 {
				t.Errorf("%s: %s: %d %s", name, path, code, body)
			}
		}
	}
}

func TestCatalog_ObjectsThatNoServerWouldTakeHaveARow(t *testing.T) {
	v := viewOf(t, served("Pod", "", "v1", "pods", true), "v1")
	r, _ := v.Kind("Pod")
	for name, body := range map[string]string{
		"another type": `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":"none"}}`,
		"no time":      `{"apiVersion":"v1","kind":"Pod","metadata":{"creationTimestamp":"@now","name":"a"}}`,
		"odd version":  `{"apiVersion":"v9/x/y","kind":"Pod","metadata":{"name":"a"}}`,
	} {
		row, err := r.Row([]byte(body))
		if err != nil || len(row.Cells) != len(r.Columns()) || row.Cells[0] != "a" || row.Cells[1] != "<invalid>" {
			t.Errorf("%s: %v, %v", name, row.Cells, err)
		}
	}
	for _, body := range []string{``, `{}`, `{"metadata":{}}`, `[`, `{"apiVersion":"v1","metadata":{"name":7},"spec":3}`} {
		if row, err := r.Row([]byte(body)); err == nil {
			t.Errorf("%q has a row %v", body, row.Cells)
		}
	}
	// A printer that trusts its object too much does not take the server with it.
	hpa := viewOf(t, served("HorizontalPodAutoscaler", "autoscaling", "v2", "horizontalpodautoscalers", true), "autoscaling/v2")
	r, _ = hpa.Kind("HorizontalPodAutoscaler.autoscaling")
	row, err := r.Row([]byte(`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"},"spec":{"metrics":[{"type":"Pods"},{"type":"Resource"},{"type":"External"}]}}`))
	if err != nil || row.Cells[0] != "a" || len(row.Cells) != len(r.Columns()) {
		t.Errorf("%v, %v", row.Cells, err)
	}
}

func TestCatalog_VersionIsTheLowestOfTheMembers(t *testing.T) {
	f := newFleet(t)
	f.join("fleet/a", "v1.36.2")
	f.join("fleet/b", "v1.34.9+k3s1")
	f.join("fleet/c", "")
	f.join("fleet/d", "nonsense")
	v := catalog.New(newFakeFleet()).View(f.index.Snapshot())
	if _, body := ask(t, v, f.index.Snapshot(), "/version"); !strings.Contains(body, `"v1.34.9+k3s1"`) || !strings.Contains(body, `"minor": "34"`) {
		t.Errorf("version %s", body)
	}
	empty := newFleet(t)
	if code, body := ask(t, catalog.New(newFakeFleet()).View(empty.index.Snapshot()), empty.index.Snapshot(), "/version"); code != 200 || !strings.Contains(body, `"major": "1"`) {
		t.Errorf("version of an empty fleet %s", body)
	}
}

func TestCatalog_BuiltInKindsHaveSchemas(t *testing.T) {
	var list []catalog.ServedResource
	f := newFleet(t)
	f.join("fleet/a", "v1.36.0")
	for _, s := range []catalog.ServedResource{
		served("Pod", "", "v1", "pods", true), served("Event", "events.k8s.io", "v1", "events", true),
		served("APIService", "apiregistration.k8s.io", "v1", "apiservices", false),
		served("StorageVersionMigration", "storagemigration.k8s.io", "v1beta1", "storageversionmigrations", false),
		served("Gateway", "gateway.networking.k8s.io", "v1", "gateways", true),
	} {
		list = append(list, s)
		f.keep("fleet/a", s.Kind, s.Resource.GroupVersion().String())
	}
	v := catalog.New(newFakeFleet(list...)).View(f.index.Snapshot())
	for path, want := range map[string]string{
		"/openapi/v3/api/v1":                               "io.k8s.api.core.v1.PodSpec",
		"/openapi/v3/apis/events.k8s.io/v1":                "io.k8s.api.events.v1.Event",
		"/openapi/v3/apis/apiregistration.k8s.io/v1":       "APIServiceSpec",
		"/openapi/v3/apis/gateway.networking.k8s.io/v1":    "io.k8s.networking.gateway.v1.Gateway",
		"/openapi/v3/apis/storagemigration.k8s.io/v1beta1": "StorageVersionMigration",
	} {
		if code, body := ask(t, v, f.index.Snapshot(), path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d, without %s: %.300s", path, code, want, body)
		}
	}
	for _, path := range []string{"/openapi/v1", "/openapi/v3/apis/none/v1", "/openapi/v3x", "/apis/none", "/apis/none/v1", "/api/v2", "/else"} {
		if code, body := ask(t, v, f.index.Snapshot(), path); code != 404 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

func TestCatalog_OrderOfResourcesIsTheServers(t *testing.T) {
	f := newFleet(t)
	f.join("fleet/a", "v1.36.0")
	var list []catalog.ServedResource
	for _, s := range []catalog.ServedResource{
		served("Z", "a.example", "v1", "zs", true), served("Deployment", "apps", "v1", "deployments", true),
		served("Pod", "", "v1", "pods", true), served("Ingress", "networking.k8s.io", "v1", "ingresses", true),
	} {
		list = append(list, s)
		f.keep("fleet/a", s.Kind, s.Resource.GroupVersion().String())
	}
	var got []string
	for r := range catalog.New(newFakeFleet(list...)).View(f.index.Snapshot()).Resources() {
		got = append(got, r.Resource.Resource)
	}
	if want := []string{"pods", "deployments", "ingresses", "zs"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestCatalog_MembersThatContradictEachOther(t *testing.T) {
	served := func(kind aggregate.Kind, plural string, shadowed bool, members ...string) catalog.ServedResource {
		s := catalog.ServedResource{Kind: kind, Resource: schema.GroupVersionResource{Group: "acme.io", Version: "v1", Resource: plural}, Namespaced: true}
		s.Shadowed, s.Members = shadowed, members
		return s
	}
	const vault, widget = aggregate.Kind("Vault.acme.io"), aggregate.Kind("Widget.acme.io")
	source := newFakeFleet(served(vault, "vaults", false, "a/a"), served(vault, "widgets", true, "e/vil"), served(widget, "widgets", false))
	c := catalog.New(source)
	f := newFleet(t)
	f.join("a/a", "v1.36.0", "acme.io/v1")
	f.join("e/vil", "v1.36.0", "acme.io/v1")
	f.keep("a/a", vault, "acme.io/v1")
	f.keep("a/a", widget, "acme.io/v1")
	f.keep("e/vil", vault, "acme.io/v1")

	kindOf := func(v *catalog.View, plural string) aggregate.Kind {
		r, err := v.Resource("acme.io", "v1", plural)
		if err != nil {
			return ""
		}
		return r.Kind
	}
	v := c.View(f.index.Snapshot())
	if a, b := kindOf(v, "vaults"), kindOf(v, "widgets"); a != vault || b != widget {
		t.Errorf("the fleet serves vaults as %q and widgets as %q", a, b)
	}
	honest, evil := v.ForMember(f.index.Snapshot(), "a/a"), v.ForMember(f.index.Snapshot(), "e/vil")
	if a, b := kindOf(honest, "vaults"), kindOf(honest, "widgets"); a != vault || b != widget {
		t.Errorf("the honest one serves vaults as %q and widgets as %q", a, b)
	}
	if a, b := kindOf(evil, "vaults"), kindOf(evil, "widgets"); a != "" || b != vault {
		t.Errorf("the other serves vaults as %q and widgets as %q", a, b)
	}

	got := c.AuthorizationResources(f.index.Snapshot(), vault)
	if len(got) != 2 || got[0].Resource != "vaults" || !slices.Equal(got[0].Members, []string{"a/a"}) ||
		got[1].Resource != "widgets" || !slices.Equal(got[1].Members, []string{"e/vil"}) {
		t.Errorf("%+v", got)
	}
	source.serve(served(vault, "vaults", false))
	if got := c.AuthorizationResources(f.index.Snapshot(), vault); len(got) != 1 || got[0].Members != nil || len(c.AuthorizationResources(f.index.Snapshot(), widget)) != 0 {
		t.Errorf("%+v after they agree", got)
	}
}

// TestCatalog_MemberAloneSaysWhetherItsObjectsHaveNamespaces, whatever others invent.
func TestCatalog_MemberAloneSaysWhetherItsObjectsHaveNamespaces(t *testing.T) {
	const fleets = aggregate.Kind("Fleet.acme.io")
	gvr := schema.GroupVersionResource{Group: "acme.io", Version: "v1", Resource: "fleets"}
	c := catalog.New(newFakeFleet(catalog.ServedResource{Kind: fleets, Resource: gvr, Namespaced: true, ScopeDiffers: []string{"a/a"}}))
	f := newFleet(t)
	for _, m := range []string{"a/a", "e/vil"} {
		f.join(m, "v1.36.0", "acme.io/v1")
		f.keep(m, fleets, "acme.io/v1")
	}
	for m, want := range map[string]bool{"a/a": false, "e/vil": true} {
		r, err := c.View(f.index.Snapshot()).ForMember(f.index.Snapshot(), m).Resource("acme.io", "v1", "fleets")
		ok(t, err)
		if r.Namespaced != want {
			t.Errorf("fleets of %s have namespaces: %t", m, r.Namespaced)
		}
	}
}

// TestCatalog_AuthorizationResourcesAreThoseObjectsWereReadUnder: what members serve by now says nothing of what was
// read before.
func TestCatalog_AuthorizationResourcesAreThoseObjectsWereReadUnder(t *testing.T) {
	const kind = aggregate.Kind("Vault.acme.io")
	as := func(plural string, members ...string) catalog.ServedResource {
		s := served("Vault", "acme.io", "v1", plural, true)
		s.Members = members
		return s
	}
	source := newFakeFleet(as("vaults"))
	c := catalog.New(source)
	f := newFleet(t)
	scopes := map[string]*aggregate.Scope{}
	read := func(member, plural string) {
		if s := scopes[member]; s != nil {
			s.Close()
		}
		s, err := f.index.OpenScopeAs(member, kind, "acme.io/v1", plural)
		ok(t, err)
		_, err = s.Replace(nil, aggregate.Status{State: aggregate.Synced})
		ok(t, err)
		scopes[member] = s
	}
	for _, m := range []string{"a/a", "b/b", "c/c", "d/d"} {
		f.join(m, "v1.36.0", "acme.io/v1")
	}
	want := func(s *aggregate.Snapshot, want ...string) {
		t.Helper()
		var got []string
		for _, a := range c.AuthorizationResources(s, kind) {
			got = append(got, a.Resource+" "+strings.Join(a.Members, ","))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	want(f.index.Snapshot(), "vaults ")
	read("a/a", "vaults")
	read("b/b", "vaults")
	before := f.index.Snapshot()
	source.serve(as("chests", "a/a", "b/b"))
	want(before, "vaults ")
	read("a/a", "chests")
	want(before, "vaults ")
	read("c/c", "")
	want(f.index.Snapshot(), "chests a/a,c/c,d/d", "vaults b/b") // what holds nothing is as most
	source.serve(as("chests", "a/a"), as("vaults", "c/c"))
	want(f.index.Snapshot(), "chests a/a", "vaults b/b,c/c,d/d")
	read("b/b", "chests")
	want(f.index.Snapshot(), "chests ")
	scopes["a/a"].Remove()
	f.index.RemoveMember("b/b")
	want(f.index.Snapshot(), "chests a/a", "vaults c/c")
	want(before, "vaults ")
}
