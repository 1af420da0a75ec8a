package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/internal/builtin"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/kube"
)

// The plurals and scopes that are not taken from members are those that an API
// server has.
func TestBuiltinResources_AreThoseOfAnAPIServer(t *testing.T) {
	c := kube.StartTest(t, kube.Options{NoHub: true, Members: 1}).Members[0]
	_, lists, err := c.Client().Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue
			}
			kind, gr := aggregate.MakeKind(r.Kind, gv.Group), gv.WithResource(r.Name).GroupResource()
			if !validNames(r) || !validGroupVersion(gv) {
				t.Errorf("%s of %s would be refused for its names", kind, gv)
			}
			got, _ := builtin.Resource(kind)
			if of, _ := builtin.KindOf(gr); got != gr || of != kind || builtin.Namespaced(kind) != r.Namespaced {
				t.Errorf("%s is %s here (of %s, namespaced %t), and %s on the server (namespaced %t)", kind, got, of, builtin.Namespaced(kind), gr, r.Namespaced)
			}
			seen++
		}
	}
	if seen < 60 {
		t.Errorf("only %d resources were seen", seen)
	}
}

// A server knows by the ETags whether its answers are those of before, which groups that fail and
// new definitions change.
func TestDiscover_OfAnAPIServerIsConditional(t *testing.T) {
	c := kube.StartTest(t, kube.Options{NoHub: true, Members: 1}).Members[0]
	client := clientOf(t, c.Kubeconfig())
	last, unavailable, _, err := Discover(t.Context(), client, nil)
	if err != nil || len(unavailable) != 0 {
		t.Fatalf("%v unavailable, %v", unavailable, err)
	}
	discover := func() error {
		o, failed, _, err := Discover(t.Context(), client, last)
		if err == nil {
			last, unavailable = o, failed
		}
		return err
	}
	apply := func(manifest, what string, done func() bool) {
		t.Helper()
		if err := c.Apply(t.Context(), []byte(manifest)); err != nil {
			t.Fatal(err)
		}
		if err := kube.Until(t.Context(), 30*time.Second, func() error {
			if err := discover(); err != nil && !errors.Is(err, ErrUnchanged) {
				return err
			}
			if !done() {
				return fmt.Errorf("waiting for %s", what)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		unchanged := func() error {
			if err := discover(); !errors.Is(err, ErrUnchanged) {
				return fmt.Errorf("the same again: %w", err)
			}
			return nil
		}
		if err := kube.Until(t.Context(), 30*time.Second, unchanged); err != nil {
			t.Error(err)
		}
	}
	apply(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.shop.example}
spec:
  group: shop.example
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
`, "the new kind", func() bool { return len(last["Widget.shop.example"]) == 2 })
	if got := last["Widget.shop.example"][0].GVR.Version; got != "v2" {
		t.Errorf("the preferred version is %s, want v2", got)
	}
	apply(`apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.silent.example}
spec:
  group: silent.example
  version: v1
  groupPriorityMinimum: 1000
  versionPriority: 10
  insecureSkipTLSVerify: true
  service: {namespace: default, name: nowhere}
`, "the group that fails", func() bool { return unavailable["silent.example"] })
}

func TestAPIResources_RejectContradictions(t *testing.T) {
	lw := metav1.Verbs{"list", "watch"}
	add := func(o APIResources, group, version string, resources ...metav1.APIResource) {
		for i := range resources {
			resources[i].Verbs, resources[i].Namespaced = lw, true
		}
		o.add(schema.GroupVersion{Group: group, Version: version}, resources)
	}
	res := func(plural, kind string) metav1.APIResource { return metav1.APIResource{Name: plural, Kind: kind} }
	for _, tt := range []struct {
		name    string
		fill    func(APIResources)
		want    []string // "kind=resource", of what is believed
		refused []aggregate.Kind
	}{
		{"honest", func(o APIResources) {
			add(o, "", "v1", res("pods", "Pod"), res("nodes", "Node"))
			add(o, "acme.io", "v1", res("foos", "Foo"))
			add(o, "acme.io", "v2", res("foos", "Foo"))
		}, []string{"Pod=pods", "Node=nodes", "Foo.acme.io=foos.acme.io"}, nil},
		{"another kind as pods", func(o APIResources) {
			add(o, "", "v1", res("pods", "Pod"), res("pods", "Zzz"), res("secrets", "Secret"))
			add(o, "", "v9", res("pods", "Secret"))
		}, []string{"Pod=pods", "Secret=secrets"}, []aggregate.Kind{"Zzz", "Secret"}},
		{"pods under no Pod", func(o APIResources) { add(o, "", "v1", res("pods", "Zzz")) }, nil, []aggregate.Kind{"Zzz", "Pod"}},
		{"a kind with a group in it", func(o APIResources) {
			add(o, "", "v1beta1", res("pods", "ClusterRole.rbac.authorization.k8s.io"), res("podz", "Cluster.Role"))
			add(o, "Acme.io", "v1", res("foos", "Foo"))
			add(o, "acme.io", "v1/x", res("foos", "Foo"))
			add(o, "acme.io", "v1", res("fo os", "Foo"), res("foos", ""))
		}, nil, nil},
		{"one kind under two resources", func(o APIResources) {
			add(o, "acme.io", "v1", res("foos", "Foo"), res("bars", "Bar"))
			add(o, "acme.io", "v2", res("fooz", "Foo"))
		}, []string{"Bar.acme.io=bars.acme.io"}, []aggregate.Kind{"Foo.acme.io"}},
		{"two kinds under one resource", func(o APIResources) {
			add(o, "acme.io", "v1", res("foos", "Foo"))
			add(o, "acme.io", "v2", res("foos", "Bar"))
		}, nil, []aggregate.Kind{"Foo.acme.io", "Bar.acme.io"}},
	} {
		o := APIResources{}
		tt.fill(o)
		refused := o.rejectContradictions()
		got := map[string]bool{}
		for kind, versions := range o {
			for _, r := range versions {
				got[string(kind)+"="+r.GVR.GroupResource().String()] = true
			}
			if kind == "Node" && versions[0].Namespaced {
				t.Errorf("%s: nodes have namespaces because a member says so", tt.name)
			}
		}
		if len(got) != len(tt.want) || len(refused) != len(tt.refused) {
			t.Errorf("%s: %v and refused %v, want %v and %v", tt.name, got, refused, tt.want, tt.refused)
		}
		for _, w := range tt.want {
			if !got[w] {
				t.Errorf("%s: %s is missing", tt.name, w)
			}
		}
		for _, kind := range tt.refused {
			if refused[kind] == "" {
				t.Errorf("%s: no reason is given for %s", tt.name, kind)
			}
		}
	}
}

func TestMerge_KeepsApartHowMembersServeAKind(t *testing.T) {
	lw := metav1.Verbs{"list", "watch"}
	c := New(nil)
	put := func(member string, pairs ...[2]string) {
		o := APIResources{}
		for _, p := range pairs {
			o.add(schema.GroupVersion{Group: "acme.io", Version: "v1"}, []metav1.APIResource{{Name: p[0], Kind: p[1], Verbs: lw}})
		}
		c.Set(member, o)
	}
	put("fleet/a", [2]string{"vaults", "Vault"}, [2]string{"widgets", "Widget"})
	put("fleet/b", [2]string{"vaults", "Vault"}, [2]string{"widgets", "Widget"})
	agreed := c.Changed()
	put("fleet/evil", [2]string{"widgets", "Vault"})
	select {
	case <-agreed:
	default:
		t.Error("a contradiction between members is not reported")
	}
	type entry struct {
		shadowed bool
		members  string
	}
	want := map[string]entry{
		"Vault.acme.io vaults":   {false, "fleet/a fleet/b"},
		"Vault.acme.io widgets":  {true, "fleet/evil"},
		"Widget.acme.io widgets": {false, ""},
	}
	list, _ := c.Resources()
	for _, r := range list {
		key := string(r.Kind) + " " + r.Resource.Resource
		if got := (entry{r.Shadowed, strings.Join(r.Members, " ")}); got != want[key] {
			t.Errorf("%s: %+v, want %+v", key, got, want[key])
		}
		delete(want, key)
	}
	if len(want) > 0 {
		t.Errorf("%v are missing", want)
	}
	c.Set("fleet/evil", nil)
	if list, _ := c.Resources(); len(list) != 2 || list[0].Members != nil || list[1].Members != nil {
		t.Errorf("%+v when it has left", list)
	}
}

// TestMerge_KeepsWhoServesAKindWithNamespaces: what is merged names
// those that differ.
func TestMerge_KeepsWhoServesAKindWithNamespaces(t *testing.T) {
	offered := func(namespaced bool) APIResources {
		o := APIResources{}
		o.add(schema.GroupVersion{Group: "acme.io", Version: "v1"}, []metav1.APIResource{{Name: "fleets", Kind: "Fleet", Namespaced: namespaced, Verbs: []string{"list", "watch"}}})
		return o
	}
	for _, tt := range []struct {
		offers     map[string]APIResources
		namespaced bool
		otherwise  []string
	}{
		{map[string]APIResources{"a/a": offered(false), "a/b": offered(false)}, false, nil},
		{map[string]APIResources{"a/a": offered(false), "a/b": offered(false), "e/vil": offered(true)}, false, []string{"e/vil"}},
		{map[string]APIResources{"a/a": offered(false), "e/vil": offered(true)}, true, []string{"a/a"}},
	} {
		c := New(nil)
		for member, o := range tt.offers {
			c.Set(member, o)
		}
		got, _ := c.Resources()
		if len(got) != 1 || got[0].Namespaced != tt.namespaced || !slices.Equal(got[0].ScopeDiffers, tt.otherwise) {
			t.Errorf("%v make %+v", tt.offers, got)
		}
	}
}
