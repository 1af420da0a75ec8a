package policyquery_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
)

// timedRecords are records at times that a test sets.
type timedRecords struct {
	t       *testing.T
	seconds atomic.Int64
}

func newTimedRecords(t *testing.T) *timedRecords {
	c := &timedRecords{t: t}
	c.seconds.Store(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).Unix())
	return c
}

func (c *timedRecords) now() time.Time { return time.Unix(c.seconds.Load(), 0).UTC() }

// forward has a minute pass, and returns the time then.
func (c *timedRecords) forward() string {
	c.seconds.Add(60)
	return c.now().Format(time.RFC3339)
}

// netted is a server with a history, at times that its test sets.
func netted(t *testing.T) (j *testServer, hub *reviews, past *history.History, at *timedRecords) {
	t.Helper()
	at = newTimedRecords(t)
	j, hub = hubbed(t, func(o *queryapi.Options, q *policyquery.Violations) {
		past = recordingWith(t, o.Index, history.Options{Directory: t.TempDir(), Now: at.now})
		o.Queries = map[string]queryapi.Query{"history": policyquery.History{Kinds: q.Kinds, Index: o.Index, History: past, State: q.Loop.State, Clock: at.now}}
	})
	j.token = "root"
	return j, hub, past, at
}

// net returns what differs, as lines.
func (j *testServer) net(query ...string) (lines []string) {
	j.t.Helper()
	var list policyquery.HistoryList
	j.into("/query/v1/history?net=true&"+strings.Join(query, "&"), &list)
	if list.Span == nil || list.Span.Until == nil || list.Continue != "" || list.Log != "" {
		j.t.Errorf("the list is of %+v, and goes on with %q", list.Span, list.Continue)
	}
	for _, r := range list.Items {
		line := []string{r.Transition, r.Member, string(r.Kind), r.Name}
		for _, c := range r.Changes {
			line = append(line, fmt.Sprintf("%s:%s>%s", c.Path, c.Before, c.After))
		}
		if r.Type == history.Gap {
			line = append(line, r.Message)
		}
		if r.Net != nil && r.Net.Incomplete {
			line = append(line, "?")
		}
		lines = append(lines, strings.Join(slices.DeleteFunc(line, func(s string) bool { return s == "" }), " "))
	}
	return lines
}

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: what differs is\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func replicas(before, after string) history.Change {
	c := history.Change{Path: "spec.replicas"}
	if before != "" {
		c.Before = json.RawMessage(before)
	}
	if after != "" {
		c.After = json.RawMessage(after)
	}
	return c
}

const deployments = aggregate.Kind("Deployment.apps")

// ofDeployment is a transition of a Deployment of fleet/a.
func ofDeployment(name, transition string, version int, changes ...history.Change) history.Record {
	return history.Record{
		Type: history.Object, Transition: transition, Member: "fleet/a", MemberUID: "fleet/a", Kind: deployments, Resource: "deployments", Namespace: "shop", Name: name, UID: name,
		ResourceVersion: fmt.Sprint(version), Changes: changes, Message: fmt.Sprint(name, version, transition),
	}
}

