package policy_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// gatekeeperFiles are templates in the style of Gatekeeper's library, with constraints.
func gatekeeperFiles(t testing.TB, names ...string) []policy.File {
	t.Helper()
	found, err := filepath.Glob("testdata/gatekeeper/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var files []policy.File
	for _, path := range found {
		name := filepath.Base(path)
		if len(names) > 0 && !slices.Contains(names, strings.TrimSuffix(name, ".yaml")) {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, policy.File{Path: name, Data: data})
	}
	return files
}

func loadFiles(t testing.TB, files ...policy.File) *policy.Set {
	t.Helper()
	set, err := policy.Load([]policy.Source{{Files: files}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// gatekeeperWorld has two members, of which both have a namespace shop.
func gatekeeperWorld(t testing.TB) *world {
	t.Helper()
	w, err := newWorld()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{"fleet/a", "fleet/b"} {
		mustDo(t, w, op{Do: "join", Member: m})
		for kind, version := range map[aggregate.Kind]string{
			"Deployment.apps": "apps/v1", "Namespace": "v1", "Pod": "v1", "Service": "v1", "PersistentVolumeClaim": "v1", "StatefulSet.apps": "apps/v1",
			"Ingress.networking.k8s.io": "networking.k8s.io/v1", "StorageClass.storage.k8s.io": "storage.k8s.io/v1",
			"PodDisruptionBudget.policy": "policy/v1", "HorizontalPodAutoscaler.autoscaling": "autoscaling/v2",
		} {
			mustDo(t, w, op{Do: "reopen", Member: m, Kind: kind, Version: version, State: aggregate.Synced})
		}
		mustDo(t, w, op{Do: "put", Member: m, Kind: "Namespace", Name: "shop", Object: withLabels(map[string]any{"env": "production"}, nil)})
	}
	return w
}

func withLabels(labels, spec map[string]any) map[string]any {
	o := map[string]any{"metadata": map[string]any{"labels": labels}}
	if spec != nil {
		o["spec"] = spec
	}
	return o
}

func putIn(member string, kind aggregate.Kind, ns, name string, object map[string]any) op {
	return op{Do: "put", Member: member, Kind: kind, NS: ns, Name: name, Object: object}
}

func gatekeeperEngine(t testing.TB, w *world, set *policy.Set) (*policy.Engine, *aggregate.Cursor) {
	t.Helper()
	bindings, warnings := policy.DefaultBindings(set, nil)
	if len(warnings) > 0 {
		t.Fatal(warnings)
	}
	return engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindings})
}

// messages are the violations of a binding, with their subjects.
func messages(s *policy.State, binding string) []string {
	var out []string
	for v := range s.Findings(binding, "") {
		for _, x := range v.Violations {
			out = append(out, strings.Join([]string{v.Subject.Ref.Member, v.Subject.Ref.Namespace, v.Subject.Ref.Name, x.Msg}, "|"))
		}
		if v.State == policy.Error {
			out = append(out, v.Subject.Ref.Name+" failed: "+v.Message)
		}
	}
	slices.Sort(out)
	return out
}

func wantMessages(t testing.TB, s *policy.State, binding string, want ...string) {
	t.Helper()
	if got := messages(s, binding); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", binding, got, want)
	}
}

func ingress(host string) map[string]any {
	return map[string]any{"spec": map[string]any{"rules": []any{map[string]any{"host": host}}}}
}

func TestGatekeeper_JudgesByConstraints(t *testing.T) {
	t.Parallel()
	w := gatekeeperWorld(t)
	mustDo(
		t, w,
		putIn("fleet/a", "Deployment.apps", "shop", "web", withLabels(map[string]any{"owner": "Me", "team": "x"}, nil)),
		putIn("fleet/b", "Deployment.apps", "shop", "web", withLabels(map[string]any{"owner": "me"}, nil)),
		putIn("fleet/b", "Deployment.apps", "lost", "web", withLabels(map[string]any{"owner": "me"}, nil)),
		putIn("fleet/a", "Pod", "shop", "good", map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "registry.example/x"}}}}),
		putIn("fleet/a", "Pod", "shop", "pause", map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "docker.io/pause:1"}}}}),
		putIn("fleet/a", "Pod", "shop", "bad", map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "docker.io/x"}}}}),
		putIn("fleet/a", "Pod", "kube-system", "bad", map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "docker.io/x"}}}}),
		putIn("fleet/a", "Ingress.networking.k8s.io", "shop", "one", ingress("x.example")),
		putIn("fleet/a", "Ingress.networking.k8s.io", "shop", "two", ingress("x.example")),
		putIn("fleet/b", "Ingress.networking.k8s.io", "shop", "one", ingress("x.example")),
		putIn("fleet/a", "Service", "shop", "s", map[string]any{"spec": map[string]any{"selector": map[string]any{"app": "x", "b": "y"}}}),
		putIn("fleet/a", "Service", "other", "s", map[string]any{"spec": map[string]any{"selector": map[string]any{"b": "y", "app": "x"}}}),
		putIn("fleet/b", "Service", "other", "s", map[string]any{"spec": map[string]any{"selector": map[string]any{"b": "y", "app": "x"}}}),
		putIn("fleet/a", "StorageClass.storage.k8s.io", "", "fast", map[string]any{}),
		putIn("fleet/a", "PersistentVolumeClaim", "shop", "good", map[string]any{"spec": map[string]any{"storageClassName": "fast"}}),
		putIn("fleet/a", "PersistentVolumeClaim", "shop", "bad", map[string]any{"spec": map[string]any{"storageClassName": "slow"}}),
		putIn("fleet/b", "PersistentVolumeClaim", "shop", "bad", map[string]any{"spec": map[string]any{"storageClassName": "fast"}}),
		putIn("fleet/a", "HorizontalPodAutoscaler.autoscaling", "shop", "web", map[string]any{"spec": map[string]any{"minReplicas": 1, "maxReplicas": 5, "scaleTargetRef": map[string]any{"kind": "Deployment", "name": "web"}}}),
		putIn("fleet/a", "HorizontalPodAutoscaler.autoscaling", "shop", "gone", map[string]any{"spec": map[string]any{"minReplicas": 1, "maxReplicas": 5, "scaleTargetRef": map[string]any{"kind": "Deployment", "name": "gone"}}}),
	)
	set := loadFiles(t, gatekeeperFiles(t)...)
	e, cursor := gatekeeperEngine(t, w, set)
	s := e.State()
	wantMessages(t, s, "K8sRequiredLabels/must-have-owner", `fleet/a|shop|web|Label <owner: Me> does not satisfy allowed regex: ^[a-z]+$`)
	wantMessages(t, s, "K8sRequiredLabels/production-has-team",
		`fleet/a|shop|s|you must provide labels: {"team"}`, `fleet/b|shop|web|you must provide labels: {"team"}`)
	wantMessages(t, s, "K8sAllowedRepos/repos", `fleet/a|shop|bad|container <c> has an invalid image repo <docker.io/x>, allowed repos are ["registry.example/"]`)
	wantMessages(t, s, "K8sUniqueIngressHost/unique-ingress-host",
		"fleet/a|shop|one|ingress host conflicts with an existing ingress <x.example>", "fleet/a|shop|two|ingress host conflicts with an existing ingress <x.example>")
	wantMessages(t, s, "K8sUniqueServiceSelector/unique-service-selector",
		"fleet/a|other|s|same selector as service <s> in namespace <shop>", "fleet/a|shop|s|same selector as service <s> in namespace <other>")
	wantMessages(t, s, "K8sStorageClass/storageclass",
		"fleet/a|shop|bad|pvc did not specify a valid storage class name <slow>. Must be one of [fast]",
		"fleet/b|shop|bad|StorageClasses not synced. Gatekeeper may be misconfigured. Please have a cluster-admin consult the documentation.",
		"fleet/b|shop|bad|pvc did not specify a valid storage class name <fast>. Must be one of []")
	wantMessages(t, s, "K8sHorizontalPodAutoscaler/horizontal-pod-autoscaler",
		"fleet/a|shop|gone|The HorizontalPodAutoscaler gone has a scaleTargetRef that does not exist: Deployment/gone")

	// What the verdicts follow from changes.
	mustDo(
		t, w,
		putIn("fleet/a", "Namespace", "", "shop", withLabels(map[string]any{"env": "test"}, nil)),
		op{Do: "delete", Member: "fleet/a", Kind: "Ingress.networking.k8s.io", NS: "shop", Name: "two"},
		putIn("fleet/a", "Service", "other", "s", map[string]any{"spec": map[string]any{"selector": map[string]any{"app": "x"}}}),
		putIn("fleet/b", "StorageClass.storage.k8s.io", "", "fast", map[string]any{}),
		putIn("fleet/a", "Deployment.apps", "shop", "gone", map[string]any{}),
	)
	s = apply(t, e, cursor).After
	wantMessages(t, s, "K8sRequiredLabels/production-has-team", `fleet/b|shop|web|you must provide labels: {"team"}`)
	wantMessages(t, s, "K8sUniqueIngressHost/unique-ingress-host")
	wantMessages(t, s, "K8sUniqueServiceSelector/unique-service-selector")
	wantMessages(t, s, "K8sStorageClass/storageclass", "fleet/a|shop|bad|pvc did not specify a valid storage class name <slow>. Must be one of [fast]")
	wantMessages(t, s, "K8sHorizontalPodAutoscaler/horizontal-pod-autoscaler")
}

