package policyquery_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
)

const explainWeb = "/query/v1/explain?policy=replicas&member=fleet/a&kind=Deployment.apps&namespace=shop&name=web"

func TestExplain_SaysWhichLinesHeldAndWhatRemediesChange(t *testing.T) {
	j := start(t, nil)
	set := loaded(t, `# METADATA
# title: Two
# custom: {severity: low, kinds: ["Deployment.apps"], remedies: [{action: apply, kind: Deployment.apps}, {action: patch, kind: Deployment.apps}, {action: delete, kind: Deployment.apps}]}
package replicas

violation contains {"msg": "merge", "remedy": {"action": "patch", "patch": {"spec": {"replicas": 3}}}} if input.object.spec.replicas < 3

violation contains {"msg": "operations", "remedy": {"action": "patch", "patch": [{"op": "remove", "path": "/spec/replicas"}]}} if input.object.spec.replicas < 3

violation contains {"msg": "does not fit", "remedy": {"action": "patch", "patch": [{"op": "remove", "path": "/spec/none"}]}} if input.object.spec.replicas < 3

violation contains {"msg": "deletion", "remedy": {"action": "delete"}} if input.object.spec.replicas < 3

violation contains {"msg": "never"} if input.object.spec.replicas > 10
`)
	if err := j.loop.Configure(t.Context(), set, []policy.Binding{{Name: "replicas", Package: "replicas"}}); err != nil {
		t.Fatal(err)
	}
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	j.awaitEvaluation()
	var x policyquery.Explanation
	j.into(explainWeb, &x)
	if x.Finding.State != "Known" || len(x.Finding.Violations) != 4 || x.Repeated != nil || x.Title != "Two" || !strings.Contains(string(x.Input), `"replicas":1`) {
		t.Errorf("%+v", x)
	}
	held := map[int]policyquery.ExplainedLine{}
	for _, l := range x.Lines {
		held[l.Row] = l
	}
	if held[6].Held == 0 || !held[6].Rule || held[14].Held != 0 || len(x.Files) != 1 || !strings.Contains(x.Files[0].Text, held[6].Text) {
		t.Errorf("lines %+v of %+v", x.Lines, x.Files)
	}
	if len(x.Freshness) != 1 || x.Freshness[0].State != "Synced" || len(x.Reads) == 0 || x.Reads[0].Objects[0].Name != "web" {
		t.Errorf("%+v, %+v", x.Freshness, x.Reads)
	}
	got := map[string]string{}
	for _, r := range x.Remedies {
		for _, c := range r.Changes {
			got[r.Violation] += fmt.Sprintf("%s: %s -> %s", c.Path, c.Before, c.After)
		}
		got[r.Violation] += r.Problem
	}
	if got["merge"] != "/spec/replicas: 1 -> 3" || got["operations"] != "/spec/replicas: 1 -> " || !strings.HasPrefix(got["deletion"], `: {"apiVersion"`) || !strings.Contains(got["does not fit"], "no such field") {
		t.Errorf("%v", got)
	}
}

// TestExplain_KeepsTheMembersWords: why a scope is not read names addresses and credentials, which are for operators.
func TestExplain_KeepsTheMembersWords(t *testing.T) {
	j := start(t, nil)
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	j.scopes["fleet/a"].SetStatus(aggregate.Status{State: aggregate.Stale, Reason: "dial tcp 10.1.2.3:6443: refused"})
	if _, err := j.scopes["fleet/a"].Commit(); err != nil {
		t.Fatal(err)
	}
	j.awaitEvaluation()
	var x policyquery.Explanation
	j.into(explainWeb, &x)
	want := policyquery.ExplainedScope{Member: "fleet/a", Kind: "Deployment.apps", State: "Stale", Reason: "the member is unreachable, or is being relisted"}
	if len(x.Freshness) != 1 || x.Freshness[0] != want || len(x.Reads[0].Scopes) != 1 || x.Reads[0].Scopes[0] != want {
		t.Errorf("%+v, %+v", x.Freshness, x.Reads)
	}
}

