package catalog

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
)

func offerOf(kind string, versions ...string) APIResources {
	o := APIResources{}
	for _, v := range versions {
		o.add(schema.GroupVersion{Group: "shop.example", Version: v}, []metav1.APIResource{{Name: "widgets", Kind: kind, Verbs: metav1.Verbs{"list", "watch"}}})
	}
	return o
}

func TestCatalog_SelectsTheHeldVersion(t *testing.T) {
	const kind aggregate.Kind = "Widget.shop.example"
	for _, tt := range []struct {
		name    string
		held    map[aggregate.Kind]string
		members [][]string
		want    []string // by member
		says    string
	}{
		{"one member", nil, [][]string{{"v1", "v1beta1"}}, []string{"v1"}, ""},
		{"preferred of all in common", nil, [][]string{{"v2", "v1", "v1beta1"}, {"v1", "v1beta1"}}, []string{"v1", "v1"}, ""},
		{"stable before beta", nil, [][]string{{"v1", "v2beta1"}, {"v2beta1", "v1"}}, []string{"v1", "v1"}, ""},
		{"nothing in common", nil, [][]string{{"v2"}, {"v1"}}, []string{"v2", "v1"}, "no version in common"},
		{"configured", map[aggregate.Kind]string{kind: "v1beta1"}, [][]string{{"v1", "v1beta1"}, {"v1beta1"}}, []string{"v1beta1", "v1beta1"}, ""},
		{"configured, not served", map[aggregate.Kind]string{kind: "v3"}, [][]string{{"v1"}}, []string{"v1"}, "v3 is configured but not served"},
	} {
		c := New(tt.held)
		for i, versions := range tt.members {
			c.Set(string(rune('a'+i)), offerOf("Widget", versions...))
		}
		for i, versions := range tt.members {
			r, condition := c.Select(kind, offerOf("Widget", versions...)[kind])
			if r.GVR.Version != tt.want[i] || tt.says == "" && condition != "" || !strings.Contains(condition, tt.says) {
				t.Errorf("%s: member %d holds %s (%q), want %s (%q)", tt.name, i, r.GVR.Version, condition, tt.want[i], tt.says)
			}
		}
		for i := range tt.members {
			c.Set(string(rune('a'+i)), nil)
		}
		if len(c.tallies) != 0 || len(c.members) != 0 {
			t.Errorf("%s: %v is left when all have gone", tt.name, c.tallies)
		}
	}
}

