package policyquery_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/spec3"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/openapi"
)

// TestPlans_AreWithinTheCallersGrants: what a caller may not list is counted as hidden, and
// nothing else is said of it.
func TestPlans_AreWithinTheCallersGrants(t *testing.T) {
	s := startPlans(t, func(o *queryapi.Options) { o.Authorization.Members, o.Authorization.UserPrefix = teams{}, "team:" })
	policy := newName("policy")
	plan := s.create(policy, v1alpha1.PlanWaiting, func(s *v1alpha1.PlanSpec) { s.Purpose = v1alpha1.PlanDryRun }, fleetTargets()...)
	for _, c := range []struct {
		name   string
		user   *http.Client
		want   []string
		counts string
	}{
		{
			"everything", s.user(newName("all"), nil, "*"),
			[]string{"a-c-shop-1", "a-c-shop-2", "a-c-web", "a-d-shop", "a-d-web-1", "a-d-web-2", "b-c-shop"},
			"[{fleet/a ConfigMap delete 3} {fleet/a Deployment.apps patch 3} {fleet/b ConfigMap patch 1}]",
		},
		{"a kind", s.user(newName("kind"), nil, "deployments.apps"), []string{"a-d-shop", "a-d-web-1", "a-d-web-2"}, "[{fleet/a Deployment.apps patch 3}]"},
		{"a member", s.user(newName("member"), []string{"b"}, "*"), []string{"b-c-shop"}, "[{fleet/b ConfigMap patch 1}]"},
		{"a kind in a member", s.user(newName("narrow"), []string{"b"}, "deployments.apps"), nil, "[]"},
		{"a namespace", s.user("web", nil), []string{"a-c-web", "a-d-web-1", "a-d-web-2"}, "[{fleet/a Deployment.apps patch 2} {fleet/a ConfigMap delete 1}]"},
		{"nothing", s.user(newName("nobody"), nil), nil, "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := s.plans(c.user, policy, "")
			if len(list.Plans) != 1 || list.Continue != "" || list.Policy != policy {
				t.Fatalf("%+v", list)
			}
			var names []string
			irreversible := 0
			for _, i := range list.Items {
				names = append(names, i.Name)
				if i.Plan != plan.Name || i.Diff != "diff of "+i.Name || i.Message != fmt.Sprintf("%q was seen", i.Name) || i.UID != "uid-"+i.Name || i.DryRun != "Passed" || len(i.Remedy) != 64 {
					t.Errorf("%+v", i)
				}
				if i.Irreversible != "" {
					irreversible++
				}
			}
			if !slices.Equal(names, c.want) {
				t.Errorf("listed %q, want %q", names, c.want)
			}
			p := list.Plans[0]
			if m := p.Messages; len(c.want) == 0 && len(m) != 0 || len(c.want) > 0 && (len(m) != 1 || m[0] != policyquery.PlanMessage{DryRun: "Passed", Message: `"*" was seen`, Targets: len(c.want)}) {
				t.Errorf("messages %+v", m)
			}
			if p.Hidden != allTargets-len(c.want) || p.Targets != allTargets || p.Irreversible != irreversible || p.DryRun["Passed"] != len(c.want) || fmt.Sprint(p.Counts) != c.counts {
				t.Errorf("%+v", p)
			}
			if p.Name != plan.Name || p.Hash != string(plan.Spec.Hash) || p.State != "Waiting" || p.Purpose != "DryRun" || p.Required != 2 || p.Approved != 1 ||
				p.Written != 1 || p.Since != "2026-01-02T03:04:05Z" || p.Generation != plan.Spec.Generation || p.Created == "" || p.Problem != "" {
				t.Errorf("%+v", p)
			}
			s.tellsNothingOf(c.user, policy, c.want)
			s.pagesAreTheWhole(c.user, policy, list)
		})
	}
}

// tellsNothingOf wants an answer without the names of targets but those that are wanted.
func (s *planServer) tellsNothingOf(user *http.Client, policy string, but []string) {
	s.t.Helper()
	_, body := s.get(user, "/query/v1/plans/"+policy)
	for _, g := range fleetTargets() {
		for _, target := range g.Targets {
			if strings.Contains(string(body), target.Name) && !slices.Contains(but, target.Name) {
				s.t.Errorf("%s is named: %s", target.Name, body)
			}
		}
	}
	for _, never := range []string{"somebody", "not for everybody", "fleet/left"} {
		if strings.Contains(string(body), never) {
			s.t.Errorf("%s is there: %s", never, body)
		}
	}
}

