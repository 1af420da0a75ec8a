package policyquery_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
)

// sampleAt samples at a step of five minutes.
func (j *testServer) sampleAt(step int64) {
	j.awaitEvaluation()
	j.until(func() error {
		if !j.loop.State().Synced {
			return fmt.Errorf("it is not synced")
		}
		return nil
	})
	j.now.Store(step * 300)
	j.series.Tick(j.clock())
}

// seriesOf returns the last values of the series that the caller is shown.
func (j *testServer) seriesOf(query string) (*policyquery.SeriesList, map[string]string) {
	j.t.Helper()
	var list policyquery.SeriesList
	j.into("/query/v1/series?hours=1&"+query, &list)
	out := map[string]string{}
	for _, s := range list.Series {
		out[strings.TrimSpace(s.Policy+" "+s.Member)+" "+s.Metric] = fmt.Sprint(s.Values[8:])
	}
	return &list, out
}

// TestSeries_AreOfThoseWhoMayReadAllThatTheyCount.
func TestSeries_AreOfThoseWhoMayReadAllThatTheyCount(t *testing.T) {
	j := granted(t)
	j.joinWith("fleet/a", "shop")
	j.joinWith("fleet/b", "shop")
	j.put("fleet/a", "web", 1, "")
	j.sampleAt(1000)
	j.put("fleet/b", "web", 1, "")
	j.sampleAt(1001)
	j.put("fleet/a", "web", 5, "")
	j.sampleAt(1003) // 1002 was missed
	for user, want := range map[string]string{
		"root": "map[fleet/a deltas:[<nil> <nil> <nil> 1] names violations:[0 1 <nil> 1] replicas fleet/a violations:[1 1 <nil> 0] replicas fleet/b violations:[0 1 <nil> 1]]",
		"eu":   "map[fleet/a deltas:[<nil> <nil> <nil> 1] replicas fleet/a violations:[1 1 <nil> 0]]",
		"shop": "map[]", "nobody": "map[]", "reader": "map[]",
	} {
		j.token = user
		if user == "eu" { // who may list namespaces there, too
			want = strings.Replace(want, "deltas", "deltas", 1)
		}
		list, got := j.seriesOf("")
		if fmt.Sprint(got) != want || list.StepSeconds != 300 || !list.Start.Equal(time.Unix((1003-11)*300, 0)) {
			t.Errorf("%s is shown %v of %v, want %s", user, got, list.Start, want)
		}
	}
	j.token = "root"
	if _, got := j.seriesOf("policy=replicas&member=fleet/a&metric=violations"); len(got) != 1 {
		t.Errorf("%v", got)
	}
	for _, wrong := range []string{"hours=0", "hours=25", "hours=x", "metric=x", "x=y", "hours=1&hours=2", "groupBy=policy", "groupBy=member&groupBy=member"} {
		j.fails("/query/v1/series?"+wrong, http.StatusBadRequest)
	}
}

// TestSeries_SayWhatIsKnown: also where all was 0, of which there is no series.
func TestSeries_SayWhatIsKnown(t *testing.T) {
	j := granted(t)
	j.joinWith("fleet/a", "shop")
	j.joinWith("fleet/b", "shop")
	says := func(user, query, want string, partial bool) {
		t.Helper()
		j.token = user
		if list, _ := j.seriesOf(query); fmt.Sprint(list.Known[8:]) != want || list.Partial != partial || len(list.Known) != 12 {
			t.Errorf("%s of %q: %v, partial %v, want %s, %v", user, query, list.Known, list.Partial, want, partial)
		}
	}
	j.now.Store(1003 * 300)
	says("root", "metric=violations", "[false false false false]", false)
	j.sampleAt(1000)
	j.sampleAt(1002)
	j.sampleAt(1003)
	for _, metric := range []string{"", "violations", "unknown", "corrections"} { // names reads all members
		query := "policy=replicas"
		if metric != "" {
			query += "&metric=" + metric
		}
		want := "[true false true true]"
		if metric == "" { // deltas are known a step later
			want = "[false false true true]"
		}
		says("root", query, want, false)
	}
	says("root", "metric=violations", "[true false true true]", false)
	says("eu", "metric=violations", "[true false true true]", true) // as names is withheld
	says("eu", "metric=violations&policy=replicas", "[true false true true]", false)
	says("eu", "metric=deltas", "[false false true true]", false)
	says("shop", "metric=violations&policy=replicas", "[true false true true]", true) // of a namespace
	says("nobody", "metric=violations&policy=replicas", "[true false true true]", false)
	set := loaded(t, `# METADATA
# title: Other
# custom: {severity: low, kinds: ["Deployment.apps"], remedies: [{action: apply, kind: Deployment.apps}]}
package replicas

violation contains {"msg": "x"} if false
`)
	if err := j.loop.Configure(t.Context(), set, []policy.Binding{{Name: "replicas", Package: "replicas"}}); err != nil {
		t.Fatal(err)
	}
	j.awaitEvaluation()
	says("root", "metric=violations", "[false false false false]", false) // it is another policy
	j.sampleAt(1004)
	says("root", "metric=violations", "[false false false true]", false)
	j.index.RemoveMember("fleet/b")
	if err := j.index.PutMember(aggregate.Member{Name: "fleet/b", UID: "another"}); err != nil {
		t.Fatal(err)
	}
	j.serve("fleet/b", "deployments")
	j.sampleAt(1005)
	says("eu", "metric=violations", "[false false true true]", false) // says nothing of a member that is hidden
	says("root", "metric=violations", "[false false false true]", false)
}

