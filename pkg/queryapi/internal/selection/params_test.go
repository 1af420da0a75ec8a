package selection_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

func TestParams_ParametersAreReadOrNamed(t *testing.T) {
	for _, c := range []struct {
		verb, query string
		code        int32  // 0: good
		says        string // of a Status
	}{
		{"list", "", 0, ""},
		{"list", "limit=500&continue=&labelSelector=a%3Db&fieldSelector=a.b%3Dc&resourceVersion=0&resourceVersionMatch=NotOlderThan&timeoutSeconds=5&timeout=3s&pretty=true&includeObject=Metadata&require=synced", 0, ""},
		{"list", "allowWatchBookmarks=true&watch=false", 0, ""},
		{"watch", "watch=1&allowWatchBookmarks=true&resourceVersion=77&timeoutSeconds=300", 0, ""},
		{"watch", "watch&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=", 0, ""},
		{"get", "resourceVersion=0&pretty=&includeObject=None", 0, ""},
		{"get", "labelSelector=a", 400, `"labelSelector" is not supported for get`},
		{"list", "shardSelector=x", 400, `"shardSelector" is not supported`},
		{"list", "LIMIT=1", 400, `"LIMIT"`},
		{"list", "limit=-1", 400, `"limit" is "-1"`},
		{"list", "limit=1&limit=2", 400, `"limit" is given 2 times`},
		{"list", "limit=9223372036854775808", 400, `"limit"`},
		{"list", "watch=maybe", 400, `"watch" is "maybe"`},
		{"list", "watch=true", 400, `"watch"`},
		{"watch", "watch=false", 400, `"watch"`},
		{"watch", "watch=true&limit=1", 400, `"limit" is not supported for watch`},
		{"watch", "watch=true&continue=x", 400, `"continue"`},
		{"list", "resourceVersion=abc", 400, `"resourceVersion" is "abc"`},
		{"list", "resourceVersion=-5", 400, `"resourceVersion"`},
		{"list", "resourceVersionMatch=Exact", 422, "forbidden unless resourceVersion is provided"},
		{"list", "resourceVersionMatch=Exact&resourceVersion=0", 422, "forbidden for resourceVersion"},
		{"list", "resourceVersionMatch=Newest&resourceVersion=1", 422, "Unsupported value"},
		{"list", "resourceVersionMatch=Exact&resourceVersion=1&continue=x", 422, "forbidden when continue is provided"},
		{"list", "resourceVersion=1&continue=x", 400, "not allowed when using continue"},
		{"list", "sendInitialEvents=true", 422, "forbidden for list"},
		{"watch", "watch=true&sendInitialEvents=true", 422, "requires setting resourceVersionMatch"},
		{"watch", "watch=true&resourceVersionMatch=NotOlderThan", 422, "unless sendInitialEvents is provided"},
		{"list", "timeout=soon", 400, `"timeout"`},
		{"list", "timeout=-1s", 400, `"timeout"`},
		{"list", "timeoutSeconds=99999999999999", 400, `"timeoutSeconds"`},
		{"list", "includeObject=All", 400, `"includeObject" is "All"`},
		{"list", "require=fresh", 400, `"require" is "fresh"`},
		{"list", "labelSelector=" + strings.Repeat("a", 70_000), 400, "longer than"},
	} {
		query, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		p, err := selection.Parse(query, c.verb)
		if c.code == 0 {
			if err != nil {
				t.Errorf("%s %s: %v", c.verb, c.query, err)
			} else if p == nil {
				t.Errorf("%s %s: nothing", c.verb, c.query)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s %.80s is good, want %d", c.verb, c.query, c.code)
			continue
		}
		if s := status(t, err).Status(); s.Code != c.code || !strings.Contains(s.Message, c.says) {
			t.Errorf("%s %.80s: %d %s; want %d %s", c.verb, c.query, s.Code, s.Message, c.code, c.says)
		}
	}
}

func TestParams_ParametersHaveTheirValues(t *testing.T) {
	query, _ := url.ParseQuery("limit=7&continue=c&labelSelector=l&fieldSelector=f%3D1&timeoutSeconds=5&timeout=3s&require=synced&pretty=1&includeObject=Object&allowWatchBookmarks=1")
	p, err := selection.Parse(query, "list")
	if err != nil {
		t.Fatal(err)
	}
	want := selection.Params{
		Limit: 7, Continue: "c", LabelSelector: "l", FieldSelector: "f=1", Timeout: 3 * time.Second,
		RequireSynced: true, Pretty: true, IncludeObject: "Object", AllowWatchBookmarks: true,
	}
	if *p != want {
		t.Errorf("%+v, want %+v", *p, want)
	}
	query, _ = url.ParseQuery("watch=true&resourceVersion=42&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")
	if p, err = selection.Parse(query, "watch"); err != nil {
		t.Fatal(err)
	}
	if !p.Watch || p.Revision != 42 || p.ResourceVersion != "42" || p.SendInitialEvents == nil || *p.SendInitialEvents || p.ResourceVersionMatch != "NotOlderThan" {
		t.Errorf("%+v", *p)
	}
}

func TestParams_SelectorsSayWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ labels, fields, says string }{
		{"a=(", "", `"labelSelector"`},
		{"a in b", "", `"labelSelector"`},
		{"federator.dev/member=fleet/eu-1", "", `"labelSelector"`},
		{strings.Repeat("!a,", 100) + "!a", "", "it has 101 requirements, at most 100"},
		{"a in (" + numbers(1001) + ")", "", "have 1001 values, at most 1000"},
		{"", "spec", `"fieldSelector": at byte 4: an operator is expected`},
		{"", "a=1,b", "at byte 5"},
		{"", "a=1=2", `at byte 3: = in a value is written \=`},
		{"", `a=\x`, "at byte 3"},
		{"", "a..b=1", "at byte 2: a key is expected"},
		{"", "a['x=1", "at byte 6: a bracket is not closed"},
		{"", "a[x]=1", "at byte 2: a quoted key is expected"},
		{"", "a b=1", "at byte 1"},
		{"", "a\xff=1", "UTF-8"},
		{"", strings.Repeat("a.", 40) + "a=1", "more than 32 keys"},
		{"", strings.Repeat("a=1,", 61), "more than 60 terms"},
		{"", "metadata.managedFields.manager=kubelet", "managedFields is not in the index"},
	} {
		_, err := selection.Compile(c.labels, c.fields, "Pod")
		if err == nil {
			t.Errorf("%q %q is good", c.labels, c.fields)
			continue
		}
		if s := status(t, err).Status(); s.Code != http.StatusBadRequest || !strings.Contains(s.Message, c.says) {
			t.Errorf("%q %.40q: %d %s; want 400 %s", c.labels, c.fields, s.Code, s.Message, c.says)
		}
	}
}