// TestHistoryNet_SaysWhatDiffers between two instants, however they are given.
func TestHistoryNet_SaysWhatDiffers(t *testing.T) {
	j, _, past, at := netted(t)
	at.forward()
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	j.until(func() error { return recordedUntil(past, 3) })
	first := at.forward()
	for n := 2; n < 5; n++ {
		j.put("fleet/a", "web", n, "")
	}
	j.put("fleet/a", "api", 1, "")
	j.put("fleet/a", "gone", 1, "")
	j.put("fleet/a", "gone", 0, "")
	j.until(func() error { return recordedUntil(past, 9) })
	second := at.forward()
	j.put("fleet/a", "api", 0, "")
	j.put("fleet/a", "web", 1, "")
	j.until(func() error { return recordedUntil(past, 11) })
	third := at.forward()
	wantLines(t, "the first span", j.net("since="+first, "until="+second), "Created fleet/a Deployment.apps api spec.replicas:>1", "Changed fleet/a Deployment.apps web spec.replicas:1>4")
	wantLines(t, "the second span", j.net("since="+second, "until="+third), "Deleted fleet/a Deployment.apps api spec.replicas:1>", "Changed fleet/a Deployment.apps web spec.replicas:4>1")
	wantLines(t, "both", j.net("since="+first, "until="+third))
	wantLines(t, "both, as durations", j.net("since=2m"))
	wantLines(t, "the last minute", j.net("since=1m"), j.net("since="+second)...)
	wantLines(t, "one object", j.net("since="+first, "until=1m", "namespace=shop", "name=web", "kind=Deployment.apps"), "Changed fleet/a Deployment.apps web spec.replicas:1>4")
	wantLines(t, "one transition", j.net("since="+second, "transition=Deleted"), "Deleted fleet/a Deployment.apps api spec.replicas:1>")
	wantLines(t, "a transition that is not there any more", j.net("since="+first, "until="+second, "transition=Deleted"))
	wantLines(t, "a field", j.net("since="+first, "until="+second, "path=spec"), j.net("since="+first, "until="+second)...)
	wantLines(t, "another field", j.net("since="+first, "until="+second, "path=status"))
	wantLines(t, "all that is kept", j.net("type=Object"), "Joined fleet/a", "Created fleet/a Deployment.apps web spec.replicas:>1")
	wantLines(t, "before that", j.net("type=Object", "since=24h"), "Gap what is kept of the history of a process begins", "Joined fleet/a ?", "Created fleet/a Deployment.apps web spec.replicas:>1 ?")
}

// recordedUntil wants so many records in a history.
func recordedUntil(h *history.History, n uint64) error {
	if last := h.Span().Last; last != n {
		return fmt.Errorf("%d transitions are recorded, want %d", last, n)
	}
	return nil
}

// TestHistoryNet_FoldsWhatTheCallerMayRead, and nothing else: what may not be read does not shape it.
func TestHistoryNet_FoldsWhatTheCallerMayRead(t *testing.T) {
	j, hub, past, at := netted(t)
	hub.who = func(s *authorizationv1.SubjectAccessReviewSpec) bool {
		a := s.ResourceAttributes
		return s.User == "root" || a.Resource == "deployments.apps" && a.Namespace == "fleet" && a.Name == "a"
	}
	j.join("fleet/a")
	j.join("fleet/b")
	j.until(func() error { return recordedUntil(past, 4) })
	since := at.forward()
	elsewhere := ofDeployment("other", history.Created, 1, replicas("", "1"))
	elsewhere.Member, elsewhere.MemberUID = "fleet/b", "fleet/b"
	renamed := ofDeployment("web", history.Deleted, 3, replicas("2", "")) // read under a resource that is not served
	renamed.Resource = "deploys"
	of := func(path, before, after string) history.Change {
		return history.Change{Path: path, Before: json.RawMessage(before), After: json.RawMessage(after)}
	}
	member := func(n int, changes ...history.Change) history.Record {
		return history.Record{Type: history.Member, Transition: history.Changed, Member: "fleet/a", MemberUID: "fleet/a", Changes: changes, Message: fmt.Sprint("member", n)}
	}
	saw := func(transition string) history.Record {
		return history.Record{
			Type: history.Verdict, Transition: transition, Member: "fleet/a", MemberUID: "fleet/a", Kind: deployments, Resource: "deployments", Namespace: "shop", Name: "web", Policy: "p",
			Reads: &history.Reads{Kinds: []aggregate.Kind{"Secret"}}, Message: "saw" + transition,
		}
	}
	record(
		t, past,
		ofDeployment("web", history.Changed, 2, replicas("1", "2")), renamed, elsewhere,
		member(1, of("paused", "false", "true"), of("version", `"1"`, `"2"`)), member(2, of("version", `"2"`, `"1"`)), saw(history.Opened),
		history.Record{Type: history.Gap, Transition: "Gap", Member: "fleet/a", MemberUID: "fleet/a", Kind: "Secret", Message: "gap"},
		history.Record{Type: history.Gap, Transition: "Gap", Member: "fleet/b", MemberUID: "fleet/b", Kind: deployments, Message: "gap of b"},
	)
	at.forward()
	j.token = "ann"
	wantLines(t, "ann", j.net("since="+since), "Changed fleet/a Deployment.apps web spec.replicas:1>2")
	j.token = "root"
	wantLines(t, "root", j.net("since="+since),
		"Changed fleet/a paused:false>true", "Deleted fleet/a Deployment.apps web spec.replicas:1>", "Opened fleet/a Deployment.apps web", "Gap fleet/a Secret gap",
		"Gap fleet/b Deployment.apps gap of b", "Created fleet/b Deployment.apps other spec.replicas:>1 ?")
}

