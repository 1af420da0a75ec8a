package alerts_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/notify/alerts"
	"federator.dev/federator/pkg/notify/selection"
	"federator.dev/federator/pkg/policy"
)

// failed fails on phase x; twice is Unknown while a member's Pods are incomplete; images judges keys of a view, and versions members.
var policies = []string{`# METADATA
# title: Pods do not fail
# custom: {severity: high, kinds: ["Pod"]}
package failed

violation contains {"msg": sprintf("it has failed: %v", [reason])} if {
	input.object.status.phase == "Failed"
	some reason in input.object.status.reasons
}
violation contains {"msg": to_number(input.object.status.phase)} if input.object.status.phase == "x"
`, `# METADATA
# title: Names are used once
# custom: {severity: low, kinds: ["Pod"]}
package twice

violation contains {"msg": sprintf("it is in %s, too", [member])} if {
	some member, _ in data.fleet.by_name["Pod"][input.ref.namespace][input.ref.name]
	member != input.ref.member
}
`, `# METADATA
# title: Phases are rare
# custom: {severity: medium, kinds: ["Pod"], subject: view.phases}
package phases

view.phases[input.object.status.phase] contains true

violation contains {"msg": "it is frequent"} if count(input.entries) > 3
`, `# METADATA
# title: Members are of the last version
# custom: {severity: critical, subject: member}
package versions

violation contains {"msg": "it is old"} if data.fleet.members[input.member.name].version != "v1.36.3"
`}

// world is an index that an engine judges.
type world struct {
	index    *aggregate.Index
	engine   *policy.Engine
	cursor   *aggregate.Cursor
	set      *policy.Set
	bindings []policy.Binding
	now      time.Time
	version  int // of what was put last
	scopes   map[string]*aggregate.Scope
}

func newWorld(t testing.TB, members ...string) *world {
	t.Helper()
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{index: x, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), scopes: map[string]*aggregate.Scope{}}
	var src policy.Source
	for i, text := range policies {
		src.Files = append(src.Files, policy.File{Path: fmt.Sprintf("p%d.rego", i), Data: []byte(text)})
	}
	if w.set, err = policy.Load([]policy.Source{src}, policy.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	w.bindings, _ = policy.DefaultBindings(w.set, nil)
	for i, m := range members {
		version := "v1.36.3"
		if i == 1 {
			version = "v1.35.0"
		}
		if err := x.PutMember(aggregate.Member{Name: m, UID: "uid-" + m, Version: version, Labels: []aggregate.Label{{Key: "region", Value: m[len(m)-1:]}}}); err != nil {
			t.Fatal(err)
		}
		if w.scopes[m], err = x.OpenScope(m, "Pod", "v1"); err != nil {
			t.Fatal(err)
		}
		w.status(t, m, aggregate.Synced)
	}
	clock := func() time.Time { return w.now }
	if w.engine, err = policy.NewEngine(policy.EngineOptions{Set: w.set, Bindings: w.bindings, Clock: clock, Limits: policy.Limits{Evaluation: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.engine.Reset(t.Context(), x.Snapshot(), nil); err != nil {
		t.Fatal(err)
	}
	w.cursor = x.Cursor(x.Snapshot())
	return w
}

func (w *world) status(t testing.TB, member string, state aggregate.State) {
	t.Helper()
	w.scopes[member].SetStatus(aggregate.Status{State: state})
}

// put puts a Pod into a member's next commit.
func (w *world) put(member, name, phase string, reasons ...string) {
	s := w.scopes[member]
	w.version++
	s.Upsert(s.Item(&aggregate.Record{
		Namespace: "shop", Name: name, UID: "uid-" + name, ResourceVersion: fmt.Sprint(w.version),
		Body: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"shop"},"status":{"phase":%q,"reasons":["%s"]}}`, name, phase, strings.Join(reasons, `","`)),
	}))
}

// judge judges all that was put a minute later, and returns the state.
func (w *world) judge(t testing.TB) *policy.State {
	t.Helper()
	w.now = w.now.Add(time.Minute)
	for _, s := range w.scopes {
		if _, err := s.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if batch, ok := w.cursor.Poll(); ok {
		if _, err := w.engine.Apply(t.Context(), batch, nil); err != nil {
			t.Fatal(err)
		}
	}
	return w.engine.State()
}

// exempt exempts Pods, and nothing else, of all policies.
func (w *world) exempt(t testing.TB, names ...string) {
	t.Helper()
	for i := range w.bindings {
		w.bindings[i].Exemptions = nil
		if len(names) > 0 {
			w.bindings[i].Exemptions = []policy.Exemption{{Names: names, Reason: "known"}}
		}
	}
	if _, err := w.engine.Configure(t.Context(), w.set, w.bindings); err != nil {
		t.Fatal(err)
	}
}

// newAlerts returns the alerts of violations and policies, unless rules say otherwise.
func newAlerts(t testing.TB, text bool, groupBy []string, rules ...selection.Rule) *alerts.Alerts {
	t.Helper()
	if rules == nil {
		rules = []selection.Rule{{Types: []string{"Violation", "Policy"}}}
	}
	s, err := selection.New(selection.Options{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	a, err := alerts.New(alerts.Options{Selection: s, GroupBy: groupBy, IncludeText: text})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// lines are alerts as text: labels, minutes since the world began, and the summary.
func (w *world) lines(list []alerts.Alert) (out []string) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, a := range list {
		var parts []string
		for _, name := range []string{"alertname", "policy", "member", "severity", "kind", "namespace", "name", "key", "others", "source", "halt", "plan", "stop"} {
			if v, is := a.Labels[name]; is {
				parts = append(parts, v)
			}
		}
		out = append(out, fmt.Sprintf("%s | %v | %s", strings.Join(parts, " "), a.Since.Sub(begin).Minutes(), a.Summary))
	}
	return out
}
