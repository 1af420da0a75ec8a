package policyquery_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
)

// namespacesOf is the RBAC of all members: users may list what is in the namespace of their name.
type namespacesOf struct{}

func (namespacesOf) Review(_ context.Context, _ string, r *authorizationv1.SubjectAccessReview) (bool, error) {
	namespace := r.Spec.ResourceAttributes.Namespace
	return namespace != "" && r.Spec.User == "team:"+namespace, nil
}

// granted is a fleet with three kinds of callers: root may everything, eu all of fleet/a, and shop and
// bank what is in their namespaces.
func granted(t *testing.T, more ...func(*queryapi.Options, *policyquery.Violations)) *testServer {
	t.Helper()
	j, hub := hubbed(t, func(o *queryapi.Options, q *policyquery.Violations) {
		o.Authorization.Members, o.Authorization.UserPrefix = namespacesOf{}, "team:"
		for _, change := range more {
			change(o, q)
		}
	})
	hub.who = func(s *authorizationv1.SubjectAccessReviewSpec) bool {
		a := s.ResourceAttributes
		switch s.User {
		case "root":
			return true
		case "reader": // of the hub alone
			return a.Group == "federator.dev"
		case "eu":
			return a.Group == "members.federator.dev" && a.Namespace == "fleet" && a.Name == "a"
		}
		return false
	}
	return j
}

// joinWith has a member join that has namespaces.
func (j *testServer) joinWith(member string, namespaces ...string) {
	j.t.Helper()
	j.join(member)
	scope, err := j.index.OpenScopeAs(member, "Namespace", "v1", "namespaces")
	if err != nil {
		j.t.Fatal(err)
	}
	var items []aggregate.Item
	for _, n := range namespaces {
		items = append(items, scope.Item(&aggregate.Record{Name: n, UID: n, ResourceVersion: "1", Body: []byte("{}")}))
	}
	if _, err := scope.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
		j.t.Fatal(err)
	}
}

func (j *testServer) policies(query string) (*policyquery.PolicyList, map[string]policyquery.PolicyItem) {
	j.t.Helper()
	var list policyquery.PolicyList
	j.into("/query/v1/policies"+query, &list)
	byName := map[string]policyquery.PolicyItem{}
	for _, i := range list.Items {
		byName[i.Name] = i
	}
	return &list, byName
}

// TestPolicies_CountsAreThoseOfTheViolationsThatTheCallerMayRead, for every kind of caller, on random fleets.
func TestPolicies_CountsAreThoseOfTheViolationsThatTheCallerMayRead(t *testing.T) {
	j := granted(t)
	for _, m := range []string{"fleet/a", "fleet/b", "other/c"} {
		j.joinWith(m, "shop", "bank", "zoo")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		member := []string{"fleet/a", "fleet/b", "other/c"}[random.IntN(3)]
		namespace := []string{"shop", "bank", "zoo"}[random.IntN(3)]
		j.putIn(member, namespace, fmt.Sprint("web", random.IntN(9)), random.IntN(5), []string{"", "secret"}[random.IntN(2)])
	}
	j.awaitEvaluation()
	seen := map[string]int{}
	for _, user := range []string{"root", "eu", "shop", "bank", "reader", "nobody"} {
		j.token = user
		want := map[string]int{}
		found, _ := j.list("limit=5000")
		for _, i := range found.Items {
			want[i.Policy] += len(i.Violations)
		}
		list, byName := j.policies("")
		for name, item := range byName {
			switch {
			case item.Withheld != strings.Contains(strings.Join(found.Withheld, " "), name):
				t.Errorf("%s: %s is withheld: %v, of violations: %v", user, name, item.Withheld, found.Withheld)
			case item.Withheld && (item.Violations != nil || item.Exempt != nil || item.Errors != nil || item.Unknown != nil || item.Subjects != nil || item.Cost != nil):
				t.Errorf("%s: %s is withheld and has counts: %+v", user, name, item)
			case !item.Withheld && *item.Violations != want[name]:
				t.Errorf("%s: %d violations of %s, listed are %d", user, *item.Violations, name, want[name])
			}
		}
		seen[user] = want["replicas"]
		if forbidden := list.HubForbidden != ""; forbidden != (user != "root" && user != "reader") {
			t.Errorf("%s: hubForbidden is %q", user, list.HubForbidden)
		}
		if item := byName["replicas"]; (item.Mode == "") != (list.HubForbidden != "") || (item.State == "") != (item.Mode == "") {
			t.Errorf("%s sees mode %q and state %q", user, item.Mode, item.State)
		}
		if item := byName["replicas"]; (item.Subjects == nil) != (user == "shop" || user == "bank") {
			t.Errorf("%s: subjects are %v", user, item.Subjects)
		}
	}
	if seen["root"] <= seen["eu"] || seen["eu"] == 0 || seen["shop"] == 0 || seen["bank"] == 0 || seen["nobody"] != 0 {
		t.Errorf("the fleet shows nothing: %v", seen)
	}
}

