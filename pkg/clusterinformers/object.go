package clusterinformers

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
)

// object is what the Reflector carries from a stream to the index: an encoded
// item and the little metadata that the Reflector looks at.
type object struct {
	// The Reflector asks an object for its metadata through this interface;
	// only the methods below are ever called.
	metav1.Object

	item      aggregate.Item // zero for deletions, bookmarks and what is unfit
	namespace string
	name      string
	rv        string
	unfit     unfitReason // why it is not kept; zero where it is
	key       leftKey     // of what is unfit
	first     bool        // the bookmark that ends the initial events
	read      time.Time   // when the event had been read
}

var _ runtime.Object = (*object)(nil)

// unfitSize is what an object that is not kept costs while it is listed.
const unfitSize = 512

// size is what holding the object costs in bytes.
func (o *object) size() int64 {
	if o.unfit.why != "" {
		return unfitSize
	}
	return o.item.Size()
}

// GetObjectKind returns no kind: the Reflector only asks so as to refuse
// tables.
func (o *object) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the object itself: it is never changed.
func (o *object) DeepCopyObject() runtime.Object { return o }

// GetObjectMeta returns the object itself.
func (o *object) GetObjectMeta() metav1.Object { return o }

// GetName returns the name.
func (o *object) GetName() string { return o.name }

// GetNamespace returns the namespace.
func (o *object) GetNamespace() string { return o.namespace }

// GetResourceVersion returns the member's resourceVersion.
func (o *object) GetResourceVersion() string { return o.rv }

// GetAnnotations returns the annotation that ends the initial events, or none.
func (o *object) GetAnnotations() map[string]string {
	if o.first {
		return map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return nil
}

// objectList is one page of a list.
type objectList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object
}

// DeepCopyObject returns the list itself: it is never changed.
func (l *objectList) DeepCopyObject() runtime.Object { return l }