// numbers are the first n, with commas between them.
func numbers(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = strconv.Itoa(i)
	}
	return strings.Join(out, ",")
}

// TestFind_EndsWithItsContext, also while nothing is found.
// manyLabels is a fleet of objects that have labels of their own each.
func manyLabels(t *testing.T) *fleet {
	t.Helper()
	f := newFleet(t, nil)
	f.join("a/one")
	for i := range 2000 { // each with labels of its own
		f.put("a/one", object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": fmt.Sprint("p", i), "labels": object{"n": fmt.Sprint(i)}}})
	}
	f.commit()
	return f
}

func TestFind_EndsWithItsContext(t *testing.T) {
	f := manyLabels(t)
	for _, text := range []string{"", "!n", "n!=1", "n notin (" + numbers(900) + ")"} {
		selector, err := selection.Compile(text, "", "Pod")
		if err != nil {
			t.Fatal(err)
		}
		find := selection.Listing{Snapshot: f.index.Snapshot(), Selector: selector, Grants: authz.Everything(time.Time{})}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var last error
		found := 0
		for _, err := range find.List(ctx) {
			if last = err; err == nil {
				found++
			}
		}
		if !errors.Is(last, context.Canceled) {
			t.Errorf("%.20q: a list of a request that is gone found %d objects and ended by %v", text, found, last)
		}
		if n, err := find.Count(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%.20q: a count of a request that is gone: %d, %v", text, n, err)
		}
	}
}

// ending is a context that has ended once Err was called a few times.
type ending struct {
	context.Context
	calls int
}

func (e *ending) Err() error {
	if e.calls++; e.calls > 3 {
		return context.Canceled
	}
	return nil
}

// TestFind_EndsWhileMatchingLabels: before the first object is yielded, all sets of labels
// are matched.
func TestFind_EndsWhileMatchingLabels(t *testing.T) {
	f := manyLabels(t)
	selector, err := selection.Compile("n notin ("+numbers(900)+")", "", "Pod")
	if err != nil {
		t.Fatal(err)
	}
	find := selection.Listing{Snapshot: f.index.Snapshot(), Selector: selector, Grants: authz.Everything(time.Time{})}
	ctx := &ending{Context: t.Context()}
	if n, err := find.Count(ctx); !errors.Is(err, context.Canceled) || ctx.calls > 10 {
		t.Errorf("a count of a request that has gone: %d, %v, after %d calls of Err", n, err, ctx.calls)
	}
	ctx = &ending{Context: t.Context()}
	found, last := 0, error(nil)
	for _, err := range find.List(ctx) {
		if last = err; err == nil {
			found++
		}
	}
	if !errors.Is(last, context.Canceled) || found > 0 || ctx.calls > 10 {
		t.Errorf("a list of a request that has gone: %d objects, %v, after %d calls of Err", found, last, ctx.calls)
	}
}

func FuzzParams(f *testing.F) {
	for _, s := range []string{"", "limit=5", "watch=true&resourceVersion=1", "resourceVersionMatch=Exact&resourceVersion=0", "a=b", "timeout=1h&timeoutSeconds=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		query, err := url.ParseQuery(s)
		if err != nil {
			return
		}
		for _, verb := range []string{"get", "list", "watch"} {
			p, err := selection.Parse(query, verb)
			if err != nil {
				if code := status(t, err).Status().Code; code != 400 && code != 422 {
					t.Errorf("%s %q: %v", verb, s, err)
				}
				continue
			}
			if p.Limit < 0 || p.Timeout < 0 || p.Watch && verb == "list" {
				t.Errorf("%s %q: %+v", verb, s, p)
			}
		}
	})
}

