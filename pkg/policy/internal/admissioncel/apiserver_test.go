package admissioncel_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/seed"
)

var resources = map[string]schema.GroupVersionResource{
	"Pod": {Version: "v1", Resource: "pods"}, "ConfigMap": {Version: "v1", Resource: "configmaps"},
	"Service": {Version: "v1", Resource: "services"}, "Namespace": {Version: "v1", Resource: "namespaces"},
	"Deployment":                       {Group: "apps", Version: "v1", Resource: "deployments"},
	"ClusterRole":                      {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ValidatingAdmissionPolicy":        {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
	"ValidatingAdmissionPolicyBinding": {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
}

// TestProgram_EqualsAPIServer compares what a real API server says of objects that would
// be created with what Programs, Selections and SelectParams say of them, and with the
// verdicts of the engine on the same objects, by the same policies loaded from their file.
func TestProgram_EqualsAPIServer(t *testing.T) {
	const objects = 500
	fleet := kube.StartTest(t, kube.Options{})
	s := newServer(t, fleet.Hub.DirectRESTConfig())
	g := &objectGenerator{rand.New(rand.NewPCG(seed.Of(t), 16))}

	var w world
	var base []*unstructured.Unstructured
	for _, text := range []string{
		"kind: Namespace\nmetadata: {name: params}",
		"kind: Namespace\nmetadata: {name: ns-a, labels: {team: a}}",
		"kind: Namespace\nmetadata: {name: ns-b, labels: {team: b}}",
		"kind: Namespace\nmetadata: {name: ns-c}",
		"kind: ConfigMap\nmetadata: {name: small, namespace: params, labels: {limits: \"yes\"}}\ndata: {max: \"1\"}",
		"kind: ConfigMap\nmetadata: {name: big, namespace: params, labels: {limits: \"yes\"}}\ndata: {max: \"4\"}",
		"kind: ConfigMap\nmetadata: {name: none, namespace: params, labels: {limits: \"yes\"}}",
		"kind: ConfigMap\nmetadata: {name: own, namespace: ns-a}\ndata: {max: \"3\"}",
		"kind: ConfigMap\nmetadata: {name: own, namespace: ns-b}\ndata: {max: many}",
	} {
		o := &unstructured.Unstructured{Object: object(t, "apiVersion: v1\n"+text)}
		base = append(base, s.create(t, o, false).object)
		w.add(base[len(base)-1])
	}
	probe := &unstructured.Unstructured{Object: object(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: probe, namespace: ns-a, labels: {app: probe}}")}
	// What an object is when admission sees it: with the API's defaults.
	var defaulted []*unstructured.Unstructured
	for range objects {
		defaulted = append(defaulted, s.create(t, g.object(), true).object)
	}
	policies := readManifests(t, "testdata/policies.yaml")
	for _, o := range policies {
		s.create(t, o, false)
		w.addPolicy(t, o)
	}
	if err := kube.Until(t.Context(), time.Minute, func() error { return s.inForce(t, &w, probe) }); err != nil {
		t.Fatal(err)
	}
	engine := load(t, "testdata/policies.yaml", base)
	counts := map[string]int{}
	for _, o := range defaulted {
		again := o.DeepCopy()
		for _, field := range []string{"uid", "creationTimestamp", "generation"} {
			unstructured.RemoveNestedField(again.Object, "metadata", field)
		}
		unstructured.RemoveNestedField(again.Object, "status")
		if o.GetKind() == "Service" { // a dry run allocates an address that may not be asked for
			unstructured.RemoveNestedField(again.Object, "spec", "clusterIP")
			unstructured.RemoveNestedField(again.Object, "spec", "clusterIPs")
		}
		got, want := w.decide(t, o), s.create(t, again, true)
		if want.err != nil {
			counts["denied"]++
			if !slices.Contains(got.denials, want.err.Error()) {
				t.Errorf("%s %s/%s:\nours   %q\nserver %q", o.GetKind(), o.GetNamespace(), o.GetName(), got.denials, want.err)
			}
		} else if len(got.denials) > 0 {
			t.Errorf("%s %s/%s: we deny, the server does not: %q", o.GetKind(), o.GetNamespace(), o.GetName(), got.denials)
		}
		if !slices.Equal(got.warnings, want.warnings) {
			t.Errorf("%s %s/%s:\nours   %s\nserver %s", o.GetKind(), o.GetNamespace(), o.GetName(), strings.Join(got.warnings, "\n       "), strings.Join(want.warnings, "\n       "))
		}
		violations, failures := engine.compare(t, o, want)
		counts["violations"] += violations
		counts["failures"] += failures
		counts["warnings"] += len(want.warnings)
		if len(want.warnings) == 0 && want.err == nil {
			counts["admitted"]++
		}
		if t.Failed() && counts["warnings"] > 2000 {
			t.FailNow()
		}
	}
	t.Logf("%d objects: %v", objects, counts)
	if counts["denied"] < objects/20 || counts["admitted"] == 0 || counts["warnings"] < objects || counts["violations"] < objects || counts["failures"] == 0 {
		t.Errorf("%v: the generator is off", counts)
	}
}

func readManifests(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []*unstructured.Unstructured
	for d := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw))); ; {
		doc, err := d.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, &unstructured.Unstructured{Object: object(t, string(doc))})
	}
}

