package policyquery_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
)

// Versions of package replicas: the candidate is about another kind, or has its rules on other lines.
const (
	ofReplicaSets = `# METADATA
# title: Former
# custom: {severity: low, kinds: ["ReplicaSet.apps"]}
package replicas

violation contains {"msg": "few"} if input.object.spec.replicas < 3
`
	ofNames = `# METADATA
# title: Former
# custom: {severity: low, kinds: ["Deployment.apps"], subject: view.names}
package replicas

view.names[input.ref.name] contains input.ref.member

violation contains {"msg": "many"} if count(input.entries) > 9
`
	ofDeployments = `# METADATA
# title: Candidate
# custom: {severity: high, kinds: ["Deployment.apps"]}
package replicas

few if input.object.spec.replicas < 3

violation contains {"msg": "few"} if few
`
	neverFew = `# METADATA
# title: Former
# custom: {severity: low, kinds: ["Deployment.apps"]}
package replicas

violation contains {"msg": "former"} if input.object.spec.replicas < 0
`
)

// rollOut has the loop evaluate two versions of replicas, the candidate in effect in members.
func (j *testServer) rollOut(former, candidate string, whole bool, members ...string) {
	j.t.Helper()
	set := policy.Beside(loaded(j.t, former), []policy.Candidate{{Set: loaded(j.t, candidate)}})
	next := &policy.Next{Binding: policy.Binding{Name: "replicas", Package: set.Candidate("replicas")}, Whole: whole}
	if len(members) > 0 {
		next.Members = []policy.MemberSelector{{Names: members}}
	}
	if err := j.loop.Configure(j.t.Context(), set, []policy.Binding{{Name: "replicas", Package: "replicas", Next: next}}); err != nil {
		j.t.Fatal(err)
	}
}

// TestPolicies_CountsOfVersionsAreWithinGrants: caller shop may read its own namespace only, and is not told how many
// violations there are in all of the member, neither by policies nor by series.
func TestPolicies_CountsOfVersionsAreWithinGrants(t *testing.T) {
	j := granted(t)
	j.joinWith("fleet/a", "shop", "bank")
	scope, err := j.index.OpenScopeAs("fleet/a", "ReplicaSet.apps", "apps/v1", "replicasets")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scope.Replace(nil, aggregate.Status{State: aggregate.Synced}); err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		j.putIn("fleet/a", "bank", fmt.Sprint("secret", n), 1, "")
	}
	j.putIn("fleet/a", "shop", "web", 1, "")
	j.rollOut(ofReplicaSets, ofDeployments, false, "fleet/a")
	j.awaitEvaluation()
	j.sampleAt(1000)
	j.token = "shop"
	found, _ := j.list("")
	n := 0
	for _, i := range found.Items {
		n += len(i.Violations)
	}
	_, byName := j.policies("")
	item := byName["replicas"]
	if *item.Violations != n || n != 1 {
		t.Errorf("shop may read %d violations, and is told that there are %d", n, *item.Violations)
	}
	if item.Subjects != nil {
		t.Errorf("shop is told that there are %d Deployments", *item.Subjects)
	}
	if _, got := j.seriesOf(""); len(got) != 0 {
		t.Errorf("shop is shown %v", got)
	}
}

// TestViolations_OfVersionsWithOtherSubjects: those of the candidate in members are listed and paged, though those of the
// former version are keys of a view.
func TestViolations_OfVersionsWithOtherSubjects(t *testing.T) {
	j := start(t, nil)
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	j.rollOut(ofNames, ofDeployments, false, "fleet/a")
	j.awaitEvaluation()
	j.put("fleet/a", "also", 1, "")
	j.awaitEvaluation()
	if found, _ := j.list("member=fleet/a"); len(found.Items) != 2 {
		t.Errorf("%d of 2 findings of the member are listed", len(found.Items))
	}
	first, _ := j.list("limit=1")
	second, _ := j.list("limit=1&continue=" + first.Continue)
	if n := len(first.Items) + len(second.Items); n != 2 {
		t.Errorf("%d of 2 findings are on the two pages", n)
	}
}

