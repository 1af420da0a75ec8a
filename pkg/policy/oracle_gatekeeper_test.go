package policy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"go.yaml.in/yaml/v3"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// plainTemplate is a template as plain OPA evaluates it: nothing is renamed, pruned or
// turned into views.
type plainTemplate struct {
	kind, query string
	compiler    *ast.Compiler
}

func plainTemplates(t testing.TB) map[string]plainTemplate {
	t.Helper()
	out := map[string]plainTemplate{}
	for _, f := range gatekeeperFiles(t) {
		var doc struct {
			Kind string
			Spec struct {
				CRD struct {
					Spec struct{ Names struct{ Kind string } }
				}
				Targets []struct {
					Rego string
					Code []struct {
						Source struct {
							Version, Rego string
							Libs          []string
						}
					}
				}
			}
		}
		if err := yaml.Unmarshal(f.Data, &doc); err != nil || doc.Kind != "ConstraintTemplate" {
			continue
		}
		target := doc.Spec.Targets[0]
		texts, version := []string{target.Rego}, ast.RegoV0
		for _, c := range target.Code {
			texts = append([]string{c.Source.Rego}, c.Source.Libs...)
			if c.Source.Version == "v1" {
				version = ast.RegoV1
			}
		}
		modules := map[string]*ast.Module{}
		query := ""
		for i, text := range texts {
			m, err := ast.ParseModuleWithOpts(fmt.Sprint(i), text, ast.ParserOptions{RegoVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			if modules[fmt.Sprint(i)] = m; i == 0 {
				query = m.Package.Path.String() + ".violation"
			}
		}
		c := ast.NewCompiler()
		if c.Compile(modules); c.Failed() {
			t.Fatal(c.Errors)
		}
		kind := doc.Spec.CRD.Spec.Names.Kind
		out[kind] = plainTemplate{kind, query, c}
	}
	return out
}

// randomConstraint is a constraint, and what it matches in a simpler form.
type randomConstraint struct {
	kind, name         string
	kinds              []string // of any group; nil: all
	namespaces, except []string
	environment        string // of the Namespace's label env; "": any
	labelled           string // the value of label owner that the object has; "": any
	fleet              bool
	parameters         map[string]any
}

func (c *randomConstraint) document() map[string]any {
	match := map[string]any{}
	if c.kinds != nil {
		match["kinds"] = []any{map[string]any{"apiGroups": []any{"*"}, "kinds": c.kinds}}
	}
	if c.namespaces != nil {
		match["namespaces"] = c.namespaces
	}
	if c.except != nil {
		match["excludedNamespaces"] = c.except
	}
	if c.environment != "" {
		match["namespaceSelector"] = map[string]any{"matchLabels": map[string]any{"env": c.environment}}
	}
	if c.labelled != "" {
		match["labelSelector"] = map[string]any{"matchLabels": map[string]any{"owner": c.labelled}}
	}
	annotations := map[string]any{}
	if c.fleet {
		annotations["federator.dev/inventory"] = "fleet"
	}
	return map[string]any{
		"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": c.kind, "metadata": map[string]any{"name": c.name, "annotations": annotations},
		"spec": map[string]any{"match": match, "parameters": c.parameters},
	}
}

var gatekeeperKinds = map[aggregate.Kind]string{
	"Deployment.apps": "apps/v1", "Namespace": "v1", "Service": "v1", "PersistentVolumeClaim": "v1", "Ingress.networking.k8s.io": "networking.k8s.io/v1",
	"StorageClass.storage.k8s.io": "storage.k8s.io/v1", "PodDisruptionBudget.policy": "policy/v1", "HorizontalPodAutoscaler.autoscaling": "autoscaling/v2",
	limitKind: "shop.example/v1",
}

func oneOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func randomConstraints(r *rand.Rand) []randomConstraint {
	var out []randomConstraint
	for i, kind := range []string{
		"K8sRequiredLabels", "K8sUniqueIngressHost", "K8sUniqueServiceSelector", "K8sStorageClass", "K8sPodDisruptionBudget",
		"K8sHorizontalPodAutoscaler", "K8sNamespaceOwner",
	} {
		if r.IntN(3) == 0 {
			continue
		}
		c := randomConstraint{kind: kind, name: fmt.Sprintf("c%d", i), fleet: r.IntN(4) == 0, parameters: map[string]any{}}
		switch kind {
		case "K8sRequiredLabels":
			c.kinds = oneOf(r, nil, []string{"Deployment", "Service"})
			c.parameters["labels"] = []any{map[string]any{"key": "owner", "allowedRegex": oneOf(r, "", "^m")}}
		case "K8sStorageClass":
			c.parameters["includeStorageClassesInMessage"] = r.IntN(2) == 0
			c.kinds = []string{"PersistentVolumeClaim"}
		case "K8sHorizontalPodAutoscaler":
			c.kinds = []string{"HorizontalPodAutoscaler"}
			c.parameters["enforceScaleTargetRef"] = true
			c.parameters["ranges"] = []any{map[string]any{"min_replicas": 0, "max_replicas": 2}}
		case "K8sPodDisruptionBudget":
			c.kinds = []string{"Deployment", "PodDisruptionBudget"}
		}
		c.namespaces = oneOf(r, nil, nil, nil, []string{"sh*"})
		c.except = oneOf(r, nil, nil, nil, []string{"*p"})
		c.environment = oneOf(r, "", "", "prod")
		c.labelled = oneOf(r, "", "", "", "me")
		out = append(out, c)
	}
	return out
}

func randomGatekeeperObject(r *rand.Rand, kind aggregate.Kind) (ns, name string, object map[string]any) {
	ns, name = oneOf(r, "shop", "shop", "web", "gone"), oneOf(r, "a", "b", "c")
	labels := map[string]any{}
	if owner := oneOf(r, "", "me", "us"); owner != "" {
		labels["owner"] = owner
	}
	spec := map[string]any{}
	selector := map[string]any{}
	for range r.IntN(3) {
		selector[oneOf(r, "x", "y")] = oneOf(r, "1", "2")
	}
	switch kind {
	case "Namespace":
		ns, name = "", oneOf(r, "shop", "web")
		labels["env"] = oneOf(r, "prod", "test")
	case "StorageClass.storage.k8s.io":
		ns = ""
	case limitKind:
		spec["max"] = r.IntN(3)
	case "Service":
		spec["selector"] = selector
	case "PersistentVolumeClaim":
		if r.IntN(4) > 0 {
			spec["storageClassName"] = oneOf(r, "a", "b", "z")
		}
	case "Ingress.networking.k8s.io":
		var rules []any
		for range r.IntN(3) {
			rules = append(rules, map[string]any{"host": oneOf[any](r, "h1", "h2", "h3", 1, 1.5)})
		}
		spec["rules"] = rules
	case "Deployment.apps":
		spec["replicas"] = r.IntN(3)
		spec["selector"] = map[string]any{"matchLabels": selector}
	case "PodDisruptionBudget.policy":
		spec[oneOf(r, "minAvailable", "maxUnavailable")] = r.IntN(2)
		spec["selector"] = map[string]any{"matchLabels": selector}
	case "HorizontalPodAutoscaler.autoscaling":
		spec["minReplicas"], spec["maxReplicas"] = r.IntN(2), r.IntN(3)
		spec["scaleTargetRef"] = map[string]any{"kind": oneOf(r, "Deployment", "StatefulSet"), "name": oneOf(r, "a", "b")}
	}
	return ns, name, withLabels(labels, spec)
}

func randomGatekeeperOp(r *rand.Rand, kinds []aggregate.Kind) op {
	o := op{Member: oneOf(r, "fleet/a", "fleet/b"), Kind: oneOf(r, kinds...)}
	o.NS, o.Name, o.Object = randomGatekeeperObject(r, o.Kind)
	switch n := r.IntN(20); {
	case n < 12:
		o.Do = "put"
	case n < 17:
		o.Do = "delete"
	case n < 19:
		o.Do, o.State = "status", oneOf(r, aggregate.Synced, aggregate.Stale)
	default:
		o = op{Do: "rejoin", Member: o.Member, UID: r.IntN(1000)}
	}
	return o
}

// plainFleet is the objects of a snapshot as OPA reads them, by member.
type plainFleet map[string][]map[string]any

func readPlain(s *aggregate.Snapshot) (plainFleet, error) {
	out := plainFleet{}
	for kind := range s.Kinds() {
		list, err := s.List(aggregate.Query{Kind: kind})
		if err != nil {
			return nil, err
		}
		for o := range list {
			body, err := o.AppendBody(nil)
			if err != nil {
				return nil, err
			}
			var object map[string]any
			if err := json.Unmarshal(body, &object); err != nil {
				return nil, err
			}
			out[o.Member()] = append(out[o.Member()], object)
		}
	}
	return out, nil
}

func textAt(o map[string]any, path ...string) string {
	for _, step := range path[:len(path)-1] {
		o, _ = o[step].(map[string]any)
	}
	s, _ := o[path[len(path)-1]].(string)
	return s
}

// inventory is data.inventory of a member, with the synced kinds.
func (f plainFleet) inventory(member string, fleet bool) map[string]any {
	root := map[string]any{"cluster": map[string]any{}, "namespace": map[string]any{}}
	put := func(o any, path ...string) {
		m := root
		for _, step := range path[:len(path)-1] {
			next, ok := m[step].(map[string]any)
			if !ok {
				next = map[string]any{}
				m[step] = next
			}
			m = next
		}
		m[path[len(path)-1]] = o
	}
	for m, objects := range f {
		prefix := ""
		if m != member {
			if prefix = m + "/"; !fleet {
				continue
			}
		}
		for _, o := range objects {
			var copied map[string]any
			text, _ := json.Marshal(o)
			_ = json.Unmarshal(text, &copied)
			meta := copied["metadata"].(map[string]any)
			if ns := textAt(o, "metadata", "namespace"); ns != "" {
				meta["namespace"] = prefix + ns
				put(copied, "namespace", prefix+ns, textAt(o, "apiVersion"), textAt(o, "kind"), textAt(o, "metadata", "name"))
			} else {
				meta["name"] = prefix + textAt(o, "metadata", "name")
				put(copied, "cluster", textAt(o, "apiVersion"), textAt(o, "kind"), prefix+textAt(o, "metadata", "name"))
			}
		}
	}
	return root
}

func globs(patterns []string, s string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		head, tail, open := strings.Cut(p, "*")
		return p == s || open && strings.HasPrefix(s, head) && strings.HasSuffix(s, tail)
	})
}

