package constraintmatch_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/pkg/policy/internal/constraintmatch"
)

func parse(t testing.TB, text string) (*constraintmatch.Match, []constraintmatch.Problem) {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return constraintmatch.Parse(v)
}

func pod(namespace, name string, l labels.Set) *constraintmatch.Object {
	return &constraintmatch.Object{Kind: "Pod", Namespace: namespace, Name: name, Labels: l}
}

func TestMatch_StaticPart(t *testing.T) {
	web := pod("shop", "web-1", labels.Set{"app": "web"})
	shop := &constraintmatch.Object{Kind: "Namespace", Name: "shop", Labels: labels.Set{"team": "a"}}
	node := &constraintmatch.Object{Kind: "Node", Name: "n1", Labels: labels.Set{}}
	for _, c := range []struct {
		match            string
		web, shop, nodes bool
	}{
		{"", true, true, true},
		{"{}", true, true, true},
		{`kinds: [{apiGroups: [""], kinds: [Pod]}]`, true, false, false},
		{`kinds: [{apiGroups: ["*"], kinds: ["*"]}]`, true, true, true},
		{`kinds: [{apiGroups: [apps], kinds: ["*"]}, {kinds: [Node]}]`, false, false, true},
		{`kinds: [{apiGroups: [apps]}]`, false, false, false},
		{"scope: Cluster", false, true, true},
		{"scope: Namespaced", true, false, false},
		{"scope: cluster", true, true, true},
		{"namespaces: [shop]", true, true, true},
		{"namespaces: [sh*, x]", true, true, true},
		{"namespaces: [kube-*]", false, false, true},
		{`namespaces: ["*op"]`, true, true, true},
		{`namespaces: ["*ho*"]`, true, true, true},
		{"excludedNamespaces: [shop]", false, false, true},
		{`excludedNamespaces: ["*"]`, false, false, true},
		{"name: web-*", true, false, false},
		{"name: ''", true, true, true},
		{"labelSelector: {matchLabels: {app: web}}", true, false, false},
		{"labelSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}", false, true, true},
		{"labelSelector: {}", true, true, true},
		{"namespaceSelector: {matchLabels: {team: b}}", true, false, true},
		{"source: Original", true, true, true},
		{"source: Generated", false, false, false},
	} {
		m, problems := parse(t, c.match)
		if m == nil {
			t.Errorf("%s: %v", c.match, problems)
			continue
		}
		if a, b, n := m.Static(web), m.Static(shop), m.Static(node); a != c.web || b != c.shop || n != c.nodes {
			t.Errorf("%s: pod %t, namespace %t, node %t; want %t, %t, %t", c.match, a, b, n, c.web, c.shop, c.nodes)
		}
	}
}

func TestMatch_NamespacePart(t *testing.T) {
	m, _ := parse(t, "namespaceSelector: {matchLabels: {team: a}}")
	if !m.ReadsNamespace(pod("shop", "web", labels.Set{})) {
		t.Error("a pod's match does not read its Namespace")
	}
	for _, o := range []*constraintmatch.Object{{Kind: "Namespace", Name: "shop"}, {Kind: "Node", Name: "n"}} {
		if m.ReadsNamespace(o) {
			t.Errorf("the match of a %s reads a Namespace", o.Kind)
		}
	}
	if !m.Namespace(labels.Set{"team": "a"}) || m.Namespace(labels.Set{"team": "b"}) || m.Namespace(labels.Set{}) {
		t.Error("the selector does not select by the Namespace's labels")
	}
}

func TestMatch_GenerateName(t *testing.T) {
	m, _ := parse(t, "name: web-*")
	o := pod("shop", "other", labels.Set{})
	if !m.ReadsGenerateName(o) || m.Static(o) {
		t.Error("another name matches, or its generateName is not asked")
	}
	if o.GenerateName = "web-"; !m.Static(o) {
		t.Error("a generateName does not match")
	}
	if m.ReadsGenerateName(pod("shop", "web-1", labels.Set{})) {
		t.Error("generateName is asked where the name has decided")
	}
}

