package queries_test

import (
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/queries"
)

// secretName is that of an object that errors and losses name.
const secretName = "payroll-2026"

func brokenHealth(member string) *queries.MemberHealth {
	if member == "c/one" {
		return nil
	}
	at := time.Date(2025, 12, 31, 23, 0, 0, 0, time.UTC)
	return &queries.MemberHealth{
		State: "Disconnected", Reason: "Unreachable", Message: "dial: " + secretName, Since: at, Freshness: "1h0m0s",
		Budget: queries.MemberBudget{Objects: 2, MaxObjects: 10, Bytes: 3, MaxBytes: 20},
		Error:  &queries.MemberError{Message: "list secrets: " + secretName, Time: at}, LastError: &queries.MemberError{Message: "list secrets: " + secretName, Time: at},
		Audit: &queries.MemberAudit{Oldest: "1h0m0s", OldestFirstTier: "2m0s", Behind: true, Lost: 1, LastLoss: &queries.MemberLoss{
			Time: at, Kind: "Secret", Differences: map[string]int{"missing": 1}, Example: "missing shop/" + secretName,
		}},
	}
}

// TestMembers_HealthIsForWhoMayListEverything: errors and losses name objects of any kind. Who was not granted all
// that there is is told of none of it, whatever they ask about.
func TestMembers_HealthIsForWhoMayListEverything(t *testing.T) {
	f, everybody := statesFleet(t)
	f.scope("a/one", "Gone.example").SetStatus(aggregate.Status{State: aggregate.Stale}) // which no member serves, and nobody is granted
	f.commit()
	s := f.server(queries.Options{Health: brokenHealth})
	in := func(members ...string) *authz.Grants {
		grants := map[string]authz.MemberGrant{}
		for _, m := range members {
			grants[m] = authz.MemberGrant{All: true}
		}
		return authz.NewGrants(grants, time.Time{})
	}
	all, namespaces := authz.Everything(time.Time{}), authz.NewGrants(map[string]authz.MemberGrant{"a/one": {Namespaces: []string{"shop"}}}, time.Time{})
	for what, c := range map[string]struct {
		grants map[string]*authz.Grants
		query  string
		told   string // of which members
	}{
		"everything":                      {nil, "details=true", "a/one a/two b/one"},
		"everything, asked about a kind":  {nil, "details=true&resource=pods", "a/one a/two b/one"},
		"*, and each kind that is served": {map[string]*authz.Grants{"list *": all, "list pods": all, "list nodes": all}, "details=true", "a/one a/two b/one"},
		"without details":                 {nil, "", ""},
		"everything, kind by kind":        {map[string]*authz.Grants{"list pods": all, "list nodes": all}, "details=true", ""},
		"everything in one member":        {map[string]*authz.Grants{"list *": in("a/two"), "list pods": in("a/two", "b/one"), "list nodes": all}, "details=true", "a/two"},
		"everything in one, asked by one": {map[string]*authz.Grants{"list *": in("a/two"), "list pods": in("a/two"), "list nodes": in("a/two")}, "details=true&namePrefix=a/one", ""},
		"one kind":                        {map[string]*authz.Grants{"list pods": all}, "details=true", ""},
		"one namespace":                   {map[string]*authz.Grants{"list pods": namespaces}, "details=true", ""},
		"nothing":                         {map[string]*authz.Grants{}, "details=true", ""},
	} {
		w, err := send(s, "members", c.query, "application/json", reader{seen: everybody.seen, grants: c.grants})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if strings.Contains(w.Body.String(), secretName) != (c.told != "") {
			t.Errorf("%s: names %s: %s", what, secretName, w.Body)
		}
		got, err := ask[queries.MemberList](t, s, "members", c.query, reader{seen: everybody.seen, grants: c.grants})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		var told []string
		for _, m := range got.Items {
			if m.Health != nil {
				told = append(told, m.Name)
			}
			if full := m.Health != nil || m.Name == "c/one"; strings.Contains(c.query, "details") && m.HealthForbidden == "" && !full || m.HealthForbidden != "" && m.Health != nil {
				t.Errorf("%s: %s has %+v and %q", what, m.Name, m.Health, m.HealthForbidden)
			}
		}
		if strings.Join(told, " ") != c.told {
			t.Errorf("%s: told of %v, want %q", what, told, c.told)
		}
	}
}

// TestMembers_HealthOfAMemberThatHoldsNothing, as one that was never reached, needs all grants.
func TestMembers_HealthOfAMemberThatHoldsNothing(t *testing.T) {
	f := newFleet(t)
	f.join("a/one")
	s := f.server(queries.Options{Health: brokenHealth})
	for _, c := range []struct {
		grants map[string]*authz.Grants
		told   bool
	}{{nil, true}, {map[string]*authz.Grants{"list pods": authz.Everything(time.Time{})}, false}} {
		got, err := ask[queries.MemberList](t, s, "members", "details=true", reader{seen: []string{"a/one"}, grants: c.grants})
		if err != nil || len(got.Items) != 1 || (got.Items[0].Health != nil) != c.told {
			t.Errorf("%+v: %+v, %v", c.grants, got.Items, err)
		}
	}
}

// TestMembers_HealthIsNotSaidWhereNobodyKnows: nor is anything said to be withheld then.
func TestMembers_HealthIsNotSaidWhereNobodyKnows(t *testing.T) {
	f, everybody := statesFleet(t)
	for _, r := range []reader{everybody, {seen: everybody.seen, grants: map[string]*authz.Grants{"list pods": authz.Everything(time.Time{})}}} {
		got, err := ask[queries.MemberList](t, f.server(queries.Options{}), "members", "details=true", r)
		if err != nil || got.Items[0].Health != nil || got.Items[0].HealthForbidden != "" {
			t.Errorf("%+v, %v", got.Items, err)
		}
	}
}
