package queryapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"federator.dev/federator/pkg/queryapi/internal/route"
)

// Paths of the OpenAPI document of the queries, as an API server has one per group
// version: the first lists the second (kube-openapi, handler3).
const (
	openAPIRoot  = "/openapi/v3"
	openAPIQuery = openAPIRoot + route.Query
)

const componentsPath = "#/components/schemas/"

// Media types of responses. That of watches is the one in API servers' own documents.
const (
	asJSON  = "application/json"
	asTable = asJSON + ";as=Table;g=meta.k8s.io;v=v1"
	asWatch = asJSON + ";stream=watch"
)

// openAPIDocument describes the queries. Of those that are not Describers it has only the
// paths.
func openAPIDocument(queries map[string]Query) *spec3.OpenAPI {
	types := newSchemas()
	paths := make(map[string]*spec3.Path)
	for _, name := range slices.Sorted(maps.Keys(queries)) {
		var d Operation
		if q, ok := queries[name].(Describer); ok {
			d = q.Describe()
		}
		paths[route.Query+"/"+name] = &spec3.Path{PathProps: spec3.PathProps{Get: types.operation(name, d)}}
	}
	return &spec3.OpenAPI{
		Version:    "3.0.0",
		Info:       &spec.Info{InfoProps: spec.InfoProps{Title: "federator", Version: "v1", Description: "Queries over the whole fleet."}},
		Paths:      &spec3.Paths{Paths: paths},
		Components: &spec3.Components{Schemas: types.components},
	}
}

func (s *schemas) operation(name string, d Operation) *spec3.Operation {
	ok := map[string]*spec.Schema{}
	if d.Response != nil {
		ok[asJSON] = s.of(reflect.TypeOf(d.Response))
	}
	if d.Table {
		ok[asTable] = s.of(reflect.TypeFor[metav1.Table]())
	}
	if d.Events != nil {
		ok[asWatch] = s.event(d.Events)
	}
	failed := map[string]*spec.Schema{asJSON: s.of(reflect.TypeFor[metav1.Status]())}
	operation := &spec3.Operation{OperationProps: spec3.OperationProps{
		OperationId: "query-" + operationName.Replace(name), Description: d.Description,
		Responses: &spec3.Responses{ResponsesProps: spec3.ResponsesProps{
			Default:             openAPIResponse("The request failed.", failed),
			StatusCodeResponses: map[int]*spec3.Response{http.StatusOK: openAPIResponse("OK", ok)},
		}},
	}}
	if _, value := splitQueryName(name); value != "" {
		operation.Parameters = append(operation.Parameters, &spec3.Parameter{ParameterProps: spec3.ParameterProps{
			Name: value, In: "path", Required: true, Schema: spec.StringProperty(),
		}})
	}
	for _, p := range d.Parameters {
		operation.Parameters = append(operation.Parameters, openAPIParameter(p))
	}
	return operation
}

// operationName makes the id of an operation of the name of its query.
var operationName = strings.NewReplacer("/{", "-", "}", "")

// event is the schema of a watch's events, by their objects.
func (s *schemas) event(objects []any) *spec.Schema {
	kind := spec.StringProperty()
	for _, t := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error} {
		kind.Enum = append(kind.Enum, string(t))
	}
	var object spec.Schema
	for _, o := range slices.Concat(objects, []any{metav1.Status{}}) {
		object.AnyOf = append(object.AnyOf, *s.of(reflect.TypeOf(o)))
	}
	event := new(spec.Schema).Typed("object", "").WithRequired("type", "object")
	return event.SetProperty("type", *kind).SetProperty("object", object)
}

func openAPIParameter(p Parameter) *spec3.Parameter {
	schema := spec.StringProperty()
	if p.Type != "" {
		schema = new(spec.Schema).Typed(p.Type, "")
	}
	for _, v := range p.Enum {
		schema.Enum = append(schema.Enum, v)
	}
	if p.Repeated {
		schema = spec.ArrayProperty(schema)
	}
	return &spec3.Parameter{ParameterProps: spec3.ParameterProps{
		Name: p.Name, In: "query", Description: p.Description, Required: p.Required, Schema: schema, Explode: p.Repeated,
	}}
}

func openAPIResponse(about string, schemas map[string]*spec.Schema) *spec3.Response {
	r := &spec3.Response{ResponseProps: spec3.ResponseProps{Description: about}}
	for mediaType, schema := range schemas {
		if r.Content == nil {
			r.Content = map[string]*spec3.MediaType{}
		}
		r.Content[mediaType] = &spec3.MediaType{MediaTypeProps: spec3.MediaTypeProps{Schema: schema}}
	}
	return r
}

// serveOpenAPI serves the paths of OpenAPI.
func (s *Server) serveOpenAPI(w http.ResponseWriter, path string) error {
	body := s.openAPI
	if path == openAPIRoot {
		var err error
		if body, err = json.Marshal(handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{
			route.Query[1:]: {ServerRelativeURL: openAPIQuery},
		}}); err != nil {
			return err
		}
	}
	w.Header().Set("Content-Type", asJSON)
	_, _ = w.Write(body) // the client may be gone
	return nil
}
