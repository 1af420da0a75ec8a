package catalog

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"federator.dev/federator/pkg/queryapi/internal/route"
)

// maxSchemas bounds the size of a definition whose schemas are parsed, in bytes of JSON:
// four times what an API server can store.
const maxSchemas = 6 << 20

// openAPICache caches documents by their content's key, so that those that a new View shares
// with the last one are not built again.
type openAPICache struct {
	mu   sync.Mutex // held while a document is built
	docs map[string]*openAPIDoc
}

// maxDocs bounds the cached documents, of some 500 kB each.
const maxDocs = 100

// openAPIDoc is the document of one group and version.
type openAPIDoc struct {
	json, proto []byte
}

// serveOpenAPI serves /openapi/v3 and below, as handler3 of k8s.io/kube-openapi does, except
// that URLs have the target's prefix.
func (v *View) serveOpenAPI(w http.ResponseWriter, r *http.Request, target route.Target) error {
	rest, ok := strings.CutPrefix(target.Path, "/openapi/v3")
	if !ok || rest != "" && rest[0] != '/' {
		return notFound(target)
	}
	documents := v.documentKeys()
	if rest == "" {
		index := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
		for path, key := range documents {
			index.Paths[path] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: documentURL(target, path, etagOf(key))}
		}
		body, err := json.Marshal(index)
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		w.Header().Set("Content-Type", "application/json")
		serveBytes(w, r, body, etagOf(string(body)))
		return nil
	}
	path := rest[1:]
	key, ok := documents[path]
	if !ok {
		return notFound(target)
	}
	etag := etagOf(key)
	if hash := r.URL.Query().Get("hash"); hash != "" && hash != etag {
		http.Redirect(w, r, documentURL(target, path, etag), http.StatusMovedPermanently)
		return nil
	}
	proto, ok := negotiateProto(r.Header.Get("Accept"), protoType, "com.github.proto-openapi.spec.v3@v1.0+protobuf")
	if !ok {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
			Message: "OpenAPI documents are application/json or application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
		}}
	}
	body, err := v.document(path, key, proto)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Add("Vary", "Accept")
	h.Set("Content-Type", "application/json")
	if proto {
		h.Set("Content-Type", "application/"+protoType)
	}
	if r.URL.Query().Has("hash") {
		h.Set("Cache-Control", "public, immutable")
		h.Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
	serveBytes(w, r, body, etag)
	return nil
}

const protoType = "com.github.proto-openapi.spec.v3.v1.0+protobuf"

// negotiateProto reports whether an Accept header prefers JSON or protobuf, which has these
// names; ok is false when it accepts neither.
func negotiateProto(accept string, names ...string) (proto, ok bool) {
	if accept == "" {
		return false, true
	}
	for clause := range strings.SplitSeq(accept, ",") {
		media, _, _ := strings.Cut(strings.TrimSpace(clause), ";")
		switch media {
		case "application/json", "application/*", "*/*":
			return false, true
		}
		if name, ok := strings.CutPrefix(media, "application/"); ok && slices.Contains(names, name) {
			return true, true
		}
	}
	return false, false
}

func etagOf(s string) string { return fmt.Sprintf("%X", sha256.Sum256([]byte(s))) }

func documentURL(target route.Target, path, etag string) string {
	return target.Prefix + "/openapi/v3/" + path + "?" + url.Values{"hash": {etag}}.Encode()
}

func serveBytes(w http.ResponseWriter, r *http.Request, body []byte, etag string) {
	w.Header().Set("Etag", strconv.Quote(etag))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// documentKeys returns, by the path of each document, a key of its content.
func (v *View) documentKeys() map[string]string {
	keys := map[string]string{}
	for _, r := range v.sorted {
		gv := r.Resource.GroupVersion()
		key := fmt.Sprintf("%s %s %s %t", r.GroupVersionKind(), r.Resource.Resource, libraryVersion, r.Namespaced)
		if r.definition != nil {
			key += fmt.Sprintf(" %x", r.definition.content)
		}
		keys[documentPath(gv)] += key + "\n"
	}
	return keys
}

func documentPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}

// document returns the document at a path, cached if possible.
func (v *View) document(path, key string, proto bool) ([]byte, error) {
	c := &v.catalog.openAPI
	c.mu.Lock()
	defer c.mu.Unlock()
	doc := c.docs[key]
	if doc == nil {
		body, err := json.Marshal(v.buildDocument(path))
		if err != nil {
			return nil, fmt.Errorf("OpenAPI of %s: %w", path, err)
		}
		if doc = (&openAPIDoc{json: body}); len(c.docs) >= maxDocs || c.docs == nil {
			c.docs = map[string]*openAPIDoc{}
		}
		c.docs[key] = doc
	}
	if !proto {
		return doc.json, nil
	}
	if doc.proto == nil {
		body, err := handler3.ToV3ProtoBinary(doc.json)
		if err != nil {
			return nil, fmt.Errorf("OpenAPI of %s: %w", path, err)
		}
		doc.proto = body
	}
	return doc.proto, nil
}

