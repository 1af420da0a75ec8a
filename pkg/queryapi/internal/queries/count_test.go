package queries_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/queries"
)

func podOf(member, namespace, name, app, node string, images ...string) testObject {
	var containers []any
	for _, i := range images {
		containers = append(containers, object{"image": i})
	}
	spec := object{"containers": containers}
	if node != "" {
		spec["nodeName"] = node
	}
	var labels map[string]string
	if app != "" {
		labels = map[string]string{"app": app}
	}
	return testObject{ref: aggregate.Ref{Member: member, Kind: "Pod", Namespace: namespace, Name: name}, labels: labels, body: object{"spec": spec}}
}

func smallFleet(t testing.TB) *fleet {
	f := newFleet(t)
	f.join("a/one", "a/two", "b/one")
	f.put(
		podOf("a/one", "shop", "p1", "web", "n1", "nginx:1", "envoy:2"),
		podOf("a/one", "shop", "p2", "web", "n1", "nginx:1", "nginx:1"),
		podOf("a/one", "kube-system", "p3", "", "", "dns:1"),
		podOf("a/two", "shop", "p1", "db", "n1", "pg:1"),
		podOf("b/one", "shop", "p1", "web", "n2", "nginx:1"),
		testObject{ref: aggregate.Ref{Member: "b/one", Kind: "Service", Namespace: "shop", Name: "s"}},
	)
	f.commit()
	return f
}

func TestCount_ByEveryKey(t *testing.T) {
	s := smallFleet(t).server(queries.Options{})
	for _, c := range []struct {
		query string
		total int
		want  string
	}{
		{"resource=pods", 5, ""},
		{"resource=pods&resource=services&groupBy=kind", 6, "Pod 5; Service 1"},
		{"resource=pods&groupBy=member", 5, "a/one 3; a/two 1; b/one 1"},
		{"resource=pods&groupBy=namespace", 5, "shop 4; kube-system 1"},
		{"resource=pods&groupBy=namespace&groupBy=member", 5, "shop,a/one 2; kube-system,a/one 1; shop,a/two 1; shop,b/one 1"},
		{"resource=pods&groupBy=memberLabel:env", 5, "a 4; b 1"},
		{"resource=pods&groupBy=memberLabel:no", 5, " 5"},
		{"resource=pods&groupBy=label:app", 5, "web 3;  1; db 1"},
		{"resource=pods&groupBy=field:spec.nodeName", 5, "n1 3;  1; n2 1"},
		{"resource=pods&groupBy=field:spec.containers.image", 5, "nginx:1 3; dns:1 1; envoy:2 1; pg:1 1"},
		{"resource=pods&groupBy=field:spec.hostNetwork", 5, "false 5"},
		{"resource=pods&groupBy=label:app&namespace=shop&labelSelector=member.federator.dev/env%3Da", 3, "web 2; db 1"},
		{"resource=pods&groupBy=namespace&namespace=shop", 4, "shop 4"},
		{"resource=pods&groupBy=namespace&labelSelector=app", 4, "shop 4"},
		{"resource=pods&groupBy=member&fieldSelector=spec.nodeName%3Dn1", 3, "a/one 2; a/two 1"},
		{"resource=pods&groupBy=member&fieldSelector=spec.containers.image!%3Dnginx:1", 2, "a/one 1; a/two 1"},
		{"resource=pods&groupBy=member&labelSelector=federator.dev/member%3Da.two", 1, "a/two 1"},
		{"resource=pods&namespace=nowhere&groupBy=member", 0, ""},
	} {
		got, err := ask[queries.CountResult](t, s, "count", c.query, reader{})
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		var groups []string
		for _, g := range got.Groups {
			groups = append(groups, strings.Join(g.Key, ",")+fmt.Sprint(" ", g.Count))
		}
		if have := strings.Join(groups, "; "); have != c.want || got.Total != c.total || got.Truncated {
			t.Errorf("%s gave %d: %s; want %d: %s", c.query, got.Total, have, c.total, c.want)
		}
	}
}

