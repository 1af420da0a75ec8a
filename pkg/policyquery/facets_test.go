package policyquery_test

import (
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/policyquery"
)

// TestViolations_SearchFindsWhatIsShown, and nothing that the caller may not read.
func TestViolations_SearchFindsWhatIsShown(t *testing.T) {
	j := granted(t)
	j.token = "root"
	j.joinWith("fleet/a", "shop", "bank")
	j.joinWith("fleet/b", "shop", "bank")
	j.putIn("fleet/a", "shop", "Web", 1, "Mixed Case")
	j.putIn("fleet/b", "bank", "db", 1, "secret")
	j.awaitEvaluation()
	for query, want := range map[string]string{
		"search=mixed+CASE": "Web", "search=bank": "db", "search=web": "Web", "search=REPLICAS": "Web db", "search=1+rep": "Web db", "search=none": "", "search=secret&member=fleet/a": "",
	} {
		found, _ := j.list(query)
		var names []string
		for _, i := range found.Items {
			names = append(names, i.Subject.Name)
			if i.Title != "Replicas" {
				t.Errorf("the title is %q", i.Title)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	if found, _ := j.list("search=secret&groupBy=policy"); len(found.Groups) != 1 || found.Groups[0].Subjects != 1 {
		t.Errorf("%+v", found.Groups)
	}
	j.refused("search="+strings.Repeat("x", 257), http.StatusBadRequest)
	j.token = "eu"
	if found, _ := j.list("search=secret"); len(found.Items) != 0 {
		t.Errorf("%+v", found.Items)
	}
}

func TestViolations_FirstSeenSince(t *testing.T) {
	j := start(t, nil)
	j.join("fleet/a")
	j.put("fleet/a", "old", 1, "")
	j.awaitEvaluation()
	awaitNextSecond(t) // firstSeen has seconds
	cut := time.Now().Truncate(time.Second).UTC().Format(time.RFC3339)
	j.put("fleet/a", "new", 1, "")
	j.put("fleet/a", "old", 1, "another violation")
	j.put("fleet/a", "same", 1, "")
	j.awaitEvaluation()
	names := func(query string) string {
		found, _ := j.list(query)
		var names []string
		for _, i := range found.Items {
			names = append(names, i.Subject.Name)
		}
		return strings.Join(names, " ")
	}
	if got := names("firstSeenSince=" + cut); got != "new old same" {
		t.Errorf("since %s: %q", cut, got)
	}
	if got := names("firstSeenSince=24h"); got != "new old same" {
		t.Errorf("within a day: %q", got)
	}
	later := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	if found, _ := j.list("groupBy=policy&firstSeenSince=" + later); len(found.Groups) != 0 {
		t.Errorf("%+v", found.Groups)
	}
	list, _ := j.list("firstSeenSince=" + later)
	s := j.watch("firstSeenSince="+later, nil)
	s.reach(list.ResourceVersion)
	if len(s.knows) != 0 {
		t.Errorf("%v", s.knows)
	}
	j.refused("firstSeenSince=yesterday", http.StatusBadRequest)
	j.refused("watch=true&firstSeenSince=1h&resourceVersion="+list.ResourceVersion, http.StatusBadRequest)
}

// TestChanges_TellOfWhatAnswersFollowFrom: a channel from before an answer is closed by what it does not show.
func TestChanges_TellOfWhatAnswersFollowFrom(t *testing.T) {
	j := start(t, nil)
	j.join("fleet/a")
	j.awaitEvaluation()
	changes := []<-chan struct{}{policyquery.Violations{Loop: j.loop}.Changes(), (&policyquery.Policies{Loop: j.loop}).Changes(), policyquery.Explain{Loop: j.loop}.Changes()}
	for _, c := range changes {
		select {
		case <-c:
			t.Error("nothing has changed")
		default:
		}
	}
	j.put("fleet/a", "web", 1, "")
	for i, c := range slices.All(changes) {
		select {
		case <-c:
		case <-time.After(patience):
			t.Errorf("%d was told nothing", i)
		}
	}
}

// TestViolations_GroupsCountWhatTheListHas: of each filter the groups are as many violations, exempt ones, Unknown
// verdicts and Errors as the list with the key of the group.
func TestViolations_GroupsCountWhatTheListHas(t *testing.T) {
	j := rich(t)
	awaitNextSecond(t) // firstSeen has seconds
	cut := time.Now().Truncate(time.Second)
	j.put("fleet/a", "web", 7, "") // a violation of it is another
	j.put("fleet/a", "new", 1, "")
	j.awaitEvaluation()
	seen := policyquery.FindingGroup{}
	for _, filter := range []url.Values{
		{},
		{"exempt": {"true"}},
		{"exempt": {"false"}},
		{"state": {"Known"}},
		{"state": {"Unknown"}},
		{"state": {"Error"}},
		{"exempt": {"true"}, "state": {"Unknown"}},
		{"firstSeenSince": {cut.UTC().Format(time.RFC3339)}},
		{"firstSeenSince": {cut.UTC().Format(time.RFC3339)}, "exempt": {"true"}},
		{"firstSeenSince": {cut.UTC().Format(time.RFC3339)}, "exempt": {"false"}},
	} {
		for _, by := range []string{"policy", "member", "kind", "severity", "state", "namespace"} {
			query := maps.Clone(filter)
			query.Set("groupBy", by)
			counted, _ := j.list(query.Encode())
			for _, got := range counted.Groups {
				query := maps.Clone(filter)
				query[by] = got.Key
				listed, _ := j.list(query.Encode())
				want := policyquery.FindingGroup{Key: got.Key, Subjects: len(listed.Items)}
				for i := range listed.Items {
					countIn(&want, &listed.Items[i], filter.Get("exempt"), filter.Has("firstSeenSince"), cut)
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%v by %s: %+v, and the list has %+v", filter, by, got, want)
				}
				if got.Violations+got.Exempt+got.Errors == 0 {
					t.Errorf("%v by %s: nothing is in %+v", filter, by, got)
				}
				seen.Violations, seen.Exempt, seen.Unknown, seen.Errors = seen.Violations+got.Violations, seen.Exempt+got.Exempt, seen.Unknown+got.Unknown, seen.Errors+got.Errors
			}
		}
	}
	if seen.Violations*seen.Exempt*seen.Unknown*seen.Errors == 0 {
		t.Errorf("the test has none of some: %+v", seen)
	}
}

// countIn counts what is selected of a finding.
func countIn(g *policyquery.FindingGroup, f *policyquery.Finding, exempt string, since bool, cut time.Time) {
	switch f.State {
	case "Unknown":
		g.Unknown++
	case "Error":
		g.Errors++
	}
	for _, v := range f.Violations {
		is := v.Exempt != ""
		switch {
		case since && v.FirstSeen.Before(cut), exempt != "" && is != (exempt == "true"):
		case is:
			g.Exempt++
		default:
			g.Violations++
		}
	}
}