// TestExplain_ShowsTheVersionThatHeld: lines that held are of the files that are shown, and what is said of the policy is
// what this version says.
func TestExplain_ShowsTheVersionThatHeld(t *testing.T) {
	j := start(t, nil)
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	for _, whole := range []bool{false, true} {
		j.rollOut(neverFew, ofDeployments, whole, "fleet/a")
		j.awaitEvaluation()
		var x policyquery.Explanation
		j.into(explainWeb, &x)
		if len(x.Finding.Violations) != 1 || x.Finding.Violations[0].Msg != "few" {
			t.Fatalf("%+v", x.Finding)
		}
		var text string
		for _, f := range x.Files {
			text += f.Text
		}
		for _, l := range x.Lines {
			rows := strings.Split(text, "\n")
			if l.Row > len(rows) || !strings.Contains(rows[l.Row-1], strings.TrimSpace(l.Text)) {
				t.Errorf("whole %t: line %d held, which is %q; the file shown has\n%s", whole, l.Row, l.Text, text)
				break
			}
		}
		if x.Package != "replicas" || x.Title != "Candidate" || x.Severity != "high" {
			t.Errorf("whole %t: it is of package %q, %q, severity %s", whole, x.Package, x.Title, x.Severity)
		}
		found, _ := j.list("")
		if got := found.Items[0]; got.Severity != "high" || got.Title != "Candidate" {
			t.Errorf("whole %t: listed as %q, severity %s", whole, got.Title, got.Severity)
		}
		_, byName := j.policies("?policy=replicas")
		if item := byName["replicas"]; whole && !strings.Contains(item.Rego[0].Text, "title: "+item.Title) {
			t.Errorf("whole %t: policy %q is shown with the Rego of another version", whole, item.Title)
		}
	}
}

// TestPreview_WhileAnotherSourceRollsOut: versions that roll out keep nobody from previewing others.
func TestPreview_WhileAnotherSourceRollsOut(t *testing.T) {
	q := previewOfNothing(t)
	active := sourceOf(t, neverFew)
	candidate := sourceOf(t, ofDeployments)
	set := policy.Beside(active, []policy.Candidate{{Source: "git", Set: candidate}})
	b := policy.Binding{Name: "replicas", Package: "replicas", Next: &policy.Next{Binding: policy.Binding{Name: "replicas", Package: set.Candidate("replicas")}}}
	if err := q.Loop.Configure(t.Context(), set, []policy.Binding{b}); err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(policyquery.PreviewCandidate{Source: "mine", Files: []policyquery.PreviewFile{{Path: "own.rego", Text: candidateOwn}}})
	if err != nil {
		t.Fatal(err)
	}
	asked, done := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/query/v1/preview", strings.NewReader(string(body)))
	go func() { done <- q.Post(httptest.NewRecorder(), r, patient{slow{name: "ann"}, asked}) }()
	select {
	case err := <-done:
		t.Errorf("a preview of a package of another source: %v", err)
	case <-asked: // it is loaded, and grants are asked for
		cancel()
		<-done
	}
	cancel()
}

// TestViolations_SayTheirVersion: findings of two versions can be told apart.
func TestViolations_SayTheirVersion(t *testing.T) {
	j := start(t, nil)
	for _, m := range []string{"fleet/a", "fleet/b"} {
		j.join(m)
		j.put(m, "web", 1, "")
	}
	j.rollOut(strings.ReplaceAll(neverFew, "< 0", "< 2"), ofDeployments, false, "fleet/a")
	j.awaitEvaluation()
	for _, path := range []string{"/query/v1/violations", explainWeb} {
		var x json.RawMessage
		j.into(path, &x)
		if !strings.Contains(string(x), `"version"`) {
			t.Errorf("%s does not say of which version what it shows is: %s", path, x)
		}
	}
}

// TestResourceVersion_HasTheKindsOfAllVersions: without the kinds that only the candidate is about, findings would never be sent
// after a grant on them, and stay with the client after a revocation.
func TestResourceVersion_HasTheKindsOfAllVersions(t *testing.T) {
	j := granted(t)
	j.joinWith("fleet/a", "shop", "bank")
	j.putIn("fleet/a", "bank", "web", 1, "")
	j.putIn("fleet/a", "shop", "web", 1, "")
	j.rollOut(ofReplicaSets, ofDeployments, false, "fleet/a")
	j.awaitEvaluation()
	versions := map[string]string{}
	for _, user := range []string{"shop", "bank"} { // who see the same members, and other Deployments
		j.token = user
		found, _ := j.list("")
		if len(found.Items) != 1 || found.Items[0].Subject.Namespace != user {
			t.Fatalf("%s: %+v", user, found.Items)
		}
		versions[user] = found.ResourceVersion
	}
	if versions["shop"] == versions["bank"] {
		t.Errorf("what shop and bank may read differs, and their lists are both of resourceVersion %s", versions["shop"])
	}
}

// TestViolations_OrderOfVersionsIsTheirOwn: by severity, findings of a version come where its own severity has them, on
// pages as well, and are selected by it.
func TestViolations_OrderOfVersionsIsTheirOwn(t *testing.T) {
	j := start(t, nil)
	for _, m := range []string{"fleet/a", "fleet/b"} {
		j.join(m)
		j.put(m, "web", 1, "")
	}
	j.rollOut(strings.ReplaceAll(neverFew, "< 0", "< 2"), ofDeployments, false, "fleet/b")
	j.awaitEvaluation()
	var got []string
	page := "limit=1&orderBy=severity"
	for next := page; next != ""; {
		found, _ := j.list(next)
		for _, i := range found.Items {
			got = append(got, i.Severity+" "+i.Subject.Member)
		}
		if next = ""; found.Continue != "" && len(got) < 9 {
			next = page + "&continue=" + found.Continue
		}
	}
	if fmt.Sprint(got) != "[high fleet/b low fleet/a]" {
		t.Errorf("the order by severity is %q", got)
	}
	for severity, member := range map[string]string{"high": "fleet/b", "low": "fleet/a"} {
		if found, _ := j.list("severity=" + severity); len(found.Items) != 1 || found.Items[0].Subject.Member != member {
			t.Errorf("of severity %s are %+v", severity, found.Items)
		}
	}
}

