package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/apimachinery/pkg/util/sets"

	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/mcp"
	"federator.dev/federator/pkg/queryapi"
)

type args = map[string]any

// follow asks for history until there is no more, and returns all rows.
func follow(t *testing.T, s *sdk.ClientSession, a args) (rows []mcp.HistoryRow, answers int) {
	t.Helper()
	for {
		out := into[mcp.HistoryOutput](t, s, "history", a)
		if answers++; answers > 1000 {
			t.Fatalf("%v does not end", a)
		}
		gaps := 0
		for _, row := range out.Untrusted.Transitions {
			if row.Type == "Gap" {
				gaps++
			}
		}
		if out.Shown != len(out.Untrusted.Transitions) || out.Gaps < gaps {
			t.Errorf("%v: %d rows, %d gaps: %+v", a, len(out.Untrusted.Transitions), gaps, out)
		}
		rows = append(rows, out.Untrusted.Transitions...)
		if out.Cut == nil || !out.Cut.More {
			return rows, answers
		}
		if out.Cut.Continue == "" || out.Cut.Left != 0 || out.Cut.How == "" {
			t.Fatalf("%v: %+v", a, out.Cut)
		}
		a["continue"] = out.Cut.Continue
	}
}

// TestHistory_FitsAndContinues: hundreds of transitions with long texts are each in one answer, in order, and no answer is too large.
func TestHistory_FitsAndContinues(t *testing.T) {
	f := start(t, largeWorld(), nil)
	s := f.session(t, "ann")
	var recorded []history.Record
	for x, err := range f.past.Read(history.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		recorded = append(recorded, x)
	}
	for name, c := range map[string]struct {
		args args
		of   func(*history.Record) bool
		most int // answers
	}{
		"verdicts, the first first": {
			args{"limit": 100, "order": "oldest", "type": []string{"Verdict"}, "policy": []string{"images"}},
			func(x *history.Record) bool { return x.Type == "Gap" || x.Type == "Verdict" && x.Policy == "images" }, 200,
		},
		"objects": {args{"limit": 7, "type": []string{"Object"}, "member": []string{"edge/lab"}}, func(x *history.Record) bool { return x.Type == "Object" && x.Member == "edge/lab" }, 100},
		"Actions": {args{"limit": 100, "type": []string{"Action"}}, func(x *history.Record) bool { return x.Type == "Action" || x.Type == "Gap" }, 100},
		"what does not happen": {
			args{"transition": []string{"PlanMade"}, "type": []string{"Policy", "Action"}},
			func(x *history.Record) bool { return x.Type == "Gap" }, 1,
		},
	} {
		var want []string
		for _, x := range recorded {
			if c.of(&x) {
				want = append(want, fmt.Sprint(x.Type, x.Transition, x.Member, x.Kind, x.Name, x.Subject, x.Policy, x.Action))
			}
		}
		if c.args["order"] == nil {
			slices.Reverse(want)
		}
		rows, answers := follow(t, s, c.args)
		var got []string
		for _, r := range rows {
			of := mcp.Subject{}
			if r.Object != nil {
				of = *r.Object
			}
			got = append(got, fmt.Sprint(r.Type, r.Transition, of.Member, of.Kind, of.Name, of.Key, r.Policy, r.Action))
		}
		if !slices.Equal(got, want) || answers > c.most {
			t.Errorf("%s: %d answers have %d rows, %d of them distinct, want %d", name, answers, len(got), sets.New(got...).Len(), len(want))
		}
		t.Logf("%s: %d rows in %d answers", name, len(rows), answers)
	}
}

// TestHistory_ShowsWhatIsAskedForFirst of the changes of a transition, counts those that are left out, and has room for more where
// the transition is alone.
func TestHistory_ShowsWhatIsAskedForFirst(t *testing.T) {
	w := questionsWorld()
	var conditions []any // which it does not have before
	for i := range 60 {
		conditions = append(conditions, map[string]any{"type": fmt.Sprintf("A-%02d", i), "status": "True", "message": strings.Repeat("m", 60)})
	}
	lab := w.find("edge/lab", "Deployment.apps", "web")
	lab.body = without(lab.body, "status", "conditions", conditions)
	s := start(t, w, nil).session(t, "ann")
	ask := func(a args) (*mcp.HistoryOutput, mcp.HistoryRow) {
		t.Helper()
		a["kind"], a["member"], a["transition"] = []string{"Deployment.apps"}, []string{"edge/lab"}, []string{"Changed", "Created"}
		out := into[mcp.HistoryOutput](t, s, "history", a)
		if len(out.Untrusted.Transitions) != 1 {
			t.Fatalf("%v: %+v", a, out)
		}
		return out, out.Untrusted.Transitions[0]
	}
	_, all := ask(args{})
	_, one := ask(args{"limit": 1})
	_, replicas := ask(args{"path": []string{"status.readyReplicas"}})
	if n := len(all.Changes); n < 3 || n+all.More != len(one.Changes)+one.More || len(one.Changes) < 2*n {
		t.Errorf("%d changes and %d more; alone %d and %d", n, all.More, len(one.Changes), one.More)
	}
	if c := replicas.Changes[0]; c != (mcp.FieldChange{Path: "status.readyReplicas", Before: "3", After: "1"}) || replicas.More == 0 {
		t.Errorf("%+v and %d more", replicas.Changes, replicas.More)
	}
}

