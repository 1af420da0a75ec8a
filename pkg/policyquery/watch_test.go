package policyquery_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/seed"
)

// TestViolationsWatch_MatchesLists: whatever happens to a fleet and its policies, and
// wherever a watch resumes, its client has what a list has.
func TestViolationsWatch_MatchesLists(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 0)) // a mix, not a secret
	j := start(t, func(_ *queryapi.Options, q *policyquery.Violations) { q.BookmarkInterval = 20 * time.Millisecond })
	j.join("fleet/a")
	j.join("fleet/b")
	queries := []string{"", "policy=replicas", "member=fleet/a", "severity=high", "severity=low&severity=medium", "state=Known", "namespace=other"}
	type known struct {
		query, version string
		table          table
	}
	var streams []*stream
	var lists []known
	for _, q := range queries {
		streams = append(streams, j.watch(q, nil))
	}
	severities := []string{"high", "medium", "critical"}
	for step := range 60 {
		switch n := rng.IntN(20); {
		case n == 0:
			if err := j.loop.Configure(t.Context(), load(t, severities[rng.IntN(3)]), bindings[:1+rng.IntN(2)]); err != nil {
				t.Fatal(err)
			}
		case n == 1 && j.scopes["fleet/c"] == nil:
			j.join("fleet/c")
		case n == 1:
			j.index.RemoveMember("fleet/c")
			delete(j.scopes, "fleet/c")
			lists = nil // nothing is gone on with across that
		default:
			for range 1 + rng.IntN(4) {
				members := []string{"fleet/a", "fleet/b"}
				if j.scopes["fleet/c"] != nil {
					members = append(members, "fleet/c")
				}
				j.put(members[rng.IntN(len(members))], string(rune('a'+rng.IntN(5))), rng.IntN(5), "")
			}
		}
		if rng.IntN(3) > 0 {
			continue // several changes may come together
		}
		j.awaitEvaluation()
		for i, q := range queries {
			found, has := j.list("limit=5000&" + q)
			streams[i].reach(found.ResourceVersion)
			if !maps.Equal(streams[i].knows, has) {
				t.Fatalf("step %d, %q: a watch knows\n%v\nthe list has\n%v", step, q, streams[i].knows, has)
			}
			if !equal(streams[i].mark.Withheld, found.Withheld) || streams[i].mark.Synced != found.Synced {
				t.Fatalf("step %d, %q: %+v, the list %+v", step, q, streams[i].mark, found)
			}
			lists = append(lists, known{q, found.ResourceVersion, has})
		}
		l := lists[rng.IntN(len(lists))]
		found, has := j.list("limit=5000&" + l.query)
		s := j.watch(l.query+"&resourceVersion="+l.version, l.table)
		s.reach(found.ResourceVersion)
		if !maps.Equal(s.knows, has) {
			t.Fatalf("step %d, %q: a watch from %s knows\n%v\nthe list has\n%v", step, l.query, l.version, s.knows, has)
		}
		s.close()
	}
}

func equal(a, b []string) bool { return strings.Join(a, " ") == strings.Join(b, " ") }

// TestViolationsWatch_BookmarksAreAtTheRevisionOfAList, also after changes from which no finding follows.
func TestViolationsWatch_BookmarksAreAtTheRevisionOfAList(t *testing.T) {
	j := start(t, func(_ *queryapi.Options, q *policyquery.Violations) { q.BookmarkInterval = 20 * time.Millisecond })
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	j.awaitEvaluation()
	before, _ := j.list("")
	s := j.watch("", nil)
	s.reach(before.ResourceVersion)
	j.put("fleet/a", "enough", 5, "")
	j.awaitEvaluation()
	found, _ := j.list("")
	if found.ResourceVersion != before.ResourceVersion || found.Revision == before.Revision {
		t.Fatalf("a finding follows: %s at %d, before %s at %d", found.ResourceVersion, found.Revision, before.ResourceVersion, before.Revision)
	}
	for s.mark.Revision != found.Revision {
		if _, err := s.next(); err != nil {
			t.Fatalf("at %d on the way to %d: %v", s.mark.Revision, found.Revision, err)
		}
	}
}

// TestViolationsWatch_StartsWithPresentFindings, or after a list, and sends each change as
// the event that it is.
func TestViolationsWatch_StartsWithPresentFindings(t *testing.T) {
	j := start(t, nil)
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	j.awaitEvaluation()
	s := j.watch("resourceVersion=0", nil)
	found, _ := j.list("")
	if at := found.Items[0].Violations[0].FirstSeen; time.Since(at) < 0 || time.Since(at) > time.Minute {
		t.Errorf("first seen at %v", at)
	}
	s.reach(found.ResourceVersion)
	if got := strings.Join(s.eventTypes, " "); got != "ADDED BOOKMARK" || !s.mark.InitialEnd || s.mark.Revision != found.Revision {
		t.Errorf("events %q, %+v", got, s.mark)
	}
	after := j.watch("resourceVersion="+found.ResourceVersion, s.knows)
	for _, replicas := range []int{2, 3, 1} { // too few, enough, too few
		j.put("fleet/a", "web", replicas, "")
		j.awaitEvaluation()
		found, _ = j.list("")
		s.reach(found.ResourceVersion)
		after.reach(found.ResourceVersion)
	}
	want := "MODIFIED BOOKMARK DELETED BOOKMARK ADDED BOOKMARK"
	if got := strings.Join(s.eventTypes[2:], " "); got != want {
		t.Errorf("events %q, want %q", got, want)
	}
	if got := strings.Join(after.eventTypes, " "); got != "BOOKMARK "+want {
		t.Errorf("after a list: events %q", got)
	}
	if after.mark.InitialEnd {
		t.Error("a watch that goes on has initial events")
	}
	short := j.watch("timeoutSeconds=1", nil)
	for {
		if _, err := short.next(); err != nil {
			if !errors.Is(err, io.EOF) || short.eventTypes[len(short.eventTypes)-1] != "BOOKMARK" {
				t.Errorf("a watch with a timeout ends with %v after %v", err, short.eventTypes)
			}
			break
		}
	}
}

