package catalog

import (
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	endpointsopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/generated/openapi"
)

// extraScheme has the kinds that kube-apiserver serves in addition to those of its scheme.
var extraScheme = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(apiregistrationv1.AddToScheme(scheme))
	return scheme
})

// namer names the schemas of built-in kinds.
var namer = sync.OnceValue(func() *endpointsopenapi.DefinitionNamer {
	return endpointsopenapi.NewDefinitionNamer(legacyscheme.Scheme, extraScheme())
})

// modelNames returns the names of a built-in kind's schema and of its list's, ""
// for custom kinds.
func modelNames(gvk schema.GroupVersionKind) (object, list string) {
	for _, scheme := range []*runtime.Scheme{legacyscheme.Scheme, extraScheme()} {
		if !scheme.Recognizes(gvk) {
			continue
		}
		object, err := scheme.ToOpenAPIDefinitionName(gvk)
		if err != nil {
			continue
		}
		list, err := scheme.ToOpenAPIDefinitionName(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err != nil {
			list = object
		}
		return object, list
	}
	return "", ""
}

// builtinSchemas returns schemas of built-in kinds by name, with all schemas that they refer
// to.
func builtinSchemas(names []string) map[string]*spec.Schema {
	config := &common.OpenAPIV3Config{
		Info: &spec.Info{}, GetDefinitions: openapi.GetOpenAPIDefinitions, GetDefinitionName: namer().GetDefinitionName,
	}
	schemas, err := builder3.BuildOpenAPIDefinitionsForResources(config, names...)
	if err != nil {
		panic("catalog: the library's kinds and their schemas do not agree: " + err.Error())
	}
	return schemas
}