func TestParse_SaysWhatIsWrongAndWhere(t *testing.T) {
	for text, want := range map[string]string{
		"[]":                    "spec.match: is not an object",
		"kinds: Pod":            "spec.match.kinds: is not a list",
		"kinds: [{kinds: [1]}]": "spec.match.kinds[0].kinds[0]: is not a string",
		"kinds: [{apiGroup: [apps], kinds: [Deployment]}]": "warning spec.match.kinds[0].apiGroup: is no field that Gatekeeper knows: it has no effect",
		"namespace: [shop]":                      "warning spec.match.namespace: is no field that Gatekeeper knows: it has no effect",
		"scope: cluster":                         `warning spec.match.scope: "cluster" is not Cluster, Namespaced or *: Gatekeeper takes it as *`,
		"source: Live":                           `spec.match.source: "Live" is not All, Original or Generated`,
		"namespaces: [a, 'b*c']":                 `spec.match.namespaces[1]: "b*c" is not a name with an asterisk at its start or end`,
		"name: Web":                              `spec.match.name: "Web" is not a name with an asterisk at its start or end`,
		"labelSelector: {matchLabels: {app: 1}}": "spec.match.labelSelector: is not a label selector",
		"labelSelector: {matchExpressions: [{key: a, operator: In}]}":          "spec.match.labelSelector.matchExpressions[0].values: Required value",
		"namespaceSelector: {matchExpressions: [{key: a, operator: Matches}]}": "spec.match.namespaceSelector.matchExpressions[0].operator: Invalid value",
		"namespaces: [" + strings.Repeat("a,", 4100) + "a]":                    "spec.match: has 4101 patterns and selectors: at most 4096",
	} {
		m, problems := parse(t, text)
		if len(problems) != 1 {
			t.Errorf("%.60s: %v, want one problem", text, problems)
			continue
		}
		got := problems[0].String()
		if problems[0].Warning {
			got = "warning " + got
		}
		if !strings.HasPrefix(got, want) || (m != nil) != problems[0].Warning {
			t.Errorf("%.60s: %s, want %s", text, got, want)
		}
	}
}

func TestMatch_DoesNotAllocate(t *testing.T) {
	m, problems := parse(t, `
kinds: [{apiGroups: ["", apps], kinds: [Pod, Deployment]}]
namespaces: [sh*]
excludedNamespaces: ["*-system"]
name: web-*
labelSelector: {matchLabels: {app: web}, matchExpressions: [{key: tier, operator: NotIn, values: [db, mq]}]}
namespaceSelector: {matchLabels: {team: a}}`)
	o := pod("shop", "web-1", labels.Set{"app": "web"})
	if m == nil {
		t.Fatal(problems)
	}
	var of labels.Labels = labels.Set{"team": "a"}
	if n := testing.AllocsPerRun(100, func() {
		if !m.Static(o) || !m.ReadsNamespace(o) || !m.Namespace(of) {
			t.Fatal("does not match")
		}
	}); n > 0 {
		t.Errorf("matching allocates %.0f times", n)
	}
}

func ExampleMatch() {
	m, problems := constraintmatch.Parse(map[string]any{
		"kinds":             []any{map[string]any{"apiGroups": []any{""}, "kinds": []any{"Pod"}}},
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{"team": "a"}},
	})
	if m == nil {
		fmt.Println(problems)
		return
	}
	pod := &constraintmatch.Object{Kind: "Pod", Namespace: "shop", Name: "web", Labels: labels.Set{}}
	matches := m.Static(pod)
	if matches && m.ReadsNamespace(pod) {
		matches = m.Namespace(labels.Set{"team": "a"}) // of Namespace shop
	}
	fmt.Println(matches, m.Kinds())
	// Output: true [{ Pod false false}]
}
