package queries_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/queries"
)

func findFleet(t testing.TB) *fleet {
	f := newFleet(t)
	f.join("a/one", "a/two", "b/one")
	f.put(
		podOf("a/one", "shop", "web-1", "", ""), podOf("a/one", "shop", "web", "", ""), podOf("a/one", "other", "web", "", ""), podOf("a/one", "shop", "we", "", ""), podOf("a/one", "shop", "wec", "", ""),
		podOf("a/two", "shop", "web", "", ""), podOf("b/one", "shop", "webs", "", ""),
		testObject{ref: aggregate.Ref{Member: "b/one", Kind: "Service", Namespace: "shop", Name: "web"}},
	)
	f.commit()
	return f
}

// shown is what was found, as text.
func shown(r queries.FindResult) string {
	var out []string
	for _, o := range r.Items {
		out = append(out, fmt.Sprintf("%s %s/%s %s %d", o.Resource, o.Namespace, o.Name, o.Member, o.Members))
	}
	if r.Truncated {
		out = append(out, "and more")
	}
	if len(r.Forbidden) > 0 {
		out = append(out, "not "+strings.Join(r.Forbidden, " "))
	}
	return strings.Join(out, "; ")
}

func TestFind_NamesThatBeginAlike(t *testing.T) {
	s := findFleet(t).server(queries.Options{})
	for query, want := range map[string]string{
		"resource=pods&namePrefix=web":                    "pods other/web a/one 1; pods shop/web a/one 2; pods shop/webs b/one 1; pods shop/web-1 a/one 1",
		"resource=services&resource=pods&namePrefix=web-": "pods shop/web-1 a/one 1",
		"resource=services&resource=pods&namePrefix=web":  "services shop/web b/one 1; pods other/web a/one 1; pods shop/web a/one 2; pods shop/webs b/one 1; pods shop/web-1 a/one 1",
		"resource=pods&namePrefix=web&limit=2":            "pods other/web a/one 1; pods shop/web a/one 2; and more",
		"resource=pods&namePrefix=we&limit=1":             "pods shop/we a/one 1; and more",
		"resource=pods&namePrefix=eb":                     "",
		"resource=pods&namePrefix=web-11":                 "",
	} {
		got, err := ask[queries.FindResult](t, s, "find", query, reader{})
		if err != nil || shown(got) != want {
			t.Errorf("%s: %s, %v; want %s", query, shown(got), err, want)
		}
	}
	for _, query := range []string{"resource=pods", "resource=pods&namePrefix=w", "namePrefix=web", "resource=pods&namePrefix=" + strings.Repeat("a", 254), "resource=pods&namePrefix=web&limit=0", "resource=pods&namePrefix=web&limit=101", "resource=pods&namePrefix=web&name=x", "resource=no&namePrefix=web"} {
		if _, err := ask[queries.FindResult](t, s, "find", query, reader{}); code(err) != 400 && code(err) != 404 {
			t.Errorf("%s: %v", query, err)
		}
	}
}

// TestFind_IsWithinGrants: also in how many members have it, in what is first, and in that there is more.
func TestFind_IsWithinGrants(t *testing.T) {
	s := findFleet(t).server(queries.Options{})
	for _, c := range []struct {
		grants map[string]*authz.Grants
		query  string
		want   string
	}{
		{map[string]*authz.Grants{"list pods": authz.NewGrants(map[string]authz.MemberGrant{"a/two": {All: true}}, time.Time{})}, "resource=pods&resource=services&namePrefix=web&limit=1", "pods shop/web a/two 1; not services"},
		{map[string]*authz.Grants{"list pods": authz.NewGrants(map[string]authz.MemberGrant{"a/one": {Namespaces: []string{"other"}}}, time.Time{})}, "resource=pods&namePrefix=we", "pods other/web a/one 1"},
		{map[string]*authz.Grants{"list services": authz.NewGrants(map[string]authz.MemberGrant{"a/one": {All: true}}, time.Time{})}, "resource=pods&resource=services&namePrefix=web", "not pods"},
		{map[string]*authz.Grants{}, "resource=pods&namePrefix=web", "not pods"},
		{map[string]*authz.Grants{}, "resource=pods&namePrefix=nothing", "not pods"},
	} {
		got, err := ask[queries.FindResult](t, s, "find", c.query, reader{grants: c.grants})
		if err != nil || shown(got) != c.want {
			t.Errorf("%v %s: %s, %v; want %s", c.grants, c.query, shown(got), err, c.want)
		}
		for _, n := range got.NotSynced {
			if n.Member == "b/one" {
				t.Errorf("%s tells of %v", c.query, n)
			}
		}
	}
}

// TestFind_LooksAtSome: what is found costs no more than a bound, and that there is more is said.
func TestFind_LooksAtSome(t *testing.T) {
	f := newFleet(t)
	f.join("a/one")
	var pods []testObject
	for i := range 10_001 {
		pods = append(pods, podOf("a/one", "shop", fmt.Sprintf("web-%05d", i), "", ""))
	}
	f.put(pods...)
	f.commit()
	s := f.server(queries.Options{})
	got, err := ask[queries.FindResult](t, s, "find", "resource=pods&resource=services&namePrefix=web&limit=100", reader{})
	if err != nil || len(got.Items) != 100 || !got.Truncated || got.Items[99].Name != "web-00099" {
		t.Errorf("%d of them, more: %v, %v", len(got.Items), got.Truncated, err)
	}
}

// TestFind_OneResourceTakesNothingFromOthers: what there is much of does not keep anything of another kind from being found.
func TestFind_OneResourceTakesNothingFromOthers(t *testing.T) {
	f := newFleet(t)
	f.join("a/one", "b/one")
	var objects []testObject
	for i := range 10_001 {
		objects = append(objects, podOf("a/one", "shop", fmt.Sprintf("web-%05d", i), "", ""))
	}
	objects = append(objects,
		podOf("b/one", "shop", "web", "", ""), podOf("b/one", "shop", "web-1", "", ""),
		testObject{ref: aggregate.Ref{Member: "b/one", Kind: "Service", Namespace: "shop", Name: "web"}},
	)
	f.put(objects...)
	f.commit()
	s := f.server(queries.Options{})
	for query, want := range map[string]string{
		"resource=pods&resource=services&namePrefix=web&limit=1": "pods shop/web b/one 1; services shop/web b/one 1; and more",
		"resource=services&resource=pods&namePrefix=web&limit=1": "services shop/web b/one 1; pods shop/web b/one 1; and more",
		"resource=pods&namePrefix=web&limit=2":                   "pods shop/web b/one 1; pods shop/web-00000 a/one 1; and more",
	} {
		got, err := ask[queries.FindResult](t, s, "find", query, reader{})
		if err != nil || shown(got) != want {
			t.Errorf("%s: %s, %v; want %s", query, shown(got), err, want)
		}
	}
	granted := reader{grants: map[string]*authz.Grants{"list pods": authz.NewGrants(map[string]authz.MemberGrant{"a/one": {All: true}}, time.Time{})}}
	got, err := ask[queries.FindResult](t, s, "find", "resource=pods&namePrefix=web&limit=1", granted)
	if want := "pods shop/web-00000 a/one 1; and more"; err != nil || shown(got) != want {
		t.Errorf("within grants: %s, %v; want %s", shown(got), err, want)
	}
}