// TestSeries_AreAddedUpByMember as far as the caller may read them.
func TestSeries_AreAddedUpByMember(t *testing.T) {
	j := granted(t)
	more := append(slices.Clone(bindings), policy.Binding{Name: "again", Package: "replicas"})
	if err := j.loop.Configure(t.Context(), load(t, "high"), more); err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{"fleet/a", "fleet/b"} {
		j.joinWith(m, "shop")
		j.put(m, "web", 1, "")
	}
	j.sampleAt(1000)
	j.put("fleet/a", "web2", 2, "")
	j.sampleAt(1002) // 1001 was missed
	for user, want := range map[string]string{
		"root": "map[ violations:[<nil> 1 <nil> 1] fleet/a violations:[<nil> 2 <nil> 4] fleet/b violations:[<nil> 2 <nil> 2]]",
		"eu":   "map[fleet/a violations:[<nil> 2 <nil> 4]]",
		"shop": "map[]", "nobody": "map[]", "reader": "map[]",
	} {
		j.token = user
		if _, got := j.seriesOf("groupBy=member&metric=violations"); fmt.Sprint(got) != want {
			t.Errorf("%s is shown %v, want %s", user, got, want)
		}
	}
	j.token = "root"
	if _, got := j.seriesOf("groupBy=member&metric=violations&member=fleet/b&member=fleet/z"); fmt.Sprint(got) != "map[fleet/b violations:[<nil> 2 <nil> 2]]" {
		t.Errorf("of some members: %v", got)
	}
	if _, got := j.seriesOf("groupBy=member&metric=violations&policy=again"); fmt.Sprint(got) != "map[fleet/a violations:[<nil> 1 <nil> 2] fleet/b violations:[<nil> 1 <nil> 1]]" {
		t.Errorf("of a policy: %v", got)
	}
}

// TestSeries_OfAnotherPolicyOfTheNameAreForgotten: who may read what it reads now may not have been allowed to
// read what it has counted before.
func TestSeries_OfAnotherPolicyOfTheNameAreForgotten(t *testing.T) {
	j := start(t, nil)
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	j.sampleAt(1000)
	set := loaded(t, `# METADATA
# title: Other
# custom: {severity: low, kinds: ["Deployment.apps", Secret]}
package replicas

violation contains {"msg": "x"}
`)
	if err := j.loop.Configure(t.Context(), set, []policy.Binding{{Name: "replicas", Package: "replicas"}}); err != nil {
		t.Fatal(err)
	}
	j.sampleAt(1001)
	if _, got := j.seriesOf("metric=violations"); got["replicas fleet/a violations"] != "[<nil> <nil> <nil> 1]" {
		t.Errorf("%v", got)
	}
}

// TestSeries_OfAnotherPolicyOrMemberOfTheNameAreNotShown, also before the next step is sampled.
func TestSeries_OfAnotherPolicyOrMemberOfTheNameAreNotShown(t *testing.T) {
	j := start(t, nil)
	j.join("fleet/a")
	j.join("fleet/b")
	for _, member := range []string{"fleet/a", "fleet/b"} {
		j.put(member, "web", 1, "")
	}
	j.sampleAt(1000)
	if _, got := j.seriesOf("policy=replicas&metric=violations"); len(got) != 2 {
		t.Fatalf("%v", got)
	}
	j.index.RemoveMember("fleet/b")
	if err := j.index.PutMember(aggregate.Member{Name: "fleet/b", UID: "another"}); err != nil {
		t.Fatal(err)
	}
	j.awaitEvaluation()
	if _, got := j.seriesOf("policy=replicas&metric=violations"); len(got) != 1 {
		t.Errorf("of another member: %v", got)
	}
	set := loaded(t, `# METADATA
# title: Other
# custom: {severity: low, kinds: [Secret]}
package replicas

violation contains {"msg": "x"}
`)
	if err := j.loop.Configure(t.Context(), set, []policy.Binding{{Name: "replicas", Package: "replicas"}}); err != nil {
		t.Fatal(err)
	}
	j.awaitEvaluation()
	if _, got := j.seriesOf("policy=replicas&metric=violations"); len(got) != 0 {
		t.Errorf("of another policy: %v", got)
	}
}

