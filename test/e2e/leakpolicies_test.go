package e2e

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
)

// leakPolicies evaluates the fleet by a policy whose views show everything: keys and
// values have the markers of objects.
func leakPolicies(t *testing.T, index *aggregate.Index) *enforce.Loop {
	t.Helper()
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "leak.rego", Data: []byte(`# METADATA
# title: Everything is in a view
# custom: {severity: low, kinds: ["*"]}
package leak

view.names[input.ref.name] contains input.object.metadata.labels

view.all.everything contains input.ref.name

violation contains {"msg": sprintf("%s is seen from %v", [input.ref.name, claim])} if {
	some claim in data.fleet.views.leak.names[input.ref.name]
}
`)}, {Path: "own.rego", Data: []byte(`# METADATA
# title: Everything is found
# custom: {severity: low, kinds: ["*"]}
package own

violation contains {"msg": sprintf("%s is there", [input.ref.name]), "details": {"member": input.member.name}}
`)}, {Path: "grouped.rego", Data: []byte(`# METADATA
# title: All kinds of a group are in a view
# custom: {severity: low, kinds: ["*.apps"]}
package grouped

view.names[input.ref.name] contains input.object.metadata.labels

violation contains {"msg": sprintf("%s is seen from %v", [input.ref.name, claim])} if {
	some claim in data.fleet.views.grouped.names[input.ref.name]
}
`)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	loop, err := enforce.New(enforce.Options{Index: index, Set: set, Bindings: []policy.Binding{{Name: "leak", Package: "leak"}, {Name: "own", Package: "own"}, {Name: "grouped", Package: "grouped"}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return loop
}

// withheld reports whether the policies are withheld that must be. Who may read all of a group
// may know what is said of it.
func withheld(names []string) bool {
	return slices.Equal(slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "grouped" }), []string{"leak"})
}

// askViolations asks for violations in a random way.
func (l *leakCheck) askViolations() {
	l.t.Helper()
	rng := l.rng
	q := url.Values{}
	for name, values := range map[string][]string{
		"policy": {"leak", "own"}, "severity": {"low", "high"}, "member": {leakMember(rng.IntN(leakMembers))}, "namespace": {"ns1", "ns2"},
		"kind": {"ConfigMap", "Pod", "Deployment.apps"}, "limit": {"1", "7"}, "groupBy": {"member", "kind", "namespace", "policy"}, "exempt": {"true", "false"},
	} {
		if rng.IntN(4) == 0 {
			q.Set(name, values[rng.IntN(len(values))])
		}
	}
	what := "/query/v1/violations?" + q.Encode()
	code, header, body := l.fetch(l.t.Context(), what, "application/json")
	if code != http.StatusOK {
		l.t.Errorf("%s: %d %s", what, code, body)
	}
	l.look(what, header, body)
}

// violations compares all that is shown to the user, page by page, with what they may list.
func (l *leakCheck) violations() {
	l.t.Helper()
	reported := map[string]int{} // by member and name without its number
	q := url.Values{"limit": {"7"}}
	for {
		_, header, body := l.fetch(l.t.Context(), "/query/v1/violations?"+q.Encode(), "application/json")
		l.look("violations", header, body)
		var found policyquery.ViolationList
		if err := json.Unmarshal(body, &found); err != nil {
			l.t.Fatalf("%v: %s", err, body)
		}
		if !withheld(found.Withheld) {
			l.t.Fatalf("withheld %q, want the policy that looks at everything", found.Withheld)
		}
		for _, f := range found.Items {
			if f.Policy != "own" || len(f.Violations) != 1 || f.Violations[0].Msg != f.Subject.Name+" is there" {
				l.t.Fatalf("item %+v", f)
			}
			reported[f.Subject.Member+" "+f.Subject.Name[:strings.LastIndexByte(f.Subject.Name, '-')]]++
		}
		if found.Continue == "" {
			break
		}
		q.Set("continue", found.Continue)
	}
	want := map[string]int{}
	for r := range l.rights {
		for _, k := range leakKinds {
			if k.resource == r.resource {
				want[leakMember(r.member)+" "+marker(r.member, k)] = leakNamespaces
			}
		}
	}
	if !maps.Equal(reported, want) {
		l.t.Errorf("%s is shown %v, want %v", l.user, reported, want)
	}
}

// watchViolations opens a watch of violations and wants of it what may be read, and no
// more. What it returns is called when all grants are gone: then all must be reported as
// deleted.
func (l *leakCheck) watchViolations() (revoked func()) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 2*patience)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.s.api.host+"/query/v1/violations?watch=true", nil)
	if err != nil {
		l.t.Fatal(err)
	}
	resp, err := l.client.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	events := json.NewDecoder(resp.Body)
	held := map[policyquery.Subject]bool{}
	next := func() (kind string, mark policyquery.Bookmark) {
		l.t.Helper()
		var e struct {
			Type   string
			Object json.RawMessage
		}
		if err := events.Decode(&e); err != nil {
			l.t.Fatalf("watch of violations: %v", err)
		}
		if e.Type != "DELETED" { // which shows what was shown before
			l.look("watch of violations", resp.Header, e.Object)
		}
		var f policyquery.Finding
		err := json.Unmarshal(e.Object, &f)
		switch e.Type {
		case "BOOKMARK":
			err = json.Unmarshal(e.Object, &mark)
		case "ADDED", "MODIFIED":
			held[f.Subject] = true
		case "DELETED":
			if !held[f.Subject] {
				l.t.Fatalf("%s receives that %+v is deleted, which was never there for %s", l.user, f.Subject, l.user)
			}
			delete(held, f.Subject)
		default:
			l.t.Fatalf("%s: %s", e.Type, e.Object)
		}
		if err != nil {
			l.t.Fatal(err)
		}
		return e.Type, mark
	}
	for {
		if kind, mark := next(); kind == "BOOKMARK" {
			if !mark.InitialEnd || !withheld(mark.Withheld) {
				l.t.Errorf("a watch begins with %+v", mark)
			}
			break
		}
	}
	if want := len(l.rights) * leakNamespaces; len(held) != want {
		l.t.Errorf("a watch sends %s %d violations, want %d", l.user, len(held), want)
	}
	return func() {
		l.t.Helper()
		defer cancel()
		defer resp.Body.Close()
		for len(held) > 0 {
			next()
		}
	}
}
