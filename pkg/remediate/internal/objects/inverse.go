package objects

import (
	"encoding/json"
	"fmt"
	"reflect"
)

// Inverse restores an object to what it was before a change.
type Inverse struct {
	Verb         string          // apply (create), patch or delete; "" when there is none
	Body         json.RawMessage // an object, or a merge patch
	Irreversible string          // why there is none
}

// Invert finds the inverse of a change. Where values are withheld, as those of Secrets are,
// changes of them are irreversible; so are those whose inverse has more than maxBytes.
func Invert(before, after map[string]any, withheld bool, maxBytes int) (Inverse, error) {
	inv, err := exactInverse(before, after, withheld)
	if err == nil && len(inv.Body) > maxBytes {
		return Inverse{Irreversible: fmt.Sprintf("its inverse has %d bytes, at most %d are recorded", len(inv.Body), maxBytes)}, nil
	}
	return inv, err
}

func exactInverse(before, after map[string]any, withheld bool) (Inverse, error) {
	switch {
	case before == nil && after == nil:
		return Inverse{Irreversible: "nothing has changed"}, nil
	case before == nil:
		return Inverse{Verb: "delete"}, nil
	case withheld && !reflect.DeepEqual(values(before), values(after)):
		kind, _ := before["kind"].(string)
		return Inverse{Irreversible: fmt.Sprintf("values of %ss are not stored", kind)}, nil
	case after == nil:
		object := Content(before)
		delete(object, "status")
		if meta, ok := object["metadata"].(map[string]any); ok {
			delete(meta, "deletionTimestamp")
			delete(meta, "deletionGracePeriodSeconds")
		}
		text, err := json.Marshal(object)
		return Inverse{Verb: "apply", Body: text}, err
	}
	patch, ok := mergePatch(withAnnotations(after), withAnnotations(before))
	if !ok {
		return Inverse{Irreversible: "it sets null, which no merge patch can restore"}, nil
	}
	text, err := json.Marshal(patch)
	return Inverse{Verb: "patch", Body: text}, err
}

// withAnnotations returns an object's content with annotations, empty if it has none: a
// patch must not remove all of them, because the write adds its own.
func withAnnotations(object map[string]any) map[string]any {
	object = Content(object)
	if meta, ok := object["metadata"].(map[string]any); ok && meta["annotations"] == nil {
		meta["annotations"] = map[string]any{}
	}
	return object
}

// mergePatch returns the merge patch, RFC 7386, from one object to another. It reports
// false if there is none, because a null would have to be set.
func mergePatch(from, to map[string]any) (patch map[string]any, ok bool) {
	patch = map[string]any{}
	for field, value := range to {
		old, had := from[field]
		if had && reflect.DeepEqual(old, value) {
			continue
		}
		a, isMap := old.(map[string]any)
		b, toMap := value.(map[string]any)
		if isMap && toMap {
			if patch[field], ok = mergePatch(a, b); !ok {
				return nil, false
			}
			continue
		}
		if hasNull(value) {
			return nil, false
		}
		patch[field] = value
	}
	for field := range from {
		if _, stays := to[field]; !stays {
			patch[field] = nil
		}
	}
	return patch, true
}

// hasNull reports whether a merge patch would read a null in the value as a removal.
func hasNull(value any) bool {
	object, ok := value.(map[string]any)
	for _, v := range object {
		if hasNull(v) {
			return true
		}
	}
	return !ok && value == nil
}

// values are all fields of a Secret or ConfigMap that hold values.
func values(object map[string]any) any {
	return []any{object["data"], object["stringData"], object["binaryData"], Annotations(object)[lastAppliedAnnotation]}
}
