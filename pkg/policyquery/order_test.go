package policyquery_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/test/seed"
)

// ofSeverities loads packages that find Deployments with fewer replicas than their number.
func ofSeverities(t testing.TB, severities []string) (*policy.Set, []policy.Binding) {
	t.Helper()
	var texts []string
	var bindings []policy.Binding
	for i, severity := range severities {
		texts = append(texts, fmt.Sprintf(`# METADATA
# title: Package %d
# custom: {severity: %s, kinds: ["Deployment.apps"]}
package p%[1]d

violation contains {"msg": "too few"} if input.object.spec.replicas < %[1]d
`, i, severity))
		for _, of := range []string{"a", "b"} { // two of a package
			bindings = append(bindings, policy.Binding{Name: fmt.Sprintf("%s%d", of, i), Package: fmt.Sprint("p", i)})
		}
	}
	return loaded(t, texts...), bindings
}

// pages returns all items of a list, page by page.
func (j *testServer) pages(query url.Values, limit func() int) (all []policyquery.Finding) {
	j.t.Helper()
	query.Del("continue")
	for {
		most := limit()
		query.Set("limit", fmt.Sprint(most))
		page, _ := j.list(query.Encode())
		if len(page.Items) > most || page.Continue != "" && len(page.Items) == 0 {
			j.t.Fatalf("%d items, %d were asked for; continue is %q", len(page.Items), most, page.Continue)
		}
		all = append(all, page.Items...)
		if page.Continue == "" {
			return all
		}
		query.Set("continue", page.Continue)
	}
}

// TestViolations_BySeverityPagesAreTheSortedWhole, whatever policies, severities, filters and pages there are.
func TestViolations_BySeverityPagesAreTheSortedWhole(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Of(t), 0))
	j := start(t, nil)
	ranks := policy.Severities()
	for _, member := range []string{"fleet/a", "fleet/b"} {
		j.join(member)
		for i := range 12 {
			j.putIn(member, fmt.Sprint("ns-", random.IntN(3)), fmt.Sprint("web-", i), 1+random.IntN(8), "")
		}
	}
	for range 20 {
		severities := make([]string, 1+random.IntN(9))
		for i := range severities {
			severities[i] = ranks[random.IntN(len(ranks))]
		}
		set, bindings := ofSeverities(t, severities)
		if err := j.loop.Configure(t.Context(), set, bindings); err != nil {
			t.Fatal(err)
		}
		j.awaitEvaluation()
		query := url.Values{}
		if random.IntN(2) == 0 {
			query["severity"] = []string{ranks[random.IntN(len(ranks))], ranks[random.IntN(len(ranks))]}
		}
		if random.IntN(2) == 0 {
			query.Set("member", "fleet/b")
		}
		query.Set("limit", "5000")
		whole, _ := j.list(query.Encode())
		want := whole.Items
		slices.SortStableFunc(want, func(a, b policyquery.Finding) int {
			return slices.Index(ranks, b.Severity) - slices.Index(ranks, a.Severity)
		})
		query.Set("orderBy", "severity")
		if got := j.pages(query, func() int { return 1 + random.IntN(40) }); !reflect.DeepEqual(got, want) {
			t.Fatalf("%v of %v: %s\nwant %s", query, severities, told(got), told(want))
		}
		query.Set("orderBy", "policy")
		if got := j.pages(query, func() int { return 1 + random.IntN(40) }); len(got) != len(want) || !slices.IsSortedFunc(got, func(a, b policyquery.Finding) int { return strings.Compare(a.Policy, b.Policy) }) {
			t.Fatalf("%v of %v: %s", query, severities, told(got))
		}
	}
}

func told(found []policyquery.Finding) string {
	var out strings.Builder
	for _, f := range found {
		fmt.Fprintf(&out, "%s %s %s/%s; ", f.Severity, f.Policy, f.Subject.Member, f.Subject.Name)
	}
	return out.String()
}

