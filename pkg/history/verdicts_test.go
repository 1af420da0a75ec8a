package history_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/policy"
)

const failedPods = `# METADATA
# title: Pods do not fail
# custom: {severity: high, kinds: ["Pod"]}
package failed

violation contains {"msg": "it has failed", "details": {"why": object.get(input.object.status, "reason", "")}} if input.object.status.phase == "Failed"
violation contains {"msg": to_number(input.object.status.phase)} if input.object.status.phase == "x"
`

func loaded(t *testing.T, rego string) *policy.Set {
	t.Helper()
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "p.rego", Data: []byte(rego)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

var noFailures = []policy.Binding{{Name: "no-failures", Package: "failed"}}

// judge evaluates a policy on the index, and records what becomes of its verdicts, until stop.
func (r *rig) judge(t *testing.T, rego string) (loop *enforce.Loop, stop func()) {
	t.Helper()
	return r.judgeBy(t, loaded(t, rego), noFailures)
}

func (r *rig) judgeBy(t *testing.T, set *policy.Set, bindings []policy.Binding) (loop *enforce.Loop, stop func()) {
	t.Helper()
	loop, err := enforce.New(enforce.Options{Index: r.index, Set: set, Bindings: bindings})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = loop.Run(ctx) })
	running.Go(func() { _ = r.FollowVerdicts(ctx, loop) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return loop, stop
}

// settled waits until all verdicts of what is committed are recorded that will be, which a marker proves: the verdict
// on an object that is put last.
func (r *rig) settled(t *testing.T, s *aggregate.Scope, marker string) {
	t.Helper()
	put(t, s, pod(marker, 1, `{"phase":"Failed"}`))
	r.release(t)
	for {
		last := r.Span().Last
		for _, x := range r.records(t, history.Query{Name: marker, Policy: "no-failures"}) {
			if x.Transition == history.Opened {
				return
			}
		}
		select {
		case <-r.More(last):
		case <-t.Context().Done():
			t.Fatal("nothing more is recorded")
		}
	}
}

// onWeb returns what is recorded of the verdicts on the Pod web.
func (r *rig) onWeb(t *testing.T) (lines []string) {
	t.Helper()
	for _, x := range r.records(t, history.Query{Policy: "no-failures", Name: "web"}) {
		lines = append(lines, strings.TrimSpace(x.Transition+" "+x.ResourceVersion+" "+x.Violation+" "+x.Message))
	}
	return lines
}

func TestVerdicts_OpenChangeAndClose(t *testing.T) {
	r := newRig(t, t.TempDir(), 1, nil)
	r.begin(t)
	r.judge(t, failedPods)
	s := r.scope(t, "fleet/a", "Pod")
	for i, status := range []string{`{"phase":"Failed"}`, `{"phase":"Failed","reason":"Evicted"}`, `{"phase":"Running"}`} {
		put(t, s, pod("web", i+1, status))
		r.settled(t, s, fmt.Sprint("marker", i))
	}
	s.Delete("shop", "web")
	put(t, s)
	r.settled(t, s, "last")
	same(t, r.onWeb(t), "Opened 1 it has failed", "Changed 2 it has failed", "Closed 2 it has failed")
	all := r.records(t, history.Query{Policy: "no-failures", Name: "web"})
	keys := map[string]bool{}
	for _, x := range all {
		keys[x.Key] = true
		if x.Severity != "high" || x.FirstSeen == nil || x.UID != "uid-web" || x.Resource != "pods" || x.MemberUID != "uid-fleet/a" || x.Reads != nil {
			t.Errorf("record %+v", x)
		}
	}
	if len(keys) != 3 {
		t.Errorf("keys are %v", keys)
	}
}

// A restart records neither what it finds still open nor loses what has closed meanwhile.
func TestVerdicts_GoOnAfterARestart(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, dir, 1, nil)
	r.begin(t)
	_, stop := r.judge(t, failedPods)
	s := r.scope(t, "fleet/a", "Pod")
	put(t, s, pod("web", 1, `{"phase":"Failed"}`), pod("stays", 2, `{"phase":"Failed"}`))
	r.settled(t, s, "marker")
	stop()
	r.stop()

	r = newRig(t, dir, 2, nil)
	r.begin(t)
	r.judge(t, failedPods)
	s = r.scope(t, "fleet/a", "Pod", pod("stays", 2, `{"phase":"Failed"}`), pod("web", 3, `{"phase":"Running"}`))
	r.settled(t, s, "again")
	same(t, r.onWeb(t), "Opened 1 it has failed", "Closed 1 it has failed it was found closed after a restart")
	var stays []string
	for _, x := range r.records(t, history.Query{Policy: "no-failures", Name: "stays"}) {
		stays = append(stays, x.Transition)
	}
	same(t, stays, "Opened")
}

