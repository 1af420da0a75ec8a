package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	openapibuilder "k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/generated/openapi"
)

// swaggerCache caches the last documents of OpenAPI v2, some megabytes each: that of the
// fleet, and that of the member that was requested last.
type swaggerCache struct {
	mu   sync.Mutex // held while a document is built
	lru  []string   // least recently used first
	docs map[string]*openAPIDoc
}

const (
	maxSwaggers    = 2
	swaggerProto   = "com.github.proto-openapi.spec.v2.v1.0+protobuf"
	swaggerProtoAt = "com.github.proto-openapi.spec.v2@v1.0+protobuf"
)

// serveOpenAPIv2 serves /openapi/v2, for older clients: all resources in one document.
func (v *View) serveOpenAPIv2(w http.ResponseWriter, r *http.Request) error {
	proto, ok := negotiateProto(r.Header.Get("Accept"), swaggerProto, swaggerProtoAt)
	if !ok {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
			Message: "OpenAPI v2 is application/json or application/" + swaggerProtoAt,
		}}
	}
	body, etag, err := v.swagger(proto)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Add("Vary", "Accept")
	h.Set("Content-Type", "application/json")
	if proto {
		h.Set("Content-Type", "application/"+swaggerProto)
	}
	serveBytes(w, r, body, etag)
	return nil
}

func (v *View) swagger(proto bool) (body []byte, etag string, err error) {
	documents := v.documentKeys()
	var key strings.Builder
	for _, path := range slices.Sorted(maps.Keys(documents)) {
		key.WriteString(path + "\n" + documents[path])
	}
	etag = etagOf(key.String())
	s := &v.catalog.swaggers
	s.mu.Lock()
	defer s.mu.Unlock()
	doc := s.docs[etag]
	if doc == nil {
		text, err := json.Marshal(v.buildSwagger())
		if err != nil {
			return nil, "", fmt.Errorf("OpenAPI v2: %w", err)
		}
		doc = &openAPIDoc{json: text}
	}
	s.touchLocked(etag, doc)
	if !proto {
		return doc.json, etag, nil
	}
	if doc.proto == nil {
		if doc.proto, err = handler.ToProtoBinary(doc.json); err != nil {
			return nil, "", fmt.Errorf("OpenAPI v2: %w", err)
		}
	}
	return doc.proto, etag, nil
}

// touchLocked makes a document the most recently used, and evicts the least recently used if
// there are too many. s.mu must be held.
func (s *swaggerCache) touchLocked(key string, doc *openAPIDoc) {
	if s.docs == nil {
		s.docs = map[string]*openAPIDoc{}
	}
	s.docs[key] = doc
	s.lru = append(slices.DeleteFunc(s.lru, func(k string) bool { return k == key }), key)
	if len(s.lru) > maxSwaggers {
		delete(s.docs, s.lru[0])
		s.lru = s.lru[1:]
	}
}

// buildSwagger merges the descriptions of all resources, as buildDocument does for one group
// and version.
func (v *View) buildSwagger() *spec.Swagger {
	doc := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0", Info: &spec.Info{InfoProps: spec.InfoProps{Title: "federator", Version: libraryVersion}},
		Paths: &spec.Paths{Paths: map[string]spec.PathItem{}}, Definitions: spec.Definitions{},
	}}
	var names []string
	for _, r := range v.sorted {
		model, list := modelNames(r.GroupVersionKind())
		if model == "" {
			model = fmt.Sprintf("%s.%s", reverseGroup(r.Resource.Group), r.Resource.Version+"."+r.GroupVersionKind().Kind)
			definitions := r.customDefinitions()
			maps.Copy(doc.Definitions, definitions)
			if _, known := definitions[model]; !known {
				doc.Definitions[model] = *unknownSchema(r.GroupVersionKind())
			}
			if list = model + "List"; !has(definitions, list) {
				list = model
			}
		} else {
			names = append(names, model, list)
		}
		addSwaggerPaths(doc.Paths.Paths, r, model, list)
	}
	maps.Copy(doc.Definitions, builtinDefinitions(names))
	return doc
}

func has(definitions spec.Definitions, name string) bool {
	_, ok := definitions[name]
	return ok
}

// builtinDefinitions is builtinSchemas for OpenAPI v2.
func builtinDefinitions(names []string) spec.Definitions {
	config := &common.Config{
		Info: &spec.Info{}, GetDefinitions: openapi.GetOpenAPIDefinitions, GetDefinitionName: namer().GetDefinitionName,
	}
	doc, err := openapibuilder.BuildOpenAPIDefinitionsForResources(config, names...)
	if err != nil {
		panic("catalog: the library's kinds and their definitions do not agree: " + err.Error())
	}
	return doc.Definitions
}

// customDefinitions is customSchemas for OpenAPI v2.
func (r *Resource) customDefinitions() (definitions spec.Definitions) {
	defer func() { // builders panic on definitions that no API server would have admitted
		if recover() != nil {
			definitions = nil
		}
	}()
	crd := r.customResourceDefinition()
	if crd == nil {
		return nil
	}
	doc, err := builder.BuildOpenAPIV2(crd, r.Resource.Version, builder.Options{V2: true})
	if err != nil {
		return nil
	}
	return doc.Definitions
}

// addSwaggerPaths describes the paths of a resource.
func addSwaggerPaths(paths map[string]spec.PathItem, r *Resource, model, list string) {
	gvk := r.GroupVersionKind()
	root := "/" + documentPath(r.Resource.GroupVersion())
	add := func(path, action, model string) {
		schema := spec.RefSchema("#/definitions/" + model)
		get := &spec.Operation{OperationProps: spec.OperationProps{
			ID:       action + strings.NewReplacer("/", "_", "{", "", "}", "", ".", "_").Replace(path),
			Produces: []string{"application/json", "application/yaml"},
			Responses: &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: map[int]spec.Response{
				http.StatusOK: {ResponseProps: spec.ResponseProps{Description: "OK", Schema: schema}},
			}}},
		}}
		get.AddExtension("x-kubernetes-action", action)
		get.AddExtension("x-kubernetes-group-version-kind", gvkExtension(gvk))
		item := spec.PathItem{PathItemProps: spec.PathItemProps{Get: get}}
		for _, name := range []string{"namespace", "name"} {
			if strings.Contains(path, "{"+name+"}") {
				item.Parameters = append(item.Parameters, spec.Parameter{
					ParamProps: spec.ParamProps{Name: name, In: "path", Required: true}, SimpleSchema: spec.SimpleSchema{Type: "string"},
				})
			}
		}
		paths[path] = item
	}
	add(root+"/"+r.Resource.Resource, "list", list)
	if r.Namespaced {
		root += "/namespaces/{namespace}"
		add(root+"/"+r.Resource.Resource, "list", list)
	}
	add(root+"/"+r.Resource.Resource+"/{name}", "get", model)
}