// TestViolations_ContinueIsOfOneOrder: what would lose or repeat findings is refused.
func TestViolations_ContinueIsOfOneOrder(t *testing.T) {
	j := start(t, nil)
	j.join("fleet/a")
	for i := range 3 {
		j.put("fleet/a", fmt.Sprint("web-", i), 1, "")
	}
	configure := func(severities ...string) {
		t.Helper()
		set, bindings := ofSeverities(t, severities)
		if err := j.loop.Configure(t.Context(), set, bindings); err != nil {
			t.Fatal(err)
		}
	}
	configure("low", "low", "high", "medium") // p0 and p1 find nothing
	j.awaitEvaluation()
	first, _ := j.list("orderBy=severity&limit=4")
	byPolicy, _ := j.list("limit=4")
	if first.Items[0].Policy != "a2" || first.Items[3].Policy != "b2" || byPolicy.Items[3].Policy != "a3" {
		t.Fatalf("%s\n%s", told(first.Items), told(byPolicy.Items))
	}
	for query, says := range map[string]string{
		"continue=" + first.Continue:                     "another order",
		"orderBy=policy&continue=" + first.Continue:      "another order",
		"orderBy=severity&continue=" + byPolicy.Continue: "another order",
		"orderBy=age":                                           "orderBy",
		"orderBy=severity&orderBy=policy":                       "more than once",
		"orderBy=severity&groupBy=policy":                       "groupBy",
		"orderBy=severity&watch=true":                           "watch",
		"orderBy=severity&continue=" + first.Continue + "x":     "continue",
		"orderBy=severity&continue=eyJwIjoiYTIiLCJvIjoxfQ":      "continue", // a number for a text
		"orderBy=severity&continue=eyJwIjoiIiwibyI6ImEifQ":      "continue", // no policy
		"orderBy=severity&continue=eyJwIjoiYSJ9":                "another order",
		"orderBy=severity&continue=" + strings.Repeat("A", 100): "continue",
	} {
		if status := j.refused(query, http.StatusBadRequest); !strings.Contains(status.Message, says) {
			t.Errorf("%s: %q", query, status.Message)
		}
	}
	next := "orderBy=severity&limit=4&continue=" + first.Continue
	if page, _ := j.list(next); len(page.Items) != 4 || page.Items[0].Policy != "b2" || page.Items[0].Subject.Name != "web-1" {
		t.Errorf("%s", told(page.Items))
	}
	expired := func(why, query string) {
		t.Helper()
		if status := j.refused(query, http.StatusGone); status.Reason != "Expired" || !strings.Contains(status.Message, "list again") {
			t.Errorf("%s: %+v", why, status)
		}
	}
	expired("other filters", next+"&severity=high")
	configure("low", "low", "high", "critical")
	expired("what was to come would have come before", next)
	configure("low", "low", "low", "medium")
	expired("what was listed would be again", next)
	configure("low", "low", "high")
	expired("a policy is gone", next)
	configure("low", "low", "high", "medium")
	if page, _ := j.list(next); len(page.Items) != 4 || page.Items[0].Subject.Name != "web-1" {
		t.Errorf("as before: %s", told(page.Items))
	}
	j.put("fleet/a", "web-0", 9, "") // the item that the page begins after is gone
	j.awaitEvaluation()
	if page, _ := j.list(next); page.Items[0].Policy != "b2" || page.Items[0].Subject.Name != "web-1" {
		t.Errorf("after what is gone: %s", told(page.Items))
	}
}

// TestViolations_OrderTellsNothingThatMayNotBeRead: findings that the caller may not read change no page, no
// position and no refusal.
func TestViolations_OrderTellsNothingThatMayNotBeRead(t *testing.T) {
	j := granted(t)
	j.token = "root"
	j.joinWith("fleet/a", "shop", "bank")
	j.joinWith("fleet/b", "shop", "bank")
	set, bindings := ofSeverities(t, []string{"low", "low", "critical", "high"})
	if err := j.loop.Configure(t.Context(), set, bindings); err != nil {
		t.Fatal(err)
	}
	j.putIn("fleet/a", "shop", "web", 1, "")
	j.awaitEvaluation()
	read := func() (answers []string) {
		j.token = "eu"
		for _, query := range []string{"orderBy=severity&limit=1", "orderBy=severity&limit=2", "orderBy=severity&groupBy=policy", "groupBy=severity&groupBy=state"} {
			code, body := j.text("/query/v1/violations?" + query)
			var page policyquery.ViolationList
			_ = json.Unmarshal([]byte(body), &page)
			answers = append(answers, fmt.Sprint(code, " ", told(page.Items), page.Continue, page.Groups, page.Withheld))
		}
		return answers
	}
	before := read()
	if !strings.Contains(before[0], "critical a2 fleet/a/web") {
		t.Fatalf("%v", before)
	}
	for i := range 5 {
		j.putIn("fleet/b", "bank", fmt.Sprint("secret-", i), 1, "")
	}
	j.awaitEvaluation()
	j.token = "root"
	if all, _ := j.list("orderBy=severity"); len(all.Items) != 24 {
		t.Fatalf("%d are found", len(all.Items))
	}
	if after := read(); !slices.Equal(before, after) {
		t.Errorf("before:\n%v\nafter:\n%v", before, after)
	}
}

// FuzzContinue has a client send anything as continue: what is taken is what it is sent back as.
func FuzzContinue(f *testing.F) {
	f.Add("eyJwIjoiYSJ9")
	f.Add("eyJwIjoiYTIiLCJzIjp7Im1lbWJlciI6ImZsZWV0L2EiLCJuYW1lIjoid2ViIn0sIm8iOiIwMTIzIn0")
	f.Add("eyJwIjoiYTIiLCJvIjoxfQ")
	f.Fuzz(func(t *testing.T, text string) {
		again, ok := policyquery.RecodeContinue(text)
		if !ok {
			return
		}
		if same, ok := policyquery.RecodeContinue(again); !ok || same != again {
			t.Errorf("%q becomes %q, and then %q, %v", text, again, same, ok)
		}
	})
}
