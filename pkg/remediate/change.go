package remediate

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
)

// content is an object without what every write changes, and without what says who
// wrote: what a correction is about.
func content(object map[string]any) map[string]any {
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
		delete(annotations, ActionAnnotation)
		if meta["annotations"] = annotations; len(annotations) == 0 {
			delete(meta, "annotations")
		}
	}
	out["metadata"] = meta
	return out
}

// same reports whether two objects differ in nothing that a correction is about.
func same(a, b map[string]any) bool { return reflect.DeepEqual(content(a), content(b)) }

// digest identifies an object's content as far as its users decide it: not its status,
// nor what controllers note of it. "" is of none. Of a Secret only the keys count:
// a digest of a value that can be guessed gives it away.
func digest(object map[string]any, secret bool) string {
	if object == nil {
		return ""
	}
	object = content(object)
	delete(object, "status")
	meta, _ := object["metadata"].(map[string]any)
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		annotations = maps.Clone(annotations)
		delete(annotations, revisionAnnotation)
		if secret {
			delete(annotations, lastApplied)
		}
		if meta["annotations"] = annotations; len(annotations) == 0 {
			delete(meta, "annotations")
		}
	}
	if secret {
		for _, field := range []string{"data", "stringData"} {
			if values, ok := object[field].(map[string]any); ok {
				values = maps.Clone(values)
				for key := range values {
					values[key] = ""
				}
				object[field] = values
			}
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		panic("remediate: JSON that was read cannot be written: " + err.Error())
	}
	return sha(text)
}

const (
	revisionAnnotation = "deployment.kubernetes.io/revision" // which the controller counts up
	lastApplied        = "kubectl.kubernetes.io/last-applied-configuration"
)

// inverse is what brings the target back to what it was: the verb and its body.
type inverse struct {
	verb string          // apply (create), patch or delete; "" when there is none
	body json.RawMessage // an object, or a merge patch
	why  string          // there is none
}

// invert finds the inverse of a change. Values of Secrets are kept nowhere, so that
// what changes them cannot be taken back; nor can what is too large to be recorded.
func invert(before, after map[string]any, secret bool) (inverse, error) {
	inv, err := exactInverse(before, after, secret)
	if err == nil && len(inv.body) > mostPatch {
		return inverse{why: fmt.Sprintf("what takes it back has %d bytes, at most %d are recorded", len(inv.body), mostPatch)}, nil
	}
	return inv, err
}

func exactInverse(before, after map[string]any, secret bool) (inverse, error) {
	switch {
	case before == nil && after == nil:
		return inverse{why: "nothing has changed"}, nil
	case before == nil:
		return inverse{verb: "delete"}, nil
	case secret && (after == nil || !reflect.DeepEqual(secretValues(before), secretValues(after))):
		return inverse{why: "values of Secrets are not kept"}, nil
	case after == nil:
		object := content(before)
		delete(object, "status")
		if meta, ok := object["metadata"].(map[string]any); ok {
			delete(meta, "deletionTimestamp")
			delete(meta, "deletionGracePeriodSeconds")
		}
		text, err := json.Marshal(object)
		return inverse{verb: "apply", body: text}, err
	}
	patch, ok := difference(annotated(after), annotated(before))
	if !ok {
		return inverse{why: "it sets null, which no merge patch brings back"}, nil
	}
	text, err := json.Marshal(patch)
	return inverse{verb: "patch", body: text}, err
}

// annotated is an object's content with annotations, if none: a patch may not remove
// them whole, because the write's own is among them.
func annotated(object map[string]any) map[string]any {
	object = content(object)
	if meta, ok := object["metadata"].(map[string]any); ok && meta["annotations"] == nil {
		meta["annotations"] = map[string]any{}
	}
	return object
}

// difference is the merge patch, RFC 7386, that makes one object of another. It
// reports false if there is none, because a null would have to be set.
func difference(from, to map[string]any) (patch map[string]any, ok bool) {
	patch = map[string]any{}
	for field, value := range to {
		old, had := from[field]
		if had && reflect.DeepEqual(old, value) {
			continue
		}
		a, isMap := old.(map[string]any)
		b, toMap := value.(map[string]any)
		if isMap && toMap {
			if patch[field], ok = difference(a, b); !ok {
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

// hasNull reports whether a merge patch would take a part of the value for a removal.
func hasNull(value any) bool {
	object, ok := value.(map[string]any)
	for _, v := range object {
		if hasNull(v) {
			return true
		}
	}
	return !ok && value == nil
}

// secretValues is all of a Secret that holds values.
func secretValues(object map[string]any) any {
	return []any{object["data"], object["stringData"], annotationsOf(object)[lastApplied]}
}
