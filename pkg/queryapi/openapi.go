package queryapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"federator.dev/federator/pkg/queryapi/internal/route"
)

// Where the questions are described, as an API server describes its groups:
// the first lists the second (kube-openapi, handler3).
const (
	openAPIRoot  = "/openapi/v3"
	openAPIQuery = openAPIRoot + route.Query
)

// asked is a parameter of a question.
type asked struct {
	name, about    string
	required, many bool
}

// described are the questions that every server answers.
var described = map[string]struct {
	about      string
	parameters []asked
}{
	"count": {"Count objects of the fleet, from memory.", []asked{
		{name: "resource", about: "What to count, such as pods or deployments.apps.", required: true, many: true},
		{name: "groupBy", about: "member, memberLabel:<key>, namespace, kind, label:<key> or field:<path>.", many: true},
		{name: "labelSelector", about: "Label selector; federator.dev/member and the like name members."},
		{name: "fieldSelector", about: "Field selector, on any path."},
		{name: "namespace", about: "Only this namespace."},
	}},
	"related": {"Find an object and what belongs to it in its member.", []asked{
		{name: "member", about: "The member that has the object, <namespace>/<name>.", required: true},
		{name: "resource", about: "Its resource, such as pods or deployments.apps.", required: true},
		{name: "name", about: "Its name.", required: true},
		{name: "namespace", about: "Its namespace, none for a cluster-scoped one."},
		{name: "depth", about: "How many edges to go from it, 1 to 10, by default 3."},
		{name: "kinds", about: "Resources that may be in the answer, by default all.", many: true},
		{name: "direction", about: "down to what it owns and uses, up to what owns and uses it, or both (the default)."},
	}},
	"members": {"List the members of which the caller may read anything.", []asked{
		{name: "labelSelector", about: "Label selector, of virtual labels."},
	}},
}

// openAPI describes the questions of a server. Of those that were injected it
// knows no more than where they are.
func (s *Server) openAPI() *spec3.OpenAPI {
	doc := &spec3.OpenAPI{
		Version: "3.0.0",
		Info:    &spec.Info{InfoProps: spec.InfoProps{Title: "federator", Version: "v1", Description: "Questions about the whole fleet."}},
		Paths:   &spec3.Paths{Paths: map[string]*spec3.Path{}},
		Components: &spec3.Components{Schemas: map[string]*spec.Schema{
			"Answer": object("An answer, by its kind.", "apiVersion", "kind"),
			"Status": object("Why there is no answer: a Status of Kubernetes (meta/v1).", "apiVersion", "kind", "status", "message", "reason"),
		}},
	}
	for _, name := range slices.Sorted(maps.Keys(s.questions)) {
		d := described[name]
		operation := &spec3.Operation{OperationProps: spec3.OperationProps{
			OperationId: "query-" + name, Description: d.about,
			Responses: &spec3.Responses{ResponsesProps: spec3.ResponsesProps{
				Default:             answered("Status", "The request cannot be answered."),
				StatusCodeResponses: map[int]*spec3.Response{http.StatusOK: answered("Answer", "OK")},
			}},
		}}
		for _, p := range d.parameters {
			operation.Parameters = append(operation.Parameters, p.spec())
		}
		doc.Paths.Paths[route.Query+"/"+name] = &spec3.Path{PathProps: spec3.PathProps{Get: operation}}
	}
	return doc
}

func (p asked) spec() *spec3.Parameter {
	schema := spec.StringProperty()
	if p.many {
		schema = spec.ArrayProperty(schema)
	}
	return &spec3.Parameter{ParameterProps: spec3.ParameterProps{
		Name: p.name, In: "query", Description: p.about, Required: p.required, Schema: schema, Explode: p.many,
	}}
}

// object is the schema of an object with text in some of its keys.
func object(about string, keys ...string) *spec.Schema {
	schema := (&spec.Schema{}).Typed("object", "").WithDescription(about)
	for _, k := range keys {
		schema.SetProperty(k, *spec.StringProperty())
	}
	return schema
}

func answered(schema, about string) *spec3.Response {
	return &spec3.Response{ResponseProps: spec3.ResponseProps{Description: about, Content: map[string]*spec3.MediaType{
		"application/json": {MediaTypeProps: spec3.MediaTypeProps{Schema: spec.RefSchema("#/components/schemas/" + schema)}},
	}}}
}

// describe answers a path of openAPIRoot.
func (s *Server) describe(w http.ResponseWriter, path string) error {
	var answer any = s.openAPI()
	if path == openAPIRoot {
		answer = handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{
			route.Query[1:]: {ServerRelativeURL: openAPIQuery},
		}}
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // the caller may be gone
	return nil
}
