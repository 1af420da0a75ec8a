package apiserver

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/jsonpath"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install" // defaults of Deployments
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"sigs.k8s.io/yaml"
)

// Kind is a kind that a server serves. It is shared by servers, and does not change.
type Kind struct {
	schema.GroupVersionKind
	Resource   string
	Namespaced bool
	Status     bool     // it has a status subresource
	Selectable []string // JSON paths of fields for selectors, beside name and namespace
	columns    []column

	defaults *structuralschema.Structural // of a custom resource
	builtin  bool                         // it has a Go type with defaults
	fields   *managedfields.FieldManager  // nil: managed fields are not kept
	status   *managedfields.FieldManager  // of the status subresource
}

// column is a column of Tables, after the name.
type column struct {
	metav1.TableColumnDefinition
	path *jsonpath.JSONPath
}

func (k *Kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// Builtins are the built-in kinds that hubs and members of simulations have.
var Builtins = sync.OnceValue(func() []*Kind {
	typed := applyconfigurations.NewTypeConverter(scheme.Scheme)
	kinds := []*Kind{
		{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: "configmaps"},
		{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, Resource: "secrets"},
		{GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Resource: "deployments", Status: true},
		{GroupVersionKind: schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}, Resource: "leases"},
		{GroupVersionKind: schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"}, Resource: "events"},
	}
	for _, k := range kinds {
		k.Namespaced = true
		if k.Kind == "ConfigMap" || k.Kind == "Deployment" {
			k.builtin = true
			k.manageFields(typed)
		}
	}
	return kinds
})

// Custom returns the kinds of the CustomResourceDefinitions in a folder.
func Custom(dir string) ([]*Kind, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var kinds []*Kind
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &crd); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		k, err := custom(&crd)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}

func custom(crd *apiextensionsv1.CustomResourceDefinition) (*Kind, error) {
	v := crd.Spec.Versions[0]
	k := &Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind},
		Resource:         crd.Spec.Names.Plural, Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
		Status: v.Subresources != nil && v.Subresources.Status != nil,
	}
	var schema apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, &schema, nil); err != nil {
		return nil, err
	}
	var err error
	if k.defaults, err = structuralschema.NewStructural(&schema); err != nil {
		return nil, err
	}
	for _, f := range v.SelectableFields {
		k.Selectable = append(k.Selectable, f.JSONPath[1:])
	}
	for _, c := range v.AdditionalPrinterColumns {
		path := jsonpath.New(c.Name).AllowMissingKeys(true)
		if err := path.Parse("{" + c.JSONPath + "}"); err != nil {
			return nil, err
		}
		if c.Description == "" {
			c.Description = "Custom resource definition column (in JSONPath format): " + c.JSONPath
		}
		k.columns = append(k.columns, column{metav1.TableColumnDefinition{
			Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority,
		}, path})
	}
	if crd.Spec.Names.Kind == "FleetPolicy" { // whose managed fields say who has acknowledged
		k.manageFields(managedfields.NewDeducedTypeConverter())
	}
	return k, nil
}

// manageFields has the kind's managed fields kept.
func (k *Kind) manageFields(types managedfields.TypeConverter) {
	for subresource, into := range map[string]**managedfields.FieldManager{"": &k.fields, "status": &k.status} {
		m, err := managedfields.NewDefaultCRDFieldManager(types, oneVersion{}, oneVersion{}, oneVersion{}, k.GroupVersionKind, k.GroupVersion(), subresource, nil)
		if err != nil {
			panic(err) // its arguments are constants
		}
		*into = m
	}
}

// setDefaults returns an object of a built-in kind as its Go type writes it, with defaults
// if asked for. Strict refuses unknown fields.
func (k *Kind) setDefaults(object map[string]any, defaults bool) (map[string]any, error) {
	if !k.builtin {
		return object, nil
	}
	typed, err := legacyscheme.Scheme.New(k.GroupVersionKind)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, typed); err != nil {
		return nil, err
	}
	if defaults {
		legacyscheme.Scheme.Default(typed)
	}
	typed.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, err
	}
	if out["status"] != nil && !k.Status {
		delete(out, "status")
	}
	return out, nil
}

// unknownFields returns an error for fields that a built-in kind does not have.
func (k *Kind) unknownFields(object map[string]any) error {
	if !k.builtin {
		return nil
	}
	typed, err := legacyscheme.Scheme.New(k.GroupVersionKind)
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, typed, true)
}

// oneVersion converts, defaults and makes objects of kinds that have one version.
type oneVersion struct{}

func (oneVersion) Convert(_, _, _ any) error { return nil }

func (oneVersion) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func (oneVersion) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

func (oneVersion) Default(runtime.Object) {}

func (oneVersion) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(kind)
	return u, nil
}
