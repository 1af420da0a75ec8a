package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// twinText is a policy about Deployments.
func twinText(kinds, custom, rules string) string {
	return fmt.Sprintf("# METADATA\n# title: Twins\n# custom: {severity: low, kinds: [%s]%s}\npackage twins\n\n%s\n", kinds, custom, rules)
}

const (
	heldKind   = `"Deployment.apps"`
	parameters = ", parameters: {type: object, properties: {max: {type: integer, default: 1}}}"
	notTwo     = `violation contains {"msg": "not two", "details": input.object.spec.replicas} if input.object.spec.replicas != 2
`
	// unnamed reads the name: with it no object is like another.
	unnamed = `
violation contains {"msg": "unnamed"} if input.ref.name == ""
`
)

// TestEngine_EvaluatesEqualObjectsOnce evaluates 24 Deployments of three different specs. What
// evaluations took over is what each would have found by itself.
func TestEngine_EvaluatesEqualObjectsOnce(t *testing.T) {
	t.Parallel()
	w, err := deployments(t, 12)
	if err != nil {
		t.Fatal(err)
	}
	view := `
view.images[input.object.spec.image] contains true if true

violation contains {"msg": "image"} if `
	for _, c := range []struct {
		name, kinds, custom, rules string
		binding                    policy.Binding
		shared                     int64
	}{
		{name: "what is read is alike", rules: notTwo, shared: 21},
		{name: "the kind", rules: `violation contains {"msg": input.ref.kind} if input.object.spec.replicas > 1`, shared: 21},
		{name: "parameters", custom: parameters, rules: `violation contains {"msg": "many"} if input.object.spec.replicas > input.parameters.max`, shared: 21},
		{name: "any kind", kinds: `"*"`, rules: notTwo, shared: 21},
		{name: "a part that is the same in all", rules: `violation contains {"msg": input.object.spec.image}`, shared: 23},
		{name: "a view that the policy itself does not read", rules: notTwo + "\nview.images[input.object.spec.image] contains true if true\n", shared: 21},
		{name: "errors are evaluated each", rules: `violation contains {"msg": "share", "details": 1 / (input.object.spec.replicas - 1)}`, shared: 14},
		{name: "the name in the object, which both members have", rules: notTwo + `
violation contains {"msg": "named"} if input.object.metadata.name == "d3"`, shared: 12},
		{name: "the object whole", rules: notTwo + `
violation contains {"msg": "empty"} if input.object == {}`},
		{name: "the name", rules: notTwo + unnamed},
		{name: "the namespace", rules: notTwo + `
violation contains {"msg": "of shop"} if input.ref.namespace == "shop"`},
		{name: "the member in the ref", rules: `violation contains {"msg": input.ref.member}`},
		{name: "the ref whole", rules: `violation contains {"msg": "ref", "details": input.ref}`},
		{name: "the member", rules: notTwo + `
violation contains {"msg": "in a"} if input.member.name == "fleet/a"`},
		{name: "labels of the member", rules: notTwo + `
violation contains {"msg": "in eu"} if input.member.labels.region == "eu"`},
		{name: "names", rules: notTwo + `
violation contains {"msg": "alone"} if count(data.fleet.names) == 1`},
		{name: "members", rules: notTwo + `
violation contains {"msg": "old"} if data.fleet.members["fleet/a"].version == "v1.0.0"`},
		{name: "scopes", rules: notTwo + `
violation contains {"msg": "synced"} if data.fleet.scopes["fleet/a"]["Deployment.apps"] == "Synced"`},
		{name: "by_name", rules: notTwo + `
violation contains {"msg": "d1"} if data.fleet.by_name["Deployment.apps"].shop.d1`},
		{name: "objects", rules: notTwo + `
violation contains {"msg": "d1"} if data.fleet.objects["Deployment.apps"]["fleet/a"].shop.d1`},
		{name: "views", rules: notTwo + view + `data.fleet.views.twins.images[input.object.spec.image]`},
		{name: "remedies", custom: ", remedies: [{action: delete, kind: Deployment.apps}]", rules: `violation contains {"msg": "delete it", "remedy": {"action": "delete"}} if input.object.spec.replicas == 0`},
		{name: "exemptions", rules: notTwo, binding: policy.Binding{Exemptions: []policy.Exemption{{Reason: "agreed", Names: []string{"d1"}}}}},
		{name: "pins", kinds: `"Deployment.v1.apps"`, rules: notTwo},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.kinds == "" {
				c.kinds = heldKind
			}
			c.binding.Name, c.binding.Package = "twins", "twins"
			set := load(t, twinText(c.kinds, c.custom, c.rules))
			e, _ := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: []policy.Binding{c.binding}, Parallelism: 1})
			if s := e.Stats(); s.Evaluations != 24 || s.Memoized != c.shared {
				t.Errorf("%d of %d evaluations were shared, want %d of 24", s.Memoized, s.Evaluations, c.shared)
			}
			set = load(t, twinText(c.kinds, c.custom, c.rules+"\n"+unnamed))
			each, _ := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: []policy.Binding{c.binding}, Parallelism: 1})
			if s := each.Stats(); s.Memoized != 0 {
				t.Fatalf("%d evaluations were shared by a policy that reads the name", s.Memoized)
			}
			unclean := sameVerdicts(t, e.State(), each.State(), "twins")
			if unclean == 0 {
				t.Error("no verdict says anything")
			}
		})
	}
}