func TestPolicies_SaysWhatPoliciesAre(t *testing.T) {
	j := start(t, nil)
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	j.put("fleet/a", "big", 5, "")
	j.awaitEvaluation()
	j.now.Store(1_000_000)
	j.series.Tick(j.clock())
	list, _ := j.policies("")
	if len(list.Items) != 2 || list.Items[0].Name != "names" || list.Items[0].Subject != "view" || list.Items[0].Cost != nil || list.Items[0].Rego != nil {
		t.Errorf("%+v", list)
	}
	j.put("fleet/a", "web2", 1, "")
	j.awaitEvaluation()
	j.now.Store(1_000_020)
	_, byName := j.policies("?policy=replicas")
	item := byName["replicas"]
	if len(byName) != 1 || item.Title != "Replicas" || item.Severity != "high" || item.Mode != "Observe" || item.State != "Observing" || item.Subject != "object" ||
		fmt.Sprint(item.Kinds) != "[Deployment.apps]" || *item.Subjects != 3 || *item.Violations != 2 || *item.Unknown != 0 || item.Cost == nil || item.Cost.EvaluationsPerSecond != 0.05 || item.Cost.WindowSeconds != 20 {
		t.Errorf("%+v, %+v", item, item.Cost)
	}
	if len(item.Rego) != 1 || item.Rego[0].File != "0.rego" || !strings.Contains(item.Rego[0].Text, "package replicas") {
		t.Errorf("%+v", item.Rego)
	}
	// Costs are of the last minutes, however long nobody has asked; where these were not sampled, they are not known.
	for j.now.Load() < 1_003_600 {
		j.series.Tick(j.clock())
		j.now.Add(10)
	}
	if _, byName = j.policies("?policy=replicas"); byName["replicas"].Cost == nil || byName["replicas"].Cost.EvaluationsPerSecond != 0 || byName["replicas"].Cost.WindowSeconds > 300 {
		t.Errorf("after an hour in which nobody asked: %+v", byName["replicas"].Cost)
	}
	j.now.Add(3600)
	if _, byName = j.policies("?policy=replicas"); byName["replicas"].Cost != nil {
		t.Errorf("an hour after the last sample: %+v", byName["replicas"].Cost)
	}
	j.fails("/query/v1/policies?policy=none", http.StatusNotFound)
	j.fails("/query/v1/policies?policy=a&policy=b", http.StatusBadRequest)
	j.fails("/query/v1/policies?x=y", http.StatusBadRequest)
}

// TestPolicies_ExemptionsNameNoHiddenMembers: they are of FleetPolicies.
func TestPolicies_ExemptionsNameNoHiddenMembers(t *testing.T) {
	j := granted(t)
	more := []policy.Binding{{Name: "replicas", Package: "replicas", Exemptions: []policy.Exemption{
		{Members: policy.MemberSelector{Names: []string{"hidden/b"}}, Reason: "it is known"},
	}}}
	if err := j.loop.Configure(t.Context(), load(t, "high"), more); err != nil {
		t.Fatal(err)
	}
	j.join("fleet/a")
	j.awaitEvaluation()
	for user, want := range map[string]bool{"root": true, "reader": true, "eu": false, "nobody": false} {
		j.token = user
		resp := j.get(t.Context(), "/query/v1/policies?policy=replicas")
		var text strings.Builder
		if err := resp.Write(&text); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text.String(), "hidden/b") != want {
			t.Errorf("%s: %s", user, text.String())
		}
	}
}