// TestSeries_DeltasOfARecreatedMemberAreNotKnown in the step in which it was: some are of the one before.
func TestSeries_DeltasOfARecreatedMemberAreNotKnown(t *testing.T) {
	j := start(t, nil)
	j.join("fleet/a")
	for i := range 20 {
		j.put("fleet/a", fmt.Sprint("web-", i), 1, "")
	}
	j.sampleAt(1000)
	j.sampleAt(1001) // up to there it is not known
	j.put("fleet/a", "web-0", 2, "")
	j.sampleAt(1002)
	if _, got := j.seriesOf("metric=deltas"); got["fleet/a deltas"] != "[<nil> <nil> <nil> 1]" {
		t.Errorf("%v", got)
	}
	j.index.RemoveMember("fleet/a")
	if err := j.index.PutMember(aggregate.Member{Name: "fleet/a", UID: "another"}); err != nil {
		t.Fatal(err)
	}
	j.sampleAt(1003)
	if _, got := j.seriesOf("metric=deltas"); len(got) != 0 && got["fleet/a deltas"] != "[<nil> <nil> <nil> <nil>]" {
		t.Errorf("in the step in which it was created again: %v", got)
	}
}

// TestSeries_OfKindsThatAreNoMoreAreForgotten: what was counted of them is not shown to who may read all others.
func TestSeries_OfKindsThatAreNoMoreAreForgotten(t *testing.T) {
	j := start(t, nil)
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	j.sampleAt(1000)
	if _, got := j.seriesOf("policy=replicas&metric=violations"); len(got) != 1 {
		t.Fatalf("%v", got)
	}
	j.scopes["fleet/a"].Remove()
	j.awaitEvaluation()
	if _, got := j.seriesOf("metric=violations&member=fleet/a"); len(got) != 0 {
		t.Errorf("before the next step: %v", got)
	}
	j.sampleAt(1001)
	if _, got := j.seriesOf("metric=violations&member=fleet/a"); len(got) != 0 && got["replicas fleet/a violations"] != "[<nil> <nil> <nil> <nil>]" {
		t.Errorf("after it: %v", got)
	}
}

// TestSeries_GoOnAfterTheClockWentBack.
func TestSeries_GoOnAfterTheClockWentBack(t *testing.T) {
	j := start(t, nil)
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	j.sampleAt(100_000)
	j.sampleAt(1000)
	j.sampleAt(1001)
	if _, got := j.seriesOf("metric=violations"); got["replicas fleet/a violations"] != "[<nil> <nil> <nil> 1]" {
		t.Errorf("%v", got)
	}
}

// TestSeries_RunsInSteps, and ends with its context.
func TestSeries_RunsInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
		if err != nil {
			t.Fatal(err)
		}
		if err := index.PutMember(aggregate.Member{Name: "fleet/a", UID: "a"}); err != nil {
			t.Fatal(err)
		}
		scope, err := index.OpenScopeAs("fleet/a", "Deployment.apps", "apps/v1", "deployments")
		if err != nil {
			t.Fatal(err)
		}
		item := scope.Item(&aggregate.Record{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "1", Body: []byte(`{"metadata":{"name":"web"},"spec":{"replicas":1}}`)})
		if _, err := scope.Replace([]aggregate.Item{item}, aggregate.Status{State: aggregate.Synced}); err != nil {
			t.Fatal(err)
		}
		loop, err := enforce.New(enforce.Options{Index: index, Set: load(t, "high"), Bindings: bindings})
		if err != nil {
			t.Fatal(err)
		}
		q := policyquery.NewSeries(policyquery.SeriesOptions{Kinds: served{}.Kinds, Loop: loop, Index: index})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- loop.Run(ctx) }()
		go func() { done <- q.Run(ctx) }()
		time.Sleep(16 * time.Minute)
		if n := q.Recorded("violations"); n != 4 {
			t.Errorf("%d steps are recorded in a quarter of an hour", n)
		}
		if n := q.Recorded("deltas"); n != 2 {
			t.Errorf("deltas of %d steps are known", n)
		}
		cancel()
		<-done
		<-done
	})
}