// TestGatekeeper_NamespaceObjectIsRead changes the labels of a namespace that a template
// compares with its subject's.
func TestGatekeeper_NamespaceObjectIsRead(t *testing.T) {
	t.Parallel()
	w := gatekeeperWorld(t)
	mustDo(
		t, w,
		putIn("fleet/a", "Namespace", "", "shop", withLabels(map[string]any{"owner": "us"}, nil)),
		putIn("fleet/a", "Service", "shop", "s", withLabels(map[string]any{"owner": "me"}, nil)),
		putIn("fleet/a", "Service", "none", "s", withLabels(map[string]any{"owner": "me"}, nil)),
	)
	set := loadFiles(t, append(gatekeeperFiles(t, "namespaceowner"), policy.File{Path: "c.yaml", Data: []byte(`
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sNamespaceOwner
metadata: {name: owner}
`)})...)
	e, cursor := gatekeeperEngine(t, w, set)
	wantMessages(t, e.State(), "K8sNamespaceOwner/owner", "fleet/a|shop|s|s is of me, its namespace of us")
	mustDo(t, w, putIn("fleet/a", "Namespace", "", "shop", withLabels(map[string]any{"owner": "me"}, nil)))
	wantMessages(t, apply(t, e, cursor).After, "K8sNamespaceOwner/owner")
}