// FuzzSelectors holds what is accepted to Kubernetes' own parsers where both
// speak of the same language, and everything to end in a Status.
func FuzzSelectors(f *testing.F) {
	for _, s := range [][2]string{
		{"a=b", "metadata.name=x"},
		{"a in (b,c),!d", "spec.nodeName!=n,status.phase==Running"},
		{"federator.dev/member=a.b", `a\=b=c`},
		{"x.y.member.federator.dev/z>3", "metadata.annotations['a.b/c']=1"},
		{"", ",,a=,"},
		{"", `a=\\\,\=`},
		{"", "a['\\'']=1"},
		{"", "source=x"},
	} {
		f.Add(s[0], s[1])
	}
	fl := newFleet(f, map[aggregate.Kind][]string{"Event": {"reason"}})
	fl.join("a/one", "z", "4")
	fl.put("a/one", object{"apiVersion": "v1", "kind": "Event", "metadata": object{"name": "e", "namespace": "n"}, "reason": "x"})
	snap := fl.commit()
	f.Fuzz(func(t *testing.T, labelSelector, fieldSelector string) {
		sel, err := selection.Compile(labelSelector, fieldSelector, "Event")
		if err != nil {
			if code := status(t, err).Status().Code; code != http.StatusBadRequest {
				t.Errorf("%q %q: %v", labelSelector, fieldSelector, err)
			}
			return
		}
		if _, err := labels.Parse(labelSelector); err != nil {
			t.Errorf("%q is taken, and Kubernetes says %v", labelSelector, err)
		}
		if !strings.ContainsAny(fieldSelector, "[") {
			if _, err := fields.ParseSelector(fieldSelector); err != nil {
				t.Errorf("%q is taken, and Kubernetes says %v", fieldSelector, err)
			}
		}
		q, rest := sel.Query(snap, nil, "")
		list, err := snap.List(q)
		if err != nil {
			t.Fatal(err)
		}
		var scratch selection.Scratch
		found := false
		for o := range list {
			ok, err := rest.Match(o, &scratch)
			if err != nil {
				t.Fatal(err)
			}
			found = found || ok
		}
		m, _ := snap.Member("a/one")
		for o := range snap.Named("Event", "n", "e") {
			if ok, err := sel.Matcher().Matches(m, o, &scratch); err != nil || ok != found {
				t.Errorf("%q %q: found %t, matched %t (%v)", labelSelector, fieldSelector, found, ok, err)
			}
		}
	})
}

// TestFind_EndsWhileLookingForNames: by a lookup in each namespace, of which most find nothing.
func TestFind_EndsWhileLookingForNames(t *testing.T) {
	f := newFleet(t, nil)
	f.join("a/one")
	f.join("a/two")
	for i := range 200 {
		f.put([]string{"a/one", "a/two"}[i%2], object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "web", "namespace": fmt.Sprint("ns", i)}})
	}
	f.commit()
	all, err := selection.Compile("", "", "Pod")
	if err != nil {
		t.Fatal(err)
	}
	for what, selector := range map[string]*selection.Selector{"a name": all.WithName("web"), "a prefix": all.WithNamePrefix("we")} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		find := selection.Listing{Snapshot: f.index.Snapshot(), Selector: selector, Grants: authz.Everything(time.Time{})}
		if n, err := find.Count(ctx); n != 200 || err != nil {
			t.Errorf("%s: %d, %v", what, n, err)
		}
		found, last := 0, error(nil)
		for _, err := range find.List(ctx) {
			if last = err; err == nil {
				found++
			}
			cancel()
		}
		if found != 1 || !errors.Is(last, context.Canceled) {
			t.Errorf("%s: %d objects were found after the request had gone, and then %v", what, found, last)
		}
	}
}