// matches reports whether a constraint is about an object of a member.
func (f plainFleet) matches(c *randomConstraint, member string, o map[string]any) bool {
	kind, ns, name := textAt(o, "kind"), textAt(o, "metadata", "namespace"), textAt(o, "metadata", "name")
	if c.kinds != nil && !slices.Contains(c.kinds, kind) || c.labelled != "" && textAt(o, "metadata", "labels", "owner") != c.labelled {
		return false
	}
	of := ns
	if kind == "Namespace" {
		of = name
	}
	if of == "" {
		return true
	}
	if c.namespaces != nil && !globs(c.namespaces, of) || globs(c.except, of) {
		return false
	}
	if c.environment == "" {
		return true
	}
	n := o
	if kind != "Namespace" {
		n = f.namespace(member, ns)
	}
	return textAt(n, "metadata", "labels", "env") == c.environment
}

func (f plainFleet) namespace(member, name string) map[string]any {
	for _, o := range f[member] {
		if textAt(o, "kind") == "Namespace" && textAt(o, "metadata", "name") == name {
			return o
		}
	}
	return nil
}

// judge returns the messages of a constraint in plain OPA's evaluation of everything.
func (f plainFleet) judge(ctx context.Context, p plainTemplate, c *randomConstraint) ([]string, error) {
	var out []string
	for member, objects := range f {
		store := inmem.NewFromObject(map[string]any{"inventory": f.inventory(member, c.fleet)})
		for _, o := range objects {
			if !f.matches(c, member, o) {
				continue
			}
			group, version, ok := strings.Cut(textAt(o, "apiVersion"), "/")
			if !ok {
				group, version = "", group
			}
			review := map[string]any{
				"object": o, "name": textAt(o, "metadata", "name"), "operation": "", "userInfo": map[string]any{},
				"kind": map[string]any{"group": group, "version": version, "kind": textAt(o, "kind")}, "namespaceObject": map[string]any{},
			}
			if ns := textAt(o, "metadata", "namespace"); ns != "" {
				review["namespace"] = ns
				if n := f.namespace(member, ns); n != nil {
					review["namespaceObject"] = n
				}
			}
			found, err := rego.New(rego.Compiler(p.compiler), rego.Store(store), rego.Query(p.query),
				rego.Input(map[string]any{"review": review, "parameters": c.parameters})).Eval(ctx)
			if err != nil {
				return nil, err
			}
			list, _ := found[0].Expressions[0].Value.([]any)
			for _, v := range list {
				out = append(out, strings.Join([]string{member, textAt(o, "metadata", "namespace"), textAt(o, "metadata", "name"), v.(map[string]any)["msg"].(string)}, "|"))
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

func playGatekeeper(t *testing.T, templates map[string]plainTemplate, with constrained, seed uint64) (violations int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 8))
	set, constraints := with.set, with.constraints
	w, err := newWorld()
	if err != nil {
		t.Fatal(err)
	}
	var kinds []aggregate.Kind
	for kind := range gatekeeperKinds {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	for _, m := range []string{"fleet/a", "fleet/b"} {
		mustDo(t, w, op{Do: "join", Member: m})
		for _, kind := range kinds {
			mustDo(t, w, op{Do: "reopen", Member: m, Kind: kind, Version: gatekeeperKinds[kind], State: aggregate.Synced})
		}
	}
	bindings, _ := policy.DefaultBindings(set, nil)
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindings, Parallelism: 1})
	var log []op
	for range 6 {
		for range 1 + r.IntN(8) {
			o := randomGatekeeperOp(r, kinds)
			log = append(log, o)
			mustDo(t, w, o)
		}
		if batch, ok := cursor.Poll(); ok {
			if _, err := e.Apply(t.Context(), batch, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	f, err := readPlain(e.State().Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := policy.Evaluate(t.Context(), policy.EngineOptions{Set: set, Bindings: bindings}, e.State().Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	for i := range constraints {
		c := &constraints[i]
		want, err := f.judge(t.Context(), templates[c.kind], c)
		if err != nil {
			t.Fatal(err)
		}
		name := c.kind + "/" + c.name
		if got := messages(e.State(), name); !slices.Equal(got, want) {
			t.Errorf("seed %d, %s of %v:\ngot  %q\nwant %q\nafter %v", seed, name, constraints[i].document(), got, want, log)
		}
		violations += len(want)
		if a, b := e.State().Total(name), fresh.Total(name); a != b {
			t.Errorf("seed %d, %s: counts are %+v, and %+v when evaluated from nothing", seed, name, a, b)
		}
	}
	return violations + compareAdmissions(t, f, e, fresh, with.admissions, fmt.Sprintf("seed %d, after %v", seed, log))
}

// TestGatekeeper_EqualsFullEvaluation plays random histories, and compares what the engine
// holds with plain OPA's evaluation of unchanged templates over an inventory that is built
// independently, and of ValidatingAdmissionPolicies with what their rules say in plain Go.
func TestGatekeeper_EqualsFullEvaluation(t *testing.T) {
	t.Parallel()
	templates := plainTemplates(t)
	files := slices.DeleteFunc(gatekeeperFiles(t), func(f policy.File) bool { return f.Path == "constraints.yaml" })
	n, base := 300, uint64(1)
	if testing.Short() {
		n = 40
	}
	if others := number(t, "FEDERATOR_HISTORIES", 0); others > 0 {
		base, n = rand.Uint64N(1<<40), others
	}
	if seed := number(t, "FEDERATOR_SEED", -1); seed >= 0 {
		base, n = uint64(seed), 1 // It is not negative.
	}
	sets := make([]constrained, 60)
	for i := range sets {
		sets[i] = randomConstrained(t, files, base+uint64(i)) // It is not negative.
	}
	seeds := make(chan uint64)
	var wg sync.WaitGroup
	var found atomic.Int64
	for range 2 {
		wg.Go(func() {
			for seed := range seeds {
				if !t.Failed() {
					found.Add(int64(playGatekeeper(t, templates, sets[(seed-base)%uint64(len(sets))], seed)))
				}
			}
		})
	}
	for i := range n {
		seeds <- base + uint64(i) // It is not negative.
	}
	close(seeds)
	wg.Wait()
	t.Logf("%d histories from seed %d, %d violations at their ends", n, base, found.Load())
	if n >= 300 && found.Load() < int64(n) {
		t.Error("the histories hardly violate anything")
	}
}
