package gatekeepertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/frameworks/constraint/pkg/apis"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/drivers/rego"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/reviews"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/drivers/k8scel"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/gator/reader"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/target"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/util"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/test/seed"
)

// TestVerdicts_EqualFramework compares the engine with Gatekeeper's framework, both
// drivers, on members of random objects, with all templates.
func TestVerdicts_EqualFramework(t *testing.T) {
	const members, objects = 200, 50
	files := templateFiles(t)
	g := worldGenerator{generator{rand.New(rand.NewPCG(seed.Of(t), 17))}}
	ours := newEngineUnderTest(t, files)
	violations, byConstraint := 0, map[string]int{}
	for m := range members {
		world := g.world(objects)
		want := frameworkViolations(t, files, world)
		got, failed := ours.violations(t, world)
		// Where an expression of CEL fails, the object is denied with that and all else that
		// is found; here the verdict is an Error, which says only that.
		want = slices.DeleteFunc(want, func(v string) bool {
			return slices.ContainsFunc(failed, func(of string) bool { return strings.HasPrefix(v, of) }) && !slices.Contains(got, v)
		})
		if !slices.Equal(got, want) {
			t.Fatalf("member %d:\nours      %s\nframework %s", m, strings.Join(minus(got, want), "\n          "), strings.Join(minus(want, got), "\n          "))
		}
		violations += len(want)
		for _, v := range want {
			constraint, _, _ := strings.Cut(v, " ")
			byConstraint[constraint]++
		}
	}
	t.Logf("%d objects, %d violations: %v", members*objects, violations, byConstraint)
	if len(byConstraint) < 10 || violations < members*10 {
		t.Errorf("%d violations of %d constraints: the generator is off", violations, len(byConstraint))
	}
}

func minus(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// templateFiles are the templates and constraints of the engine's own tests, and those of
// CEL.
func templateFiles(t *testing.T) []policy.File {
	t.Helper()
	var out []policy.File
	for _, pattern := range []string{"../../testdata/gatekeeper/*.yaml", "testdata/templates/*.yaml"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, policy.File{Path: filepath.Base(name), Data: data})
		}
	}
	return out
}

func documents(t *testing.T, files []policy.File) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for _, f := range files {
		for d := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(f.Data))); ; {
			doc, err := d.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			raw, err := yaml.YAMLToJSON(doc)
			if err != nil {
				t.Fatal(err)
			}
			o := &unstructured.Unstructured{}
			if err := utiljson.Unmarshal(raw, &o.Object); err != nil {
				t.Fatal(err)
			}
			if o.Object != nil {
				out = append(out, o)
			}
		}
	}
	return out
}

var frameworks = map[*testing.T]*client.Client{}

