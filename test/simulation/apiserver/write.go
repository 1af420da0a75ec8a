package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"reflect"
	"strconv"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const staleMessage = "the object has been modified; please apply your changes to the latest version and try again"

// decode reads the body as an object of the call's kind.
func (c *call) decode() (*unstructured.Unstructured, error) {
	object := map[string]any{}
	if err := utiljson.Unmarshal(c.body, &object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	u := &unstructured.Unstructured{Object: object}
	if u.GroupVersionKind() != c.kind.GroupVersionKind {
		if u.GetKind() != "" || u.GetAPIVersion() != "" {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s", u.GetKind(), u.GetAPIVersion(), c.kind.Kind))
		}
		u.SetGroupVersionKind(c.kind.GroupVersionKind)
	}
	if c.strict() {
		if err := c.kind.unknownFields(object); err != nil {
			strict, ok := runtime.AsStrictDecodingError(err)
			if !ok {
				return nil, apierrors.NewBadRequest(err.Error())
			}
			return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", c.kind.Kind, c.kind.Version, c.kind.Kind, strict))
		}
	}
	switch {
	case c.name != "" && u.GetName() != c.name:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", u.GetName(), c.name))
	case c.namespace != "" && u.GetNamespace() != "" && u.GetNamespace() != c.namespace:
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	case c.namespace != "":
		u.SetNamespace(c.namespace)
	}
	return u, nil
}

func (s *Server) createLocked(c *call) ([]byte, error) {
	u, err := c.decode()
	if err != nil {
		return nil, err
	}
	it, err := s.insertLocked(c, u, func(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return c.track(c.kind.empty(), u), nil
	})
	if err != nil {
		return nil, err
	}
	return it.text, nil
}

// insertLocked stores a new object, whose managed fields track sets.
func (s *Server) insertLocked(c *call, u *unstructured.Unstructured, track func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) (*item, error) {
	if u.GetName() == "" && u.GetGenerateName() != "" {
		u.SetName(u.GetGenerateName() + fmt.Sprintf("%05x", s.nextUID))
	}
	if u.GetName() == "" {
		return nil, apierrors.NewInvalid(c.kind.GroupKind(), "", field.ErrorList{field.Required(field.NewPath("metadata", "name"), "name or generateName is required")})
	}
	if u.GetResourceVersion() != "" {
		return nil, errors.New("resourceVersion should not be set on objects to be created")
	}
	c.name = u.GetName()
	if s.objects[c.kind][c.key()] != nil {
		return nil, apierrors.NewAlreadyExists(c.kind.groupResource(), c.name)
	}
	if c.kind.Status {
		delete(u.Object, "status")
	}
	if err := c.normalize(u); err != nil {
		return nil, err
	}
	s.nextUID++
	u.SetUID(uid(s.nextUID))
	u.SetCreationTimestamp(metav1.NewTime(time.Now().UTC().Truncate(time.Second)))
	u.SetGeneration(0)
	if c.kind.counts() {
		u.SetGeneration(1)
	}
	u, err := track(u)
	if err != nil {
		return nil, err
	}
	if c.dryRun() {
		return newItem(c.key(), 0, u.Object), nil
	}
	return s.putLocked(c.kind, c.key(), nil, u.Object), nil
}

// counts reports whether objects of the kind have generations.
func (k *Kind) counts() bool { return k.defaults != nil || k.Kind == "Deployment" }

// empty is an object of the kind without content: of a built-in one, its Go type's zero value.
func (k *Kind) empty() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(k.GroupVersionKind)
	if object, err := k.setDefaults(u.Object, false); err == nil {
		u.Object = object
	}
	return u
}

// normalize gives an object the form and the defaults of its Go type.
func (c *call) normalize(u *unstructured.Unstructured) error {
	if c.kind.defaults != nil {
		defaulting.Default(u.Object, c.kind.defaults)
		return nil
	}
	object, err := c.kind.setDefaults(u.Object, true)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	u.Object = object
	return nil
}