// TestViolationsWatch_LastsAnHourAtMost, whatever their clients ask for.
func TestViolationsWatch_LastsAnHourAtMost(t *testing.T) {
	j := start(t, nil)
	for _, query := range []string{"", "timeoutSeconds=2147483647"} {
		j.watched.lasts.Store(0)
		j.watch(query, nil).close()
		if lasts := time.Duration(j.watched.lasts.Load()); lasts <= 0 || lasts > time.Hour {
			t.Errorf("%q: a watch may last %v", query, lasts)
		}
	}
}

func TestViolationsWatch_RefusesUnsupportedParameters(t *testing.T) {
	j := start(t, nil)
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	j.awaitEvaluation()
	first, _ := j.list("")
	for query, says := range map[string]string{
		"watch=true&groupBy=policy": "groupBy", "watch=true&continue=eyJwIjoiYSJ9": "continue", "watch=perhaps": "watch",
		"watch=true&timeoutSeconds=-1": "timeoutSeconds", "timeoutSeconds=1": "timeoutSeconds", "resourceVersion=5": "resourceVersion", "watch=true&x=y": "x",
	} {
		if status := j.refused(query, 400); !strings.Contains(status.Message, says) {
			t.Errorf("%s: %q", query, status.Message)
		}
	}
	for _, version := range []string{"1", "x", first.ResourceVersion + "9", fmt.Sprint(uint64(2)<<32 + 1)} {
		if status := j.refused("watch=true&resourceVersion="+version, 410); status.Reason != "Expired" {
			t.Errorf("%s: %+v", version, status)
		}
	}
	// What a caller might read of a member that has left is not known any more.
	j.join("fleet/b")
	j.awaitEvaluation()
	with, _ := j.list("")
	j.index.RemoveMember("fleet/b")
	j.awaitEvaluation()
	j.refused("watch=true&resourceVersion="+with.ResourceVersion, 410)
	// Versions are remembered for as long as there are not too many.
	for n := range 600 {
		j.put("fleet/a", "web", 1+n%2, "")
		j.awaitEvaluation()
	}
	j.refused("watch=true&resourceVersion="+first.ResourceVersion, 410)
}

// large writes more than sockets hold, all of which is found.
func (j *testServer) large(fill string) {
	j.t.Helper()
	for n := range 40 {
		j.put("fleet/a", fmt.Sprint("large-", n), 3, strings.Repeat(fill, 500_000))
	}
	j.awaitEvaluation()
}

// open reports whether a number of watches is open.
func (j *testServer) open(want float64) func() error {
	return func() error {
		families, err := j.registry.Gather()
		for _, f := range families {
			if f.GetName() == "federator_query_watches" && f.GetMetric()[0].GetGauge().GetValue() != want {
				return fmt.Errorf("%v watches are open, want %v", f.GetMetric()[0].GetGauge().GetValue(), want)
			}
		}
		return err
	}
}

// TestViolationsWatch_ClientThatDoesNotReadIsGivenUp, whether or not anything happens meanwhile.
func TestViolationsWatch_ClientThatDoesNotReadIsGivenUp(t *testing.T) {
	j := start(t, func(o *queryapi.Options, q *policyquery.Violations) {
		o.Fairness.MaxWatches = 2
		q.WriteTimeout = time.Second
	})
	j.join("fleet/a")
	j.large("y")
	idle := j.watch("policy=names", nil)
	if _, err := idle.next(); err != nil { // it has begun
		t.Fatal(err)
	}
	s := j.watch("", nil)
	j.refused("watch=true", 429)
	j.until(j.open(1)) // the other is not ended for want of anything to write
	for {
		if _, err := s.next(); err != nil { // what was on its way
			break
		}
	}
	if len(s.knows) >= 40 {
		t.Error("all was sent to a client that did not read")
	}
	j.end() // waits for no watch
	for {
		if _, err := idle.next(); err != nil {
			break
		}
	}
	if idle.eventTypes[len(idle.eventTypes)-1] != "BOOKMARK" {
		t.Errorf("events %v", idle.eventTypes)
	}
}

// TestViolationsWatch_ExpiresBehindTheLog, however long it might take to read.
func TestViolationsWatch_ExpiresBehindTheLog(t *testing.T) {
	j := start(t, func(_ *queryapi.Options, q *policyquery.Violations) { q.WriteTimeout = time.Hour })
	j.join("fleet/a")
	j.awaitEvaluation()
	s := j.watch("", nil)
	if _, err := s.next(); err != nil {
		t.Fatal(err)
	}
	j.large("y")
	j.large("z")
	for n := range 600 {
		j.put("fleet/a", "web", 1+n%2, "")
		j.awaitEvaluation()
	}
	var last event
	for {
		e, err := s.next()
		if err != nil {
			break
		}
		last = e
	}
	if last.Type != "ERROR" || !strings.Contains(string(last.Object), `"code":410`) || !strings.Contains(string(last.Object), `"kind":"Status"`) {
		t.Errorf("the last event of a client that fell behind: %s %.300s", last.Type, last.Object)
	}
	j.until(j.open(0))
}
