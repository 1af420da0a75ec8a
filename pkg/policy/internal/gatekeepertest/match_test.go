package gatekeepertest

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	gatekeeper "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/match"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/policy/internal/constraintmatch"
	"federator.dev/federator/test/seed"
)

// TestMatch_EqualsGatekeeper compares the two matchers over random matches and objects.
func TestMatch_EqualsGatekeeper(t *testing.T) {
	const matches, objects = 10_000, 20
	g := generator{rand.New(rand.NewPCG(seed.Of(t), 16))}
	outcomes := map[string]int{}
	for range matches {
		spec := g.match()
		var theirs gatekeeper.Match
		decode(t, spec, &theirs)
		ours, problems := constraintmatch.Parse(spec)
		if ours == nil {
			t.Fatalf("%v: %v", spec, problems)
		}
		for range objects {
			o, ns := g.object()
			want := theirAnswer(t, &theirs, o, ns)
			got := ourAnswer(ours, o, ns)
			// They ask for the Namespace before they ask for the name.
			if got != want && (want != "unknown" || got != "no") {
				raw, _ := json.Marshal(spec)
				t.Fatalf("%s on %v, namespace %v: %s, Gatekeeper says %s", raw, o.Object, ns, got, want)
			}
			outcomes[want]++
		}
	}
	t.Log(outcomes)
	for _, outcome := range []string{"yes", "no", "unknown"} {
		if outcomes[outcome] < matches*objects/50 {
			t.Errorf("%q came out %d times of %d: the generator is off", outcome, outcomes[outcome], matches*objects)
		}
	}
}

func decode(t *testing.T, from, to any) {
	t.Helper()
	raw, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(raw, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func theirAnswer(t *testing.T, m *gatekeeper.Match, o *unstructured.Unstructured, ns *corev1.Namespace) string {
	ok, err := gatekeeper.Matches(m, &gatekeeper.Matchable{Object: o, Namespace: ns, Source: types.SourceTypeOriginal})
	switch {
	case err != nil && (ns != nil || o.GetNamespace() == ""):
		t.Fatalf("%v on %v: %v", m, o.Object, err)
		return ""
	case err != nil:
		return "unknown"
	case ok:
		return "yes"
	default:
		return "no"
	}
}

func ourAnswer(m *constraintmatch.Match, o *unstructured.Unstructured, ns *corev1.Namespace) string {
	gvk := o.GroupVersionKind()
	of := &constraintmatch.Object{
		Group: gvk.Group, Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName(),
		Labels: labels.Set(o.GetLabels()),
	}
	if m.ReadsGenerateName(of) {
		of.GenerateName = o.GetGenerateName()
	}
	switch {
	case !m.Static(of):
		return "no"
	case !m.ReadsNamespace(of):
		return "yes"
	case ns == nil:
		return "unknown"
	case m.Namespace(labels.Set(ns.Labels)):
		return "yes"
	default:
		return "no"
	}
}

// generator makes matches and objects of a few words, so that they often meet.
type generator struct{ *rand.Rand }

func (g generator) one(of ...string) string { return of[g.IntN(len(of))] }

func (g generator) maybe(percent int) bool { return g.IntN(100) < percent }

func (g generator) some(max int, one func() string) []any {
	out := []any{}
	for range g.IntN(max + 1) {
		out = append(out, one())
	}
	return out
}

func (g generator) word() string {
	return g.one("a", "ab", "abc", "b", "ba", "kube-a", "a-system", "c")
}

func (g generator) glob() string {
	return g.one("", "*") + g.one("", g.word(), g.word(), g.word()) + g.one("", "*", "*")
}

func (g generator) match() map[string]any {
	m := map[string]any{}
	if g.maybe(40) {
		var kinds []any
		for range g.IntN(3) {
			entry := map[string]any{}
			if g.maybe(80) {
				entry["apiGroups"] = g.some(2, func() string { return g.one("", "", "apps", "*") })
			}
			if g.maybe(80) {
				entry["kinds"] = g.some(3, func() string { return g.one("Pod", "Namespace", "Deployment", "Node", "*") })
			}
			kinds = append(kinds, entry)
		}
		m["kinds"] = kinds
	}
	for field, one := range map[string]func() any{
		"scope":              func() any { return g.one("*", "Cluster", "Namespaced", "", "cluster") },
		"namespaces":         func() any { return g.some(3, g.glob) },
		"excludedNamespaces": func() any { return g.some(2, g.glob) },
		"name":               func() any { return g.glob() },
		"source":             func() any { return g.one("", "All", "Original", "Original", "Generated") },
		"labelSelector":      func() any { return g.selector() },
		"namespaceSelector":  func() any { return g.selector() },
	} {
		if g.maybe(20) {
			m[field] = one()
		}
	}
	return m
}

func (g generator) selector() map[string]any {
	s := map[string]any{}
	if g.maybe(50) {
		l := map[string]any{}
		for range g.IntN(2) {
			l[g.key()] = g.value()
		}
		s["matchLabels"] = l
	}
	if g.maybe(50) {
		var out []any
		for range g.IntN(3) {
			e := map[string]any{"key": g.key(), "operator": g.one("In", "NotIn", "Exists", "DoesNotExist")}
			if op := e["operator"]; op == "In" || op == "NotIn" {
				e["values"] = append(g.some(2, g.value), g.value())
			}
			out = append(out, e)
		}
		s["matchExpressions"] = out
	}
	return s
}

func (g generator) key() string { return g.one("app", "tier", "x.io/y") }

func (g generator) value() string { return g.one("", "a", "b", "c") }

func (g generator) labels() map[string]string {
	l := map[string]string{}
	for range g.IntN(4) {
		l[g.key()] = g.value()
	}
	return l
}

// object makes an object and the Namespace that it is in, if it can be found.
func (g generator) object() (*unstructured.Unstructured, *corev1.Namespace) {
	o := &unstructured.Unstructured{}
	kind := g.one("v1/Pod", "v1/Namespace", "apps/v1/Deployment", "v1/Node", "x.io/v1/Namespace")
	cut := len(kind)
	for kind[cut-1] != '/' {
		cut--
	}
	o.SetAPIVersion(kind[:cut-1])
	o.SetKind(kind[cut:])
	o.SetName(g.word())
	if g.maybe(30) {
		o.SetGenerateName(g.word())
	}
	if g.maybe(80) {
		o.SetLabels(g.labels())
	}
	if kind == "v1/Node" || kind == "v1/Namespace" || g.maybe(10) {
		return o, nil
	}
	o.SetNamespace(g.word())
	if g.maybe(30) {
		return o, nil
	}
	return o, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.GetNamespace(), Labels: g.labels()}}
}
