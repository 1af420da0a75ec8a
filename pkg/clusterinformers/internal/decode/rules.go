package decode

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	redactedKey = "federator.dev/redacted"
)

// apply shapes an object.
func (r Rules) apply(m map[string]any) {
	if r.Redact {
		for _, f := range []string{"data", "binaryData", "stringData"} {
			if vals, ok := m[f].(map[string]any); ok {
				for k := range vals {
					vals[k] = ""
				}
			} else if m[f] != nil {
				m[f] = "" // whatever it is, it is not to be kept
			}
		}
		u := unstructured.Unstructured{Object: m}
		a := u.GetAnnotations()
		if a == nil {
			a = map[string]string{}
		}
		delete(a, lastApplied)
		a[redactedKey] = "true"
		u.SetAnnotations(a)
	}
	for _, p := range r.Drop {
		if len(p) > 0 {
			unstructured.RemoveNestedField(m, p...)
		}
	}
}