func TestCatalog_NotifiesOfChangesOnly(t *testing.T) {
	c := New(nil)
	changed := func(f func()) bool {
		ch := c.Changed()
		f()
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	if !changed(func() { c.Set("a", offerOf("Widget", "v1")) }) {
		t.Error("a new kind is not reported")
	}
	c.Set("b", offerOf("Widget", "v1"))
	if changed(func() { c.Set("b", offerOf("Widget", "v1")) }) {
		t.Error("the same again is reported as a change")
	}
	if !changed(func() { c.Set("b", offerOf("Widget", "v2", "v1beta1")) }) {
		t.Error("another held version is not reported")
	}
	c.Set("b", nil)
	if !changed(func() { c.Set("a", nil) }) {
		t.Error("the end of a kind is not reported")
	}
}

// TestCatalog_IgnoresOtherNames: readers that compare all that they hold when kinds
// come or go, and informers, do nothing for a member whose discovery
// offers a short name and withdraws it, or says the same again of a kind of its own.
func TestCatalog_IgnoresOtherNames(t *testing.T) {
	c := New(nil)
	offers := [2]APIResources{offerOf("Widget", "v1"), offerOf("Widget", "v1")}
	for kind := range offers[1] {
		offers[1][kind][0].names.short = "wd"
	}
	c.Set("a", offers[0])
	counts := map[string]int{}
	_, resources := c.Resources()
	_, kinds := c.Kinds()
	changed := c.Changed()
	check := func() {
		count := func(what string, ch <-chan struct{}) bool {
			select {
			case <-ch:
				counts[what]++
				return true
			default:
				return false
			}
		}
		if count("resources", resources) {
			_, resources = c.Resources()
		}
		if count("kinds", kinds) {
			_, kinds = c.Kinds()
		}
		if count("what is followed", changed) {
			changed = c.Changed()
		}
	}
	const flips = 10
	for i := range flips {
		c.Set("a", offers[(i+1)%2])
		check()
	}
	if want := (map[string]int{"resources": flips}); !maps.Equal(counts, want) {
		t.Errorf("reported %v, want %v", counts, want)
	}
	c.Set("b", offerOf("Gadget", "v1"))
	check()
	c.Set("b", offerOf("Widget", "v1"))
	check()
	if kinds, _ := c.Kinds(); counts["kinds"] != 2 || len(kinds) != 1 || !kinds["Widget.shop.example"] {
		t.Errorf("reported %d changes of kinds, there are %v", counts["kinds"], kinds)
	}
}

// TestCatalog_MembersLikeOthersChangeNothing: of a thousand members that join, each would have readers
// merge, and build what they serve, again.
func TestCatalog_MembersLikeOthersChangeNothing(t *testing.T) {
	c := New(nil)
	changes := func(member string, o APIResources) bool {
		t.Helper()
		before, changed := c.Resources()
		c.Set(member, o)
		reported := isClosed(changed)
		after, _ := c.Resources()
		c.merged = nil
		if truth, _ := c.Resources(); !reflect.DeepEqual(after, truth) {
			t.Errorf("after %s: %+v, want %+v", member, after, truth)
		} else if !reported && !reflect.DeepEqual(before, truth) {
			t.Errorf("%s changed what is served, and nobody was told", member)
		}
		return reported
	}
	other := offerOf("Widget", "v1")
	for kind := range other {
		other[kind][0].names.short = "wd"
	}
	both := offerOf("Widget", "v1")
	maps.Copy(both, APIResources{"Gadget.shop.example": {{GVR: schema.GroupVersionResource{Group: "shop.example", Version: "v1", Resource: "gadgets"}, GVK: schema.GroupVersionKind{Group: "shop.example", Version: "v1", Kind: "Gadget"}}}})
	for n, step := range []struct {
		member  string
		serves  APIResources
		changes bool
	}{
		{"a", offerOf("Widget", "v1"), true},
		{"b", offerOf("Widget", "v1"), false},
		{"c", both, true}, // Gadget is new
		{"d", both, false},
		{"b", both, false},
		{"c", offerOf("Widget", "v1"), false},
		{"e", other, true}, // a short name that one has
		{"f", other, true}, // and that two have, of five: it counts how many
		{"g", other, true},
		{"h", other, true},
		{"e", nil, true},
		{"f", nil, true},
		{"g", nil, true},
		{"h", nil, true},
		{"a", nil, false},
		{"b", nil, false},
		{"d", nil, true}, // the last with Gadget
		{"c", nil, true},
	} {
		if got := changes(step.member, step.serves); got != step.changes {
			t.Errorf("step %d, %s: reported %t, want %t", n, step.member, got, step.changes)
		}
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestAPIResources_TakeWhatCanBeListedAndWatched(t *testing.T) {
	o := APIResources{}
	o.add(schema.GroupVersion{Version: "v1"}, []metav1.APIResource{
		{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}},
		{Name: "pods", Kind: "Pod", Verbs: metav1.Verbs{"list", "watch"}}, // twice
		{Name: "pods/status", Kind: "Pod", Verbs: metav1.Verbs{"list", "watch"}},
		{Name: "bindings", Kind: "Binding", Verbs: metav1.Verbs{"create"}},
		{Name: "componentstatuses", Kind: "ComponentStatus", Verbs: metav1.Verbs{"list"}},
		{Name: "nameless", Verbs: metav1.Verbs{"list", "watch"}},
	})
	if len(o) != 1 || len(o["Pod"]) != 1 || !o["Pod"][0].Namespaced {
		t.Errorf("offer %v", o)
	}
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf("v%d", len(many)-i)
	}
	if of := offerOf("Widget", many...)["Widget.shop.example"]; len(of) != maxVersions || of[0].GVR.Version != "v40" {
		t.Errorf("of 40 versions %d are looked at, from %v on", len(of), of[0].GVR)
	}
	// What is unavailable at the moment stays, and only that.
	last := offerOf("Widget", "v1", "v1beta1")
	o.keepUnavailable(last, map[schema.GroupVersion]bool{{Group: "shop.example", Version: "v1"}: true})
	if kept := o["Widget.shop.example"]; len(kept) != 1 || kept[0].GVR.Version != "v1" {
		t.Errorf("kept %v", kept)
	}
	if apis := o.GroupVersions(); !slices.Equal(apis, []string{"shop.example/v1", "v1"}) {
		t.Errorf("apis %v", apis)
	}
}

func TestAPIResources_AreBounded(t *testing.T) {
	o := APIResources{}
	for i := range MaxKinds + 10 {
		o.add(schema.GroupVersion{Version: "v1"}, []metav1.APIResource{{Name: "x", Kind: fmt.Sprintf("K%d", i), Verbs: metav1.Verbs{"list", "watch"}}})
	}
	if len(o) != MaxKinds {
		t.Errorf("%d kinds, want %d", len(o), MaxKinds)
	}
}
