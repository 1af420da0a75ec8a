package policyquery_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/queryapi"
)

func regoPath(query string) string { return "/query/v1/rego?query=" + url.QueryEscape(query) }

// evaluate returns the answer to a Rego query.
func (j *testServer) evaluate(query string) *policy.Answer {
	j.t.Helper()
	answer := &policy.Answer{}
	j.into(regoPath(query), answer)
	return answer
}

func rowsOf(t *testing.T, a *policy.Answer) string {
	t.Helper()
	text, err := json.Marshal(a.Rows)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// publish has each process know which one judges which member, and that some are lost.
func publish(processes []*sharer, judges map[string]string, lost ...string) {
	for _, p := range processes {
		a := &queryapi.Assignment{Self: p.id, Judges: judges, Changed: make(chan struct{})}
		for _, o := range processes {
			if o != p && !strings.Contains(strings.Join(lost, " "), o.id) {
				a.Peers = append(a.Peers, queryapi.Peer{ID: o.id, Epoch: o.index.First(), URL: o.listener.URL, Client: o.listener.Client()})
			}
		}
		p.assignment.Store(a)
	}
}

// sharedQueries read the fleet in all ways.
var sharedQueries = []string{
	`data.fleet.names`,
	`x := count(data.fleet.objects["Deployment.apps"][m].shop)`,
	`d := data.fleet.objects["Deployment.apps"][m][ns][n]; d.spec.replicas < 3`,
	`data.fleet.objects["Deployment.apps"][m].shop[n].spec.replicas`,
	`data.fleet.objects["Deployment.apps"]["fleet/b"].shop.web.spec.text`,
	`data.fleet.objects["Deployment.apps"]["fleet/b"].shop.none`,
	`count(data.fleet.objects["Deployment.apps"]["fleet/c"].shop)`,
	`data.fleet.by_name["Deployment.apps"].shop.web[m].spec.replicas`,
	`x := {m | data.fleet.by_name["Deployment.apps"].shop.web[m]}`,
	`some kind in ["Deployment.apps"]; x := count(data.fleet.objects[kind][m])`,
	`some kind, m; data.fleet.objects[kind][m].shop.web.metadata.name == "web"`,
	`data.fleet.scopes[m][k]`,
	`data.fleet.scopes["fleet/b"]["Deployment.apps"]`,
	`data.fleet.members[m].apis`,
	`data.fleet.members["fleet/b"].name`,
	`data.fleet.views.names.names[key][_].ref.member`,
	`x := count(data.fleet.views)`,
	`1 + 1`,
}

// TestSharedRego_EqualsOneProcess: any process of a shared fleet answers what one answers that has the whole fleet.
func TestSharedRego_EqualsOneProcess(t *testing.T) {
	processes, _ := pair(t, load(t, "high"), bindings)
	one := start(t, nil)
	put := func(j *testServer, members ...string) {
		for _, member := range members {
			for n, name := range []string{"web", "api", "only-" + member[len("fleet/"):]} {
				j.put(member, name, n+2, "text of "+name+" in "+member)
			}
		}
	}
	put(processes[0].testServer, "fleet/a", "fleet/c")
	put(processes[1].testServer, "fleet/b")
	for _, member := range []string{"fleet/a", "fleet/b", "fleet/c"} {
		one.join(member)
		if err := one.index.PutMember(aggregate.Member{Name: member, UID: member, Serves: []aggregate.Kind{"Deployment.apps"}}); err != nil {
			t.Fatal(err)
		}
	}
	put(one, "fleet/a", "fleet/b", "fleet/c")
	tell(t, processes)
	one.awaitEvaluation()
	for _, query := range sharedQueries {
		want := rowsOf(t, one.evaluate(query))
		for _, p := range processes {
			p.until(func() error {
				got := p.evaluate(query)
				if text := rowsOf(t, got); text != want || got.Absent != nil || got.Revision == 0 {
					return fmt.Errorf("%s is asked %s, revision %d, absent %v:\n%s\nwant\n%s", p.id, query, got.Revision, got.Absent, text, want)
				}
				return nil
			})
		}
	}
	for _, p := range processes {
		for _, wrong := range []string{`data.fleet.none`, `x := `} {
			one := one.fails(regoPath(wrong), http.StatusBadRequest)
			if got := p.fails(regoPath(wrong), http.StatusBadRequest); got != one {
				t.Errorf("%s says of %s: %s, want %s", p.id, wrong, got, one)
			}
		}
		p.fails(regoPath(`data.fleet.names`)+"&member=fleet/a", http.StatusBadRequest)
	}
}

// TestSharedRego_ReadsWhatTheCallerMay: nothing of what a caller may not read is in an answer, whichever process judges it.
func TestSharedRego_ReadsWhatTheCallerMay(t *testing.T) {
	processes, hub := pair(t, load(t, "high"), bindings)
	hub.who = func(s *authorizationv1.SubjectAccessReviewSpec) bool {
		a := s.ResourceAttributes
		switch s.User {
		case "ann": // all
			return true
		case "bob": // a member of one process
			return a.Namespace == "fleet" && a.Name == "a"
		case "eve": // a member of the other one
			return a.Namespace == "fleet" && a.Name == "b"
		}
		return false
	}
	for _, p := range processes {
		for _, member := range p.judges {
			p.put(member, "web", 1, "secret of "+member)
		}
	}
	tell(t, processes)
	for _, p := range processes {
		p.until(func() error { // which has taken in what the other one tells
			p.token = "ann"
			if got := rowsOf(t, p.evaluate(`x := count(data.fleet.views.names.names.web)`)); !strings.Contains(got, `"x":3`) {
				return fmt.Errorf("%s", got)
			}
			return nil
		})
		for user, members := range map[string]string{"ann": "fleet/a fleet/b fleet/c", "bob": "fleet/a", "eve": "fleet/b", "carl": ""} {
			p.token = user
			for _, query := range sharedQueries {
				text := rowsOf(t, p.evaluate(query))
				if query == `data.fleet.scopes["fleet/b"]["Deployment.apps"]` && strings.Contains(text, "Synced") != strings.Contains(members, "fleet/b") {
					t.Errorf("%s asks %s %s: %s", user, p.id, query, text)
				}
				for _, member := range []string{"fleet/a", "fleet/b", "fleet/c"} {
					if !strings.Contains(members, member) && strings.Contains(text, member) {
						t.Errorf("%s asks %s %s: %s", user, p.id, query, text)
					}
				}
			}
			var want []any
			for _, m := range strings.Fields(members) {
				want = append(want, m)
			}
			if got := p.evaluate(`x := [m | data.fleet.objects["Deployment.apps"][m].shop.web.spec.text]`).Rows[0].Bindings["x"]; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s asks %s for texts: %v, want %v", user, p.id, got, want)
			}
		}
	}
}

