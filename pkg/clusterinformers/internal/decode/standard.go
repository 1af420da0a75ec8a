package decode

import (
	"encoding/json"
	"fmt"
	"reflect"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// scheme holds the types that a member may send in protobuf.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(s))
	utilruntime.Must(apiextensions.AddToScheme(s))
	utilruntime.Must(apiregistration.AddToScheme(s))
	return s
}()

// typed returns the Go type of a kind and its program.
func typed(gvk schema.GroupVersionKind) (reflect.Type, *program, error) {
	obj, err := scheme.New(gvk)
	if err != nil {
		return nil, nil, err
	}
	if _, ok := obj.(message); !ok {
		return nil, nil, fmt.Errorf("%T has no protobuf", obj)
	}
	t := reflect.TypeOf(obj).Elem()
	p, err := programFor(t)
	if err != nil {
		return nil, nil, err
	}
	// Reviews and similar kinds have no list.
	if list, ok := scheme.AllKnownTypes()[gvk.GroupVersion().WithKind(gvk.Kind+"List")]; ok {
		if err := listOf(list, t); err != nil {
			return nil, nil, fmt.Errorf("%v: %w", list, err)
		}
	}
	return t, p, nil
}

// message is implemented by the generated code of every type with protobuf.
type message interface {
	runtime.Object
	Reset()
	Unmarshal([]byte) error
}

// decodeMap decodes an object's JSON.
func decodeMap(data []byte) (map[string]any, error) {
	var m map[string]any
	if err := utiljson.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if m == nil {
		return nil, fmt.Errorf("%w: no object", ErrMalformed)
	}
	return m, nil
}

// standardJSON returns the object for JSON.
func (d *Decoder) standardJSON(data []byte) (map[string]any, error) {
	m, err := decodeMap(data)
	if err != nil {
		return nil, err
	}
	if s, _ := m["apiVersion"].(string); s == "" {
		m["apiVersion"] = d.gvk.GroupVersion().String()
	}
	if s, _ := m["kind"].(string); s == "" {
		m["kind"] = d.gvk.Kind
	}
	unstructured.RemoveNestedField(m, "metadata", "managedFields")
	return m, nil
}

// standardEnvelope returns the object for protobuf in its envelope.
func (d *Decoder) standardEnvelope(data []byte) (map[string]any, error) {
	raw, err := openEnvelope(data, d.gvk)
	if err != nil {
		return nil, err
	}
	return d.standardItem(raw)
}

// openEnvelope returns the object in an envelope, which must have the given kind or none.
func openEnvelope(data []byte, gvk schema.GroupVersionKind) (raw []byte, err error) {
	defer recovered(&err)
	if len(data) <= len(protobufPrefix) || string(data[:len(protobufPrefix)]) != string(protobufPrefix) {
		return nil, fmt.Errorf("%w: %d bytes are not an object in protobuf", ErrMalformed, len(data))
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(data[len(protobufPrefix):]); err != nil {
		return nil, fmt.Errorf("%w: envelope: %w", ErrMalformed, err)
	}
	actual := unknown.GroupVersionKind()
	if actual.Kind == "" {
		actual.Kind = gvk.Kind
	}
	if actual.Version == "" {
		actual.Group, actual.Version = gvk.Group, gvk.Version
	}
	if actual != gvk {
		return nil, fmt.Errorf("%w: %.200q where %v is expected", ErrMalformed, actual.String(), gvk)
	}
	return unknown.Raw, nil
}

// standardItem returns the object for a protobuf message. A field that our types lack is an
// error: the standard decoder would drop it.
func (d *Decoder) standardItem(raw []byte) (map[string]any, error) {
	unknown, err := inspect(d.program, raw)
	if err != nil {
		return nil, err
	}
	j, err := standardMarshal(d.typ, raw)
	if err != nil {
		return nil, err
	}
	if unknown != "" {
		return nil, fmt.Errorf("%s: %w", unknown, ErrUnknownField)
	}
	return d.standardJSON(j)
}

// standardMarshal decodes a message with its generated code and returns its JSON.
func standardMarshal(t reflect.Type, raw []byte) (j []byte, err error) {
	defer recovered(&err)
	obj := reflect.New(t).Interface().(message)
	obj.Reset()
	if err := obj.Unmarshal(raw); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	if j, err = json.Marshal(obj); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return j, nil
}

// recovered turns a panic of generated code into an error: some of it, such as that of
// resource.Quantity, does not check lengths for overflow.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", ErrMalformed, p)
	}
}