// TestHistory_SaysWhatIsNotKnown outside of what is untrusted: gaps come along, whatever is asked for
// but where, and a server that records nothing says so.
func TestHistory_SaysWhatIsNotKnown(t *testing.T) {
	s := start(t, questionsWorld(), nil).session(t, "ann")
	for _, c := range []struct {
		args args
		gaps int
	}{
		{args{}, 1},
		{args{"type": []string{"Object"}}, 1},
		{args{"type": []string{"Gap"}}, 1},
		{args{"transition": []string{"Deleted"}, "path": []string{"status"}}, 1},
		{args{"member": []string{"fleet/us-1"}, "kind": []string{"Deployment.apps"}}, 1},
		{args{"member": []string{"fleet/us-1"}, "name": []string{"web"}}, 1},
		{args{"policy": []string{"replicas"}}, 1},
		{args{"uid": []string{"none"}, "type": []string{"Object"}}, 1},
		{args{"member": []string{"edge/lab"}}, 0},
		{args{"member": []string{"edge/lab", "fleet/eu-1"}, "type": []string{"Object", "Verdict"}}, 0},
		{args{"kind": []string{"Pod"}, "type": []string{"Gap"}}, 0},
	} {
		if out := into[mcp.HistoryOutput](t, s, "history", c.args); out.Gaps != c.gaps || out.Since == "" || out.Failing != "" {
			t.Errorf("%v: %+v", c.args, out)
		}
	}
	out := into[mcp.HistoryOutput](t, s, "history", args{"member": []string{"fleet/us-1"}, "kind": []string{"Pod"}})
	if out.Freshness.Fresh || out.Freshness.NotFresh != 1 {
		t.Errorf("%+v", out)
	}
	none := start(t, questionsWorld(), func(o *queryapi.Options) { delete(o.Queries, "history") }).session(t, "ann")
	if text, failed := call(t, none, "history", nil); !failed || !strings.Contains(text, `"code":404,"reason":"NotFound"`) || !strings.Contains(text, "this server records no history") {
		t.Error(text)
	}
}

// pages is a query API elsewhere that has written pages of history.
type pages struct {
	of      func(token string, limit int) map[string]any
	members map[string]any // nil: one, which is fresh
	asked   []string
}

func (p *pages) Get(_ context.Context, path string, query url.Values, _ string) ([]byte, error) {
	if path != "/query/v1/history" {
		if p.members != nil {
			return json.Marshal(p.members)
		}
		return []byte(`{"summary":{"members":1,"synced":1,"scopes":{"Synced":1},"objects":1}}`), nil
	}
	limit, err := strconv.Atoi(query.Get("limit"))
	if err != nil {
		return nil, err
	}
	p.asked = append(p.asked, query.Get("continue"))
	return json.Marshal(p.of(query.Get("continue"), limit))
}

// sessionOf is one of a client of a server that asks an API, which may be asked for so long.
func sessionOf(t *testing.T, api mcp.API, timeout time.Duration) *sdk.ClientSession {
	t.Helper()
	server, err := mcp.New(mcp.Options{Version: "1", Logger: slog.New(slog.DiscardHandler), Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- server.Run(context.WithoutCancel(t.Context()), api, in, out) }()
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
	return s
}

// page is a page of some rows: of what is recorded, by its position, and of what the log has lost, 0.
func page(next string, positions ...int) map[string]any {
	items := []any{}
	for i, p := range positions {
		x := map[string]any{"position": p, "time": "2026-01-02T03:04:05Z", "type": "Object", "transition": "Changed", "name": fmt.Sprint("n-", p), "message": strings.Repeat("m", 250)}
		if p == 0 {
			x = map[string]any{"position": 0, "time": "2026-01-02T03:04:05Z", "type": "Gap", "transition": "Gap", "message": fmt.Sprint(strings.Repeat("lost ", 50), i)}
		}
		items = append(items, x)
	}
	return map[string]any{"items": items, "continue": next}
}

// TestHistory_GoesOnWhereNothingMayBeRead: pages without anything are not answers, but for those of more than a call takes.
func TestHistory_GoesOnWhereNothingMayBeRead(t *testing.T) {
	api := &pages{}
	s := sessionOf(t, api, 0)
	api.of = func(token string, _ int) map[string]any {
		if n, _ := strconv.Atoi(token); n < 5 {
			return page(fmt.Sprint(n + 1))
		}
		return page("", 7)
	}
	if out := into[mcp.HistoryOutput](t, s, "history", nil); out.Shown != 1 || out.Cut != nil || len(api.asked) != 6 {
		t.Errorf("asked %q: %+v", api.asked, out)
	}
	api.asked, api.of = nil, func(token string, _ int) map[string]any {
		n, _ := strconv.Atoi(token)
		return page(fmt.Sprint(n + 1))
	}
	out := into[mcp.HistoryOutput](t, s, "history", nil)
	if out.Shown != 0 || out.Cut == nil || !out.Cut.More || out.Cut.Left != 0 || out.Cut.Continue != "0."+fmt.Sprint(len(api.asked)) || len(api.asked) != 10 {
		t.Errorf("asked %q: %+v", api.asked, out)
	}
	out = into[mcp.HistoryOutput](t, s, "history", args{"continue": out.Cut.Continue})
	if want := "0.20"; out.Cut == nil || out.Cut.Continue != want {
		t.Errorf("it goes on at %+v, want %s", out.Cut, want)
	}
}

// TestHistory_EndsInTime: a call that finds nothing for long says where to go on, instead of taking longer than it may.
func TestHistory_EndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &pages{of: func(token string, _ int) map[string]any {
			time.Sleep(100 * time.Millisecond)
			n, _ := strconv.Atoi(token)
			return page(fmt.Sprint(n + 1))
		}}
		out := into[mcp.HistoryOutput](t, sessionOf(t, api, time.Second), "history", nil)
		if out.Cut == nil || out.Cut.Continue != "0.7" || len(api.asked) != 7 {
			t.Errorf("asked %q: %+v", api.asked, out)
		}
	})
}

