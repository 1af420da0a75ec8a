package policyquery_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
)

// recording is a history of an index that runs until the test ends.
func recording(t *testing.T, x *aggregate.Index) *history.History {
	t.Helper()
	return recordingWith(t, x, history.Options{Directory: t.TempDir()})
}

func recordingWith(t *testing.T, x *aggregate.Index, opts history.Options) *history.History {
	t.Helper()
	h, err := history.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Begin(x); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return h
}

// record tells a history of records that a test has made, and waits until they are there. Their keys are their messages.
func record(t *testing.T, h *history.History, records ...history.Record) {
	t.Helper()
	last := h.Span().Last
	for i := range records {
		records[i].Key = records[i].Message
	}
	if err := h.Tell(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	for h.Span().Last < last+uint64(len(records)) {
		select {
		case <-h.More(h.Span().Last):
		case <-t.Context().Done():
			t.Fatal("the records are not there")
		}
	}
}

// messages returns the messages of what a caller gets, by pages.
func (j *testServer) messages(token, query string) (out []string) {
	j.t.Helper()
	j.token = token
	for next := ""; ; {
		var list policyquery.HistoryList
		j.into("/query/v1/history?"+query+"&continue="+url.QueryEscape(next), &list)
		for _, r := range list.Items {
			if strings.HasPrefix(r.Message, "x ") {
				out = append(out, strings.TrimPrefix(r.Message, "x "))
			}
		}
		if next = list.Continue; next == "" {
			return out
		}
	}
}

// TestHistory_IsWithinGrants: a caller who may list the Deployments of one member gets what is recorded of these, and nothing else.
func TestHistory_IsWithinGrants(t *testing.T) {
	var past *history.History
	j, hub := hubbed(t, func(o *queryapi.Options, q *policyquery.Violations) {
		past = recording(t, o.Index)
		o.Queries = map[string]queryapi.Query{"history": policyquery.History{Kinds: q.Kinds, Index: o.Index, History: past, State: q.Loop.State}}
	})
	hub.who = func(s *authorizationv1.SubjectAccessReviewSpec) bool {
		a := s.ResourceAttributes
		return s.User == "root" || a.Resource == "deployments.apps" && a.Namespace == "fleet" && a.Name == "a" || a.Resource == "policysources" && a.Verb == "get" && a.Name == "cmdb"
	}
	j.join("fleet/a")
	j.join("fleet/b")
	const kind = aggregate.Kind("Deployment.apps")
	in := func(member, uid string, kind aggregate.Kind, resource, name string) history.Record {
		return history.Record{Type: history.Object, Transition: history.Changed, Member: member, MemberUID: uid, Kind: kind, Resource: resource, Namespace: "shop", Name: name}
	}
	as := func(r history.Record, kind history.Type, reads *history.Reads) history.Record {
		r.Type, r.Reads = kind, reads
		return r
	}
	says := func(sources ...string) history.Record {
		r := as(in("fleet/a", "fleet/a", kind, "deployments", "web"), history.Verdict, nil)
		r.External = sources
		return r
	}
	paused := []history.Change{{Path: "paused", After: json.RawMessage("true")}}
	want := map[string]bool{}
	var all []history.Record
	for what, c := range map[string]struct {
		record history.Record
		may    bool
	}{
		"an object":                            {in("fleet/a", "fleet/a", kind, "deployments", "web"), true},
		"one of another member":                {in("fleet/b", "fleet/b", kind, "deployments", "web"), false},
		"one of a cluster that had the name":   {in("fleet/a", "old", kind, "deployments", "web"), false},
		"one of a member that has left":        {in("fleet/z", "fleet/z", kind, "deployments", "web"), false},
		"one of another kind":                  {in("fleet/a", "fleet/a", "Secret", "secrets", "web"), false},
		"one that was read under another name": {in("fleet/a", "fleet/a", kind, "deploys", "web"), false},
		"a scope":                              {as(in("fleet/a", "fleet/a", kind, "", ""), history.Scope, nil), true},
		"a scope of another kind":              {as(in("fleet/a", "fleet/a", "Secret", "", ""), history.Scope, nil), false},
		"a gap":                                {as(in("fleet/a", "fleet/a", kind, "", ""), history.Gap, nil), true},
		"a gap of another kind":                {as(in("fleet/a", "fleet/a", "Secret", "", ""), history.Gap, nil), false},
		"a gap of all":                         {history.Record{Type: history.Gap}, true},
		"a gap of an object":                   {as(in("fleet/a", "fleet/a", "Secret", "secrets", "web"), history.Gap, nil), false},
		"a verdict":                            {as(in("fleet/a", "fleet/a", kind, "deployments", "web"), history.Verdict, nil), true},
		"a verdict on what is seen":            {as(in("fleet/a", "fleet/a", kind, "deployments", "web"), history.Verdict, &history.Reads{Kinds: []aggregate.Kind{kind}, Members: []string{"fleet/a"}, MemberUIDs: []string{"fleet/a"}}), true},
		"a verdict on a cluster of the name":   {as(in("fleet/a", "fleet/a", kind, "deployments", "web"), history.Verdict, &history.Reads{Kinds: []aggregate.Kind{kind}, Members: []string{"fleet/a"}, MemberUIDs: []string{"old"}}), false},
		"a verdict on another kind":            {as(in("fleet/a", "fleet/a", kind, "deployments", "web"), history.Verdict, &history.Reads{Kinds: []aggregate.Kind{"Secret"}, Members: []string{"fleet/a"}, MemberUIDs: []string{"fleet/a"}}), false},
		"a verdict on all":                     {as(in("fleet/a", "fleet/a", kind, "deployments", "web"), history.Verdict, &history.Reads{Kinds: []aggregate.Kind{kind}}), false},
		"a verdict on a key":                   {history.Record{Type: history.Verdict, Subject: "k", Reads: &history.Reads{Kinds: []aggregate.Kind{kind}}}, false},
		"a verdict on what a source says":      {says("cmdb"), true},
		"a verdict on what two say":            {says("cmdb", "other"), false},
		"a verdict on what many say":           {says(""), false},
		"a member":                             {history.Record{Type: history.Member, Transition: history.Joined, Member: "fleet/a", MemberUID: "fleet/a"}, true},
		"a member of the name":                 {history.Record{Type: history.Member, Transition: history.Left, Member: "fleet/a", MemberUID: "old"}, false},
		"a Cluster":                            {history.Record{Type: history.Member, Transition: history.Changed, Member: "fleet/a", MemberUID: "fleet/a", Changes: paused}, false},
		"a Cluster and a version":              {history.Record{Type: history.Member, Transition: history.Changed, Member: "fleet/a", MemberUID: "fleet/a", Changes: append([]history.Change{{Path: "version"}}, paused...)}, true},
	} {
		c.record.Message = "x " + what
		all, want[what] = append(all, c.record), c.may
	}
	record(t, past, all...)
	for _, query := range []string{"", "limit=1", "order=oldest&limit=2"} {
		got := j.messages("ann", query)
		for what, may := range want {
			if slices.Contains(got, what) != may {
				t.Errorf("%s: %s may be read: %t", query, what, !may)
			}
		}
		if got := j.messages("root", query); len(got) != len(all) {
			t.Errorf("%s: who may read everything gets %d records of %d: %q", query, len(got), len(all), got)
		}
	}
	if got := j.messages("ann", "path=paused&type=Member"); len(got) != 0 {
		t.Errorf("a field that may not be read selects %q", got)
	}
}

// TestHistory_TellsOfGaps who asks for one object, or one policy, and may read them.
func TestHistory_TellsOfGaps(t *testing.T) {
	var past *history.History
	j, hub := hubbed(t, func(o *queryapi.Options, q *policyquery.Violations) {
		past = recording(t, o.Index)
		o.Queries = map[string]queryapi.Query{"history": policyquery.History{Kinds: q.Kinds, Index: o.Index, History: past}}
	})
	hub.where = func(a *authorizationv1.ResourceAttributes) bool {
		return a.Resource == "deployments.apps" && a.Namespace == "fleet" && a.Name == "a"
	}
	j.join("fleet/a")
	j.join("fleet/b")
	const kind = aggregate.Kind("Deployment.apps")
	web := history.Record{Type: history.Object, Transition: history.Changed, Member: "fleet/a", MemberUID: "fleet/a", Kind: kind, Resource: "deployments", Namespace: "shop", Name: "web"}
	gap := history.Record{Type: history.Gap, Member: "fleet/a", MemberUID: "fleet/a", Kind: kind}
	of := func(r history.Record, member, message string) history.Record {
		r.Member, r.MemberUID, r.Message = member, member, "x "+message
		return r
	}
	record(t, past, of(web, "fleet/a", "1"), of(gap, "fleet/a", "gap"), of(gap, "fleet/b", "gap of b"), of(history.Record{Type: history.Gap}, "", "gap of all"), of(web, "fleet/a", "2"))
	for query, want := range map[string]string{
		"name=web&namespace=shop&kind=Deployment.apps&member=fleet/a": "2, gap of all, gap, 1",
		"name=web&order=oldest&limit=1":                               "1, gap, gap of all, 2",
		"name=web&limit=2":                                            "2, gap of all, gap, 1",
		"policy=images":                                               "gap of all, gap",
		"member=fleet/a&type=Object":                                  "2, 1",
		"member=fleet/a&type=Gap&limit=1":                             "gap of all, gap",
		"member=fleet/b":                                              "gap of all",
		"kind=Pod":                                                    "gap of all",
	} {
		if got := strings.Join(j.messages("ann", query), ", "); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// TestHistoryWatch_KnowsWhatHasJoined since its grants were fetched.
func TestHistoryWatch_KnowsWhatHasJoined(t *testing.T) {
	var past *history.History
	j, hub := hubbed(t, func(o *queryapi.Options, q *policyquery.Violations) {
		past = recording(t, o.Index)
		o.Queries = map[string]queryapi.Query{"history": policyquery.History{Kinds: q.Kinds, Index: o.Index, History: past}}
	})
	hub.where = func(a *authorizationv1.ResourceAttributes) bool {
		return a.Resource == "deployments.apps" && a.Namespace == "fleet"
	}
	j.join("fleet/a")
	resp := j.get(t.Context(), "/query/v1/history?watch=true&type=Object")
	defer resp.Body.Close()
	events := json.NewDecoder(resp.Body)
	next := func() string {
		for {
			var e struct {
				Type   string
				Object history.Record
			}
			if err := events.Decode(&e); err != nil {
				t.Fatal(err)
			}
			if e.Type == "ADDED" {
				return e.Object.Member
			}
		}
	}
	for _, member := range []string{"fleet/a", "fleet/b"} {
		if j.scopes[member] == nil {
			j.join(member)
		}
		j.put(member, "web", 1, "")
		if got := next(); got != member {
			t.Errorf("sent is what happened in %s, want %s", got, member)
		}
	}
}

// TestShared_HistoryIsOne: pages of what several processes have recorded have it once, in order, and withhold what policies saw where
// the caller may not read.
func TestShared_HistoryIsOne(t *testing.T) {
	past := map[*aggregate.Index]*history.History{}
	hub := &reviews{}
	hub.allows.Store(true)
	at := httptest.NewServer(hub)
	t.Cleanup(at.Close)
	processes := pairOf(t, at.URL, load(t, "high"), bindings, func(x *aggregate.Index, loop *enforce.Loop, kinds policyquery.Kinds) map[string]queryapi.Query {
		past[x] = recording(t, x)
		return map[string]queryapi.Query{"history": policyquery.History{Kinds: kinds, Index: x, History: past[x], State: loop.State}}
	})
	hub.who = func(s *authorizationv1.SubjectAccessReviewSpec) bool {
		a := s.ResourceAttributes
		return s.User == "root" || a.Resource == "deployments.apps" && a.Namespace == "fleet" && (a.Name == "a" || a.Name == "c")
	}
	tell(t, processes)
	const kind = aggregate.Kind("Deployment.apps")
	var want []string
	for i, p := range processes {
		var records []history.Record
		for n := range 20 {
			text := fmt.Sprintf("x %d of %d", n, i)
			want = append(want, text[2:])
			records = append(records, history.Record{Type: history.Object, Member: p.judges[0], MemberUID: p.judges[0], Kind: kind, Resource: "deployments", Namespace: "shop", Name: "web", Message: text})
		}
		both := history.Record{Type: history.Object, Member: p.judges[0], MemberUID: p.judges[0], Kind: kind, Resource: "deployments", Message: "x recorded by both"}
		moved := history.Record{Type: history.Object, Member: "fleet/b", MemberUID: "fleet/b", Kind: kind, Resource: "deployments", Message: "x moved " + p.id}
		saw := history.Record{
			Type: history.Verdict, Member: "fleet/a", MemberUID: "fleet/a", Kind: kind, Resource: "deployments", Namespace: "shop", Name: "web", Message: "x saw b " + p.id,
			Reads: &history.Reads{Kinds: []aggregate.Kind{kind}},
		}
		record(t, past[p.index], append(records, both, moved, saw)...)
	}
	want = append(want, "recorded by both", "moved p-0", "moved p-1", "saw b p-0", "saw b p-1")
	slices.Sort(want)
	for _, query := range []string{"limit=3", "limit=7&order=oldest", "limit=1000"} {
		got := processes[0].messages("root", query)
		if slices.Sort(got); !slices.Equal(slices.Compact(slices.Clone(got)), want) || query == "limit=1000" && len(got) != len(want) {
			t.Errorf("%s: pages have %d records, want %d: %q", query, len(got), len(want), got)
		}
		for _, text := range processes[1].messages("ann", query) {
			if strings.HasPrefix(text, "saw b") || strings.HasPrefix(text, "moved") || strings.HasSuffix(text, "of 1") {
				t.Errorf("%s: who may not read fleet/b gets %q", query, text)
			}
		}
	}
	var list policyquery.HistoryList
	processes[0].token = "root"
	processes[0].into("/query/v1/history?limit=3", &list)
	if len(list.Items) != 3 || list.Continue == "" {
		t.Errorf("a page of at most 3 has %d", len(list.Items))
	}
}