// sameVerdicts holds the verdicts of a binding to those of another state, and counts
// those that have something to say.
func sameVerdicts(t *testing.T, got, want *policy.State, binding string) int {
	t.Helper()
	of := func(s *policy.State) (map[string]textVerdict, int) {
		out, unclean := map[string]textVerdict{}, 0
		for v := range s.Verdicts(binding, "") {
			out[v.Subject.String()] = textOf(v)
			if !v.Clean() {
				unclean++
			}
		}
		return out, unclean
	}
	has, unclean := of(got)
	wants, _ := of(want)
	if d := difference(has, wants); d != "" {
		t.Errorf("by twins and each by itself:\n%s", d)
	}
	if got.Total(binding) != want.Total(binding) {
		t.Errorf("%+v in total, want %+v", got.Total(binding), want.Total(binding))
	}
	return unclean
}

// TestMemo_IsPerBindingAndKind evaluates objects whose specs are all the same.
func TestMemo_IsPerBindingAndKind(t *testing.T) {
	t.Parallel()
	w, err := newWorld()
	if err != nil {
		t.Fatal(err)
	}
	mustDo(t, w, op{Do: "join", Member: "fleet/a"})
	kinds := []aggregate.Kind{"Deployment.apps", "Ingress.networking.k8s.io"}
	for _, kind := range kinds {
		mustDo(t, w, op{Do: "reopen", Member: "fleet/a", Kind: kind, Version: heldVersion(kind), State: aggregate.Synced})
	}
	set := load(t, twinText(`"Deployment.apps", "Ingress.networking.k8s.io"`, parameters, `
violation contains {"msg": sprintf("more than %d of %s", [input.parameters.max, input.ref.kind])} if input.object.spec.replicas > input.parameters.max`))
	bindings := []policy.Binding{
		{Name: "none", Package: "twins", Parameters: map[string]any{"max": 7}},
		{Name: "one", Package: "twins", Parameters: map[string]any{"max": 1}},
		{Name: "two", Package: "twins", Parameters: map[string]any{"max": 2}},
	}
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindings, Parallelism: 1})
	for i := range 3 {
		for _, kind := range kinds {
			mustDo(t, w, op{Do: "put", Member: "fleet/a", Kind: kind, NS: "shop", Name: fmt.Sprintf("n%d", i), Object: map[string]any{"spec": map[string]any{"replicas": 3}}})
		}
	}
	apply(t, e, cursor)
	// Of each of two kinds and three bindings the first is evaluated.
	if s := e.Stats(); s.Evaluations != 18 || s.Memoized != 18-6 {
		t.Errorf("%d of %d evaluations were shared, want 12 of 18", s.Memoized, s.Evaluations)
	}
	for name, n := range map[string]int{"none": 0, "one": 6, "two": 6} {
		found := 0
		for v := range e.State().Findings(name, "") {
			found++
			if want := fmt.Sprintf("more than %d of %s", map[string]int{"one": 1, "two": 2}[name], v.Subject.Ref.Kind); v.Violations[0].Msg != want {
				t.Errorf("%s says %q of %s, want %q", name, v.Violations[0].Msg, v.Subject, want)
			}
		}
		if found != n {
			t.Errorf("%s has %d findings, want %d", name, found, n)
		}
	}
}

// TestMemo_LastsForOnePass applies batches of objects that are alike, and then changes
// one of them.
func TestMemo_LastsForOnePass(t *testing.T) {
	t.Parallel()
	w, err := deployments(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	set := load(t, twinText(heldKind, "", notTwo))
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindingsOf(set), Parallelism: 1})
	var revisions []aggregate.Revision
	for i, batch := range []struct{ objects, shared int }{{8, 7}, {8, 7}, {3, 0}, {1, 0}} {
		before := e.Stats()
		for j := range batch.objects {
			mustDo(t, w, deployment("fleet/a", fmt.Sprintf("d%d-%d", i, j), map[string]any{"replicas": 1}))
		}
		changes := apply(t, e, cursor)
		after := e.Stats()
		if n, shared := after.Evaluations-before.Evaluations, after.Memoized-before.Memoized; n != int64(batch.objects) || shared != int64(batch.shared) {
			t.Errorf("batch %d: %d of %d evaluations were shared, want %d of %d", i, shared, n, batch.shared, batch.objects)
		}
		reported := map[string]bool{}
		for c := range changes.All() {
			reported[c.After.Subject.Ref.Name] = c.Before == nil && len(c.After.Violations) == 1
		}
		for j := range batch.objects {
			if name := fmt.Sprintf("d%d-%d", i, j); !reported[name] || len(reported) != batch.objects {
				t.Errorf("batch %d: %s is not reported as new, or others are: %v", i, name, reported)
			}
		}
		revisions = append(revisions, changes.After.Snapshot.Revision())
	}
	mustDo(t, w, deployment("fleet/a", "d0-3", map[string]any{"replicas": 2}))
	apply(t, e, cursor)
	for v := range e.State().Verdicts("twins", "") {
		name := v.Subject.Ref.Name
		if name == "d0-3" {
			if len(v.Violations) != 0 {
				t.Errorf("%s still has %v", name, v.Violations)
			}
			continue
		}
		var batch int
		if _, err := fmt.Sscanf(strings.TrimPrefix(name, "d"), "%d-", &batch); err != nil {
			t.Fatal(err)
		}
		if len(v.Violations) != 1 || v.Revision != revisions[batch] {
			t.Errorf("%s has %v since %d, want one since %d", name, v.Violations, v.Revision, revisions[batch])
		}
	}
}
