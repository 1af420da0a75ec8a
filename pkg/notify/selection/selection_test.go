package selection_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/notify/selection"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/test/seed"
)

func selectionOf(t testing.TB, opts selection.Options) *selection.Selection {
	t.Helper()
	s, err := selection.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// labelsOf are the labels of members: fleet/eu-1 and fleet/us-1 are there.
func labelsOf(member string) (map[string]string, bool) {
	switch member {
	case "fleet/eu-1":
		return map[string]string{"region": "eu", "tier": "gold"}, true
	case "fleet/us-1":
		return map[string]string{"region": "us"}, true
	case "fleet/bare":
		return nil, true
	}
	return nil, false
}

func region(name string) policy.MemberSelector {
	return policy.MemberSelector{Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"region": name}}}
}

func violation(change func(*history.Record)) *history.Record {
	r := &history.Record{
		Type: history.Verdict, Transition: history.Opened, Policy: "unique-host", Severity: "high",
		Member: "fleet/eu-1", Kind: "Ingress.networking.k8s.io", Namespace: "shop", Name: "web", Violation: "it is there twice",
	}
	if change != nil {
		change(r)
	}
	return r
}

func TestSelection_Selects(t *testing.T) {
	t.Parallel()
	type rules = []selection.Rule
	exemption := func(transition, exempt, exemption string) *history.Record {
		return violation(func(r *history.Record) { r.Transition, r.Exempt, r.Exemption = transition, exempt, exemption })
	}
	closing, opening := exemption(history.Changed, "known", history.ExemptionBegan), exemption(history.Changed, "", history.ExemptionEnded)
	halt := &history.Record{Type: history.Policy, Transition: history.Halted, Kind: history.FleetPolicyKind, Name: "unique-host", Policy: "unique-host"}
	joined := &history.Record{Type: history.Member, Transition: history.Joined, Member: "fleet/eu-1"}
	synced := &history.Record{Type: history.Scope, Transition: "Synced", Member: "fleet/eu-1", Kind: "Pod"}
	left := violation(func(r *history.Record) { r.Member = "fleet/left" })
	for name, c := range map[string]struct {
		rules  rules
		record *history.Record
		want   bool
	}{
		"no rules":                               {nil, violation(nil), false},
		"a rule that sets nothing":               {rules{{}}, violation(nil), true},
		"its type":                               {rules{{Types: []string{"Violation"}}}, violation(nil), true},
		"another type":                           {rules{{Types: []string{"Action", "Object"}}}, violation(nil), false},
		"kinds of a member are type Kind":        {rules{{Types: []string{"Kind"}}}, synced, true},
		"members":                                {rules{{Types: []string{"Member"}, Transitions: []string{"Joined"}}}, joined, true},
		"one of two rules":                       {rules{{Policies: []string{"x"}}, {Policies: []string{"unique-*"}}}, violation(nil), true},
		"halves of two rules":                    {rules{{Policies: []string{"x"}, Severities: []string{"high"}}, {Policies: []string{"unique-*"}, Severities: []string{"low"}}}, violation(nil), false},
		"severity":                               {rules{{Severities: []string{"critical", "high"}}}, violation(nil), true},
		"severities are of violations alone":     {rules{{Severities: policy.Severities()}}, halt, false},
		"kind":                                   {rules{{Kinds: []string{"Ingress.networking.k8s.io"}}}, violation(nil), true},
		"another kind":                           {rules{{Kinds: []string{"Ingress"}}}, violation(nil), false},
		"every kind, and none":                   {rules{{Kinds: []string{"*"}}}, joined, true},
		"kinds on the hub":                       {rules{{Kinds: []string{"Plan.federator.dev"}}}, halt, false},
		"kind on the hub":                        {rules{{Kinds: []string{"FleetPolicy.federator.dev"}}}, halt, true},
		"namespace":                              {rules{{Namespaces: []string{"s*"}}}, violation(nil), true},
		"no namespace":                           {rules{{Namespaces: []string{""}}}, synced, true},
		"another than none":                      {rules{{Namespaces: []string{""}}}, violation(nil), false},
		"transition":                             {rules{{Transitions: []string{"Closed"}}}, violation(nil), false},
		"member by name":                         {rules{{Members: policy.MemberSelector{Names: []string{"fleet/eu-*"}}}}, violation(nil), true},
		"a star in a name ends at the slash":     {rules{{Members: policy.MemberSelector{Names: []string{"f*"}}}}, violation(nil), false},
		"member by label":                        {rules{{Members: region("eu")}}, violation(nil), true},
		"member by another label":                {rules{{Members: region("us")}}, violation(nil), false},
		"by name and label":                      {rules{{Members: policy.MemberSelector{Names: []string{"*/us-1"}, Labels: region("eu").Labels}}}, violation(nil), false},
		"one that has left, by name":             {rules{{Members: policy.MemberSelector{Names: []string{"fleet/*"}}}}, left, true},
		"one that has left, by label":            {rules{{Members: policy.MemberSelector{Labels: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "region", Operator: metav1.LabelSelectorOpDoesNotExist}}}}}}, left, false},
		"the hub has no member":                  {rules{{Members: policy.MemberSelector{Names: []string{"*", "*/*"}}}}, halt, false},
		"the hub, and an empty selector":         {rules{{Members: policy.MemberSelector{Labels: &metav1.LabelSelector{}}}}, halt, true},
		"gap":                                    {nil, &history.Record{Type: history.Gap}, true},
		"an unknown type":                        {rules{{}}, &history.Record{Type: "Other"}, false},
		"exempt when it opens":                   {rules{{}}, exemption(history.Opened, "known", ""), false},
		"exempt when it closes":                  {rules{{}}, exemption(history.Closed, "known", ""), false},
		"a change of an exempt one":              {rules{{}}, exemption(history.Changed, "known", ""), false},
		"an exemption closes":                    {rules{{Transitions: []string{"Closed"}}}, closing, true},
		"an exemption is no change":              {rules{{Transitions: []string{"Opened", "Changed"}}}, closing, false},
		"the end of an exemption opens":          {rules{{Transitions: []string{"Opened"}}}, opening, true},
		"the end of an exemption closes nothing": {rules{{Transitions: []string{"Closed"}}}, opening, false},
	} {
		s := selectionOf(t, selection.Options{Rules: c.rules, Labels: labelsOf})
		if got := s.Selects(c.record); got != c.want {
			t.Errorf("%s: selected is %t", name, got)
		}
	}
}

