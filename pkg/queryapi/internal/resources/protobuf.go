package resources

import (
	"encoding/binary"
	"iter"
	"net/http"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
)

// Kubernetes' protobuf is an envelope, runtime.Unknown behind four bytes, with the
// message of a type in it. Lists have their metadata in field 1 and items in field 2.
// A watch is a sequence of metav1.WatchEvent, each behind its length in four bytes.

var protobufMagic = []byte("k8s\x00")

const (
	protobufType       = "application/vnd.kubernetes.protobuf"
	protobufWatchType  = protobufType + ";stream=watch"
	fieldListMeta      = 1
	fieldItems         = 2
	fieldUnknownType   = 1
	fieldUnknownRaw    = 2
	fieldTypeVersion   = 1
	fieldTypeKind      = 2
	fieldUnknownCoding = 3
	fieldUnknownMedia  = 4
)

// appendProtobuf appends an object as a message without envelope.
func (e *encoder) appendProtobuf(dst []byte, o aggregate.Object, added addedMetadata) ([]byte, error) {
	var err error
	if e.item, err = e.append(e.item[:0], o, added); err != nil {
		return dst, err
	}
	return e.toProtobuf(dst, e.item)
}

func (e *encoder) toProtobuf(dst, object []byte) ([]byte, error) {
	if e.shape == metadataOnly {
		return catalog.AppendMetadataProtobuf(dst, object)
	}
	return e.resource.AppendProtobuf(dst, object)
}

// typeMeta is what objects of the encoder are.
func (e *encoder) typeMeta() metav1.TypeMeta {
	if e.shape == metadataOnly {
		return metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "PartialObjectMetadata"}
	}
	gvk := e.resource.GroupVersionKind()
	return metav1.TypeMeta{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind}
}

// appendEnvelope appends what comes before a message of so many bytes.
func appendEnvelope(dst []byte, t metav1.TypeMeta, size int) []byte {
	dst = append(dst, protobufMagic...)
	dst = protowire.AppendTag(dst, fieldUnknownType, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(protowire.SizeTag(fieldTypeVersion)+protowire.SizeBytes(len(t.APIVersion))+ // sizes
		protowire.SizeTag(fieldTypeKind)+protowire.SizeBytes(len(t.Kind))))
	dst = protowire.AppendTag(dst, fieldTypeVersion, protowire.BytesType)
	dst = protowire.AppendString(dst, t.APIVersion)
	dst = protowire.AppendTag(dst, fieldTypeKind, protowire.BytesType)
	dst = protowire.AppendString(dst, t.Kind)
	dst = protowire.AppendTag(dst, fieldUnknownRaw, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(size)) // a size
}

// envelopeEnd comes after the message: no coding and no media type of it.
var envelopeEnd = func() []byte {
	end := protowire.AppendBytes(protowire.AppendTag(nil, fieldUnknownCoding, protowire.BytesType), nil)
	return protowire.AppendBytes(protowire.AppendTag(end, fieldUnknownMedia, protowire.BytesType), nil)
}()

func appendEnveloped(dst []byte, t metav1.TypeMeta, message []byte) []byte {
	return append(append(appendEnvelope(dst, t, len(message)), message...), envelopeEnd...)
}

// appendItem appends an object as an element of a list.
func (e *encoder) appendItem(dst []byte, o aggregate.Object) ([]byte, error) {
	var err error
	if e.message, err = e.appendProtobuf(e.message[:0], o, addedMetadataOf(o)); err != nil {
		return dst, err
	}
	return protowire.AppendBytes(protowire.AppendTag(dst, fieldItems, protowire.BytesType), e.message), nil
}

// appendProtobufEvent appends an event of a watch, of an object's message.
func appendProtobufEvent(dst []byte, kind watch.EventType, t metav1.TypeMeta, message []byte) ([]byte, error) {
	event := metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: appendEnveloped(nil, t, message)}}
	text, err := event.Marshal()
	if err != nil {
		return dst, err
	}
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(text))), text...), nil // below a gigabyte
}

// writeProtobuf sends a list. One that is too large is sent in the client's next accepted
// format.
func (q *request) writeProtobuf(meta ListMeta, objects iter.Seq2[aggregate.Object, error]) error {
	held, err := q.Hold(q.caller.User().GetName(), meta)
	if err != nil {
		return err
	}
	defer held.Release()
	var refused error
	err = q.encodeAll(q.r.Context(), objects, func(text []byte) error {
		refused = held.Add(text)
		return refused
	})
	switch {
	case refused != nil && q.fallback != nil:
		held.Release() // before the client reads
		q.format = *q.fallback
		return q.writeList(meta, objects)
	case err != nil:
		return err
	}
	held.Write(q.w, (&encoder{resource: q.resource, shape: q.format.shape}).typeMeta())
	return nil
}

// maxLists is how many of the largest lists may be held at a time by all requests.
const maxLists = 4

// byteBudget bounds the lists that are in memory until their clients have read them, and
// divides it among callers: a caller may hold one list while there is room, and more while
// that is not more than what is left. A single caller gets half.
type byteBudget struct {
	maxList int // the largest

	mu   sync.Mutex
	free int
	held map[string]int // by the caller's name
}

func newByteBudget(list int) *byteBudget {
	return &byteBudget{maxList: list, free: maxLists * list, held: map[string]int{}}
}

// acquire reports whether a caller gets n bytes more.
func (m *byteBudget) acquire(name string, n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	left, holds := m.free-n, m.held[name]+n
	if left < 0 || holds > m.maxList && holds > left {
		return false
	}
	m.free, m.held[name] = left, holds
	return true
}

func (m *byteBudget) release(name string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free += n
	if m.held[name] -= n; m.held[name] == 0 {
		delete(m.held, name)
	}
}

var errNoBudget = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
	Message: "your protobuf lists in flight exceed the memory budget: also accept application/json, or page with limit",
	Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
}}

var errTooLarge = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusRequestEntityTooLarge, Reason: metav1.StatusReasonRequestEntityTooLarge,
	Message: "the list is too large for protobuf: page with limit, or also accept application/json",
}}