// buildDocument merges the descriptions of the resources of a group and version. A resource
// without schemas, or with invalid ones, is described by its paths alone.
func (v *View) buildDocument(path string) *spec3.OpenAPI {
	doc := &spec3.OpenAPI{
		Version:    "3.0.0",
		Info:       &spec.Info{InfoProps: spec.InfoProps{Title: "federator", Version: libraryVersion}},
		Paths:      &spec3.Paths{Paths: map[string]*spec3.Path{}},
		Components: &spec3.Components{Schemas: map[string]*spec.Schema{}},
	}
	var names []string
	for _, r := range v.sorted {
		if documentPath(r.Resource.GroupVersion()) != path {
			continue
		}
		model, list := modelNames(r.GroupVersionKind())
		if model == "" {
			model = fmt.Sprintf("%s.%s", reverseGroup(r.Resource.Group), r.Resource.Version+"."+r.GroupVersionKind().Kind)
			schemas := r.customSchemas()
			maps.Copy(doc.Components.Schemas, schemas)
			if schemas[model] == nil {
				doc.Components.Schemas[model] = unknownSchema(r.GroupVersionKind())
			}
			if list = model + "List"; schemas[list] == nil {
				list = model
			}
		} else {
			names = append(names, model, list)
		}
		addPaths(doc.Paths.Paths, r, model, list)
	}
	maps.Copy(doc.Components.Schemas, builtinSchemas(names))
	return doc
}

// unknownSchema is the schema of a kind without a known schema.
func unknownSchema(gvk schema.GroupVersionKind) *spec.Schema {
	s := &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}}}
	s.AddExtension("x-kubernetes-group-version-kind", []any{gvkExtension(gvk)})
	s.AddExtension("x-kubernetes-preserve-unknown-fields", true)
	return s
}

func gvkExtension(gvk schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
}

// reverseGroup reverses the labels of a group, as in the names of schemas.
func reverseGroup(group string) string {
	parts := strings.Split(group, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".")
}

// customSchemas returns the schemas of a custom kind's definition; none when they are
// invalid.
func (r *Resource) customSchemas() (schemas map[string]*spec.Schema) {
	defer func() { // builders panic on definitions that no API server would have admitted
		if recover() != nil {
			schemas = nil
		}
	}()
	crd := r.customResourceDefinition()
	if crd == nil {
		return nil
	}
	doc, err := builder.BuildOpenAPIV3(crd, r.Resource.Version, builder.Options{V2: false})
	if err != nil || doc.Components == nil {
		return nil
	}
	return doc.Components.Schemas
}

// addPaths describes the paths of a resource.
func addPaths(paths map[string]*spec3.Path, r *Resource, model, list string) {
	gvk := r.GroupVersionKind()
	root := "/" + documentPath(r.Resource.GroupVersion())
	add := func(path, action, model string) {
		paths[path] = readPath(path, action, gvk, model)
	}
	add(root+"/"+r.Resource.Resource, "list", list)
	if r.Namespaced {
		root += "/namespaces/{namespace}"
		add(root+"/"+r.Resource.Resource, "list", list)
	}
	add(root+"/"+r.Resource.Resource+"/{name}", "get", model)
}

func readPath(path, action string, gvk schema.GroupVersionKind, model string) *spec3.Path {
	ok := &spec3.Response{ResponseProps: spec3.ResponseProps{
		Description: "OK",
		Content: map[string]*spec3.MediaType{"application/json": {MediaTypeProps: spec3.MediaTypeProps{
			Schema: spec.RefSchema("#/components/schemas/" + model),
		}}},
	}}
	get := &spec3.Operation{OperationProps: spec3.OperationProps{
		OperationId: action + strings.NewReplacer("/", "_", "{", "", "}", "", ".", "_").Replace(path),
		Responses: &spec3.Responses{ResponsesProps: spec3.ResponsesProps{
			StatusCodeResponses: map[int]*spec3.Response{http.StatusOK: ok},
		}},
	}}
	get.AddExtension("x-kubernetes-action", action)
	get.AddExtension("x-kubernetes-group-version-kind", gvkExtension(gvk))
	p := &spec3.Path{PathProps: spec3.PathProps{Get: get}}
	for _, name := range []string{"namespace", "name"} {
		if strings.Contains(path, "{"+name+"}") {
			p.Parameters = append(p.Parameters, &spec3.Parameter{ParameterProps: spec3.ParameterProps{
				Name: name, In: "path", Required: true, Schema: spec.StringProperty(),
			}})
		}
	}
	return p
}

// customResourceDefinition decodes a custom kind's definition; nil when there is no valid
// one.
func (r *Resource) customResourceDefinition() *apiextensionsv1.CustomResourceDefinition {
	if r.definition == nil {
		return nil
	}
	body, err := r.definition.object.AppendBody(nil)
	if err != nil || len(body) > maxSchemas {
		return nil
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := kjson.Unmarshal(body, &crd); err != nil {
		return nil
	}
	return &crd
}
