package sim

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Create stores an object. It fills in namespace-independent metadata that is empty
// (name from generateName, uid, creationTimestamp) and sets the resourceVersion, in obj too.
// Errors are those of k8s.io/apimachinery/pkg/api/errors, as of all writes.
func (m *Member) Create(obj Object) error {
	t, err := m.tableFor(obj)
	if err != nil {
		return err
	}
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj.SetName(obj.GetGenerateName() + strings.ToLower(rand.Text()[:5]))
	}
	if err := t.checkName(obj); err != nil {
		return err
	}
	if obj.GetUID() == "" {
		obj.SetUID(newUID())
	}
	if created := obj.GetCreationTimestamp(); created.IsZero() {
		obj.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	key := objectKey(obj.GetNamespace(), obj.GetName())
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, exists := t.objects.Get(key); exists {
		return apierrors.NewAlreadyExists(t.kind.GroupResource(), obj.GetName())
	}
	_, err = m.put(t, key, nil, obj)
	return err
}

// Update replaces an object. A resourceVersion or uid in obj must be the present one.
// An update that changes nothing makes no event.
func (m *Member) Update(obj Object) error {
	t, err := m.tableFor(obj)
	if err != nil {
		return err
	}
	_, err = m.update(t, obj)
	return err
}

func (m *Member) update(t *table, obj Object) (*item, error) {
	return m.modify(t, obj.GetNamespace(), obj.GetName(), func(old Object) (Object, error) {
		return obj, preconditions(t, old, obj.GetUID(), obj.GetResourceVersion())
	})
}

// Modify changes an object in place.
func (m *Member) Modify(kind schema.GroupResource, namespace, name string, change func(Object)) error {
	t, err := m.table(kind)
	if err != nil {
		return err
	}
	_, err = m.modify(t, namespace, name, func(old Object) (Object, error) {
		change(old)
		return old, nil
	})
	return err
}

// Patch applies a JSON merge patch (RFC 7386).
func (m *Member) Patch(kind schema.GroupResource, namespace, name string, patch []byte) error {
	t, err := m.table(kind)
	if err != nil {
		return err
	}
	_, err = m.patch(t, namespace, name, patch)
	return err
}

func (m *Member) patch(t *table, namespace, name string, patch []byte) (*item, error) {
	return m.modify(t, namespace, name, func(old Object) (Object, error) {
		body, err := json.Marshal(old)
		if u, ok := old.(*unstructured.Unstructured); ok {
			body, err = json.Marshal(u.Object)
		}
		if err != nil {
			return nil, err
		}
		var target, change map[string]any
		if err := errors.Join(utiljson.Unmarshal(body, &target), utiljson.Unmarshal(patch, &change)); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return t.convert(&unstructured.Unstructured{Object: mergePatch(target, change)})
	})
}

func mergePatch(target, patch map[string]any) map[string]any {
	if target == nil {
		target = map[string]any{}
	}
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(target, k)
		case map[string]any:
			old, _ := target[k].(map[string]any)
			target[k] = mergePatch(old, v)
		default:
			target[k] = v
		}
	}
	return target
}

// Delete removes an object; one with finalizers only gets a deletionTimestamp.
func (m *Member) Delete(kind schema.GroupResource, namespace, name string) error {
	t, err := m.table(kind)
	if err != nil {
		return err
	}
	return m.remove(t, namespace, name, metav1.Preconditions{})
}

func (m *Member) remove(t *table, namespace, name string, p metav1.Preconditions) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, obj, err := t.get(namespace, name)
	if err != nil {
		return err
	}
	var uid types.UID
	var rv string
	if p.UID != nil {
		uid = *p.UID
	}
	if p.ResourceVersion != nil {
		rv = *p.ResourceVersion
	}
	if err := preconditions(t, obj, uid, rv); err != nil {
		return err
	}
	if len(obj.GetFinalizers()) == 0 {
		return m.drop(t, old)
	}
	if obj.GetDeletionTimestamp() != nil {
		return nil
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	obj.SetDeletionTimestamp(&now)
	_, err = m.put(t, old.key, old, obj)
	return err
}

// Load stores what the source makes, at one resourceVersion each. It is a restore, not
// a series of writes: the kind's older history is forgotten and its watches are dropped.
// Names must be new.
func (m *Member) Load(kind schema.GroupResource, source Source) error {
	t, err := m.table(kind)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range source.Len() {
		namespace, name := source.Name(i)
		m.rv++
		it := &item{key: objectKey(namespace, name), rv: m.rv, source: source, index: int32(i)}
		if _, exists := t.objects.Set(it.key, it); exists {
			return fmt.Errorf("sim: loading %s: %w", kind, apierrors.NewAlreadyExists(kind, name))
		}
	}
	t.compact(m.rv)
	t.dropWatches()
	return nil
}

