package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// An Object is any Kubernetes object, typed or unstructured.
type Object interface {
	metav1.Object
	runtime.Object
}

// A Source makes objects by ordinal, from 0 to Len()-1. It gives equal objects for
// equal ordinals and may be called from many goroutines at once.
type Source interface {
	Len() int
	// Name is cheap: it does not make the object.
	Name(i int) (namespace, name string)
	// Object returns a new object that the caller may change, a Go type where speed
	// matters, else unstructured. Its resourceVersion is the member's affair.
	Object(i int) Object
}

// message is what the generated types of built-in kinds have.
type message interface {
	Object
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
	Size() int
}

// protoPrefix starts every protobuf body of Kubernetes that is not a stream frame.
const protoPrefix = "k8s\x00"

// A kindCodec encodes and decodes the objects of one kind.
type kindCodec struct {
	kind    Kind
	builtin bool
}

func newKindCodec(k Kind) kindCodec {
	return kindCodec{kind: k, builtin: goTypes.Recognizes(schema.GroupVersionKind{Group: k.Group, Version: k.Versions[0], Kind: k.Kind})}
}

func (k *kindCodec) gvk(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.kind.Group, Version: version, Kind: k.kind.Kind}
}

func (k *kindCodec) empty() (message, error) {
	obj, err := goTypes.New(k.gvk(k.kind.Versions[0]))
	if err != nil {
		return nil, err
	}
	msg, ok := obj.(message)
	if !ok {
		return nil, fmt.Errorf("%T has no protobuf encoding", obj)
	}
	return msg, nil
}

// convert gives obj as this codec holds it: the Go type or unstructured, without apiVersion and kind.
func (k *kindCodec) convert(obj Object) (Object, error) {
	if !k.builtin {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, err
		}
		content = maps.Clone(content) // of an unstructured object it is the caller's
		delete(content, "apiVersion")
		delete(content, "kind")
		return &unstructured.Unstructured{Object: content}, nil
	}
	if msg, ok := obj.(message); ok {
		return msg, nil
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%T is neither a built-in type nor unstructured", obj)
	}
	msg, err := k.empty()
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, msg); err != nil {
		return nil, err
	}
	return msg, nil
}

func (k *kindCodec) marshal(obj Object) ([]byte, error) {
	if msg, ok := obj.(message); ok && k.builtin {
		return msg.Marshal()
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%T is not unstructured", obj)
	}
	delete(u.Object, "apiVersion")
	delete(u.Object, "kind")
	return json.Marshal(u.Object)
}

// object decodes an item; the caller owns the result.
func (k *kindCodec) object(it *item) (Object, error) {
	if it.source != nil {
		obj, err := k.convert(it.source.Object(int(it.index)))
		if err != nil {
			return nil, err
		}
		obj.SetResourceVersion(formatRV(it.rv))
		if k.builtin {
			obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		}
		return obj, nil
	}
	if !k.builtin {
		u := &unstructured.Unstructured{}
		return u, utiljson.Unmarshal(it.raw, &u.Object)
	}
	msg, err := k.empty()
	if err != nil {
		return nil, err
	}
	return msg, msg.Unmarshal(it.raw)
}

// encode gives what the item holds or would hold: protobuf of built-in kinds, else JSON without apiVersion and kind.
func (k *kindCodec) encode(it *item) ([]byte, error) {
	if it.raw != nil {
		return it.raw, nil
	}
	obj, err := k.object(it)
	if err != nil {
		return nil, err
	}
	raw, err := k.marshal(obj)
	it.size.Store(int32(len(raw)))
	return raw, err
}

// protoSize is len(encode(it)), remembered.
func (k *kindCodec) protoSize(it *item) (int, error) {
	if it.raw != nil {
		return len(it.raw), nil
	}
	if n := it.size.Load(); n > 0 {
		return int(n), nil
	}
	raw, err := k.encode(it)
	return len(raw), err
}

// json gives the object; version says which apiVersion to write, none when empty.
func (k *kindCodec) json(it *item, version string) ([]byte, error) {
	raw := it.raw
	if raw == nil || k.builtin {
		obj, err := k.object(it)
		if err != nil {
			return nil, err
		}
		if u, ok := obj.(*unstructured.Unstructured); ok {
			raw, err = k.marshal(u)
		} else {
			raw, err = json.Marshal(obj)
		}
		if err != nil {
			return nil, err
		}
	}
	if version == "" {
		return raw, nil
	}
	head := fmt.Sprintf(`{"kind":%q,"apiVersion":%q,`, k.kind.Kind, k.gvk(version).GroupVersion())
	return append([]byte(head), raw[1:]...), nil
}

// withRV is the item at another resourceVersion, as deletions carry it.
func (k *kindCodec) withRV(it *item, rv uint64) (*item, error) {
	if it.source != nil {
		return &item{key: it.key, rv: rv, source: it.source, index: it.index}, nil
	}
	obj, err := k.object(it)
	if err != nil {
		return nil, err
	}
	obj.SetResourceVersion(formatRV(rv))
	raw, err := k.marshal(obj)
	return &item{key: it.key, rv: rv, raw: raw}, err
}

// labelsOf reads no more than the metadata.
func (k *kindCodec) labelsOf(it *item) (map[string]string, error) {
	if it.source != nil {
		obj, err := k.object(it)
		if err != nil {
			return nil, err
		}
		return obj.GetLabels(), nil
	}
	var m metav1.PartialObjectMetadata
	var err error
	if k.builtin {
		err = m.Unmarshal(it.raw)
	} else {
		err = json.Unmarshal(it.raw, &m)
	}
	return m.Labels, err
}

// envelope wraps a protobuf message as GET and watch events carry it.
func (k *kindCodec) envelope(raw []byte, version string) ([]byte, error) {
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: k.gvk(version).GroupVersion().String(), Kind: k.kind.Kind}, Raw: raw}
	body := make([]byte, len(protoPrefix)+u.Size())
	copy(body, protoPrefix)
	_, err := u.MarshalTo(body[len(protoPrefix):])
	return body, err
}

// wire is the object as GET and watch events carry it.
func (k *kindCodec) wire(it *item, version string, protobuf bool) ([]byte, error) {
	if !protobuf {
		return k.json(it, version)
	}
	raw, err := k.encode(it)
	if err != nil {
		return nil, err
	}
	return k.envelope(raw, version)
}

// kindOf names an object's group and kind, which typed objects need not carry.
func kindOf(obj runtime.Object) (schema.GroupKind, error) {
	if gvk := obj.GetObjectKind().GroupVersionKind(); gvk.Kind != "" {
		return gvk.GroupKind(), nil
	}
	gvks, _, err := goTypes.ObjectKinds(obj)
	if err != nil {
		return schema.GroupKind{}, err
	}
	return gvks[0].GroupKind(), nil
}

func formatRV(rv uint64) string { return strconv.FormatUint(rv, 10) }
