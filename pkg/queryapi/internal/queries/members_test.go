package queries_test

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/queries"
)

// names are those of the members of a page.
func names(l queries.MemberList) string {
	var out []string
	for _, m := range l.Items {
		out = append(out, m.Name)
	}
	return strings.Join(out, " ")
}

// statesFleet has four members: one is out of reach, one is listed, and one serves no Pods.
func statesFleet(t testing.TB) (*fleet, reader) {
	t.Helper()
	f := newFleet(t)
	all := []string{"a/one", "a/two", "b/one", "c/one"}
	f.join(all...)
	for _, m := range all {
		f.put(testObject{ref: aggregate.Ref{Member: m, Kind: "Pod", Namespace: "shop", Name: "p"}, uid: m}, testObject{ref: aggregate.Ref{Member: m, Kind: "Node", Name: "n"}, uid: "n" + m})
	}
	f.commit()
	f.scope("a/two", "Pod").SetStatus(aggregate.Status{State: aggregate.Stale})
	f.scope("a/two", "Node").SetStatus(aggregate.Status{State: aggregate.Stale})
	f.scope("b/one", "Node").SetStatus(aggregate.Status{State: aggregate.Syncing})
	f.scope("c/one", "Pod").SetStatus(aggregate.Status{State: aggregate.NotServed})
	f.commit()
	return f, reader{seen: all}
}

func TestMembers_Filters(t *testing.T) {
	f, everybody := statesFleet(t)
	s := f.server(queries.Options{})
	for query, want := range map[string]string{
		"":                                 "a/one a/two b/one c/one",
		"namePrefix=a/":                    "a/one a/two",
		"namePrefix=a/t":                   "a/two",
		"namePrefix=b":                     "b/one",
		"namePrefix=d":                     "",
		"state=Stale":                      "a/two",
		"state=Stale,Syncing":              "a/two b/one",
		"state=Stale&state=NotServed":      "a/two c/one",
		"notSynced=true":                   "a/two b/one",
		"notSynced":                        "a/two b/one",
		"notSynced=false":                  "a/one a/two b/one c/one",
		"notSynced=true&resource=pods":     "a/two",
		"notSynced=true&resource=services": "a/one a/two b/one c/one", // which nobody has listed
		"state=Syncing&resource=pods":      "",
		"fieldSelector=metadata.name=one":  "a/one b/one c/one",
		"fieldSelector=metadata.namespace!=a,version=v1.36.3":                   "b/one c/one",
		"labelSelector=" + url.QueryEscape("member.federator.dev/env in (a,c)"): "a/one a/two c/one",
	} {
		got, err := ask[queries.MemberList](t, s, "members", query, everybody)
		if err != nil || names(got) != want {
			t.Errorf("%s: %q, %v, want %q", query, names(got), err, want)
		}
		// The same, page by page.
		var pages []string
		for token := ""; ; {
			page, err := ask[queries.MemberList](t, s, "members", query+"&limit=1&continue="+token, everybody)
			if err != nil || len(page.Items) > 1 {
				t.Fatalf("%s: %d members, %v", query, len(page.Items), err)
			}
			pages = append(pages, names(page))
			if token = page.Continue; token == "" {
				break
			}
		}
		if got := strings.Join(pages, " "); got != want {
			t.Errorf("%s, in pages: %q, want %q", query, got, want)
		}
	}
	for query, part := range map[string]string{
		"state=Gone":                   "state",
		"notSynced=perhaps":            "notSynced",
		"details=2":                    "details",
		"limit=-1":                     "limit",
		"continue=x":                   "continue",
		"summary=true&limit=1":         "summary",
		"fieldSelector=metadata.uid=1": "fieldSelector",
		"fieldSelector=x":              "fieldSelector",
		"resourceVersion=1":            "resourceVersion",
	} {
		if _, err := send(s, "members", query, "application/json", everybody); code(err) != 400 || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, want a 400 that names %s", query, err, part)
		}
	}
	if _, err := send(s, "members", "resource=nopes", "application/json", everybody); code(err) != 404 {
		t.Errorf("an unknown resource: %v, want a 404", err)
	}
}

