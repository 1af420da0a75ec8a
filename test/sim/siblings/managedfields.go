package siblings

import (
	"encoding/json"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// synthesize makes the managedFields that a server would have recorded had one manager
// created the object and another written its status.
func synthesize(u *unstructured.Unstructured) []metav1.ManagedFieldsEntry {
	created := u.GetCreationTimestamp()
	spec := maps.Clone(u.Object)
	delete(spec, "status")
	delete(spec, "apiVersion")
	delete(spec, "kind")
	meta := map[string]any{}
	for _, key := range []string{"annotations", "generateName", "labels", "ownerReferences", "finalizers"} {
		if v, ok := u.Object["metadata"].(map[string]any)[key]; ok {
			meta[key] = v
		}
	}
	spec["metadata"] = meta
	out := []metav1.ManagedFieldsEntry{entry(u, "kube-controller-manager", "", created, spec)}
	if status, ok := u.Object["status"]; ok {
		later := metav1.NewTime(created.Add(7 * time.Second))
		out = append(out, entry(u, "kubelet", "status", later, map[string]any{"status": status}))
	}
	return out
}

func entry(u *unstructured.Unstructured, manager, subresource string, at metav1.Time, owned map[string]any) metav1.ManagedFieldsEntry {
	raw, err := json.Marshal(fieldsOf(owned))
	if err != nil {
		panic(err) // maps with string keys
	}
	e := metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: subresource,
		APIVersion: u.GetAPIVersion(), FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: raw},
	}
	if !at.IsZero() {
		e.Time = &at
	}
	return e
}

// listKeys are the keys by which server-side apply distinguishes items of the common lists,
// those first that more lists have.
var listKeys = [][]string{
	{"mountPath"}, {"containerPort", "protocol"}, {"port", "protocol"}, {"uid"}, {"type"}, {"name"}, {"ip"},
}

// fieldsOf is the set of a value's fields in the FieldsV1 format.
func fieldsOf(v any) map[string]any {
	out := map[string]any{}
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			fields := fieldsOf(value)
			if _, isMap := value.(map[string]any); isMap && len(fields) > 0 {
				fields["."] = map[string]any{}
			}
			out["f:"+key] = fields
		}
	case []any:
		for _, item := range v {
			obj, ok := item.(map[string]any)
			if !ok {
				return map[string]any{} // an atomic list or set
			}
			key, ok := itemKey(obj)
			if !ok {
				return map[string]any{}
			}
			fields := fieldsOf(obj)
			fields["."] = map[string]any{}
			out[key] = fields
		}
	}
	return out
}

func itemKey(obj map[string]any) (string, bool) {
	for _, names := range listKeys {
		key := map[string]any{}
		for _, n := range names {
			if v, ok := obj[n]; ok {
				key[n] = v
			}
		}
		if len(key) == len(names) {
			text, err := json.Marshal(key)
			return "k:" + string(text), err == nil
		}
	}
	return "", false
}