// TestGatekeeper_RefusesWithLines loads templates with an error each.
func TestGatekeeper_RefusesWithLines(t *testing.T) {
	t.Parallel()
	template := func(rego string) string {
		return `apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: bad}
spec:
  crd: {spec: {names: {kind: Bad}}}
  targets:
    - target: admission.k8s.gatekeeper.sh
      rego: |
        package bad
` + rego
	}
	for name, test := range map[string]struct {
		text, want string
	}{
		"syntax":    {template("\n        violation[{\"msg\": msg}] {\n          msg := \n        }\n"), "b.yaml:13:9: error: unexpected } token"},
		"network":   {template("        violation[{\"msg\": \"x\"}] {\n          http.send({\"url\": \"x\", \"method\": \"get\"})\n        }\n"), "b.yaml:11:11: error: http.send is refused for the fleet: it reads the network"},
		"external":  {template("        violation[{\"msg\": \"x\"}] {\n          external_data({\"provider\": \"x\", \"keys\": []})\n        }\n"), "b.yaml:11:11: error: external_data is refused for the fleet: it asks an external data provider, and an evaluation asks nobody: name the data in spec.external of a PolicySource, and read data.fleet.external[source][key]"},
		"clock":     {template("        violation[{\"msg\": \"x\"}] {\n          time.now_ns() > 3\n        }\n"), "b.yaml:11:11: error: time.now_ns is refused for the fleet: it reads the clock"},
		"data":      {template("        violation[{\"msg\": \"x\"}] {\n          data.other.x\n        }\n"), "b.yaml:11:11: error: data.other.x: a template may read data.inventory and data.lib"},
		"sync":      {template("        violation[{\"msg\": \"x\"}] {\n          data.inventory.namespace[_][_][input.review.kind.kind][_]\n        }\n"), "b.yaml:11:11: error: data.inventory is read for kinds that it does not name"},
		"violation": {template("        deny[x] { x := 1 }\n"), "b.yaml:8:13: error: the template of Bad has no rule violation"},
		"name":      {strings.Replace(template("        violation[{\"msg\": \"x\"}] { true }\n"), "name: bad", "name: worse", 1), "b.yaml:5:30: error: the template is named \"worse\""},
		"missing":   {"apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: Lost\nmetadata: {name: x}\n", "b.yaml:1:1: error: constraint Lost/x: there is no ConstraintTemplate of Lost"},
		"match":     {"apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: Lost\nmetadata: {name: x}\nspec:\n  match:\n    namespaces: [\"a*b\"]\n", "b.yaml:6:"},
		"members":   {"apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: Lost\nmetadata: {name: x, annotations: {federator.dev/members: \", \"}}\n", "b.yaml:3:58: error: federator.dev/members names no member"},
		"alias":     {"kind: List\napiVersion: v1\nitems:\n- &a\n  apiVersion: constraints.gatekeeper.sh/v1beta1\n  kind: Lost\n  metadata: {name: x}\n- *a\n", "b.yaml:8:3: error: List: anchors"},
		"yaml":      {"apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: [\n", "b.yaml:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "b.yaml", Data: []byte(test.text)}}}}, policy.LoadOptions{})
			var list policy.LoadErrors
			if !errors.As(err, &list) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

// TestGatekeeper_ConstraintsOnlyObserve binds a constraint as a FleetPolicy does.
func TestGatekeeper_ConstraintsOnlyObserve(t *testing.T) {
	t.Parallel()
	set := loadFiles(t, gatekeeperFiles(t)...)
	bind := func(b policy.Binding) error {
		b.Name = "mine"
		_, err := policy.ValidateBindings(set, []policy.Binding{b})
		return err
	}
	one := policy.Binding{Package: "gatekeeper.k8srequiredlabels", Constraint: "K8sRequiredLabels/must-have-owner"}
	if err := bind(one); err != nil {
		t.Error(err)
	}
	for want, b := range map[string]policy.Binding{
		"only observes":               {Package: one.Package, Constraint: one.Constraint, Mode: policy.Enforce},
		"name one of its constraints": {Package: one.Package},
		"there is no constraint":      {Package: one.Package, Constraint: "K8sRequiredLabels/other"},
		"is not of package":           {Package: "gatekeeper.k8sallowedrepos", Constraint: one.Constraint},
	} {
		if err := bind(b); !errors.Is(err, policy.ErrBinding) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	mine, _ := policy.DefaultBindings(set, []policy.Binding{{Name: "mine", Package: one.Package, Constraint: one.Constraint}})
	if slices.ContainsFunc(mine, func(b policy.Binding) bool { return b.Constraint == one.Constraint }) {
		t.Error("a constraint that a binding names has another one by default")
	}
	for _, b := range mine {
		if b.Mode != policy.Observe {
			t.Errorf("%s is in mode %s", b.Name, b.Mode)
		}
	}
}

// TestGatekeeper_FleetInventoryKeepsMembersApart opts in to the inventory of the fleet.
func TestGatekeeper_FleetInventoryKeepsMembersApart(t *testing.T) {
	t.Parallel()
	w := gatekeeperWorld(t)
	mustDo(
		t, w,
		putIn("fleet/a", "Ingress.networking.k8s.io", "shop", "one", ingress("x.example")),
		putIn("fleet/b", "Ingress.networking.k8s.io", "shop", "one", ingress("x.example")),
	)
	set := loadFiles(t, append(gatekeeperFiles(t, "uniqueingresshost"), policy.File{Path: "c.yaml", Data: []byte(`
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sUniqueIngressHost
metadata: {name: fleet, annotations: {federator.dev/inventory: fleet, federator.dev/members: "fleet/a"}}
`)})...)
	e, cursor := gatekeeperEngine(t, w, set)
	wantMessages(t, e.State(), "K8sUniqueIngressHost/fleet", "fleet/a|shop|one|ingress host conflicts with an existing ingress <x.example>")
	mustDo(t, w, putIn("fleet/b", "Ingress.networking.k8s.io", "shop", "one", ingress("y.example")))
	wantMessages(t, apply(t, e, cursor).After, "K8sUniqueIngressHost/fleet")
}

// emptyStepTemplate finds what is at steps below data.inventory that it knows, but for one
// that parameters have.
const emptyStepTemplate = `apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: steps}
spec:
  crd: {spec: {names: {kind: Steps}, validation: {openAPIV3Schema: {type: object, properties: {step: {type: string}}}}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    rego: |
      package steps
      violation[{"msg": "a Namespace"}] { data.inventory.cluster.v1.Namespace[input.parameters.step] }
      violation[{"msg": "a Service"}] { data.inventory.namespace.shop.v1.Service[input.parameters.step] }
      violation[{"msg": "in a namespace"}] { data.inventory.namespace[input.parameters.step].v1.Service.web }
      violation[{"msg": "some in a namespace"}] { data.inventory.namespace[input.parameters.step].v1.Service[_] }
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: Steps
metadata: {name: empty}
spec: {match: {kinds: [{apiGroups: [''], kinds: [Namespace]}]}, parameters: {step: ""}}
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: Steps
metadata: {name: blank}
spec: {match: {kinds: [{apiGroups: [''], kinds: [Namespace]}]}, parameters: {step: " "}}
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: Steps
metadata: {name: shop}
spec: {match: {kinds: [{apiGroups: [''], kinds: [Namespace]}]}, parameters: {step: shop}}
`

// TestTemplate_AnEmptyStepNamesNothing: it is no step that is not known, below which is all.
func TestTemplate_AnEmptyStepNamesNothing(t *testing.T) {
	t.Parallel()
	w := gatekeeperWorld(t)
	mustDo(t, w, putIn("fleet/a", "Service", "shop", "web", withLabels(nil, nil)))
	e, c := gatekeeperEngine(t, w, loadFiles(t, policy.File{Path: "steps.yaml", Data: []byte(emptyStepTemplate)}))
	for range 2 {
		wantMessages(t, e.State(), "Steps/empty")
		wantMessages(t, e.State(), "Steps/blank")
		wantMessages(t, e.State(), "Steps/shop", "fleet/a||shop|a Namespace", "fleet/a||shop|in a namespace", "fleet/a||shop|some in a namespace", "fleet/b||shop|a Namespace")
		mustDo(t, w, putIn("fleet/a", "Service", "shop", "other", withLabels(nil, nil)))
		apply(t, e, c)
	}
}
