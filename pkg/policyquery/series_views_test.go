package policyquery_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
)

// TestSeries_OfViewsAreForgotten with the package that made the keys, also before the next step: who may read what it
// reads now need not have been allowed to read that.
func TestSeries_OfViewsAreForgotten(t *testing.T) {
	j := start(t, nil)
	for _, m := range []string{"fleet/a", "fleet/b"} {
		j.join(m)
		j.put(m, "web", 3, "")
	}
	j.sampleAt(1000)
	if _, got := j.seriesOf("policy=names&metric=violations"); got["names violations"] != "[<nil> <nil> <nil> 1]" {
		t.Fatalf("%v", got)
	}
	set := loaded(t, `# METADATA
# title: Other
# custom: {severity: low, kinds: ["Deployment.apps", Secret], subject: view.names}
package names

view.names[input.ref.name] contains input.ref.member

violation contains {"msg": "x"}
`)
	if err := j.loop.Configure(t.Context(), set, []policy.Binding{{Name: "names", Package: "names"}}); err != nil {
		t.Fatal(err)
	}
	j.awaitEvaluation()
	if _, got := j.seriesOf("policy=names&metric=violations"); len(got) != 0 {
		t.Errorf("before the next step: %v", got)
	}
	j.sampleAt(1001)
	if _, got := j.seriesOf("policy=names&metric=violations"); got["names violations"] != "[<nil> <nil> <nil> 1]" {
		t.Errorf("after it: %v", got)
	}
}

// TestSeries_OfKindsThatNobodyServesAnyMoreAreForgotten, those of keys of views, which are of all members, too.
func TestSeries_OfKindsThatNobodyServesAnyMoreAreForgotten(t *testing.T) {
	for what, gone := range map[string]func(*testServer, *atomic.Bool){
		"that nobody serves":        func(_ *testServer, unserved *atomic.Bool) { unserved.Store(true) },
		"of which a part is gone":   func(j *testServer, _ *atomic.Bool) { j.scopes["fleet/b"].Remove() },
		"of a member that has left": func(j *testServer, _ *atomic.Bool) { j.index.RemoveMember("fleet/b") },
	} {
		t.Run(what, func(t *testing.T) {
			var unserved atomic.Bool
			j := start(t, func(_ *queryapi.Options, q *policyquery.Violations) {
				q.Kinds = func() (map[aggregate.Kind]bool, <-chan struct{}) {
					return map[aggregate.Kind]bool{"Deployment.apps": !unserved.Load()}, nil
				}
			})
			for _, m := range []string{"fleet/a", "fleet/b"} {
				j.join(m)
				j.put(m, "web", 1, "")
			}
			j.sampleAt(1000)
			if _, got := j.seriesOf("metric=violations"); len(got) != 3 {
				t.Fatalf("%v", got)
			}
			gone(j, &unserved)
			j.awaitEvaluation()
			old := func(when string) {
				t.Helper()
				_, got := j.seriesOf("metric=violations")
				for name, values := range got {
					if (name != "replicas fleet/a violations" || unserved.Load()) && !strings.HasPrefix(values, "[<nil> <nil> <nil> ") {
						t.Errorf("%s: %s %v", when, name, values)
					}
				}
			}
			old("before the next step")
			j.sampleAt(1001)
			old("after it")
		})
	}
}