// Len is the number of objects of a kind.
func (m *Member) Len(kind schema.GroupResource) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tables[kind]
	if t == nil {
		return 0
	}
	return t.objects.Len()
}

// Get gives a copy of an object, typed for built-in kinds, else unstructured.
func (m *Member) Get(kind schema.GroupResource, namespace, name string) (Object, error) {
	t, err := m.table(kind)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, obj, err := t.get(namespace, name)
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(t.gvk(t.kind.Versions[0]))
	return obj, nil
}

// ResourceVersion is that of the newest change of any kind.
func (m *Member) ResourceVersion() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return formatRV(m.rv)
}

// modify gives the object's new item: the last one when the change let a deletion finish.
func (m *Member) modify(t *table, namespace, name string, change func(Object) (Object, error)) (*item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, obj, err := t.get(namespace, name)
	if err != nil {
		return nil, err
	}
	uid, created, deleted, rv := obj.GetUID(), obj.GetCreationTimestamp(), obj.GetDeletionTimestamp(), obj.GetResourceVersion()
	next, err := change(obj)
	if err != nil {
		return nil, err
	}
	next.SetUID(uid)
	next.SetCreationTimestamp(created)
	next.SetDeletionTimestamp(deleted)
	if deleted != nil && len(next.GetFinalizers()) == 0 {
		return old, m.drop(t, old)
	}
	next.SetResourceVersion(rv)
	same, err := t.sameAs(old, next)
	if err != nil || same {
		return old, err
	}
	return m.put(t, old.key, old, next)
}

func (t *table) sameAs(old *item, next Object) (bool, error) {
	was, err := t.encode(old)
	if err != nil {
		return false, err
	}
	converted, err := t.convert(next)
	if err != nil {
		return false, apierrors.NewBadRequest(err.Error())
	}
	is, err := t.marshal(converted)
	return bytes.Equal(was, is), err
}

// put commits obj as the next version of old, which is nil for a new object. It needs m.mu.
func (m *Member) put(t *table, key string, old *item, obj Object) (*item, error) {
	if t.removed {
		return nil, notServed(t.kind.GroupResource())
	}
	if t.kind.GroupResource() == crdResource {
		if err := establish(obj); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	rv := m.rv + 1
	obj.SetResourceVersion(formatRV(rv))
	held, err := t.convert(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	raw, err := t.marshal(held)
	if err != nil {
		return nil, err
	}
	m.rv = rv
	it := &item{key: key, rv: rv, raw: raw}
	t.commit(event{rv: rv, cur: it, prev: old})
	if t.kind.GroupResource() == crdResource {
		return it, m.installCRD(held)
	}
	return it, nil
}

// drop commits a deletion. It needs m.mu.
func (m *Member) drop(t *table, old *item) error {
	m.rv++
	t.commit(event{rv: m.rv, prev: old})
	if t.kind.GroupResource() == crdResource {
		obj, err := t.object(old)
		if err != nil {
			return err
		}
		m.removeCRD(obj)
	}
	return nil
}

// get decodes the present object. It needs m.mu.
func (t *table) get(namespace, name string) (*item, Object, error) {
	it, ok := t.objects.Get(objectKey(namespace, name))
	if !ok || (namespace != "") != t.kind.Namespaced {
		return nil, nil, apierrors.NewNotFound(t.kind.GroupResource(), name)
	}
	obj, err := t.object(it)
	return it, obj, err
}

func (t *table) checkName(obj Object) error {
	switch {
	case obj.GetName() == "" || strings.ContainsAny(obj.GetName(), "/%"):
		return apierrors.NewBadRequest(fmt.Sprintf("name %q is not possible", obj.GetName()))
	case (obj.GetNamespace() != "") != t.kind.Namespaced:
		return apierrors.NewBadRequest(fmt.Sprintf("namespace %q does not suit the kind %s", obj.GetNamespace(), t.kind.Kind))
	}
	return nil
}

func preconditions(t *table, old Object, uid types.UID, rv string) error {
	if uid != "" && uid != old.GetUID() {
		return apierrors.NewConflict(t.kind.GroupResource(), old.GetName(), fmt.Errorf("uid is %s, not %s", old.GetUID(), uid))
	}
	if rv != "" && rv != old.GetResourceVersion() {
		return apierrors.NewConflict(t.kind.GroupResource(), old.GetName(),
			errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	return nil
}

func newUID() types.UID {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}
