package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	// The scheme has the groups that are installed into it.
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/extensions/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"
)

// errCustomKind is the error of converting a custom kind, which only its member can do.
var errCustomKind = errors.New("custom kinds can be converted only by their member")

// convertible reports whether the library's scheme has types of a kind.
func convertible(gvk schema.GroupVersionKind) bool {
	return legacyscheme.Scheme.Recognizes(gvk) && internalOf(gvk) != (schema.GroupVersionKind{})
}

// internalOf returns the internal version of a kind, which conversions use.
func internalOf(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	internal := schema.GroupVersionKind{Group: gvk.Group, Version: runtime.APIVersionInternal, Kind: gvk.Kind}
	if legacyscheme.Scheme.Recognizes(internal) {
		return internal
	}
	return schema.GroupVersionKind{}
}

// decode decodes JSON into the library's internal type of its kind, without defaulting: the
// member has set defaults.
func decode(body []byte, gvk schema.GroupVersionKind) (runtime.Object, error) {
	scheme := legacyscheme.Scheme
	if !convertible(gvk) {
		return nil, errCustomKind
	}
	external, err := scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	if err := kjson.Unmarshal(body, external); err != nil {
		return nil, err
	}
	return scheme.UnsafeConvertToVersion(external, internalGroup(gvk))
}

// internalGroup selects the internal version of the kind's own group: kinds such as events
// have the same internal type in two groups.
func internalGroup(gvk schema.GroupVersionKind) runtime.GroupVersioner {
	return schema.GroupVersion{Group: gvk.Group, Version: runtime.APIVersionInternal}
}

// convert turns JSON at an API version into canonical JSON of a kind at another
// version.
func convert(body []byte, from string, to schema.GroupVersionKind) (out []byte, err error) {
	defer func() { // conversions panic on objects that no API server would have admitted
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	gv, err := schema.ParseGroupVersion(from)
	if err != nil {
		return nil, err
	}
	if !convertible(to) {
		return nil, errCustomKind
	}
	internal, err := decode(body, gv.WithKind(to.Kind))
	if err != nil {
		return nil, err
	}
	external, err := legacyscheme.Scheme.UnsafeConvertToVersion(internal, to.GroupVersion())
	if err != nil {
		return nil, err
	}
	external.GetObjectKind().SetGroupVersionKind(to)
	if m, ok := external.(metav1.ObjectMetaAccessor); ok {
		m.GetObjectMeta().SetManagedFields(nil)
	}
	return canonical(external)
}

// canonical encodes as the index does: keys sorted, no white space, only necessary escapes.
func canonical(object runtime.Object) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(fields); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}
