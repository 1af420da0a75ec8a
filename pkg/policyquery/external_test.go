package policyquery_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
)

// owned reads a document of PolicySource cmdb.
const owned = `# METADATA
# title: Deployments have an owner
# custom: {severity: low, kinds: ["Deployment.apps"]}
package owned

violation contains {"msg": sprintf("it is of %s", [data.fleet.external.cmdb.owners[input.ref.name]])}
`

// opened reports whether a caller learns from the history what a document says.
func (j *testServer) opened(token string) bool {
	j.t.Helper()
	j.token = token
	var list policyquery.HistoryList
	j.into("/query/v1/history?policy=owned", &list)
	return slices.ContainsFunc(list.Items, func(r history.Record) bool { return strings.Contains(r.Violation, "s3cret") })
}

// TestExternal_IsForThoseWhoMayGetTheSource: to others there are no documents, and what comes of them is withheld.
func TestExternal_IsForThoseWhoMayGetTheSource(t *testing.T) {
	var past *history.History
	j, hub := hubbed(t, func(o *queryapi.Options, q *policyquery.Violations) {
		past = recording(t, o.Index)
		o.Queries = map[string]queryapi.Query{"history": policyquery.History{Kinds: q.Kinds, Index: o.Index, History: past, State: q.Loop.State}}
	})
	hub.who = func(s *authorizationv1.SubjectAccessReviewSpec) bool {
		a := s.ResourceAttributes
		if a.Resource == "policysources" {
			return a.Verb == "get" && a.Name == "cmdb" && s.User == "ann"
		}
		return true
	}
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	documents, err := policy.NewExternal(map[string]map[string]policy.ExternalDocument{
		"cmdb": {"owners": {JSON: []byte(`{"web":"s3cret"}`)}}, "other": {"owners": {JSON: []byte(`1`)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.loop.SetExternal(t.Context(), documents); err != nil {
		t.Fatal(err)
	}
	set := loaded(t, owned)
	bindings, _ := policy.DefaultBindings(set, nil)
	if err := j.loop.Configure(t.Context(), set, bindings); err != nil {
		t.Fatal(err)
	}
	j.awaitEvaluation()
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { _ = past.FollowVerdicts(ctx, j.loop) })
	defer func() { cancel(); following.Wait() }()
	for last := past.Span().Last; !j.opened("ann"); last = past.Span().Last {
		select {
		case <-past.More(last):
		case <-t.Context().Done():
			t.Fatal("the violation is not recorded")
		}
	}
	for _, user := range []string{"ann", "ben"} {
		j.token = user
		may := user == "ann"
		found, _ := j.list("policy=owned")
		if shown := len(found.Items) == 1 && strings.Contains(found.Items[0].Violations[0].Msg, "s3cret"); shown != may || slices.Contains(found.Withheld, "owned") == may {
			t.Errorf("%s: %+v", user, found)
		}
		for query, want := range map[string]int{
			`data.fleet.external[s][k]`:                       1,
			`data.fleet.external.cmdb.owners.web == "s3cret"`: 1,
			`data.fleet["external"].cmdb`:                     1,
			`data.fleet.external.other`:                       0,
			`count(data.fleet.external.cmdb) == 1`:            1,
			`data.fleet.objects["Deployment.apps"][_][_][name]; data.fleet.external.cmdb.owners[name]`: 1,
		} {
			var answer struct {
				Rows, External []any
			}
			j.into("/query/v1/rego?query="+url.QueryEscape(query), &answer)
			if !may {
				want = 0
			}
			if !may && len(answer.External) > 0 || strings.Contains(query, ".other") && len(answer.External) > 0 {
				t.Errorf("%s: %s says what it read: %v", user, query, answer.External)
			}
			if len(answer.Rows) != want {
				t.Errorf("%s: %s has %d rows, want %d", user, query, len(answer.Rows), want)
			}
		}
		if j.opened(user) != may {
			t.Errorf("%s: the history says that it is there: %t", user, !may)
		}
		const explain = "/query/v1/explain?policy=owned&member=fleet/a&kind=Deployment.apps&namespace=shop&name=web"
		if !may {
			if text := j.fails(explain, http.StatusForbidden); strings.Contains(text, "s3cret") {
				t.Error(text)
			}
			continue
		}
		var x policyquery.Explanation
		j.into(explain, &x)
		if x.Finding.State != "Known" || !slices.ContainsFunc(x.Reads, func(r policyquery.ExplainedRead) bool {
			return r.Path == "data.fleet.external.cmdb.owners.web" && r.Found
		}) {
			t.Errorf("%+v", x)
		}
	}
}
