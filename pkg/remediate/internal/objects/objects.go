package objects

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"reflect"

	"federator.dev/federator/api"
)

// Annotations that others write.
const (
	revisionAnnotation    = "deployment.kubernetes.io/revision" // incremented by the controller
	lastAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration"
)

// Identity returns an object's UID and resourceVersion.
func Identity(object map[string]any) (uid, resourceVersion string) {
	meta, _ := object["metadata"].(map[string]any)
	uid, _ = meta["uid"].(string)
	resourceVersion, _ = meta["resourceVersion"].(string)
	return uid, resourceVersion
}

// Annotations returns an object's annotations, never nil.
func Annotations(object map[string]any) map[string]string {
	meta, _ := object["metadata"].(map[string]any)
	raw, _ := meta["annotations"].(map[string]any)
	out := make(map[string]string, len(raw))
	for k, v := range raw {
		out[k], _ = v.(string)
	}
	return out
}

// Terminating reports whether an object is being deleted.
func Terminating(object map[string]any) bool {
	meta, _ := object["metadata"].(map[string]any)
	return meta["deletionTimestamp"] != nil
}

// Content returns an object without the fields that every write changes and without its
// writers: what a correction is about.
func Content(object map[string]any) map[string]any {
	if object == nil {
		return nil
	}
	out := maps.Clone(object)
	meta, _ := out["metadata"].(map[string]any)
	meta = maps.Clone(meta)
	for _, field := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"} {
		delete(meta, field)
	}
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		annotations = maps.Clone(annotations)
		delete(annotations, api.ActionKey)
		if meta["annotations"] = annotations; len(annotations) == 0 {
			delete(meta, "annotations")
		}
	}
	out["metadata"] = meta
	return out
}

// Same reports whether two objects have the same Content.
func Same(a, b map[string]any) bool { return reflect.DeepEqual(Content(a), Content(b)) }

// Digest hashes the content that an object's users set: not its status, nor what
// controllers note on it. It is "" for nil. Where values are withheld only the keys count: the
// digest of a value that can be guessed gives the value away.
func Digest(object map[string]any, withheld bool) string {
	if object == nil {
		return ""
	}
	text, err := json.Marshal(normalize(object, withheld))
	if err != nil {
		panic("objects: decoded JSON cannot be encoded: " + err.Error())
	}
	return Hash(text)
}

// normalize returns what Digest hashes.
func normalize(object map[string]any, withheld bool) map[string]any {
	object = Content(object)
	delete(object, "status")
	meta, _ := object["metadata"].(map[string]any)
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		annotations = maps.Clone(annotations)
		delete(annotations, revisionAnnotation)
		if withheld {
			delete(annotations, lastAppliedAnnotation)
		}
		if meta["annotations"] = annotations; len(annotations) == 0 {
			delete(meta, "annotations")
		}
	}
	if withheld {
		for _, field := range []string{"data", "stringData", "binaryData"} {
			if values, ok := object[field].(map[string]any); ok {
				values = maps.Clone(values)
				for key := range values {
					values[key] = ""
				}
				object[field] = values
			}
		}
	}
	return object
}

// Hash returns the SHA-256 of a text in hexadecimal.
func Hash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
