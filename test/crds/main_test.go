package crds

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/test/kube"
)

// shared is a hub with the CRDs. It boots when the first test asks for it.
var shared struct {
	once   sync.Once
	fleet  *kube.Fleet
	http   *http.Client
	client dynamic.Interface
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.fleet != nil {
		if code != 0 {
			shared.fleet.WriteLogs(os.Stderr)
		}
		shared.http.CloseIdleConnections()
		if err := shared.fleet.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func boot() error {
	var err error
	if shared.fleet, err = kube.Start(context.Background(), kube.Options{}); err != nil {
		return err
	}
	cfg := shared.fleet.Hub.DirectRESTConfig()
	cfg.WarningHandler = rest.NoWarnings{}
	if shared.http, err = rest.HTTPClientFor(cfg); err != nil {
		return err
	}
	if shared.client, err = dynamic.NewForConfigAndClient(cfg, shared.http); err != nil {
		return err
	}
	for _, name := range resources() {
		text, err := os.ReadFile(crdFile(name))
		if err != nil {
			return err
		}
		if err := shared.fleet.Hub.Apply(context.Background(), text); err != nil {
			return err
		}
	}
	for _, name := range resources() {
		if err := until(func() error {
			_, err := shared.client.Resource(v1alpha1.Resource(name)).List(context.Background(), metav1.ListOptions{})
			return err
		}); err != nil {
			return fmt.Errorf("%s are not served: %w", name, err)
		}
	}
	return nil
}

// until polls until a check passes, and returns its last error when time is up.
func until(check func() error) error {
	deadline := time.NewTimer(60 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-deadline.C:
			return err
		case <-tick.C:
		}
	}
}

// hub returns the hub, where all kinds are served.
func hub(t *testing.T) *kube.Hub {
	t.Helper()
	shared.once.Do(func() { shared.err = boot() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.fleet.Hub
}

func resources() []string {
	return []string{v1alpha1.FleetPolicies, v1alpha1.PolicySources, v1alpha1.Actions}
}

func crdFile(resource string) string {
	return filepath.Join("..", "..", "charts", "federator", "crds", "federator.dev_"+resource+".yaml")
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
	return shared.client.Resource(v1alpha1.Resource(resource))
}

// full returns an object that has every field, under a name of its own.
func full(t *testing.T, resource, name string) *unstructured.Unstructured {
	t.Helper()
	file := map[string]string{v1alpha1.FleetPolicies: "fleetpolicy", v1alpha1.PolicySources: "policysource", v1alpha1.Actions: "action"}[resource]
	text, err := os.ReadFile(filepath.Join("testdata", file+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	u := parse(t, string(text))
	u.SetName(name)
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