// TestHistoryNet_SaysThatAMemberIsGone to who may read its objects, and not that it has left.
func TestHistoryNet_SaysThatAMemberIsGone(t *testing.T) {
	j, hub, past, at := netted(t)
	hub.who = func(s *authorizationv1.SubjectAccessReviewSpec) bool {
		a := s.ResourceAttributes
		return s.User == "root" || a.Resource == "deployments.apps" && a.Namespace == ""
	}
	j.join("fleet/a")
	j.join("fleet/b")
	j.until(func() error { return recordedUntil(past, 4) })
	since := at.forward()
	record(t, past, ofDeployment("web", history.Changed, 2, replicas("1", "2")))
	j.index.RemoveMember("fleet/a")
	j.until(func() error { return recordedUntil(past, 6) })
	at.forward()
	wantLines(t, "root", j.net("since="+since, "kind=Deployment.apps", "name=web"), "Left fleet/a")
	j.token = "ann"
	wantLines(t, "ann", j.net("since="+since, "kind=Deployment.apps", "name=web"),
		"Gap fleet/a the member is not there any more: when its objects went is not said", "Changed fleet/a Deployment.apps web spec.replicas:1>2 ?")
}

// TestHistoryNet_SaysWhatIsNotKnown: gaps that are recorded later, or whose end is not known yet, and what is not recorded.
func TestHistoryNet_SaysWhatIsNotKnown(t *testing.T) {
	j, _, past, at := netted(t)
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	j.until(func() error { return recordedUntil(past, 3) })
	since := at.forward()
	record(t, past, ofDeployment("web", history.Changed, 2, replicas("1", "2")))
	lost := at.now().Add(30 * time.Second)
	until := at.forward()
	at.forward()
	to := at.now()
	wantLines(t, "before the gap is known", j.net("since="+since, "until="+until), "Changed fleet/a Deployment.apps web spec.replicas:1>2")
	record(t, past, history.Record{Type: history.Gap, Transition: "Gap", Message: "the disk was full", From: &lost, To: &to})
	wantLines(t, "a gap that was recorded after the end", j.net("since="+since, "until="+until), "Gap the disk was full", "Changed fleet/a Deployment.apps web spec.replicas:1>2 ?")
	wantLines(t, "of one object", j.net("since="+since, "until="+until, "kind=Deployment.apps", "namespace=shop", "name=web"),
		"Gap the disk was full", "Changed fleet/a Deployment.apps web spec.replicas:1>2 ?")
	wantLines(t, "of nothing", j.net("since="+since, "until="+until, "kind=Deployment.apps", "name=api", "type=Object"), "Gap the disk was full")
	wantLines(t, "after the gap", j.net("since="+at.forward(), "until="+at.forward()))

	since = at.now().Format(time.RFC3339)
	j.scopes["fleet/a"].SetStatus(aggregate.Status{State: aggregate.Stale})
	if _, err := j.scopes["fleet/a"].Commit(); err != nil {
		t.Fatal(err)
	}
	j.until(func() error { return recordedUntil(past, 6) })
	at.forward()
	wantLines(t, "a scope that is stale", j.net("since="+since, "kind=Deployment.apps"),
		"Stale fleet/a Deployment.apps", "Gap fleet/a Deployment.apps it is Stale: what has happened since is not known yet")
	wantLines(t, "one that is stale throughout", j.net("since="+at.now().Format(time.RFC3339), "until="+at.forward(), "name=web"),
		"Gap fleet/a Deployment.apps it is Stale: what has happened since is not known yet")
	wantLines(t, "a time before it was", j.net("since="+until, "until="+to.Format(time.RFC3339), "type=Object", "transition=Created"), "Gap the disk was full")
	wantLines(t, "a kind that is not recorded", j.net("since="+since, "kind=Ingress.networking.k8s.io"), "Gap Ingress.networking.k8s.io what happens to objects of this kind is not recorded")
}