// TestSharedRego_SaysWhoIsAway: members whose judge is lost are there, and what they have is Unknown; who may not know of
// them is not told.
func TestSharedRego_SaysWhoIsAway(t *testing.T) {
	processes, hub := pair(t, load(t, "high"), bindings)
	hub.who = func(s *authorizationv1.SubjectAccessReviewSpec) bool {
		return s.User == "ann" || s.ResourceAttributes.Namespace == "fleet" && s.ResourceAttributes.Name == "a"
	}
	for _, p := range processes {
		for _, member := range p.judges {
			p.put(member, "web", 1, "")
		}
	}
	tell(t, processes)
	p := processes[0]
	for _, how := range []string{"it does not answer", "it is known to be lost"} {
		if how == "it does not answer" {
			processes[1].listener.CloseClientConnections()
			processes[1].listener.Close()
		} else {
			publish(processes[:1], p.Assignment().Judges)
		}
		p.token = "ann"
		got := p.evaluate(`s := data.fleet.scopes[m]["Deployment.apps"]`)
		if text := rowsOf(t, got); fmt.Sprint(got.Absent) != "[fleet/b]" || strings.Count(text, "Synced") != 2 || !strings.Contains(text, `{"m":"fleet/b","s":"Unknown"}`) {
			t.Errorf("%s: absent %v: %s", how, got.Absent, text)
		}
		if got := p.evaluate(`n := data.fleet.names; x := [m | data.fleet.objects["Deployment.apps"][m]]`); fmt.Sprint(got.Rows[0].Bindings) != "map[n:[fleet/a fleet/b fleet/c] x:[fleet/a fleet/c]]" {
			t.Errorf("%s: %v", how, got.Rows)
		}
		if got := p.evaluate(`data.fleet.scopes["fleet/a"]`); got.Absent != nil {
			t.Errorf("%s: of a member that is judged here, absent %v", how, got.Absent)
		}
		p.token = "bob"
		if got := p.evaluate(`n := data.fleet.names`); got.Absent != nil || fmt.Sprint(got.Rows[0].Bindings) != "map[n:[fleet/a]]" {
			t.Errorf("%s: bob is told %v, absent %v", how, got.Rows, got.Absent)
		}
	}
}

