package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/internal/canonjson"
)

// Resource is a resource at one version that the query API serves. It is immutable, and safe
// from any goroutine.
type Resource struct {
	ServedResource
	Held string // API version that the index holds the kind at, e.g. "apps/v1"

	builtin    bool // the library's scheme has the kind at this version
	printer    printer
	definition *definition // of a custom kind; nil without one
}

// printer makes a Table's columns and rows of one kind.
type printer interface {
	columns() []metav1.TableColumnDefinition
	row(body []byte) (metav1.TableRow, error)
}

// newResource returns nil for a version that the query API cannot serve.
func newResource(s ServedResource, held string, d *definition) *Resource {
	r := &Resource{ServedResource: s, Held: held}
	gvk := r.GroupVersionKind()
	heldVersion, err := schema.ParseGroupVersion(held)
	if err != nil {
		return nil
	}
	r.builtin = convertible(gvk) && convertible(heldVersion.WithKind(gvk.Kind))
	if gvk.GroupVersion() != heldVersion && !r.builtin {
		return nil
	}
	if r.builtin {
		r.printer = builtinPrinter(gvk)
	}
	if r.printer == nil {
		r.printer = aggregatedPrinter(gvk.GroupKind())
	}
	if r.printer == nil {
		r.definition = d
		r.printer = d.printer(gvk.Version)
	}
	return r
}

// GroupVersionKind returns the resource's kind at its version.
func (r *Resource) GroupVersionKind() schema.GroupVersionKind {
	kind, group := r.Kind.Split()
	return schema.GroupVersionKind{Group: group, Version: r.Resource.Version, Kind: kind}
}

// Columns returns the columns of the resource's Table, including those of wide output
// (priority above 0). The slice is shared and must not be changed.
func (r *Resource) Columns() []metav1.TableColumnDefinition { return r.printer.columns() }

// ColumnPath returns the JSONPath of one of Columns that a definition has, "" for any other.
func (r *Resource) ColumnPath(i int) string {
	if p, ok := r.printer.(*customPrinter); ok && i > 0 && i <= len(p.paths) {
		return p.paths[i-1]
	}
	return ""
}

// IsCount reports whether the cells of one of Columns are integers: many of Kubernetes' printers say that these are strings.
func (r *Resource) IsCount(i int) bool {
	b, ok := r.printer.(*builtin)
	if !ok || i >= len(b.empty) {
		return false
	}
	switch b.empty[i].(type) {
	case int, int32, int64:
		return true
	}
	return false
}

// Plain returns the resource with the columns that every kind has.
func (r *Resource) Plain() *Resource {
	out := *r
	out.printer = nameAndAge
	return &out
}

// Row makes a Table's row from an object's canonical JSON as the index holds it, at any
// version: cells for all Columns, and conditions. The caller adds the row's object. Ages are
// as of now. Members may hold objects that no API server would have admitted: where a
// printer fails, all cells but the name are "<invalid>". The only error is that of a body
// without a name.
func (r *Resource) Row(body []byte) (metav1.TableRow, error) {
	row, err := r.print(body)
	if err == nil {
		return row, nil
	}
	var name string
	if json.Unmarshal(canonjson.Get(body, "metadata", "name"), &name) != nil {
		return metav1.TableRow{}, fmt.Errorf("row of a %s without a name: %w", r.Kind, err)
	}
	row = metav1.TableRow{Cells: make([]any, len(r.Columns()))}
	for i := range row.Cells {
		row.Cells[i] = "<invalid>"
	}
	row.Cells[0] = name
	return row, nil
}

// print returns a panic of a printer, which does not validate its objects, as an error.
func (r *Resource) print(body []byte) (row metav1.TableRow, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return r.printer.row(body)
}

// AppendAt appends an object, given as the canonical JSON that the index holds, as this
// version of the resource: the same bytes if that is the held version, else the result of a
// conversion by Kubernetes' own types, also with sorted keys. If the version cannot be
// converted to, the error is a *ConversionError.
func (r *Resource) AppendAt(dst, body []byte) ([]byte, error) {
	want := r.Resource.GroupVersion().String()
	have, err := apiVersionOf(body)
	if err != nil {
		return dst, fmt.Errorf("a %s: %w", r.Kind, err)
	}
	if have == want {
		return append(dst, body...), nil
	}
	out, err := convert(body, have, r.GroupVersionKind())
	if err != nil {
		return dst, &ConversionError{Resource: r.Resource, From: have, Err: err}
	}
	return append(dst, out...), nil
}

// Converts reports whether objects that are held at an API version can be converted to the
// resource's.
func (r *Resource) Converts(held string) bool {
	if held == r.Resource.GroupVersion().String() {
		return true
	}
	gv, err := schema.ParseGroupVersion(held)
	return err == nil && r.builtin && convertible(gv.WithKind(r.GroupVersionKind().Kind))
}

// apiVersionOf returns the apiVersion of canonical JSON.
func apiVersionOf(body []byte) (string, error) {
	value := canonjson.Get(body, "apiVersion")
	if len(value) < 3 || value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return "", errors.New("its body has no apiVersion")
	}
	return string(value[1 : len(value)-1]), nil
}

// ConversionError is returned for an object that cannot be converted from the held version
// to the requested one. It is an apierrors.APIStatus: 406.
type ConversionError struct {
	Resource schema.GroupVersionResource
	From     string // API version
	Err      error
}

// Error implements error.
func (e *ConversionError) Error() string {
	return fmt.Sprintf("%s is stored at version %s and cannot be converted to %s: %v", e.Resource.GroupResource(), e.From, e.Resource.GroupVersion(), e.Err)
}

// Unwrap returns the cause.
func (e *ConversionError) Unwrap() error { return e.Err }

// Status implements apierrors.APIStatus.
func (e *ConversionError) Status() metav1.Status {
	return metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable, Message: e.Error(),
		Details: &metav1.StatusDetails{Group: e.Resource.Group, Kind: e.Resource.Resource},
	}
}