func TestCount_IsBounded(t *testing.T) {
	s := smallFleet(t).server(queries.Options{MaxGroups: 2})
	got, err := ask[queries.CountResult](t, s, "count", "resource=pods&groupBy=field:spec.containers.image", reader{})
	if err != nil {
		t.Fatal(err)
	}
	sum := got.Other
	for _, g := range got.Groups {
		sum += g.Count
	}
	if !got.Truncated || len(got.Groups) != 2 || sum != 6 || got.Total != 5 {
		t.Errorf("%+v", got)
	}
	rows := table(t, s, "count", "resource=pods&groupBy=field:spec.containers.image&groupBy=kind").Rows
	if len(rows) != 3 || rows[2].Cells[0] != "(others)" || len(rows[2].Cells) != 3 {
		t.Errorf("%v", rows)
	}
}

func TestCount_SaysWhatIsNotSynced(t *testing.T) {
	f := smallFleet(t)
	f.scope("a/two", "Pod").SetStatus(aggregate.Status{State: aggregate.Stale, Reason: `namespace hr: Get "https://10.1.2.3:6443/api": connection refused`})
	f.commit()
	s := f.server(queries.Options{LastContact: func(member string, _ aggregate.Kind) time.Time {
		if member == "a/two" {
			return f.now.Add(-90 * time.Second)
		}
		return time.Time{}
	}})
	w, err := send(s, "count", "resource=pods", "application/json", reader{})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Header().Get("Federator-Not-Synced"); got != "a/two;state=Stale;age=1m30s" {
		t.Errorf("header %q", got)
	}
	if want := `"notSynced":[{"member":"a/two","kind":"Pod","state":"Stale","reason":"the member is unreachable, or is being relisted","age":"1m30s"}]`; !strings.Contains(w.Body.String(), want) {
		t.Errorf("%s\nlacks %s", w.Body, want)
	}
	if strings.Contains(w.Body.String(), "10.1.2.3") {
		t.Errorf("shows an error of the member: %s", w.Body)
	}
	if _, err := send(s, "count", "resource=pods&require=synced", "", reader{}); code(err) != 503 || !strings.Contains(err.Error(), "a/two") {
		t.Errorf("required to be synced: %v", err)
	}
	if _, err := send(s, "count", "resource=pods&require=synced&labelSelector=federator.dev/member-name%3Done", "", reader{}); err != nil {
		t.Errorf("required to be synced where all is: %v", err)
	}
}

func TestCount_TablesOfCounts(t *testing.T) {
	s := smallFleet(t).server(queries.Options{})
	got := table(t, s, "count", "resource=pods&groupBy=member&groupBy=namespace")
	if len(got.ColumnDefinitions) != 3 || got.ColumnDefinitions[2].Type != "integer" || len(got.Rows) != 4 {
		t.Fatalf("%+v", got)
	}
	if want := []any{"a/one", "shop", float64(2)}; !reflect.DeepEqual(got.Rows[0].Cells, want) {
		t.Errorf("%v, want %v", got.Rows[0].Cells, want)
	}
}

func TestQueries_RefuseUnknownParameters(t *testing.T) {
	s := smallFleet(t).server(queries.Options{})
	for _, c := range []struct {
		question, query string
		code            int32
		says            string
	}{
		{"count", "", 400, "resource"},
		{"count", "resource=pods&limit=5", 400, `"limit"`},
		{"count", "resource=gnus", 404, "gnus"},
		{"count", "resource=pods&groupBy=colour", 400, "colour"},
		{"count", "resource=pods&groupBy=member:x", 400, "member:x"},
		{"count", "resource=pods&groupBy=label:", 400, "groupBy"},
		{"count", "resource=pods&groupBy=field:a..b", 400, "at byte 2"},
		{"count", "resource=pods&groupBy=kind&groupBy=kind&groupBy=kind&groupBy=kind&groupBy=kind", 400, "4 at most"},
		{"count", "resource=pods&labelSelector=a%3D(", 400, "labelSelector"},
		{"count", "resource=pods&labelSelector=a&labelSelector=b", 400, "2 times"},
		{"count", "resource=pods&namespace=A_b", 400, "namespace"},
		{"count", "resource=pods&require=best", 400, "require"},
		{"count", "%zz", 400, "query"},
		{"members", "kinds=pods", 400, "kinds"},
		{"members", "labelSelector=app%3Dweb", 400, "app"},
		{"related", "member=a/one&resource=pods&namespace=shop", 400, `"name" is required`},
		{"related", "member=a&resource=pods&namespace=shop&name=p1", 400, `"member"`},
		{"related", "member=a/one&resource=pods&name=p1", 400, `"namespace" is required`},
		{"related", "member=a/one&resource=nodes&namespace=x&name=p1", 400, `"namespace"`},
		{"related", "member=a/one&resource=pods&namespace=shop&name=p1&depth=11", 400, `"depth"`},
		{"related", "member=a/one&resource=pods&namespace=shop&name=p1&depth=x", 400, `"depth"`},
		{"related", "member=a/one&resource=pods&namespace=shop&name=p1&direction=left", 400, `"direction"`},
		{"related", "member=a/one&resource=pods&namespace=shop&name=p1&kinds=gnus", 404, "gnus"},
		{"related", "member=a/one&resource=pods&namespace=shop&name=p9", 404, "p9"},
		{"related", "member=a/nine&resource=pods&namespace=shop&name=p1", 404, "p1"},
	} {
		_, err := send(s, c.question, c.query, "", reader{})
		if code(err) != c.code || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s?%s: %d %v; want %d %s", c.question, c.query, code(err), err, c.code, c.says)
		}
	}
	if _, err := send(s, "count", "resource=pods", "application/yaml", reader{}); code(err) != 406 {
		t.Errorf("YAML: %v, want 406", err)
	}
	for _, accept := range []string{"", "*/*", "application/*", "text/html, application/json;q=0.5"} {
		if _, err := send(s, "count", "resource=pods", accept, reader{}); err != nil {
			t.Errorf("%q: %v", accept, err)
		}
	}
}