// TestSharedRego_IsBounded: a query that reads too much of others is refused, and says of what; one that names what it reads is not.
func TestSharedRego_IsBounded(t *testing.T) {
	processes, _ := pair(t, load(t, "high"), bindings)
	for n := range 50 {
		processes[1].put("fleet/b", fmt.Sprint("web-", n), 1, strings.Repeat("x", 1000))
	}
	tell(t, processes)
	p := processes[0]
	p.rego.MaxPulled = 10_000
	for _, query := range []string{`count(data.fleet.objects["Deployment.apps"])`, `data.fleet.objects[k][m][ns][n].spec.text`} {
		said := p.fails(regoPath(query), http.StatusRequestEntityTooLarge)
		if !strings.Contains(said, "Deployment.apps") || !strings.Contains(said, "10000 bytes") || !strings.Contains(said, "name members") {
			t.Errorf("%s: %s", query, said)
		}
	}
	for _, query := range []string{`data.fleet.objects["Deployment.apps"][m].shop["web-7"].spec.text`, `x := sum([r | r := data.fleet.objects["Deployment.apps"][m][ns][n].spec.replicas])`} {
		if got := p.evaluate(query); len(got.Rows) != 1 {
			t.Errorf("%s: %v", query, got.Rows)
		}
	}
}

// TestSharedRego_FollowsAMoveOfAMember: while a member moves, its objects are in an answer once, or it is said that they are
// not known.
func TestSharedRego_FollowsAMoveOfAMember(t *testing.T) {
	processes, _ := pair(t, load(t, "high"), bindings)
	from, to := processes[0], processes[1]
	for _, p := range processes {
		for _, member := range p.judges {
			p.put(member, "web", 1, "")
		}
	}
	tell(t, processes)
	check := func(step string) {
		t.Helper()
		for _, p := range processes {
			got := p.evaluate(`x := [[m, n] | data.fleet.objects["Deployment.apps"][m].shop[n]]; s := data.fleet.scopes["fleet/c"]["Deployment.apps"]`)
			missing := fmt.Sprint(got.Absent) == "[fleet/c]" && got.Rows[0].Bindings["s"] != "Synced"
			want := "[[fleet/a web] [fleet/b web] [fleet/c web]]"
			if missing {
				want = "[[fleet/a web] [fleet/b web]]"
			}
			if len(got.Rows) != 1 || fmt.Sprint(got.Rows[0].Bindings["x"]) != want {
				t.Errorf("%s: %s says %v, absent %v", step, p.id, got.Rows, got.Absent)
			}
		}
	}
	role := func(p *sharer, r aggregate.Role) {
		t.Helper()
		if err := p.index.PutMember(aggregate.Member{Name: "fleet/c", UID: "fleet/c", Role: r}); err != nil {
			t.Fatal(err)
		}
		p.awaitEvaluation()
	}
	check("before")
	role(to, aggregate.Joining)
	check("the next one begins to read it")
	to.serve("fleet/c", "deployments")
	to.put("fleet/c", "web", 1, "")
	check("it has read it")
	role(to, aggregate.Judge)
	check("both judge it")
	publish(processes, map[string]string{"fleet/a": "p-0", "fleet/b": "p-1", "fleet/c": "p-1"})
	check("all know it")
	from.index.RemoveMember("fleet/c")
	check("it has gone")
	from.awaitEvaluation()
	check("that is evaluated")
	publish(processes, map[string]string{"fleet/a": "p-0", "fleet/b": "p-1", "fleet/c": "p-0"})
	check("a process is said to judge what it has not")
}