func TestMembers_SayWhyTheyAreNotWrittenTo(t *testing.T) {
	f, everybody := statesFleet(t)
	s := f.server(queries.Options{Held: func(member string) string {
		if member == "a/two" {
			return "frozen until tomorrow"
		}
		return ""
	}, WritesWith: func(member string) string { return "Secret " + member + "-federator" }})
	got, err := ask[queries.MemberList](t, s, "members", "", everybody)
	if err != nil || got.Items[0].Held != "" || got.Items[1].Held != "frozen until tomorrow" || got.Items[0].WritesWith != "Secret a/one-federator" {
		t.Errorf("%+v, %v", got.Items, err)
	}
	as := table(t, s, "members", "")
	if n := slices.IndexFunc(as.ColumnDefinitions, func(c metav1.TableColumnDefinition) bool { return c.Name == "Writes Held" }); n < 0 || as.Rows[1].Cells[n] != "frozen until tomorrow" {
		t.Errorf("%+v", as)
	}
}

// TestMembers_PagesAreOneSnapshot: a member that joins or leaves meanwhile changes none.
func TestMembers_PagesAreOneSnapshot(t *testing.T) {
	f, everybody := statesFleet(t)
	s := f.server(queries.Options{})
	first, err := ask[queries.MemberList](t, s, "members", "limit=2", everybody)
	if err != nil || names(first) != "a/one a/two" || first.Continue == "" {
		t.Fatalf("%q, %v", names(first), err)
	}
	f.index.RemoveMember("b/one")
	f.join("b/two")
	everybody.seen = append(everybody.seen, "b/two")
	rest, err := ask[queries.MemberList](t, s, "members", "limit=2&continue="+first.Continue, everybody)
	if err != nil || names(rest) != "b/one c/one" || rest.Continue != "" || rest.Revision != first.Revision {
		t.Errorf("%q of %s, %v, want those of %s", names(rest), rest.Revision, err, first.Revision)
	}
	if _, err := send(s, "members", "limit=2&namePrefix=b&continue="+first.Continue, "application/json", everybody); code(err) != 400 {
		t.Errorf("with another filter: %v, want a 400", err)
	}
	f.now = f.now.Add(time.Hour)
	_, err = send(s, "members", "limit=2&continue="+first.Continue, "application/json", everybody)
	var status apierrors.APIStatus
	if code(err) != 410 || !errors.As(err, &status) || status.Status().Continue == "" {
		t.Fatalf("an hour later: %v, want a 410 with a token", err)
	}
	rest, err = ask[queries.MemberList](t, s, "members", "limit=2&continue="+status.Status().Continue, everybody)
	if err != nil || names(rest) != "b/two c/one" {
		t.Errorf("with that: %q, %v", names(rest), err)
	}
}