// An evaluation that fails hides violations, which are not closed then.
func TestVerdicts_FailAndAreKnownAgain(t *testing.T) {
	r := newRig(t, t.TempDir(), 1, nil)
	r.begin(t)
	r.judge(t, failedPods)
	s := r.scope(t, "fleet/a", "Pod")
	for i, phase := range []string{"Failed", "x", "Failed", "Running"} {
		put(t, s, pod("web", i+1, fmt.Sprintf(`{"phase":%q}`, phase)))
		r.settled(t, s, fmt.Sprint("marker", i))
	}
	got := r.onWeb(t)
	if len(got) != 4 || got[0] != "Opened 1 it has failed" || !strings.HasPrefix(got[1], "Failed 2") || got[2] != "Known 3" || got[3] != "Closed 3 it has failed" {
		t.Errorf("recorded is %q", got)
	}
}

// Policies that a process learns of later go on as those that it begins with; what another cluster of a member's name did is not what the
// new one does.
func TestVerdicts_GoOnWithPoliciesThatComeLater(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, dir, 1, nil)
	r.begin(t)
	_, stop := r.judge(t, failedPods)
	for _, member := range []string{"fleet/a", "fleet/b"} {
		put(t, r.scope(t, member, "Pod"), pod("web", 1, `{"phase":"Failed"}`))
	}
	r.settled(t, r.scope(t, "fleet/c", "Pod"), "marker")
	stop()
	r.stop()

	r = newRig(t, dir, 2, nil)
	r.begin(t)
	loop, _ := r.judgeBy(t, loaded(t, strings.ReplaceAll(failedPods, "package failed", "package other")), []policy.Binding{{Name: "other", Package: "other"}})
	r.scope(t, "fleet/a", "Pod", pod("web", 1, `{"phase":"Failed"}`))
	if err := r.index.PutMember(aggregate.Member{Name: "fleet/b", UID: "new"}); err != nil {
		t.Fatal(err)
	}
	s, err := r.index.OpenScopeAs("fleet/b", "Pod", "v1", "pods")
	if err != nil {
		t.Fatal(err)
	}
	replace(t, s, pod("web", 1, `{"phase":"Failed"}`)(s))
	r.release(t)
	if err := loop.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := loop.Configure(t.Context(), loaded(t, failedPods), noFailures); err != nil {
		t.Fatal(err)
	}
	r.settled(t, r.scope(t, "fleet/c", "Pod"), "again")
	var got []string
	for _, x := range r.records(t, history.Query{Policy: "no-failures", Name: "web"}) {
		got = append(got, fmt.Sprint(x.Transition, " ", x.MemberUID))
	}
	slices.Sort(got)
	same(t, got, "Closed uid-fleet/b", "Opened new", "Opened uid-fleet/a", "Opened uid-fleet/b")
}

const namedTwice = `# METADATA
# title: A name is used once
# custom: {severity: high, kinds: ["Pod"]}
package failed

violation contains {"msg": "it has failed"} if startswith(input.ref.name, "marker")
violation contains {"msg": "it is there twice"} if {
	some member, _ in data.fleet.by_name["Pod"][input.ref.namespace][input.ref.name]
	member != input.ref.member
}
`