// server is a client of the API server that keeps its warnings.
type server struct {
	client dynamic.Interface

	mu       sync.Mutex
	warnings []string
}

func newServer(t *testing.T, cfg *rest.Config) *server {
	t.Helper()
	s := &server{}
	cfg.WarningHandler = s
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	if s.client, err = dynamic.NewForConfigAndClient(cfg, client); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *server) HandleWarningHeader(_ int, _, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasPrefix(text, "Validation failed for ValidatingAdmissionPolicy") {
		s.warnings = append(s.warnings, text)
	}
}

// answer is what the API server or ours says of an object.
type answer struct {
	object   *unstructured.Unstructured
	warnings []string
	denials  []string
	err      error
}

func (s *server) create(t *testing.T, o *unstructured.Unstructured, dryRun bool) answer {
	t.Helper()
	options := metav1.CreateOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	s.warnings = nil
	var to dynamic.ResourceInterface = s.client.Resource(resources[o.GetKind()])
	if ns := o.GetNamespace(); ns != "" {
		to = s.client.Resource(resources[o.GetKind()]).Namespace(ns)
	}
	created, err := to.Create(t.Context(), o, options)
	if err != nil && !(apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) || err != nil && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
		t.Fatalf("create %s %s: %v", o.GetKind(), o.GetName(), err)
	}
	if created != nil {
		created.SetManagedFields(nil)
	}
	slices.Sort(s.warnings)
	return answer{object: created, warnings: slices.Compact(slices.Clone(s.warnings)), err: err}
}

// inForce reports which policies the API server does not apply yet.
func (s *server) inForce(t *testing.T, w *world, probe *unstructured.Unstructured) error {
	tiered := probe.DeepCopy()
	tiered.SetLabels(map[string]string{"app": "a", "tier": "x"})
	if s.create(t, tiered, true).err == nil {
		return errors.New("nothing is denied")
	}
	ours, theirs := w.decide(t, probe), s.create(t, probe, true)
	if len(theirs.warnings) < len(ours.warnings) {
		return fmt.Errorf("%d warnings of %d", len(theirs.warnings), len(ours.warnings))
	}
	return nil
}

// objectGenerator makes objects that the API server accepts.
type objectGenerator struct{ *rand.Rand }

func (g *objectGenerator) one(of ...string) string { return of[g.IntN(len(of))] }

func (g *objectGenerator) object() *unstructured.Unstructured {
	kind := g.one("Pod", "Pod", "ConfigMap", "ConfigMap", "Deployment", "Deployment", "Service", "Namespace", "ClusterRole")
	gv := resources[kind].GroupVersion().String()
	metadata := map[string]any{"name": g.one("web-1", "web-22", "web", "skip-a", "api-x")}
	o := map[string]any{"apiVersion": gv, "kind": kind, "metadata": metadata}
	if kind != "Namespace" && kind != "ClusterRole" {
		metadata["namespace"] = g.one("ns-a", "ns-b", "ns-c")
	}
	labels := map[string]any{}
	for _, label := range []string{"app", "tier", "team"} {
		if g.IntN(3) > 0 {
			labels[label] = g.one("a", "b", "c")
		}
	}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	switch kind {
	case "Pod":
		o["spec"] = g.podSpec()
	case "Deployment":
		o["spec"] = map[string]any{
			"replicas": int64(g.IntN(6)), "selector": map[string]any{"matchLabels": map[string]any{"x": "y"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"x": "y"}}, "spec": g.podSpec()},
		}
	case "Service":
		o["spec"] = map[string]any{"ports": []any{map[string]any{"port": int64(g.IntN(2000) + 1)}}, "selector": map[string]any{"x": "y"}}
	case "ClusterRole":
		o["rules"] = []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"pods"}, "verbs": []any{g.one("*", "get")}}}
	case "ConfigMap":
		data := map[string]any{}
		for range g.IntN(3) {
			data[g.one("a", "b", "costly")] = g.one("bad", "aab", "good")
		}
		if len(data) > 0 {
			o["data"] = data
		}
	}
	return &unstructured.Unstructured{Object: o}
}

func (g *objectGenerator) podSpec() map[string]any {
	var containers []any
	for i := range g.IntN(3) + 1 {
		c := map[string]any{"name": fmt.Sprintf("c%d", i), "image": g.one("nginx", "nginx:1.27", "nginx:1.27", "busybox:latest")}
		if g.IntN(3) > 0 {
			c["resources"] = map[string]any{"limits": map[string]any{"memory": g.one("64Mi", "1024Mi", "1500m", "2Gi")}}
		}
		if g.IntN(3) == 0 {
			c["securityContext"] = map[string]any{"privileged": g.IntN(2) == 0}
		}
		containers = append(containers, c)
	}
	return map[string]any{"containers": containers, "serviceAccountName": "default", "automountServiceAccountToken": false}
}
