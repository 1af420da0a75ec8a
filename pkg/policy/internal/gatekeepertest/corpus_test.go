package gatekeepertest

import (
	"bufio"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"federator.dev/federator/test/seed"
)

// corpusKinds are the files of real objects that the templates are about.
var corpusKinds = []string{
	"core_Pod", "core_Service", "core_Namespace", "core_PersistentVolumeClaim", "apps_Deployment", "apps_StatefulSet", "apps_DaemonSet",
	"networking.k8s.io_Ingress", "storage.k8s.io_StorageClass", "policy_PodDisruptionBudget", "autoscaling_HorizontalPodAutoscaler", "batch_CronJob", "batch_Job",
}

// corpusObjects reads the real objects beside the project, or the samples in it.
func corpusObjects(t *testing.T) (out []*unstructured.Unstructured) {
	t.Helper()
	dir := "../../../../../shared/corpus"
	if of := os.Getenv("FEDERATOR_CORPUS"); of != "" {
		dir = of
	}
	if _, err := os.Stat(dir); err != nil {
		dir = "../../../../test/sim/siblings/sample"
		t.Log("the corpus is absent: only the samples are mutated")
	}
	for _, kind := range corpusKinds {
		f, err := os.Open(filepath.Join(dir, kind+".jsonl"))
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			o := &unstructured.Unstructured{}
			if err := utiljson.Unmarshal(lines.Bytes(), &o.Object); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			if o.GetName() != "" {
				out = append(out, o)
			}
		}
		f.Close()
	}
	if len(out) == 0 {
		t.Fatal("no objects")
	}
	return out
}

// TestVerdicts_EqualFrameworkOnCorpus compares verdicts on real objects that were mutated.
// FEDERATOR_MUTATIONS is how many are tried.
func TestVerdicts_EqualFrameworkOnCorpus(t *testing.T) {
	const perMember = 50
	wanted := 1000
	if n, err := strconv.Atoi(os.Getenv("FEDERATOR_MUTATIONS")); err == nil {
		wanted = n
	}
	g := worldGenerator{generator{rand.New(rand.NewPCG(seed.Of(t), 23))}}
	files, corpus := templateFiles(t), corpusObjects(t)
	ours := newEngineUnderTest(t, files)
	objects, violations, failures := 0, 0, 0
	for objects < wanted {
		world := g.corpusWorld(corpus, perMember)
		want := frameworkViolations(t, files, world)
		got, failed := ours.violations(t, world)
		want = slices.DeleteFunc(want, func(v string) bool {
			return slices.ContainsFunc(failed, func(of string) bool { return strings.HasPrefix(v, of) }) && !slices.Contains(got, v)
		})
		if !slices.Equal(got, want) {
			t.Fatalf("after %d objects:\nours      %s\nframework %s", objects, strings.Join(minus(got, want), "\n          "), strings.Join(minus(want, got), "\n          "))
		}
		objects, violations, failures = objects+len(world), violations+len(want), failures+len(failed)
	}
	t.Logf("%d mutations of %d objects × %d constraints, %d violations, %d evaluations of CEL that fail: 0 differences", objects, len(corpus), len(ours.bindings), violations, failures)
}

// corpusWorld is the objects of a member: real ones, mutated, in its namespaces.
func (g worldGenerator) corpusWorld(corpus []*unstructured.Unstructured, n int) []*unstructured.Unstructured {
	out := g.world(len(worldNamespaces))
	// The framework keeps the place of a kind that it once had: there is always a StorageClass,
	// whose absence a template reports.
	out = append(out, g.wrap("storage.k8s.io/v1", "StorageClass", "", "fast", map[string]any{"provisioner": "x"}))
	versions := map[string]string{"Namespace": "v1", "StorageClass.storage.k8s.io": "storage.k8s.io/v1"}
	for i := range n {
		o := corpus[g.IntN(len(corpus))].DeepCopy()
		if v, there := versions[o.GroupVersionKind().GroupKind().String()]; there && v != o.GetAPIVersion() || o.GetKind() == "Namespace" {
			continue // a member's objects of one kind have one version
		}
		versions[o.GroupVersionKind().GroupKind().String()] = o.GetAPIVersion()
		o.SetManagedFields(nil)
		o.SetName(fmt.Sprintf("%s-%d", o.GetName(), i))
		if o.GetNamespace() != "" {
			o.SetNamespace(g.one(worldNamespaces...))
		}
		for range g.IntN(4) {
			g.mutateAnywhere(o.Object)
		}
		out = append(out, o)
	}
	return out
}

// mutateAnywhere drops, replaces, duplicates or retypes a value at a random path of an object.
func (g worldGenerator) mutateAnywhere(o map[string]any) {
	fields := slices.DeleteFunc(slices.Sorted(maps.Keys(o)), func(f string) bool { return slices.Contains([]string{"apiVersion", "kind", "metadata"}, f) })
	if len(fields) == 0 {
		return
	}
	field := g.one(fields...)
	o[field] = g.mutated(o[field])
}

// mutated returns a value with one change in it.
func (g worldGenerator) mutated(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 || g.maybe(15) {
			break
		}
		key := g.one(slices.Sorted(maps.Keys(v))...)
		if g.maybe(15) {
			delete(v, key)
		} else {
			v[key] = g.mutated(v[key])
		}
		return v
	case []any:
		if len(v) == 0 || g.maybe(15) {
			break
		}
		i := g.IntN(len(v))
		switch {
		case g.maybe(10):
			return slices.Delete(v, i, i+1)
		case g.maybe(10):
			return append(v, v[i])
		}
		v[i] = g.mutated(v[i])
		return v
	}
	return []any{nil, "text", "", true, int64(g.IntN(3)), 0.5, []any{}, map[string]any{}, []any{v}, map[string]any{"app": v}, fmt.Sprint(v)}[g.IntN(11)]
}