// A violation that is not found while its verdict is Unknown is not closed, and not opened again: only when it is known to be gone, it closes.
func TestVerdicts_DoNotCloseWhileUnknown(t *testing.T) {
	r := newRig(t, t.TempDir(), 1, nil)
	r.begin(t)
	r.judge(t, namedTwice)
	a := r.scope(t, "fleet/a", "Pod", pod("web", 1, `{"phase":"Running"}`))
	b := r.scope(t, "fleet/b", "Pod", pod("web", 1, `{"phase":"Running"}`))
	r.settled(t, a, "marker0")
	for i := range 2 {
		if _, err := b.Replace(nil, aggregate.Status{State: aggregate.OverBudget}); err != nil {
			t.Fatal(err)
		}
		r.settled(t, a, fmt.Sprint("marker-out", i))
		if i == 0 {
			replace(t, b, pod("web", 1, `{"phase":"Running"}`)(b))
		} else {
			replace(t, b)
		}
		r.settled(t, a, fmt.Sprint("marker-back", i))
	}
	var got []string
	for _, x := range r.records(t, history.Query{Policy: "no-failures", Name: "web", Member: "fleet/a"}) {
		got = append(got, x.Transition+" "+x.Message)
	}
	same(t, got, "Opened ", "Closed ")
}

// exempted returns the binding with its exemption of some Pods, or without.
func exempted(is bool) []policy.Binding {
	b := noFailures[0]
	if is {
		b.Exemptions = []policy.Exemption{{Names: []string{"web", "again"}, Reason: "known"}}
	}
	return []policy.Binding{b}
}

// exemptions returns what is recorded of violations of a Pod, and of their exemption.
func (r *rig) exemptions(t *testing.T, name string) (lines []string) {
	t.Helper()
	for _, x := range r.records(t, history.Query{Policy: "no-failures", Name: name}) {
		if x.Transition != history.Failed && x.Transition != history.Known {
			lines = append(lines, strings.Join(strings.Fields(x.Transition+" "+x.Exempt+" "+x.Exemption), " "))
		}
	}
	return lines
}

// That a violation became exempt, or ceased to be, is told apart from other changes of it: also when a failure hides it meanwhile.
func TestVerdicts_SayWhenTheyAreExempted(t *testing.T) {
	r := newRig(t, t.TempDir(), 1, nil)
	r.begin(t)
	loop, _ := r.judge(t, failedPods)
	s := r.scope(t, "fleet/a", "Pod")
	for i, x := range []struct {
		exempt bool
		status string
	}{
		{false, `{"phase":"Failed"}`},
		{true, `{"phase":"Failed"}`},
		{true, `{"phase":"Failed","reason":"Evicted"}`},
		{false, `{"phase":"Failed","reason":"Evicted"}`},
		{false, `{"phase":"x"}`},
		{true, `{"phase":"Failed"}`}, // the failure has hidden that
		{true, `{"phase":"x"}`},
		{true, `{"phase":"Running"}`},
	} {
		if err := loop.Configure(t.Context(), loaded(t, failedPods), exempted(x.exempt)); err != nil {
			t.Fatal(err)
		}
		put(t, s, pod("web", i+1, x.status))
		r.settled(t, s, fmt.Sprint("marker", i))
	}
	same(t, r.exemptions(t, "web"), "Opened", "Changed known Began", "Changed known", "Changed Ended", "Changed known Began", "Closed known")
}

// What became exempt, or closed, while nothing ran is recorded after the restart.
func TestVerdicts_SayWhatWasExemptedMeanwhile(t *testing.T) {
	dir := t.TempDir()
	want := []string{"Opened", "Changed known Began", "Closed known"}
	for i := range want {
		r := newRig(t, dir, uint64(i+1), nil)
		r.begin(t)
		var items []func(*aggregate.Scope) aggregate.Item
		if i < 2 {
			items = append(items, pod("again", 1, `{"phase":"Failed"}`))
		}
		s := r.scope(t, "fleet/a", "Pod", items...)
		_, stop := r.judgeBy(t, loaded(t, failedPods), exempted(i > 0))
		r.settled(t, s, fmt.Sprint("marker", i))
		same(t, r.exemptions(t, "again"), want[:i+1]...)
		stop()
		r.stop()
	}
}
