package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// undecodableKey is the annotation of an object in protobuf of which the types of Kubernetes
// could decode only the metadata. Its value is the reason.
const undecodableKey = "federator.dev/undecodable"

// protoMessage is implemented by the types that are generated for protobuf.
type protoMessage interface {
	Size() int
	MarshalToSizedBuffer(b []byte) (int, error)
}

// Protobuf reports whether the resource's objects can be encoded in protobuf: those of
// Kubernetes' own kinds can.
func (r *Resource) Protobuf() bool {
	if !r.builtin {
		return false
	}
	object, err := legacyscheme.Scheme.New(r.GroupVersionKind())
	_, ok := object.(protoMessage)
	return err == nil && ok
}

// AppendProtobuf appends an object's protobuf, without an envelope, given its JSON at the
// resource's version. Fields that the library's types do not have are omitted, as a client
// of that version would not see them. For an object that the types cannot decode, which no
// API server would have admitted, it appends the metadata, with undecodableKey: one object
// must not make a list unreadable.
func (r *Resource) AppendProtobuf(dst, object []byte) ([]byte, error) {
	typed, err := legacyscheme.Scheme.New(r.GroupVersionKind())
	if err != nil {
		return dst, err
	}
	held, err := apiVersionOf(object)
	if want := r.Resource.GroupVersion().String(); err == nil && held != want {
		// Fields of another version would be misinterpreted, or lost.
		err = fmt.Errorf("it is stored at version %s, which cannot be read at %s", held, want)
	}
	if err == nil {
		err = unmarshal(object, typed)
	}
	if err != nil {
		if typed, err = r.metadataOnly(object, err); err != nil {
			return dst, err
		}
	}
	return appendMessage(dst, typed)
}

// AppendMetadataProtobuf appends the protobuf of a PartialObjectMetadata, given as JSON,
// without an envelope.
func AppendMetadataProtobuf(dst, object []byte) ([]byte, error) {
	var partial metav1.PartialObjectMetadata
	if err := unmarshal(object, &partial); err != nil {
		return dst, err
	}
	return appendMessage(dst, &partial)
}

func (r *Resource) metadataOnly(object []byte, cause error) (runtime.Object, error) {
	var partial metav1.PartialObjectMetadata
	if err := unmarshal(object, &partial); err != nil {
		return nil, fmt.Errorf("metadata of a %s: %w", r.Kind, err)
	}
	metav1.SetMetaDataAnnotation(&partial.ObjectMeta, undecodableKey, cause.Error())
	rest, err := json.Marshal(map[string]any{"metadata": partial.ObjectMeta})
	if err != nil {
		return nil, err
	}
	typed, err := legacyscheme.Scheme.New(r.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	return typed, unmarshal(rest, typed)
}

// unmarshal turns a panic of a type's own decoder into an error.
func unmarshal(text []byte, into any) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return kjson.Unmarshal(text, into)
}

func appendMessage(dst []byte, object runtime.Object) ([]byte, error) {
	m, ok := object.(protoMessage)
	if !ok {
		return dst, errors.New("the kind has no protobuf")
	}
	size := m.Size()
	dst = slices.Grow(dst, size)
	n, err := m.MarshalToSizedBuffer(dst[len(dst) : len(dst)+size])
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes of protobuf instead of %d", n, size)
	}
	return dst[:len(dst)+n], err
}
