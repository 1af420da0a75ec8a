package remediate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
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

// digest identifies an object's content; "" is of none.
func digest(object map[string]any) string {
	if object == nil {
		return ""
	}
	text, err := json.Marshal(content(object))
	if err != nil {
		panic("remediate: JSON that was read cannot be written: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// inverse is what brings the target back to what it was: the verb and its body.
type inverse struct {
	verb string          // apply (create), patch or delete; "" when there is none
	body json.RawMessage // an object, or a merge patch
	why  string          // there is none
}

// invert finds the inverse of a change. Values of Secrets are kept nowhere, so that
// what changes them cannot be taken back.
func invert(before, after map[string]any, secret bool) (inverse, error) {
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
		text, err := json.Marshal(object)
		return inverse{verb: "apply", body: text}, err
	}
	from, err := json.Marshal(content(after))
	if err != nil {
		return inverse{}, err
	}
	to, err := json.Marshal(content(before))
	if err != nil {
		return inverse{}, err
	}
	patch, err := jsonpatch.CreateMergePatch(from, to)
	return inverse{verb: "patch", body: patch}, err
}

func secretValues(object map[string]any) any { return []any{object["data"], object["stringData"]} }
