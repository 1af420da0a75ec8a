package facts_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/evidence"
	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/intents/facts"
)

// finds is what a process that judges the member of its name says of policy p and source s.
func finds(id string, n int64) *evidence.Said {
	share := evidence.Share{Members: evidence.Digest(slices.Values([]string{"fleet/" + id})), Keys: []string{"a", "b"}}
	part := evidence.Part{Complete: true, Subjects: 10 * n, New: n, Former: evidence.Cost{Evaluations: 10, Nanoseconds: 100}, Next: evidence.Cost{Evaluations: 10, Nanoseconds: 100 * n}}
	return &evidence.Said{
		Policies: map[string]evidence.Statement{"p": {Of: "1>2", Share: share, Part: part}},
		Commits: map[string]evidence.Commit{"s": {Of: "1>2", Share: share, Parts: map[string]evidence.CommitPart{
			"changed": {Part: part}, "added": {Part: evidence.Part{First: true, Complete: true, Subjects: 2, Known: 2 * (n - 1), Unknown: 2 * (2 - n), New: n}, Added: true},
		}}},
	}
}

// with returns what a process says, changed.
func with(id string, n int64, policy func(*evidence.Statement), commit func(*evidence.Commit)) *evidence.Said {
	said := finds(id, n)
	p, c := said.Policies["p"], said.Commits["s"]
	policy(&p)
	commit(&c)
	said.Policies["p"], said.Commits["s"] = p, c
	return said
}

// share changes which part of the fleet both are of.
func share(id string, change func(*evidence.Share)) *evidence.Said {
	return with(id, 2, func(s *evidence.Statement) { change(&s.Share) }, func(c *evidence.Commit) { change(&c.Share) })
}

// TestClient_EvidenceIsOfTheFleet: it is the sum of what all find, whose thresholds are those of the sum, and whichever
// process leads.
func TestClient_EvidenceIsOfTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.stop()
		w.said[0].Store(finds("a", 1))
		w.said[1].Store(finds("b", 2))
		time.Sleep(facts.Interval)
		synctest.Wait()
		p, err := w.client.Evidence("p", "1>2")
		cost := int64(150)
		if got, want := p.Status(), (v1alpha1.RolloutEvidence{Complete: true, Subjects: 30, New: 3, Cost: &cost}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
		c, err := w.client.CommitEvidence("s", "1>2")
		all, added := c.Status()
		if want := (v1alpha1.RolloutEvidence{Complete: true, Subjects: 34, New: 6, Cost: &cost}); err != nil || !reflect.DeepEqual(all, want) || added.Subjects != 4 || added.New != 3 {
			t.Errorf("%+v of which %+v are new, %v, want %+v", all, added, err, want)
		}
		if again, err := w.client.CommitEvidence("s", "1>2"); err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("asked again: %+v, %v; what a process has said was changed", again, err)
		}
	})
}

// TestClient_EvidenceOfAPartIsNone: it says whose is not known, or is of something else.
func TestClient_EvidenceOfAPartIsNone(t *testing.T) {
	other := func(s *evidence.Statement) { s.Of = "0>2" }
	for name, c := range map[string]struct {
		a, b  *evidence.Said // nil: as finds has them
		fleet func(*intents.Fleet)
		quiet bool // b says nothing any more
		want  string
	}{
		"nobody has compared":        {b: new(evidence.Said), want: `process "b" has not compared the versions yet`},
		"of another former one":      {b: with("b", 2, other, func(c *evidence.Commit) { c.Of = "0>2" }), want: `process "b" compares other versions`},
		"here, too":                  {a: with("a", 1, other, func(c *evidence.Commit) { c.Older = true }), want: `process "a" compares other versions`},
		"a process is quiet":         {quiet: true, want: `process "b" has said nothing for more than 2s`},
		"a process is lost":          {fleet: func(f *intents.Fleet) { f.Processes = []string{"a", "b", "c"} }, want: `process "c" has said nothing`},
		"a member moves":             {fleet: func(f *intents.Fleet) { f.Members["fleet/a"] = member("b") }, want: `process "a" has not compared them on the members that it is to judge, and no others`},
		"a member is not judged yet": {fleet: func(f *intents.Fleet) { f.Members["fleet/new"] = member("b") }, want: `process "b" has not compared them on the members`},
		"nobody judges a member":     {fleet: func(f *intents.Fleet) { f.Members["fleet/new"] = member("") }, want: `no process judges member "fleet/new"`},
		"a member is judged twice":   {b: share("b", func(s *evidence.Share) { s.Members = evidence.Digest(slices.Values([]string{"fleet/a", "fleet/b"})) }), want: `process "b" has not compared them on the members`},
		"keys move":                  {b: share("b", func(s *evidence.Share) { s.Moving = true }), want: `process "b" says that keys of views change their owner`},
		"keys have moved":            {b: share("b", func(s *evidence.Share) { s.Keys = []string{"b"} }), want: `processes "a" and "b" do not share the keys of views in one way`},
		"there is no map":            {fleet: func(f *intents.Fleet) { *f = intents.Fleet{} }, want: "it is not known which processes there are"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				defer w.stop()
				for n, id := range []string{"a", "b"} {
					said := []*evidence.Said{c.a, c.b}[n]
					if said == nil {
						said = finds(id, int64(n+1))
					}
					w.said[n].Store(said)
				}
				if c.fleet != nil {
					f := *w.fleet.Load()
					f.Members = map[string]intents.Member{"fleet/a": member("a"), "fleet/b": member("b")}
					if c.fleet(&f); f.Self == "" {
						w.fleet.Store(nil)
					} else {
						w.fleet.Store(&f)
					}
				}
				time.Sleep(facts.Interval)
				synctest.Wait()
				if c.quiet {
					w.transport.Cut(true)
					time.Sleep(facts.MaxAge + time.Millisecond)
				}
				_, ofPolicy := w.client.Evidence("p", "1>2")
				_, ofCommit := w.client.CommitEvidence("s", "1>2")
				for _, err := range []error{ofPolicy, ofCommit} {
					if err == nil || !strings.HasPrefix(fmt.Sprint(err), c.want) {
						t.Errorf("%v, want %s", err, c.want)
					}
				}
			})
		})
	}
}

// TestClient_CommitEvidenceIsOfTheSameBindings: what only one process judges is not known of the fleet.
func TestClient_CommitEvidenceIsOfTheSameBindings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.stop()
		w.said[0].Store(finds("a", 1))
		b := finds("b", 2)
		delete(b.Commits["s"].Parts, "added")
		w.said[1].Store(b)
		time.Sleep(facts.Interval)
		synctest.Wait()
		if c, err := w.client.CommitEvidence("s", "1>2"); err == nil || !strings.Contains(err.Error(), `process "b" judges other policies beside the FleetPolicies`) {
			t.Error(c, err)
		}
	})
}
