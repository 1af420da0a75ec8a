package client

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// Lister reads the objects of an Informer. It is a small value; its results are in the order
// of keys, and share their objects with the informer.
type Lister[T Object] struct {
	objects cache.ThreadSafeStore
}

// Get returns one object.
func (l Lister[T]) Get(key Key) (T, bool) {
	obj, ok := l.objects.Get(key.String())
	if !ok {
		var none T
		return none, false
	}
	return obj.(T), true
}

// List returns the objects of all members that a selector matches.
func (l Lister[T]) List(selector labels.Selector) []T {
	return sorted[T](l.objects.List(), selector)
}

// Member returns the objects of one member, <namespace>/<name> of its Cluster.
func (l Lister[T]) Member(member string, selector labels.Selector) []T {
	return l.byIndex(byMember, member, selector)
}

// Namespace returns the objects of one namespace of one member.
func (l Lister[T]) Namespace(member, namespace string, selector labels.Selector) []T {
	return l.byIndex(byNamespace, member+"/"+namespace, selector)
}

// ByIndex returns the objects for which an indexer of Options returns a value: none if there
// is no such indexer.
func (l Lister[T]) ByIndex(name, value string) []T {
	return l.byIndex(name, value, labels.Everything())
}

// Members returns the members that have an object, in order.
func (l Lister[T]) Members() []string {
	members := l.objects.ListIndexFuncValues(byMember)
	slices.Sort(members)
	return members
}

func (l Lister[T]) byIndex(name, value string, selector labels.Selector) []T {
	found, err := l.objects.ByIndex(name, value)
	if err != nil { // no such index
		return nil
	}
	return sorted[T](found, selector)
}

func sorted[T Object](found []any, selector labels.Selector) []T {
	out := make([]T, 0, len(found))
	for _, obj := range found {
		if o := obj.(T); selector == nil || selector.Matches(labels.Set(o.GetLabels())) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b T) int {
		ka, _ := KeyOf(a) // stored objects have keys
		kb, _ := KeyOf(b)
		return strings.Compare(ka.String(), kb.String())
	})
	return out
}