// frameworkViolations are what Gatekeeper finds: constraint, object, message.
func frameworkViolations(t *testing.T, files []policy.File, world []*unstructured.Unstructured) []string {
	t.Helper()
	ctx := t.Context()
	c := frameworks[t]
	if c == nil {
		c = newFramework(t, files)
		frameworks[t] = c
		t.Cleanup(func() { delete(frameworks, t) })
	}
	namespaces := map[string]*corev1.Namespace{}
	for _, o := range world {
		if _, err := c.AddData(ctx, o); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() == "Namespace" {
			ns := &corev1.Namespace{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, ns); err != nil {
				t.Fatal(err)
			}
			namespaces[ns.Name] = ns
		}
	}
	var out []string
	for _, o := range world {
		// As its audit asks.
		ns := namespaces[o.GetNamespace()]
		opts := []reviews.ReviewOpt{reviews.EnforcementPoint(util.AuditEnforcementPoint)}
		if ns != nil {
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ns)
			if err != nil {
				t.Fatal(err)
			}
			opts = append(opts, reviews.Namespace(fields))
		}
		r, err := c.Review(ctx, target.AugmentedUnstructured{Object: *o, Namespace: ns, Source: types.SourceTypeOriginal}, opts...)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range r.Results() {
			out = append(out, violation(v.Constraint.GetKind()+"/"+v.Constraint.GetName(), o.GetKind(), o.GetNamespace(), o.GetName(), v.Msg))
		}
	}
	for _, o := range world {
		if _, err := c.RemoveData(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(out)
	return out
}

func newFramework(t *testing.T, files []policy.File) *client.Client {
	t.Helper()
	cel, err := k8scel.New()
	if err != nil {
		t.Fatal(err)
	}
	driver, err := rego.New()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewClient(client.Targets(&target.K8sValidationTarget{}), client.Driver(cel), client.Driver(driver), client.EnforcementPoints(util.AuditEnforcementPoint))
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := apis.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	docs := documents(t, files)
	for _, o := range docs {
		if !reader.IsTemplate(o) {
			continue
		}
		template, err := reader.ToTemplate(scheme, o)
		if err == nil {
			_, err = c.AddTemplate(context.WithoutCancel(t.Context()), template)
		}
		if err != nil {
			t.Fatalf("%s: %v", o.GetName(), err)
		}
	}
	for _, o := range docs {
		if reader.IsConstraint(o) {
			if _, err := c.AddConstraint(t.Context(), o); err != nil {
				t.Fatalf("%s: %v", o.GetName(), err)
			}
		}
	}
	return c
}

func violation(constraint, kind, namespace, name, msg string) string {
	return fmt.Sprintf("%s %s %s/%s: %s", constraint, kind, namespace, name, msg)
}

// engineUnderTest is our engine with all templates.
type engineUnderTest struct {
	set      *policy.Set
	bindings []policy.Binding
}

func newEngineUnderTest(t *testing.T, files []policy.File) *engineUnderTest {
	t.Helper()
	set, err := policy.Load([]policy.Source{{Files: files}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bindings, warnings := policy.DefaultBindings(set, nil)
	if len(warnings) > 0 {
		t.Fatal(warnings)
	}
	return &engineUnderTest{set, bindings}
}

// violations are what the engine finds, and the constraints and objects whose CEL failed.
func (e *engineUnderTest) violations(t *testing.T, world []*unstructured.Unstructured) (out, failed []string) {
	t.Helper()
	state, err := policy.Evaluate(t.Context(), policy.EngineOptions{Set: e.set, Bindings: e.bindings}, snapshot(t, e.set, world))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range e.bindings {
		for v := range state.Verdicts(b.Name, "") {
			if v.State == policy.Error && e.set.Package(b.Package).CEL != nil {
				kind, _ := v.Subject.Ref.Kind.Split()
				of := violation(b.Name, kind, v.Subject.Ref.Namespace, v.Subject.Ref.Name, "")
				out, failed = append(out, of+v.Message), append(failed, of)
				continue
			}
			if v.State != policy.Known {
				t.Fatalf("%s on %s: %s %s %v", b.Name, v.Subject, v.State, v.Message, v.Gaps)
			}
			kind, _ := v.Subject.Ref.Kind.Split()
			for _, x := range v.Violations {
				out = append(out, violation(b.Name, kind, v.Subject.Ref.Namespace, v.Subject.Ref.Name, x.Msg))
			}
		}
	}
	slices.Sort(out)
	return out, failed
}

func snapshot(t *testing.T, set *policy.Set, world []*unstructured.Unstructured) *aggregate.Snapshot {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	must(err)
	must(index.PutMember(aggregate.Member{Name: "test/member", UID: "member"}))
	records, versions := map[aggregate.Kind][]*aggregate.Record{}, map[aggregate.Kind]string{}
	kinds, _ := set.Kinds()
	for _, k := range kinds {
		version := "v1"
		if _, group := k.Kind.Split(); group != "" {
			version = group + "/v1"
		}
		records[k.Kind], versions[k.Kind] = nil, version
	}
	for i, o := range world {
		kind := aggregate.MakeKind(o.GetKind(), o.GroupVersionKind().Group)
		body, err := json.Marshal(o.Object)
		must(err)
		rec := &aggregate.Record{Namespace: o.GetNamespace(), Name: o.GetName(), UID: fmt.Sprint(i), ResourceVersion: "1", Body: body}
		for _, key := range slices.Sorted(maps.Keys(o.GetLabels())) {
			rec.Labels = append(rec.Labels, aggregate.Label{Key: key, Value: o.GetLabels()[key]})
		}
		records[kind], versions[kind] = append(records[kind], rec), o.GetAPIVersion()
	}
	for kind, list := range records {
		scope, err := index.OpenScope("test/member", kind, versions[kind])
		must(err)
		for _, rec := range list {
			scope.Upsert(scope.Item(rec))
		}
		scope.SetStatus(aggregate.Status{State: aggregate.Synced})
		_, err = scope.Commit()
		must(err)
	}
	return index.Snapshot()
}