// TestExplain_NothingElseIsVisible: who may not read a verdict gets the answer that there is none.
func TestExplain_NothingElseIsVisible(t *testing.T) {
	j := granted(t)
	for _, m := range []string{"fleet/a", "fleet/b"} {
		j.joinWith(m, "shop", "bank")
		for _, n := range []string{"shop", "bank"} {
			j.putIn(m, n, "web", 1, "secret-of-"+n)
		}
	}
	j.awaitEvaluation()
	at := func(member, namespace, name string) string {
		return fmt.Sprintf("/query/v1/explain?policy=replicas&member=%s&kind=Deployment.apps&namespace=%s&name=%s", member, namespace, name)
	}
	for user, may := range map[string]func(member, namespace string) bool{
		"root":   func(string, string) bool { return true },
		"eu":     func(member, _ string) bool { return member == "fleet/a" },
		"shop":   func(_, namespace string) bool { return namespace == "shop" },
		"nobody": func(string, string) bool { return false },
		"reader": func(string, string) bool { return false },
	} {
		j.token = user
		for _, member := range []string{"fleet/a", "fleet/b", "fleet/none"} {
			for _, namespace := range []string{"shop", "bank", "none"} {
				want := http.StatusNotFound
				if may(member, namespace) && member != "fleet/none" && namespace != "none" {
					want = http.StatusOK
				}
				path := at(member, namespace, "web")
				if want == http.StatusOK {
					var x policyquery.Explanation
					j.into(path, &x)
					if got := strings.Contains(string(x.Input), `"parameters"`); got != (user == "root") {
						t.Errorf("%s sees %s", user, x.Input)
					}
					continue
				}
				got, none := j.fails(path, want), j.fails(at(member, namespace, "none"), http.StatusNotFound)
				if strings.ReplaceAll(none, namespace+"/none", namespace+"/web") != got {
					t.Errorf("%s is told %s of what there is, and %s of what there is not", user, got, none)
				}
			}
		}
		want := http.StatusForbidden
		if user == "root" {
			want = http.StatusOK
		}
		resp := j.get(t.Context(), "/query/v1/explain?policy=names&key=web")
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: a key of a view over the fleet is %d", user, resp.StatusCode)
		}
	}
}

// TestExplain_TargetsAreOfThoseWhoMayReadThem: a remedy may be for another object than its subject.
func TestExplain_TargetsAreOfThoseWhoMayReadThem(t *testing.T) {
	j := granted(t)
	set := loaded(t, `# METADATA
# title: Another
# custom: {severity: low, kinds: ["Deployment.apps"], remedies: [{action: patch, kind: Deployment.apps}]}
package replicas

violation contains {"msg": "other", "remedy": {"action": "patch", "target": {"member": input.ref.member, "kind": "Deployment.apps", "namespace": "bank", "name": "web"}, "patch": {"spec": {"replicas": 3}}}} if input.ref.namespace == "shop"
`)
	if err := j.loop.Configure(t.Context(), set, []policy.Binding{{Name: "replicas", Package: "replicas"}}); err != nil {
		t.Fatal(err)
	}
	j.joinWith("fleet/a", "shop", "bank")
	j.putIn("fleet/a", "shop", "web", 1, "")
	j.awaitEvaluation()
	remedy := func(user string) policyquery.ExplainedRemedy {
		t.Helper()
		j.token = user
		var x policyquery.Explanation
		j.into(explainWeb, &x)
		if len(x.Remedies) != 1 || x.Remedies[0].Target != (aggregate.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "bank", Name: "web"}) {
			t.Fatalf("%s: %+v", user, x)
		}
		return x.Remedies[0]
	}
	without := remedy("shop")
	j.putIn("fleet/a", "bank", "web", 1, "")
	j.awaitEvaluation()
	if with := remedy("shop"); with.Problem != without.Problem || with.Changes != nil || with.Problem == "" {
		t.Errorf("%+v, without the target %+v", with, without)
	}
	if of := remedy("eu"); len(of.Changes) != 1 {
		t.Errorf("%+v", of)
	}
}