func FuzzQueries(f *testing.F) {
	for _, q := range []string{
		"resource=pods&groupBy=label:app", "resource=pods&groupBy=field:spec.containers['image']&fieldSelector=a%3Db",
		"member=a/one&resource=pods&namespace=shop&name=p1&depth=2&kinds=nodes", "labelSelector=member.federator.dev/env",
	} {
		f.Add(q)
	}
	s := smallFleet(f).server(queries.Options{})
	f.Fuzz(func(t *testing.T, query string) {
		for _, question := range []string{"count", "related", "members"} {
			w, err := send(s, question, query, "", reader{seen: []string{"a/one"}})
			if err == nil {
				if w.Body.Len() == 0 {
					t.Errorf("%s?%s: nothing", question, query)
				}
			} else if c := code(err); c < 400 || c > 499 {
				t.Errorf("%s?%s: %v", question, query, err)
			}
		}
	})
}

// millions builds pods of many members, without bodies to speak of.
func millions(b testing.TB, members, each int) *fleet {
	f := newFleet(b)
	rng := rand.New(rand.NewPCG(1, 2))
	for m := range members {
		name := fmt.Sprintf("fleet/m%03d", m)
		f.join(name)
		s := f.scope(name, "Pod")
		items := make([]aggregate.Item, each)
		for i := range items {
			pod, app := fmt.Sprintf("pod-%06d", i), fmt.Sprintf("app-%d", rng.IntN(200))
			namespace := fmt.Sprintf("ns-%02d", i%50)
			items[i] = s.Item(&aggregate.Record{
				Namespace: namespace, Name: pod, UID: fmt.Sprintf("%08x-0000-4000-8000-%012x", m, i), ResourceVersion: fmt.Sprint(i + 1),
				Labels: []aggregate.Label{{Key: "app", Value: app}},
				Body:   fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":%q},"spec":{"containers":[{"image":"%s:1"}],"nodeName":"n-%d"},"status":{"phase":"Running"}}`, pod, namespace, app, i%100),
			})
		}
		if _, err := s.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
			b.Fatal(err)
		}
	}
	return f
}

// BenchmarkCount counts 1,000,000 pods of 100 members.
func BenchmarkCount(b *testing.B) {
	s := millions(b, 100, 10_000).server(queries.Options{})
	for _, by := range []string{"", "member", "namespace", "label:app", "field:spec.nodeName", "field:spec.containers.image"} {
		b.Run("by "+by, func(b *testing.B) {
			query := url.Values{"resource": {"pods"}}
			if by != "" {
				query.Set("groupBy", by)
			}
			for b.Loop() {
				if _, err := send(s, "count", query.Encode(), "", reader{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("of a namespace by member", func(b *testing.B) {
		for b.Loop() {
			if _, err := send(s, "count", "resource=pods&groupBy=member&namespace=ns-07", "", reader{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