// TestPolicies_SayWhichLinesTakeMost to who is told what the policy takes, and only of the policy that they ask about.
func TestPolicies_SayWhichLinesTakeMost(t *testing.T) {
	j := granted(t)
	for _, m := range []string{"fleet/a", "other/c"} {
		j.joinWith(m, "shop", "bank")
	}
	write := func(from int) {
		for i := range 600 { // all differ, so that each is evaluated
			j.putIn([]string{"fleet/a", "other/c"}[i%2], "shop", fmt.Sprint("web", i), from+i, "")
		}
		j.awaitEvaluation()
	}
	samples := func() int {
		_, n := j.loop.State().DearestLines("replicas", 1)
		return n
	}
	j.token = "root"
	write(1)
	j.now.Store(1_000_000)
	j.series.Tick(j.clock())
	for from := 1001; from == 1001 || samples() == 0; from += 1000 { // a fast machine has the time of a sample later
		if from > 100_000 {
			t.Fatal("60,000 evaluations, and none was sampled")
		}
		write(from)
	}
	j.now.Store(1_000_020)
	_, byName := j.policies("?policy=replicas")
	cost := byName["replicas"].Cost
	if cost == nil || cost.Samples == 0 || len(cost.Rules) == 0 || len(cost.Rules) > 10 {
		t.Fatalf("%+v", cost)
	}
	sum := 0.0
	for _, r := range cost.Rules {
		if sum += r.Share; r.File != "0.rego" || r.Line == 0 || r.Rule != "violation" || r.Share < 0 || r.Micros <= 0 {
			t.Errorf("%+v of %+v", r, cost)
		}
	}
	if sum < 0.98 || sum > 1.02 {
		t.Errorf("the shares add up to %v: %+v", sum, cost.Rules)
	}
	h, _ := j.loop.State().Health("replicas")
	if first, per := cost.Rules[0], float64(h.Nanoseconds)/1e3/float64(h.Evaluations); first.Micros < (first.Share-0.001)*per-0.001 || first.Micros > (first.Share+0.001)*per+0.001 {
		t.Errorf("%+v of evaluations of %v µs", first, per)
	}
	if _, byName := j.policies(""); byName["replicas"].Cost == nil || byName["replicas"].Cost.Rules != nil || byName["replicas"].Cost.Samples != 0 {
		t.Errorf("in the list of all: %+v", byName["replicas"].Cost)
	}
	for _, user := range []string{"eu", "shop", "reader", "nobody"} {
		j.token = user
		if _, byName := j.policies("?policy=replicas"); byName["replicas"].Cost != nil {
			t.Errorf("%s is told %+v", user, byName["replicas"].Cost)
		}
	}
}

// TestPolicies_SayWhoHasRunTheirTests to who is shown their Rego.
func TestPolicies_SayWhoHasRunTheirTests(t *testing.T) {
	j := granted(t)
	j.joinWith("fleet/a", "shop")
	sources := []policy.Source{}
	for _, name := range []string{"git", "own", "dir"} {
		sources = append(sources, policy.Source{Name: name, Files: []policy.File{
			{Path: "p.rego", Data: []byte("# METADATA\n# title: x\n# custom: {severity: low, kinds: [Deployment.apps]}\npackage " + name + "\n\nviolation contains {\"msg\": \"x\"} if input.object.spec.replicas == 77\n")},
			{Path: "p_test.rego", Data: []byte("package " + name + "_test\n\ntest_a if true\n\ntest_b if true\n")},
		}})
	}
	set, err := policy.Load(sources, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.loop.Configure(t.Context(), set, []policy.Binding{{Name: "git", Package: "git"}, {Name: "own", Package: "own"}, {Name: "dir", Package: "dir"}}); err != nil {
		t.Fatal(err)
	}
	j.awaitEvaluation()
	j.token = "root"
	for name, by := range map[string]policyquery.TestedBy{"git": policyquery.TestedByGate, "own": policyquery.TestedAtBuild, "dir": policyquery.NotTested} {
		_, byName := j.policies("?policy=" + name)
		if got := byName[name].Tests; got == nil || got.Rego != 2 || got.By != by {
			t.Errorf("%s: %+v, want 2 by %q", name, got, by)
		}
	}
	_, byName := j.policies("")
	if byName["git"].Tests != nil {
		t.Errorf("in the list of all: %+v", byName["git"].Tests)
	}
	j.token = "nobody"
	if _, byName := j.policies("?policy=git"); byName["git"].Tests != nil || byName["git"].Rego != nil {
		t.Errorf("nobody is told %+v", byName["git"].Tests)
	}
}