// TestHistory_ListsGapsBesideWhatIsSelected, whatever is read of the log.
func TestHistory_ListsGapsBesideWhatIsSelected(t *testing.T) {
	j, _, past, _ := netted(t)
	j.join("fleet/a")
	j.until(func() error { return recordedUntil(past, 2) })
	gap := func(message, member, kind string) history.Record {
		return history.Record{Type: history.Gap, Transition: "Gap", Member: member, MemberUID: member, Kind: aggregate.Kind(kind), Message: message}
	}
	named := func(message string) history.Record {
		r := ofDeployment("web", history.Changed, 1)
		r.Message = message
		return r
	}
	record(t, past, gap("x all", "", ""), named("x 1"), gap("x of a", "fleet/a", "Deployment.apps"), gap("x of Pods", "fleet/a", "Pod"), named("x 2"), gap("x of b", "fleet/b", "Deployment.apps"), gap("x last", "", ""))
	for query, want := range map[string]string{
		"order=oldest&limit=2&member=fleet/a&kind=Deployment.apps&namespace=shop&name=web": "[all 1 of a 2 last]",
		"limit=2&member=fleet/a&kind=Deployment.apps&namespace=shop&name=web":              "[last 2 of a 1 all]",
		"limit=1&member=fleet/b":                    "[last of b all]",
		"type=Object&kind=Deployment.apps&name=web": "[2 1]",
	} {
		if got := fmt.Sprint(j.messages("root", query)); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// TestHistoryNet_RefusesWhatItDoesNotHave by name, and what is too much.
func TestHistoryNet_RefusesWhatItDoesNotHave(t *testing.T) {
	j, _, past, at := netted(t)
	for _, c := range [][2]string{
		{"order=oldest", "parameter order does not go with net"},
		{"limit=3", "parameter limit does not go with net"},
		{"continue=x", "parameter continue"},
		{"watch=true", "parameter watch does not go with net"},
		{"after=x/1", "parameter after does not go with net"},
		{"timeoutSeconds=3", "parameter timeoutSeconds does not go with net"},
		{"since=1h&until=2h", "parameter since is not before until"},
		{"since=2030-01-01T00:00:00Z", "parameter since is not before until"},
		{"net=true", "parameter net is given more than once"},
	} {
		if text := j.fails("/query/v1/history?net=true&"+c[0], http.StatusBadRequest); !strings.Contains(text, c[1]) {
			t.Errorf("%s: %s", c[0], text)
		}
	}
	if text := j.fails("/query/v1/history?net=1", http.StatusBadRequest); !strings.Contains(text, "parameter net is neither true nor false") {
		t.Error(text)
	}
	j.join("fleet/a")
	j.until(func() error { return recordedUntil(past, 2) })
	since := at.forward()
	for n := 0; n <= history.MaxFolded; n += 1000 {
		var batch []history.Record
		for i := range 1000 {
			batch = append(batch, ofDeployment(fmt.Sprint("d", n+i), history.Changed, 1, replicas("1", "2")))
		}
		record(t, past, batch...)
	}
	at.forward()
	var status metav1.Status
	text := j.fails("/query/v1/history?net=true&since="+since, http.StatusRequestEntityTooLarge)
	if err := json.Unmarshal([]byte(text), &status); err != nil || status.Message != "what differs is folded from more than 100000 things that differ: narrow the span or the selection" {
		t.Errorf("%v: %s", err, text)
	}
	wantLines(t, "a selection", j.net("since="+since, "name=d99999"), "Changed fleet/a Deployment.apps d99999 spec.replicas:1>2")
}

// TestShared_HistoryNetIsOne: what several processes have recorded of one object, one after another or both, is one difference. That a member moves from
// one to another is none.
func TestShared_HistoryNetIsOne(t *testing.T) {
	past := map[*aggregate.Index]*history.History{}
	hub := &reviews{}
	hub.allows.Store(true)
	server := httptest.NewServer(hub)
	t.Cleanup(server.Close)
	at := newTimedRecords(t)
	processes := pairOf(t, server.URL, load(t, "high"), bindings, func(x *aggregate.Index, loop *enforce.Loop, kinds policyquery.Kinds) map[string]queryapi.Query {
		past[x] = recordingWith(t, x, history.Options{Directory: t.TempDir(), Now: at.now})
		return map[string]queryapi.Query{"history": policyquery.History{Kinds: kinds, Index: x, History: past[x], State: loop.State, Clock: at.now}}
	})
	hub.who = func(s *authorizationv1.SubjectAccessReviewSpec) bool {
		a := s.ResourceAttributes
		return s.User == "root" || a.Resource == "deployments.apps" && a.Namespace == "fleet" && a.Name == "a"
	}
	tell(t, processes)
	one, two := past[processes[0].index], past[processes[1].index]
	for _, p := range processes {
		p.until(func() error {
			if last := past[p.index].Span().Last; last < uint64(2*len(p.judges)) {
				return fmt.Errorf("%d transitions are recorded", last)
			}
			return nil
		})
	}
	since := at.forward()
	moved := history.Record{Type: history.Member, Member: "fleet/a", MemberUID: "fleet/a"}
	left, joined := moved, moved
	left.Transition, left.Message = history.Left, "left"
	joined.Transition, joined.Message, joined.Changes = history.Joined, "joined", []history.Change{{Path: "version", After: json.RawMessage(`"1"`)}}
	violation := func(transition string) history.Record {
		r := ofDeployment("web", transition, 1)
		r.Type, r.Policy, r.Message = history.Verdict, "p", "violation "+transition
		return r
	}
	of := func(member string, r history.Record) history.Record {
		r.Member, r.MemberUID, r.Message = member, member, member+r.Message
		return r
	}
	record(t, one, ofDeployment("web", history.Changed, 3, replicas("2", "3")), ofDeployment("new", history.Created, 3, replicas("", "1")), violation(history.Opened))
	record(t, two, ofDeployment("web", history.Changed, 2, replicas("1", "2")), ofDeployment("web", history.Changed, 3, replicas("2", "3"))) // stands by, and is slow
	at.forward()
	record(t, two, joined, ofDeployment("web", history.Changed, 4, replicas("3", "4")), ofDeployment("new", history.Deleted, 3, replicas("1", "")), violation(history.Closed))
	record(t, one, left)
	record(t, two, of("fleet/b", ofDeployment("b", history.Created, 9, replicas("", "9"))))
	until := at.forward()
	record(t, two, ofDeployment("web", history.Changed, 5, replicas("4", "1")))
	at.forward()
	for _, p := range processes {
		p.token = "root"
		wantLines(t, p.id, p.net("since="+since, "until="+until), "Changed fleet/a Deployment.apps web spec.replicas:1>4", "Created fleet/b Deployment.apps b spec.replicas:>9")
		wantLines(t, p.id+" until now", p.net("since="+url.QueryEscape(since), "name=web"))
		p.token = "ann"
		wantLines(t, p.id+" for ann", p.net("since="+since, "until="+until), "Changed fleet/a Deployment.apps web spec.replicas:1>4")
	}
}