func TestMembers_SummaryAndDetails(t *testing.T) {
	f, everybody := statesFleet(t)
	s := f.server(queries.Options{
		LastContact: func(string, aggregate.Kind) time.Time { return f.now.Add(-time.Minute) },
		Proved: func(member string, kind aggregate.Kind) (at time.Time) {
			if member == "a/two" && kind == "Pod" {
				at = f.now.Add(-time.Hour)
			}
			return at
		},
	})
	got, err := ask[queries.MemberList](t, s, "members", "summary=true", everybody)
	if err != nil || got.Summary == nil || len(got.Items) != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	sum := *got.Summary
	if sum.Members != 4 || sum.Synced != 2 || sum.Objects != 8 || sum.Bytes <= 0 ||
		!maps.Equal(sum.ByState, map[aggregate.State]int{aggregate.Synced: 3, aggregate.Stale: 1, aggregate.Syncing: 1, aggregate.NotServed: 1}) ||
		!maps.Equal(sum.Scopes, map[aggregate.State]int{aggregate.Synced: 4, aggregate.Stale: 2, aggregate.Syncing: 1, aggregate.NotServed: 1}) {
		t.Errorf("%+v", sum)
	}
	rows := table(t, s, "members", "summary=true").Rows
	if len(rows) != 1 || fmt.Sprint(rows[0].Cells[0]) != "2" { // of those that the caller of tables sees
		t.Errorf("%+v", rows)
	}
	pods := reader{seen: everybody.seen, grants: map[string]*authz.Grants{
		"list pods": authz.NewGrants(map[string]authz.MemberGrant{"a/two": {All: true}, "b/one": {Namespaces: []string{"shop"}}}, time.Time{}),
	}}
	got, err = ask[queries.MemberList](t, s, "members", "details=true", pods)
	if err != nil || names(got) != "a/one a/two b/one c/one" {
		t.Fatalf("%+v, %v", got, err)
	}
	two, one := got.Items[1], got.Items[2]
	if len(two.Details) != 1 || two.Details[0].Kind != "Pod" || two.Details[0].State != aggregate.Stale || two.Details[0].Reason == "" || two.Details[0].Age != "1m0s" ||
		two.Details[0].Version != "v1" || two.Details[0].Objects != 1 || two.Details[0].Bytes <= 0 || two.Bytes != two.Details[0].Bytes {
		t.Errorf("%+v", two)
	}
	if two.Details[0].Proved != "1h0m0s" || one.Details[0].Proved != "" {
		t.Errorf("proved %q and %q", two.Details[0].Proved, one.Details[0].Proved)
	}
	if len(one.Details) != 1 || one.Details[0].State != aggregate.Synced || one.Objects != 1 || one.Bytes != 0 {
		t.Errorf("in one namespace: %+v", one)
	}
	if len(got.Items[0].Details)+len(got.Items[3].Details) != 0 {
		t.Errorf("of members that the grants do not name: %+v, %+v", got.Items[0], got.Items[3])
	}
	got, err = ask[queries.MemberList](t, s, "members", "summary=true", pods)
	if err != nil || got.Summary.Objects != 2 || len(got.Summary.Scopes) != 2 {
		t.Errorf("%+v, %v", got.Summary, err)
	}
	got, err = ask[queries.MemberList](t, s, "members", "notSynced=true", pods)
	if err != nil || names(got) != "a/two" {
		t.Errorf("%+v, %v", got, err)
	}
}

// manyKinds are the kinds of the fleets that benchmarks ask about.
const manyKinds = 50

// largeFleet has members with a scope for each of manyKinds, of which every tenth member's
// are out of reach.
func largeFleet(t testing.TB, members int) (*fleet, reader) {
	t.Helper()
	f := newFleet(t)
	for i := range members {
		name := fmt.Sprintf("fleet/member-%05d", i)
		f.join(name)
		for k := range manyKinds {
			s, err := f.index.OpenScope(name, aggregate.Kind(fmt.Sprintf("Kind%02d.example", k)), "example/v1")
			if err != nil {
				t.Fatal(err)
			}
			state := aggregate.Synced
			if i%10 == 0 {
				state = aggregate.Stale
			}
			s.SetStatus(aggregate.Status{State: state})
			if _, err := s.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return f, reader{seesAll: true}
}

// BenchmarkMembers: a page costs what is on it, whatever the fleet.
func BenchmarkMembers(b *testing.B) {
	for _, members := range []int{1_000, 10_000} {
		f, everybody := largeFleet(b, members)
		s := f.server(queries.Options{})
		for _, query := range []string{"limit=100", "limit=100&notSynced=true", "limit=100&details=true", "summary=true"} {
			b.Run(fmt.Sprintf("members=%d/%s", members, query), func(b *testing.B) {
				b.ReportAllocs()
				size := 0
				for b.Loop() {
					w, err := send(s, "members", query, "application/json", everybody)
					if err != nil {
						b.Fatal(err)
					}
					size = w.Body.Len()
				}
				b.ReportMetric(float64(size), "B/answer")
			})
		}
	}
}
