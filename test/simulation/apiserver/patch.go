package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// uid returns the nth UID that a server gives.
func uid(n uint64) types.UID {
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012x", n))
}

func (s *Server) patchLocked(c *call) (int, []byte, error) {
	contentType, _, _ := strings.Cut(c.header.Get("Content-Type"), ";")
	now := s.objects[c.kind][c.key()]
	if types.PatchType(contentType) == types.ApplyPatchType {
		return s.applyLocked(c, now)
	}
	if now == nil {
		return 0, nil, apierrors.NewNotFound(c.kind.groupResource(), c.name)
	}
	var text []byte
	var err error
	switch types.PatchType(contentType) {
	case types.JSONPatchType:
		var patch jsonpatch.Patch
		if patch, err = jsonpatch.DecodePatch(c.body); err != nil {
			return 0, nil, apierrors.NewBadRequest(err.Error())
		}
		if text, err = patch.Apply(now.text); err != nil {
			return 0, nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
	case types.MergePatchType:
		if text, err = jsonpatch.MergePatch(now.text, c.body); err != nil {
			return 0, nil, apierrors.NewBadRequest(err.Error())
		}
	default:
		return 0, nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType, Message: "patch type " + contentType,
		}}
	}
	after, err := c.patched(text)
	if err != nil {
		return 0, nil, err
	}
	before := now.copy()
	it, err := s.updatedLocked(c, now, before, after)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, it.text, nil
}

// patched reads the result of a patch.
func (c *call) patched(text []byte) (*unstructured.Unstructured, error) {
	object := map[string]any{}
	invalid := func(err error) error {
		return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), string(text), err.Error())})
	}
	if err := utiljson.Unmarshal(text, &object); err != nil {
		return nil, invalid(err)
	}
	if err := c.kind.unknownFields(object); err != nil {
		if strict, ok := runtime.AsStrictDecodingError(err); !ok {
			return nil, invalid(err)
		} else if c.strict() {
			return nil, invalid(strict)
		}
	}
	return &unstructured.Unstructured{Object: object}, nil
}

// applyLocked does a server-side apply, which creates what does not exist.
func (s *Server) applyLocked(c *call, now *item) (int, []byte, error) {
	applied := &unstructured.Unstructured{Object: map[string]any{}}
	text, err := yaml.YAMLToJSON(c.body)
	if err == nil {
		err = utiljson.Unmarshal(text, &applied.Object)
	}
	switch {
	case err != nil:
		return 0, nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
	case c.kind.fields == nil:
		return 0, nil, fmt.Errorf("%s: managed fields are not simulated", c.kind.Kind)
	case c.query.Get("fieldManager") == "":
		return 0, nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "PatchOptions"}, "",
			field.ErrorList{field.Required(field.NewPath("fieldManager"), "is required for apply patch")})
	}
	before := c.kind.empty()
	if now != nil {
		before = now.copy()
	}
	out, err := c.kind.fields.Apply(before, applied, c.manager(), c.query.Get("force") == "true")
	if err != nil {
		return 0, nil, err
	}
	after := out.(*unstructured.Unstructured)
	if now == nil {
		if u := after.GetUID(); u != "" {
			return 0, nil, apierrors.NewConflict(c.kind.groupResource(), c.name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", u))
		}
		after.SetNamespace(c.namespace)
		it, err := s.insertLocked(c, after, func(u *unstructured.Unstructured) (*unstructured.Unstructured, error) { return u, nil })
		if err != nil {
			return 0, nil, err
		}
		return http.StatusCreated, it.text, nil
	}
	if err := c.normalize(after); err != nil {
		return 0, nil, err
	}
	before = now.copy()
	it, err := s.replaceLocked(c, now, before, c.keepOthers(before, after))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, it.text, nil
}

// Change changes, makes or deletes an object as another client would, without a request:
// change is given nil where there is none, and returns nil for none.
func (s *Server) Change(resource, namespace, name, manager string, change func(map[string]any) map[string]any) {
	var kind *Kind
	for _, k := range s.kinds {
		if k.Resource == resource {
			kind = k
		}
	}
	c := &call{kind: kind, namespace: namespace, name: name, query: map[string][]string{"fieldManager": {manager}}}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.objects[kind][c.key()]
	if now == nil {
		if object := change(nil); object != nil {
			text, err := json.Marshal(object)
			if err == nil {
				c.body, c.verb = text, http.MethodPost
				_, err = s.createLocked(c)
			}
			if err != nil {
				panic(err) // the simulation's own object
			}
		}
		return
	}
	before := now.copy()
	object := change(now.copy().Object)
	if object == nil {
		s.putLocked(kind, now.key, now, nil)
		return
	}
	if _, err := s.updatedLocked(c, now, before, &unstructured.Unstructured{Object: object}); err != nil {
		panic(err)
	}
}

// ChangeStatus is Change of the status subresource of an object that exists. Who manages the
// fields of a status is not kept: it would cost more than the rest of a schedule's changes.
func (s *Server) ChangeStatus(resource, namespace, name, _ string, change func(map[string]any) map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kinds {
		if k.Resource != resource {
			continue
		}
		now := s.objects[k][namespace+"/"+name]
		if after := change(now.copy().Object); !reflect.DeepEqual(after, now.object) {
			s.putLocked(k, now.key, now, after)
		}
	}
}

// Object returns a copy of an object, nil where there is none.
func (s *Server) Object(resource, namespace, name string) map[string]any {
	return runtime.DeepCopyJSON(s.Peek(resource, namespace, name))
}

// Peek is Object without a copy: what it returns must not be changed.
func (s *Server) Peek(resource, namespace, name string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kinds {
		if k.Resource == resource {
			if it := s.objects[k][namespace+"/"+name]; it != nil {
				return it.object
			}
		}
	}
	return nil
}