// track returns an object with the managed fields of a write that is no apply.
func (c *call) track(before, after *unstructured.Unstructured) *unstructured.Unstructured {
	fields := c.kind.fields
	if c.status != "" {
		fields = c.kind.status
	}
	if fields == nil {
		return after
	}
	return fields.UpdateNoErrors(before, after, c.manager()).(*unstructured.Unstructured)
}

func (s *Server) updateLocked(c *call) (int, []byte, error) {
	u, err := c.decode()
	if err != nil {
		return 0, nil, err
	}
	now := s.objects[c.kind][c.key()]
	if now == nil {
		return 0, nil, apierrors.NewNotFound(c.kind.groupResource(), c.name)
	}
	before := now.copy()
	if want := u.GetUID(); want != "" && want != before.GetUID() {
		return 0, nil, apierrors.NewConflict(c.kind.groupResource(), c.name, fmt.Errorf(
			"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %v, UID in object meta: %v", c.storageKey(), want, before.GetUID()))
	}
	it, err := s.updatedLocked(c, now, before, u)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, it.text, nil
}

func (c *call) storageKey() string {
	if c.kind.defaults != nil { // a custom resource
		return path.Join("/registry", c.kind.Group, c.kind.Resource, c.namespace, c.name)
	}
	return path.Join("/registry", c.kind.Resource, c.namespace, c.name)
}

// updatedLocked stores what a request that is no apply makes of an object.
func (s *Server) updatedLocked(c *call, now *item, before, after *unstructured.Unstructured) (*item, error) {
	if err := c.normalize(after); err != nil {
		return nil, err
	}
	return s.replaceLocked(c, now, before, c.track(before, c.keepOthers(before, after)))
}

// replaceLocked stores the next version of an object.
func (s *Server) replaceLocked(c *call, now *item, before, after *unstructured.Unstructured) (*item, error) {
	switch version := after.GetResourceVersion(); {
	case version == "" && c.kind.defaults != nil:
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: c.kind.Group, Kind: c.kind.Resource}, c.name,
			field.ErrorList{field.Invalid(field.NewPath("metadata", "resourceVersion"), int64(0), "must be specified for an update")})
	case version != "" && version != before.GetResourceVersion():
		return nil, apierrors.NewConflict(c.kind.groupResource(), c.name, errors.New(staleMessage))
	}
	if after.GetUID() == "" {
		after.SetUID(before.GetUID())
	}
	if after.GetUID() != before.GetUID() {
		immutable := field.Invalid(field.NewPath("metadata", "uid"), string(after.GetUID()), "field is immutable")
		return nil, apierrors.NewInvalid(c.kind.GroupKind(), c.name, field.ErrorList{immutable, immutable}) // said twice by real ones, too
	}
	after.SetResourceVersion(before.GetResourceVersion())
	after.SetCreationTimestamp(before.GetCreationTimestamp())
	after.SetGeneration(before.GetGeneration())
	if c.kind.counts() && c.status == "" && c.kind.generationChanges(before.Object, after.Object) {
		after.SetGeneration(before.GetGeneration() + 1)
	}
	if sameButTimes(before, after) {
		return now, nil
	}
	if c.dryRun() {
		return newItem(now.key, now.revision, after.Object), nil
	}
	return s.putLocked(c.kind, now.key, now, after.Object), nil
}

// keepOthers keeps what the call may not change: a status subresource changes nothing else,
// and the object itself not its status.
func (c *call) keepOthers(before, after *unstructured.Unstructured) *unstructured.Unstructured {
	if !c.kind.Status {
		return after
	}
	from, to := before, after
	if c.status != "" {
		from, to = after, before.DeepCopy()
		to.SetResourceVersion(after.GetResourceVersion()) // a precondition, as is the UID
		to.SetUID(after.GetUID())
	}
	if status, has := from.Object["status"]; has {
		to.Object["status"] = status
	} else {
		delete(to.Object, "status")
	}
	return to
}

