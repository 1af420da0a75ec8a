package crds

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/test/kube"
)

// shared is a hub with the CRDs.
var shared struct {
	kube.Shared
	client dynamic.Interface
}

func TestMain(m *testing.M) {
	shared.Prepare = prepare
	os.Exit(shared.Main(m))
}

func prepare(ctx context.Context) (err error) {
	shared.client, err = shared.InstallCRDs(ctx, crdDir)
	return err
}

// hub returns the hub, where all kinds are served.
func hub(t *testing.T) *kube.Hub {
	t.Helper()
	return shared.Start(t).Hub
}

func resources() []string {
	return []string{v1alpha1.FleetPolicies, v1alpha1.PolicySources, v1alpha1.Actions, v1alpha1.Plans, v1alpha1.PlanParts, v1alpha1.Approvals, v1alpha1.Rollbacks, v1alpha1.PolicyStates, v1alpha1.Members, v1alpha1.Notifications}
}

// statusApart reports whether the status of a resource is a subresource. PlanParts
// have no status, and PolicyStates nothing else: federator writes them whole.
func statusApart(resource string) bool {
	return resource != v1alpha1.PlanParts && resource != v1alpha1.PolicyStates
}

// namespaceOf is where objects of a resource are, "" if they are cluster-scoped.
func namespaceOf(resource string) string {
	if resource == v1alpha1.Members {
		return "default"
	}
	return ""
}

const crdDir = "../../charts/federator/crds"

func crdFile(resource string) string {
	return filepath.Join(crdDir, "federator.dev_"+resource+".yaml")
}

// crd reads a CRD from the chart.
func crd(t *testing.T, resource string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	out := &apiextensionsv1.CustomResourceDefinition{}
	text, err := os.ReadFile(crdFile(resource))
	if err == nil {
		err = yaml.UnmarshalStrict(text, out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// schemaOf is the schema of a CRD's only version.
func schemaOf(t *testing.T, resource string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	return crd(t, resource).Spec.Versions[0].Schema.OpenAPIV3Schema
}

// client returns the client of a resource on the hub.
func client(t *testing.T, resource string) dynamic.ResourceInterface {
	t.Helper()
	hub(t)
	all := shared.client.Resource(v1alpha1.Resource(resource))
	if namespace := namespaceOf(resource); namespace != "" {
		return all.Namespace(namespace)
	}
	return all
}

// full returns an object that has every field, under a name of its own.
func full(t *testing.T, resource, name string) *unstructured.Unstructured {
	t.Helper()
	file := map[string]string{
		v1alpha1.FleetPolicies: "fleetpolicy", v1alpha1.PolicySources: "policysource", v1alpha1.Actions: "action",
		v1alpha1.Plans: "plan", v1alpha1.PlanParts: "planpart", v1alpha1.Approvals: "approval", v1alpha1.Rollbacks: "rollback",
		v1alpha1.PolicyStates: "policystate", v1alpha1.Members: "member", v1alpha1.Notifications: "notification",
	}[resource]
	text, err := os.ReadFile(filepath.Join("testdata", file+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	u := parse(t, string(text))
	u.SetName(name)
	switch resource { // where names follow from what they are of
	case v1alpha1.Plans:
		u = with(t, u, "spec: {policy: "+name+"}")
		u.SetName(name + "-9f86d081884c7d65")
	case v1alpha1.PlanParts:
		u = with(t, u, "spec: {plan: "+name+"}")
		u.SetName(name + "-1")
	}
	return u
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = json.Unmarshal(data, &u.Object) // with int64 where numbers are whole
	}
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return u
}

// with returns an object with a merge patch (RFC 7386), written as YAML.
func with(t *testing.T, u *unstructured.Unstructured, patch string) *unstructured.Unstructured {
	t.Helper()
	if patch == "" {
		return u
	}
	return &unstructured.Unstructured{Object: merge(u.Object, parse(t, patch).Object)}
}

func merge(into, patch map[string]any) map[string]any {
	out := maps.Clone(into)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(out, k)
		case map[string]any:
			was, _ := out[k].(map[string]any)
			out[k] = merge(was, v)
		default:
			out[k] = v
		}
	}
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