// pagesAreTheWhole wants the same of pages of any size as of one.
func (s *planServer) pagesAreTheWhole(user *http.Client, policy string, whole *policyquery.PlanList) {
	s.t.Helper()
	for limit := 1; limit <= len(whole.Items)+1; limit++ {
		query := url.Values{"limit": {fmt.Sprint(limit)}}
		var items []policyquery.PlanTarget
		for pages := 0; ; pages++ {
			page := s.plans(user, policy, query.Encode())
			if first := pages == 0; first != (page.Plans != nil) || len(page.Items) > limit || pages > len(whole.Items) {
				s.t.Fatalf("page %d of %d: %+v", pages, limit, page)
			}
			items = append(items, page.Items...)
			if page.Continue == "" {
				break
			}
			query.Set("continue", page.Continue)
		}
		if !slices.Equal(items, whole.Items) {
			s.t.Errorf("by %d there are %+v, not %+v", limit, items, whole.Items)
		}
	}
}

func TestPlans_AreSelected(t *testing.T) {
	s := startPlans(t, nil)
	all, policy := s.user(newName("all"), nil, "*"), newName("policy")
	byState := map[v1alpha1.PlanState]*v1alpha1.Plan{}
	for n, state := range []v1alpha1.PlanState{v1alpha1.PlanExpired, v1alpha1.PlanSuperseded, v1alpha1.PlanDone, v1alpha1.PlanApproved, v1alpha1.PlanWaiting} {
		byState[state] = s.create(policy, state, func(s *v1alpha1.PlanSpec) {
			s.Digests.Spec = v1alpha1.Digest(strings.Repeat(fmt.Sprint(n), 64))
			if state == v1alpha1.PlanDone {
				s.Purpose, s.Halt = v1alpha1.PlanHalt, &v1alpha1.PlannedHalt{ID: "halt-1", Reason: v1alpha1.OverLimit}
			}
		}, fleetTargets()...)
	}
	s.create(newName("policy"), v1alpha1.PlanWaiting, nil, fleetTargets()...)
	states := func(query string) string {
		t.Helper()
		list := s.plans(all, policy, query)
		var names []string
		for _, p := range list.Plans {
			names = append(names, p.State)
			if p.Name != byState[v1alpha1.PlanState(p.State)].Name || (p.Halt == "halt-1") != (p.State == "Done") {
				t.Errorf("%s: %+v", query, p)
			}
		}
		if len(list.Items) != 7*len(list.Plans) && !strings.Contains(query, "fleet") {
			t.Errorf("%s: %d targets of %d Plans", query, len(list.Items), len(list.Plans))
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	for query, want := range map[string]string{
		"": "Approved Waiting", "state=Done": "Done", "state=Expired&state=Superseded": "Expired Superseded", "state=Freezing": "",
		"plan=" + byState[v1alpha1.PlanExpired].Name: "Expired", "plan=none": "",
		"plan=" + byState[v1alpha1.PlanExpired].Name + "&state=Waiting": "", "member=fleet/a": "Approved Waiting",
	} {
		if got := states(query); got != want {
			t.Errorf("%q lists %q, want %q", query, got, want)
		}
	}
	s.pagesAreTheWhole(all, policy, s.plans(all, policy, ""))
	for query, want := range map[string]int{
		"member=fleet/b": 1, "kind=ConfigMap": 4, "kind=ConfigMap&kind=Deployment.apps&namespace=web": 3, "namespace=shop&member=fleet/a": 3, "kind=Secret": 0,
	} {
		list := s.plans(all, policy, "state=Waiting&"+query)
		if len(list.Items) != want || len(list.Plans) != 1 || list.Plans[0].Hidden != 3 {
			t.Errorf("%q lists %d targets, want %d: %+v", query, len(list.Items), want, list.Plans)
		}
	}
	if list := s.plans(all, newName("policy"), ""); len(list.Plans)+len(list.Items) != 0 {
		t.Errorf("a policy without a Plan has %+v", list)
	}
	at := "/query/v1/plans/" + policy
	for _, query := range []string{"?x=y", "?limit=0", "?limit=5001", "?plan=a&plan=b", "?state=waiting", "?continue=x", "?continue=e30", "?watch=true"} {
		s.refused(all, at+query, http.StatusBadRequest)
	}
	for _, name := range []string{"A", "a,spec.policy=b", "-a", strings.Repeat("a", 64)} {
		s.refused(all, "/query/v1/plans/"+url.PathEscape(name), http.StatusBadRequest)
	}
	next := s.plans(all, policy, "limit=1&namespace=shop").Continue
	s.refused(all, at+"?namespace=web&continue="+next, http.StatusBadRequest)
}

// TestPlans_PagesAreOfThePlansOfTheFirst: a Plan that has come meanwhile, or has entered another
// state, changes nothing; one that is gone ends the list.
func TestPlans_PagesAreOfThePlansOfTheFirst(t *testing.T) {
	s := startPlans(t, nil)
	all, policy := s.user(newName("all"), nil, "*"), newName("policy")
	first := s.create(policy, v1alpha1.PlanWaiting, nil, fleetTargets()...)
	page := s.plans(all, policy, "limit=5")
	s.create(policy, v1alpha1.PlanWaiting, func(s *v1alpha1.PlanSpec) { s.Purpose = v1alpha1.PlanDryRun }, fleetTargets()...)
	first.Status.State = v1alpha1.PlanDone
	body, err := json.Marshal(first)
	if err == nil {
		err = s.rest.Put().AbsPath("/apis/federator.dev/v1alpha1/plans", first.Name, "status").Body(body).SetHeader("Content-Type", "application/json").Do(t.Context()).Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	if rest := s.plans(all, policy, "limit=5&continue="+page.Continue); len(rest.Items) != 2 || rest.Items[1].Plan != first.Name || rest.Continue != "" || rest.Plans != nil {
		t.Errorf("%+v", rest)
	}
	if err := s.rest.Delete().AbsPath("/apis/federator.dev/v1alpha1/plans", first.Name).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	s.refused(all, "/query/v1/plans/"+policy+"?limit=5&continue="+page.Continue, http.StatusGone)
}

// TestPlans_ShowWhatWasFrozenOnly: of a Plan that is being recorded, or lacks a part, no target is
// shown; others are.
func TestPlans_ShowWhatWasFrozenOnly(t *testing.T) {
	s := startPlans(t, nil)
	all, policy := s.user(newName("all"), nil, "*"), newName("policy")
	damaged := s.create(policy, v1alpha1.PlanWaiting, nil, fleetTargets()...)
	if err := s.rest.Delete().AbsPath("/apis/federator.dev/v1alpha1/planparts", damaged.Name+"-1").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	freezing := s.create(policy, v1alpha1.PlanFreezing, func(s *v1alpha1.PlanSpec) { s.Purpose = v1alpha1.PlanDryRun }, fleetTargets()...)
	whole := s.create(policy, v1alpha1.PlanWaiting, func(s *v1alpha1.PlanSpec) { s.Purpose, s.Amends = v1alpha1.PlanAmendment, damaged.Name }, fleetTargets()...)
	for range 2 {
		list := s.plans(all, policy, "")
		problems := map[string]bool{}
		for _, p := range list.Plans {
			problems[p.Name] = p.Problem != ""
			if want := map[bool]int{true: allTargets, false: 3}[p.Problem != ""]; p.Hidden != want || (p.Counts == nil) != (p.Problem != "") {
				t.Errorf("%+v", p)
			}
		}
		if len(list.Plans) != 3 || !problems[damaged.Name] || !problems[freezing.Name] || problems[whole.Name] || len(list.Items) != 7 || list.Items[0].Plan != whole.Name {
			t.Errorf("%+v", list)
		}
	}
}

// TestPlans_ListsTheNewest: so many, and says how many there are besides.
func TestPlans_ListsTheNewest(t *testing.T) {
	s := startPlans(t, nil)
	all, policy := s.user(newName("all"), nil, "*"), newName("policy")
	for n := range 12 {
		s.create(policy, v1alpha1.PlanWaiting, func(s *v1alpha1.PlanSpec) { s.Digests.Spec = v1alpha1.Digest(fmt.Sprintf("%064d", n)) })
	}
	list := s.plans(all, policy, "")
	if len(list.Plans) != 10 || list.Omitted != 2 || !slices.IsSortedFunc(list.Plans, func(a, b policyquery.PlanSummary) int { return strings.Compare(b.Created, a.Created) }) {
		t.Errorf("%+v", list)
	}
}

func TestPlans_AreAsOpenAPISays(t *testing.T) {
	s := startPlans(t, nil)
	all, policy := s.user(newName("all"), nil, "*"), newName("policy")
	s.create(policy, v1alpha1.PlanWaiting, nil, fleetTargets()...)
	doc := &spec3.OpenAPI{}
	if code, body := s.get(all, "/openapi/v3/query/v1"); code != http.StatusOK || json.Unmarshal(body, doc) != nil {
		t.Fatalf("%d %s", code, body)
	}
	get := doc.Paths.Paths["/query/v1/plans/{policy}"].Get
	for _, query := range []string{"", "?limit=1", "?state=Done"} {
		code, body := s.get(all, "/query/v1/plans/"+policy+query)
		if err := openapi.Conforms(doc, get.Responses.StatusCodeResponses[http.StatusOK].Content["application/json"].Schema, body); err != nil || code != http.StatusOK {
			t.Errorf("%s: %d %v: %s", query, code, err, body)
		}
	}
	value := map[string]string{
		"plan": "a", "state": "Done", "member": "fleet/a", "namespace": "shop", "kind": "ConfigMap", "limit": "5",
		"continue": s.plans(all, policy, "limit=1").Continue,
	}
	if len(get.Parameters) != 1+len(value) || get.Description == "" {
		t.Errorf("%d parameters are described", len(get.Parameters))
	}
	for _, p := range get.Parameters[1:] {
		code, body := s.get(all, "/query/v1/plans/"+policy+"?"+url.Values{p.Name: {value[p.Name]}}.Encode())
		if value[p.Name] == "" || p.Description == "" || code != http.StatusOK {
			t.Errorf("%s: %d %s", p.Name, code, body)
		}
	}
}