// TestViolationsWatch_FollowsVersions: a watch says what lists say while another version comes into effect.
func TestViolationsWatch_FollowsVersions(t *testing.T) {
	j := start(t, nil)
	for _, m := range []string{"fleet/a", "fleet/b"} {
		j.join(m)
		j.put(m, "web", 1, "")
	}
	former := strings.ReplaceAll(strings.ReplaceAll(neverFew, "< 0", "< 2"), `"former"`, `"few"`)
	j.rollOut(former, ofDeployments, false, "fleet/a")
	j.awaitEvaluation()
	found, knows := j.list("")
	s, high := j.watch("resourceVersion="+found.ResourceVersion, knows), j.watch("severity=high", nil)
	j.rollOut(former, ofDeployments, false, "fleet/a", "fleet/b")
	j.awaitEvaluation()
	found, want := j.list("")
	s.reach(found.ResourceVersion)
	if fmt.Sprint(s.knows) != fmt.Sprint(want) {
		t.Errorf("a watch knows %v, and a list %v", s.knows, want)
	}
	found, want = j.list("severity=high")
	high.reach(found.ResourceVersion)
	if len(want) != 2 || fmt.Sprint(high.knows) != fmt.Sprint(want) {
		t.Errorf("a watch of high severity knows %v, and a list %v", high.knows, want)
	}
}

// previewer may preview, on a fleet without members.
type previewer struct{ slow }

func (previewer) HubAllows(context.Context, string, string) (bool, error) { return true, nil }

func (previewer) HubAllowsNamed(context.Context, string, string, string) (bool, error) {
	return true, nil
}

// TestPreview_LeavesWhatRollsOutOfOthers in effect: only what the candidate changes differs.
func TestPreview_LeavesWhatRollsOutOfOthers(t *testing.T) {
	q := previewOfNothing(t)
	set := policy.Beside(sourceOf(t, neverFew), []policy.Candidate{{Source: "git", Set: sourceOf(t, ofDeployments)}})
	promoted := policy.Binding{Name: "named", Package: set.Candidate("replicas")}
	for what, b := range map[string]policy.Binding{
		"in effect everywhere": {Name: "named", Package: "replicas", Next: &policy.Next{Binding: promoted, Whole: true}},
		"promoted":             promoted, // its commit is not active yet
	} {
		if err := q.Loop.Configure(t.Context(), set, []policy.Binding{b}); err != nil {
			t.Fatal(err)
		}
		leavesWhatRollsOut(t, what, q)
	}
}

func leavesWhatRollsOut(t *testing.T, what string, q *policyquery.Preview) {
	t.Helper()
	for source, want := range map[string]string{"mine": "[own Added]", "git": "[named Changed]"} {
		files := []policyquery.PreviewFile{{Path: "own.rego", Text: candidateOwn}}
		if source == "git" { // instead of what rolls out
			files = []policyquery.PreviewFile{{Path: "0.rego", Text: neverFew}}
		}
		body, err := json.Marshal(policyquery.PreviewCandidate{Source: source, Files: files})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		if err := q.Post(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/query/v1/preview", strings.NewReader(string(body))), previewer{slow{name: "ann"}}); err != nil {
			t.Fatalf("%s, %s: %v", what, source, err)
		}
		var r policyquery.PreviewReport
		if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range r.Policies {
			got = append(got, p.Policy+" "+p.Is)
		}
		if fmt.Sprint(got) != want || len(r.Withheld) > 0 {
			t.Errorf("%s, %s: %s", what, source, w.Body)
		}
	}
}

// TestViolations_OfAPromotedVersion: while its commit waits for others, a policy is bound to the candidate's package. It is called
// as its rules are, wherever it is shown, asked for, or grouped by.
func TestViolations_OfAPromotedVersion(t *testing.T) {
	j := start(t, nil)
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	set := policy.Beside(loaded(t, neverFew), []policy.Candidate{{Set: loaded(t, ofDeployments)}})
	if err := j.loop.Configure(t.Context(), set, []policy.Binding{{Name: "replicas", Package: set.Candidate("replicas")}}); err != nil {
		t.Fatal(err)
	}
	j.awaitEvaluation()
	if found, _ := j.list("package=replicas"); len(found.Items) != 1 || found.Items[0].Package != "replicas" {
		t.Errorf("%+v", found.Items)
	}
	if found, _ := j.list("groupBy=package"); len(found.Groups) != 1 || found.Groups[0].Key[0] != "replicas" {
		t.Errorf("%+v", found.Groups)
	}
}
