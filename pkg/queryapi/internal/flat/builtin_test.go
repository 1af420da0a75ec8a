package flat_test

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/flat"
)

// builtin returns the types of Kubernetes' own kinds that are listed.
func builtin(t testing.TB) map[aggregate.Kind][]reflect.Type {
	t.Helper()
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, apiextensionsv1beta1.AddToScheme, apiregistrationv1.AddToScheme,
	} {
		if err := add(all); err != nil {
			t.Fatal(err)
		}
	}
	out := map[aggregate.Kind][]reflect.Type{}
	for gvk, typ := range all.AllKnownTypes() {
		if !reflect.PointerTo(typ).Implements(reflect.TypeFor[metav1.Object]()) || !all.Recognizes(gvk.GroupVersion().WithKind(gvk.Kind+"List")) {
			continue
		}
		kind := aggregate.MakeKind(gvk.Kind, gvk.Group)
		out[kind] = append(out[kind], typ)
	}
	return out
}

// place is a field of a type, at a path.
type place struct {
	path  []string
	field reflect.StructField
	of    reflect.Type
}

// places yields the fields of a type and of what is in it.
func places(typ reflect.Type, path []string, above []reflect.Type, yield func(place)) {
	typ = element(typ)
	if typ.Kind() != reflect.Struct || slices.Contains(above, typ) {
		return
	}
	above = append(slices.Clip(above), typ)
	for i := range typ.NumField() {
		f := typ.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := slices.Clip(path)
		if key != "" {
			at = append(at, key)
		}
		if key != "" {
			yield(place{at, f, typ})
		}
		if f.Type.Kind() == reflect.Map {
			continue // whose keys are anybody's
		}
		places(f.Type, at, above, yield)
	}
}

func element(typ reflect.Type) reflect.Type {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	return typ
}

// suspicious are names of fields that may hold a namespace, or the name of
// a cluster-scoped object.
var suspicious = regexp.MustCompile(`(Namespace|Namespaces|NodeName|ClassName|VolumeName|PolicyName|Ref|Refs|Reference|References)$`)

// referring are names of types that may refer to another object.
var referring = regexp.MustCompile(`(Ref|Reference)$`)

// refers reports whether a field may refer to another object.
func refers(p place) bool {
	typ := element(p.field.Type)
	switch typ.Kind() {
	case reflect.String:
		return suspicious.MatchString(p.field.Name)
	case reflect.Struct:
		_, kind := typ.FieldByName("Kind")
		_, name := typ.FieldByName("Name")
		_, meta := typ.FieldByName("ObjectMeta")
		return !meta && (kind && name || referring.MatchString(typ.Name()))
	}
	return false
}

// follows reports whether something of a field follows.
func follows(k *flat.Keys, path []string) bool {
	for _, p := range [][]string{path, append(slices.Clip(path), "name"), append(slices.Clip(path), "namespace")} {
		if k.Field(p...) != flat.Plain {
			return true
		}
	}
	return false
}

// A field of Kubernetes' own kinds that may refer to a namespace or to
// a cluster-scoped object is in the table, or is left on purpose.
func TestTable_HasEveryReferenceOfKubernetes(t *testing.T) {
	used := map[string]bool{}
	missing := map[string]bool{}
	for kind, types := range builtin(t) {
		keys := flat.NewKeys(kind, true, nobody)
		for _, typ := range types {
			places(typ, nil, nil, func(p place) {
				if !refers(p) || follows(keys, p.path) {
					return
				}
				name := p.of.Name() + "." + p.field.Name
				if left[element(p.field.Type).Name()] != "" {
					name = element(p.field.Type).Name()
				}
				if left[name] == "" {
					missing[string(kind)+" "+strings.Join(p.path, ".")+", "+name] = true
				}
				used[name] = true
			})
		}
	}
	for _, m := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("%s is neither in the table nor left on purpose", m)
	}
	for name := range left {
		if !used[name] {
			t.Errorf("%s is left, and is nowhere", name)
		}
	}
}

// left are types, and fields of types, that may look like references and do not
// follow, with why.
var left = map[string]string{
	"LocalObjectReference":              "it is in the object's own namespace",
	"TypedLocalObjectReference":         "it is in the object's own namespace",
	"PodGroupTemplateReference":         "it is in the object's own namespace",
	"WorkloadPodGroupTemplateReference": "it is in the object's own namespace",
	"CrossVersionObjectReference":       "it is in the object's own namespace",
	"ResourceClaimConsumerReference":    "it is in the object's own namespace",

	"PodAffinityTerm.Namespaces":    "it selects, beside labels of namespaces",
	"ResourcePolicyRule.Namespaces": "it selects, and * is one",

	"FileKeySelector.VolumeName":                       "it is a volume of the pod",
	"ImageVolumeSource.Reference":                      "it is an image",
	"ImageVolumeStatus.ImageRef":                       "it is an image",
	"ExpressionWarning.FieldRef":                       "it is a path in the object",
	"JSONSchemaProps.Ref":                              "it is of a schema",
	"VsphereVirtualDiskVolumeSource.StoragePolicyName": "it is of the storage",
	"ScaleIOVolumeSource.VolumeName":                   "it is of the storage",
	"ScaleIOPersistentVolumeSource.VolumeName":         "it is of the storage",
	"StorageOSVolumeSource.VolumeName":                 "it is of the storage",
	"StorageOSVolumeSource.VolumeNamespace":            "it is of the storage",
	"StorageOSPersistentVolumeSource.VolumeName":       "it is of the storage",
	"StorageOSPersistentVolumeSource.VolumeNamespace":  "it is of the storage",

	"ObjectMeta.Namespace": "a template's own is the object's",
	"OwnerReference":       "a template's own are no object's",
}