func TestSelection_SelectsWhatPoliciesAskFor(t *testing.T) {
	t.Parallel()
	s := selectionOf(t, selection.Options{Named: func(policy string) bool { return policy == "unique-host" }})
	for _, typ := range []history.Type{history.Verdict, history.Action, history.Policy, history.Member, history.Scope, history.Object} {
		of := typ == history.Verdict || typ == history.Action || typ == history.Policy
		for _, name := range []string{"unique-host", "other", ""} {
			if got, want := s.Selects(violation(func(r *history.Record) { r.Type, r.Policy = typ, name })), of && name == "unique-host"; got != want {
				t.Errorf("%s of %q: selected is %t", typ, name, got)
			}
		}
	}
	if s.Selects(violation(func(r *history.Record) { r.Exempt = "known" })) {
		t.Error("an exempt violation is selected")
	}
}

func TestNew_RefusesWhatCannotMatch(t *testing.T) {
	t.Parallel()
	for field, rule := range map[string]selection.Rule{
		"types[1]":         {Types: []string{"Violation", "Verdict"}},
		"policies[0]":      {Policies: []string{"[a"}},
		"policies[1]":      {Policies: []string{"a", ""}},
		"severities[0]":    {Severities: []string{"High"}},
		"members.names[0]": {Members: policy.MemberSelector{Names: []string{`fleet/\`}}},
		"members.labels":   {Members: policy.MemberSelector{Labels: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}}},
		"kinds[1]":         {Kinds: []string{"Pod", "apps/v1 Deployment"}},
		"kinds[0]":         {Kinds: []string{"*.apps"}},
		"namespaces[0]":    {Namespaces: []string{"a[-"}},
		"transitions[0]":   {Transitions: []string{"opened"}},
		"transitions[1]":   {Types: []string{"Action", "Policy"}, Transitions: []string{"Failed", "Opened"}},
	} {
		_, err := selection.New(selection.Options{Rules: []selection.Rule{{}, {}, rule}})
		var wrong *selection.FieldError
		if !errors.As(err, &wrong) || wrong.Field != "rules[2]."+field || !strings.HasPrefix(err.Error(), "rules[2]."+field+": ") {
			t.Errorf("%s: error %v", field, err)
		}
	}
}

// modelSelects is what Selects says, written as the rules read.
func modelSelects(opts *selection.Options, r *history.Record) bool {
	if r.Type == history.Gap {
		return true
	}
	began := r.Transition == history.Changed && r.Exemption == "Began"
	if r.Type == history.Verdict && r.Exempt != "" && !began {
		return false
	}
	if r.Policy != "" && opts.Named(r.Policy) && !slices.Contains([]history.Type{history.Object, history.Scope, history.Member}, r.Type) {
		return true
	}
	return slices.ContainsFunc(opts.Rules, func(x selection.Rule) bool { return modelMatches(opts, &x, r) })
}

func modelMatches(opts *selection.Options, x *selection.Rule, r *history.Record) bool {
	types := map[string]history.Type{"Violation": history.Verdict, "Action": history.Action, "Policy": history.Policy, "Member": history.Member, "Kind": history.Scope, "Object": history.Object}
	transition := r.Transition
	switch r.Exemption {
	case "Began":
		transition = "Closed"
	case "Ended":
		transition = "Opened"
	}
	matches := func(name string) func(string) bool {
		return func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }
	}
	labels, known := opts.Labels(r.Member)
	return (len(x.Types) == 0 || slices.ContainsFunc(x.Types, func(name string) bool { return types[name] == r.Type })) &&
		(len(x.Policies) == 0 || slices.ContainsFunc(x.Policies, matches(r.Policy))) &&
		(len(x.Severities) == 0 || slices.Contains(x.Severities, r.Severity)) &&
		(len(x.Kinds) == 0 || slices.Contains(x.Kinds, "*") || slices.Contains(x.Kinds, string(r.Kind))) &&
		(len(x.Namespaces) == 0 || slices.ContainsFunc(x.Namespaces, matches(r.Namespace))) &&
		(len(x.Transitions) == 0 || slices.Contains(x.Transitions, transition)) &&
		(len(x.Members.Names) == 0 || r.Member != "" && slices.ContainsFunc(x.Members.Names, matches(r.Member))) &&
		(x.Members.Labels == nil || known && labels["region"] == x.Members.Labels.MatchLabels["region"])
}

// generator makes rules and records that often meet.
type generator struct{ *rand.Rand }

func (g generator) of(list ...string) string { return list[g.IntN(len(list))] }

// some returns up to two of some, mostly none.
func (g generator) some(list ...string) (out []string) {
	for g.IntN(3) == 0 && len(out) < 2 {
		out = append(out, g.of(list...))
	}
	return out
}

func (g generator) rule() selection.Rule {
	x := selection.Rule{
		Types: g.some("Violation", "Action", "Policy", "Member", "Kind", "Object"), Policies: g.some("a", "ab", "a*", "*", "?b", "[ab]*", "c/*", `\a`),
		Severities: g.some(policy.Severities()...), Kinds: g.some("Pod", "Deployment.apps", "*"), Namespaces: g.some("", "shop", "s*", "*", "s?op"),
		Members: policy.MemberSelector{Names: g.some("fleet/eu-1", "fleet/*", "*", "*/us-1", "fleet/[ae]*", "fleet/left")},
	}
	if g.IntN(4) == 0 {
		x.Members.Labels = region(g.of("eu", "us")).Labels
	}
	if len(x.Types) == 0 {
		x.Transitions = g.some("Opened", "Changed", "Closed", "Failed", "Synced", "Joined", "Halted")
	}
	return x
}

func (g generator) record() *history.Record {
	r := &history.Record{
		Type:       history.Type(g.of("Verdict", "Verdict", "Verdict", "Action", "Policy", "Member", "Scope", "Object", "Gap")),
		Transition: g.of("Opened", "Changed", "Closed", "Failed", "Synced", "Joined", "Halted"),
		Policy:     g.of("a", "ab", "abc", "b", "c/d", "c", "", "named"), Severity: g.of("", "low", "medium", "high", "critical"),
		Kind: aggregate.Kind(g.of("", "Pod", "Deployment.apps", "Service")), Namespace: g.of("", "shop", "s", "other"), Name: "x",
		Member: g.of("", "fleet/eu-1", "fleet/us-1", "fleet/bare", "fleet/left", "other/us-1"),
	}
	if r.Type == history.Verdict {
		if r.Exempt = g.of("", "", "known"); r.Transition == history.Changed {
			switch began := g.IntN(2) == 0; {
			case r.Exempt != "" && began:
				r.Exemption = history.ExemptionBegan
			case r.Exempt == "" && began:
				r.Exemption = history.ExemptionEnded
			}
		}
	}
	return r
}

func TestSelection_IsWhatTheModelSays(t *testing.T) {
	t.Parallel()
	g := generator{rand.New(rand.NewPCG(seed.Of(t), 1))}
	selected := 0
	const rounds, records = 3000, 50
	for range rounds {
		opts := selection.Options{Labels: labelsOf, Named: func(policy string) bool { return policy == "named" }}
		n := g.IntN(4)
		if g.IntN(100) == 0 {
			n = 130 // more than are compared at once
		}
		for range n {
			opts.Rules = append(opts.Rules, g.rule())
		}
		s := selectionOf(t, opts)
		for range records {
			r := g.record()
			got, want := s.Selects(r), modelSelects(&opts, r)
			if got != want {
				t.Fatalf("record %+v: selected is %t, the model says %t, by rules %+v", r, got, want, opts.Rules)
			}
			if got {
				selected++
			}
		}
	}
	t.Logf("%d of %d records selected", selected, rounds*records)
	if n := rounds * records; selected < n/10 || selected > n*9/10 {
		t.Errorf("%d of %d records are selected: the rules and records do not meet", selected, n)
	}
}

// fifty are rules as the owners of fifty teams would write them.
func fifty() (rules []selection.Rule) {
	for i := range 50 {
		x := selection.Rule{
			Types: []string{"Violation"}, Policies: []string{fmt.Sprintf("team-%d-*", i), fmt.Sprintf("shared-%d", i)}, Severities: []string{"high", "critical"},
			Kinds: []string{"Deployment.apps", "Ingress.networking.k8s.io"}, Namespaces: []string{fmt.Sprintf("team-%d", i), fmt.Sprintf("team-%d-*", i)},
			Members: region("eu"), Transitions: []string{"Opened", "Closed"},
		}
		rules = append(rules, x)
	}
	return rules
}

// BenchmarkSelects measures one record against fifty rules.
func BenchmarkSelects(b *testing.B) {
	everywhere := fifty()
	labelled := fifty()
	for i := range labelled { // the dearest: all rules have their selectors asked, of which none matches
		labelled[i].Policies, labelled[i].Namespaces, labelled[i].Members = nil, nil, region(fmt.Sprint("r", i))
		everywhere[i].Members = policy.MemberSelector{Names: []string{fmt.Sprintf("fleet/team-%d-*", i)}}
	}
	for name, rules := range map[string][]selection.Rule{"teams": fifty(), "names": everywhere, "labels": labelled} {
		labels := map[string]string{"region": "eu", "tier": "gold"}
		s := selectionOf(b, selection.Options{Rules: rules, Labels: func(string) (map[string]string, bool) { return labels, true }})
		r := violation(nil)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if s.Selects(r) {
					b.Fatal("it is selected")
				}
			}
		})
	}
}

func TestSelection_AllocatesNothing(t *testing.T) {
	for name, rules := range map[string][]selection.Rule{"teams": fifty(), "labels": {{Members: region("us")}}} {
		labels := map[string]string{"region": "eu"}
		s := selectionOf(t, selection.Options{Rules: rules, Labels: func(string) (map[string]string, bool) { return labels, true }})
		r := violation(nil)
		if n := testing.AllocsPerRun(100, func() { s.Selects(r) }); n != 0 {
			t.Errorf("%s: %g allocations", name, n)
		}
	}
}
