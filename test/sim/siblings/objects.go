package siblings

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"federator.dev/federator/test/sim"
)

// Objects are n objects of one kind, by ordinal: with their own metadata, but with the
// spec and status of their templates.
type Objects struct {
	n         int
	seed      uint64
	templates []*unstructured.Unstructured
}

var _ sim.Source = (*Objects)(nil)

// Len is the number of objects.
func (o *Objects) Len() int { return o.n }

// Name is the object's namespace and name.
func (o *Objects) Name(i int) (namespace, name string) {
	t := o.templates[chance(o.seed, forObject, i).IntN(len(o.templates))] // the first draw, as below
	return t.GetNamespace(), o.name(t, i)
}

func (o *Objects) name(t *unstructured.Unstructured, i int) string {
	base := strings.TrimSuffix(t.GetName(), "-"+t.GetLabels()["pod-template-hash"])
	return base + "-" + suffix(i, o.seed)
}

// Object makes the object with ordinal i.
func (o *Objects) Object(i int) sim.Object { return o.Unstructured(i) }

// Unstructured makes the object with ordinal i.
func (o *Objects) Unstructured(i int) *unstructured.Unstructured {
	r := chance(o.seed, forObject, i)
	was := o.templates[r.IntN(len(o.templates))]
	obj := was.DeepCopy()
	obj.SetName(o.name(was, i))
	obj.SetUID(uid(r))
	obj.SetResourceVersion(resourceVersion(i))
	unstructured.RemoveNestedField(obj.Object, "metadata", "selfLink")
	moved := shiftTo(birth(r), was.GetCreationTimestamp())
	created := was.GetCreationTimestamp()
	moved.move(&created)
	obj.SetCreationTimestamp(created)
	owners := obj.GetOwnerReferences()
	for j := range owners {
		owners[j].UID = uid(r)
	}
	if len(owners) > 0 {
		obj.SetOwnerReferences(owners)
	}
	if labels := obj.GetLabels(); labels["pod-template-hash"] != "" {
		labels["pod-template-hash"] = templateHash(r)
		obj.SetLabels(labels)
	}
	fields := append([]metav1.ManagedFieldsEntry(nil), obj.GetManagedFields()...)
	for j := range fields {
		moved.move(fields[j].Time)
	}
	obj.SetManagedFields(fields)
	return obj
}

// JSON is the object as an API server sends it.
func (o *Objects) JSON(i int) ([]byte, error) { return json.Marshal(o.Unstructured(i).Object) }