// TestHistory_PassesWhatTheLogHasLost, of which a page has any number beside what it is asked for.
func TestHistory_PassesWhatTheLogHasLost(t *testing.T) {
	var log []int // as it is read
	for i := range 60 {
		log = append(log, slices.Repeat([]int{0}, i%7*i%5)...)
		log = append(log, i+1)
	}
	log = slices.Concat(log, slices.Repeat([]int{0}, 90), []int{61}, slices.Repeat([]int{0}, 3))
	api := &pages{of: func(token string, limit int) map[string]any {
		from := 0
		if token != "" {
			n, _ := strconv.Atoi(token)
			from = slices.Index(log, n) + 1
		}
		for end := from; end < len(log); end++ {
			if log[end] > 0 && end+1-from >= limit {
				return page(fmt.Sprint(log[end]), log[from:end+1]...)
			}
		}
		return page("", log[from:]...)
	}}
	s := sessionOf(t, api, 0)
	for _, limit := range []int{1, 2, 25, 100} {
		a, found, gaps, counted := args{"limit": limit}, []string{}, 0, 0
		for {
			out := into[mcp.HistoryOutput](t, s, "history", a)
			for _, row := range out.Untrusted.Transitions {
				if row.Type == "Gap" {
					gaps++
				} else {
					found = append(found, row.Object.Name)
				}
			}
			if counted += out.Gaps; out.Cut == nil || !out.Cut.More {
				break
			}
			a["continue"] = out.Cut.Continue
		}
		if len(found) != 61 || sets.New(found...).Len() != 61 {
			t.Errorf("%d at a time: %d rows: %q", limit, len(found), found)
		}
		if want := len(log) - 61; counted != want || gaps > want || gaps < want-90 {
			t.Errorf("%d at a time: %d gaps are counted, %d rows; want %d", limit, counted, gaps, want)
		}
	}
}

// TestHistory_LongestTransitionFits, whatever is long, and whatever is not fresh.
func TestHistory_LongestTransitionFits(t *testing.T) {
	x := map[string]any{"position": 1, "time": began, "memberTime": began, "from": began, "to": began, "more": 1000}
	for _, field := range []string{"type", "transition", "member", "kind", "namespace", "name", "subject", "policy", "action", "by", "source", "severity", "violation", "exempt", "exemption", "message"} {
		x[field] = long
	}
	var changes, stale, absent []any
	for i := range 250 {
		changes = append(changes, map[string]any{"path": fmt.Sprint("spec.", i, wide), "before": long, "after": []string{long}, "cut": true})
		stale = append(stale, map[string]any{"member": long, "kind": long, "state": long, "age": long})
		absent = append(absent, long)
	}
	x["changes"] = changes
	lost := page("", 0)["items"].([]any)[0]
	api := &pages{
		members: map[string]any{"summary": map[string]any{"scopes": map[string]any{"Stale": 250}}, "items": []any{map[string]any{"name": "m", "notSynced": stale}}},
		of: func(token string, limit int) map[string]any {
			out := map[string]any{"items": []any{lost, x, lost, x}, "continue": "2", "absent": absent, "failing": long, "since": began}
			if limit == 1 {
				out["items"], out["continue"] = []any{lost, x}, strings.Repeat("c", 150)
			}
			if limit == 1 && token != "" {
				out["items"] = []any{x}
			}
			return out
		},
	}
	s := sessionOf(t, api, 0)
	for what, a := range map[string]args{"a page": nil, "one beside what is lost": {"limit": 1}, "one": {"limit": 1, "continue": "1.x"}} {
		out := into[mcp.HistoryOutput](t, s, "history", a)
		rows := out.Untrusted.Transitions
		if last := rows[len(rows)-1]; last.Object == nil || len(last.Changes) == 0 || len(last.Changes)+last.More != 1250 || out.Cut.Texts == 0 {
			t.Errorf("%s: %+v", what, out)
		}
	}
}