func (k *Kind) generationChanges(before, after map[string]any) bool {
	if k.Kind == "Deployment" {
		was, _, _ := unstructured.NestedFieldNoCopy(before, "metadata", "annotations")
		is, _, _ := unstructured.NestedFieldNoCopy(after, "metadata", "annotations")
		return !reflect.DeepEqual(before["spec"], after["spec"]) || !reflect.DeepEqual(was, is)
	}
	for _, both := range []map[string]any{before, after} {
		for field := range both {
			if field != "metadata" && field != "status" && !reflect.DeepEqual(before[field], after[field]) {
				return true
			}
		}
	}
	return false
}

// sameButTimes reports whether two versions differ at most in when fields were managed.
func sameButTimes(before, after *unstructured.Unstructured) bool {
	if len(before.Object) != len(after.Object) {
		return false
	}
	for field, was := range before.Object {
		if is, has := after.Object[field]; field != "metadata" && (!has || !reflect.DeepEqual(was, is)) {
			return false
		}
	}
	withoutTimes := func(u *unstructured.Unstructured) map[string]any {
		meta, _ := u.Object["metadata"].(map[string]any)
		meta = runtime.DeepCopyJSON(meta)
		managed, _ := meta["managedFields"].([]any)
		for _, m := range managed {
			delete(m.(map[string]any), "time")
		}
		return meta
	}
	return reflect.DeepEqual(withoutTimes(before), withoutTimes(after))
}

func (s *Server) deleteLocked(c *call) ([]byte, error) {
	now := s.objects[c.kind][c.key()]
	if now == nil {
		return nil, apierrors.NewNotFound(c.kind.groupResource(), c.name)
	}
	var options metav1.DeleteOptions
	if len(c.body) > 0 {
		if err := json.Unmarshal(c.body, &options); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	u := &unstructured.Unstructured{Object: now.object}
	if p := options.Preconditions; p != nil {
		resource := schema.GroupResource{Group: c.kind.Group, Resource: c.kind.Kind}
		if p.UID != nil && *p.UID != u.GetUID() {
			return nil, apierrors.NewConflict(resource, c.name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, u.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != u.GetResourceVersion() {
			return nil, apierrors.NewConflict(resource, c.name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, u.GetResourceVersion()))
		}
	}
	if !c.dryRun() && len(options.DryRun) == 0 {
		s.putLocked(c.kind, now.key, now, nil)
	}
	return json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: c.name, Group: c.kind.Group, Kind: c.kind.Resource, UID: u.GetUID()},
	})
}

// putLocked commits the next version of an object, nil for none.
func (s *Server) putLocked(k *Kind, key string, before *item, object map[string]any) *item {
	s.revision++
	var after *item
	if object == nil {
		delete(s.objects[k], key)
	} else {
		after = newItem(key, s.revision, object)
		s.objects[k][key] = after
	}
	s.last[k] = s.revision
	s.log = append(s.log, event{s.revision, k, before, after})
	if s.deliver {
		for _, w := range s.watches {
			w.deliverLocked(0)
		}
	}
	return after
}

// newItem takes over an object. Revision 0 is that of an object that is not stored.
func newItem(key string, revision uint64, object map[string]any) *item {
	u := &unstructured.Unstructured{Object: object}
	if revision > 0 {
		u.SetResourceVersion(strconv.FormatUint(revision, 10))
	}
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // it was JSON
	}
	return &item{key: key, revision: revision, object: object, text: text}
}

func (it *item) copy() *unstructured.Unstructured {
	return (&unstructured.Unstructured{Object: it.object}).DeepCopy()
}

// at returns the item with another revision.
func (it *item) at(revision uint64) *item { return newItem(it.key, revision, it.copy().Object) }
