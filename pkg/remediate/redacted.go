package remediate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"federator.dev/federator/pkg/policy"
)

// isSensitive reports whether objects of a kind hold values that the index redacts unless
// it is told to keep them.
func isSensitive(kind policy.Kind) bool { return isSecret(kind) || kind == "ConfigMap" }

// valueFields are the fields of sensitive kinds that hold values.
var valueFields = []string{"data", "stringData", "binaryData"}

// refuseValues returns why a remedy must not be sent, "" when it may be: policies see keys
// of Secrets and ConfigMaps, but no values, so that values which a remedy carries are not
// those of the object, or are empty.
func refuseValues(r *policy.Remedy) string {
	if !isSensitive(r.Target.Kind) {
		return ""
	}
	field := ""
	switch r.Action {
	case "apply":
		field = valueField(r.Object)
	case "patch":
		if field = valueField(r.Patch); isJSONPatch(r.Patch) {
			field = valuePath(r.Patch)
		}
	}
	if field == "" {
		return ""
	}
	return fmt.Sprintf("the remedy carries %s of a %s, whose values are redacted: with keepSecretValues policies see them", field, r.Target.Kind)
}

// valueField returns a top-level field of an object that holds values, "" if there is none.
func valueField(object []byte) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(object, &fields) != nil {
		return ""
	}
	for _, field := range valueFields {
		if _, has := fields[field]; has {
			return field
		}
	}
	return ""
}

// valuePath returns the field with values that a JSON patch writes or reads, "" if there is
// none.
func valuePath(patch []byte) string {
	var ops []jsonPatchOp
	if json.NewDecoder(bytes.NewReader(patch)).Decode(&ops) != nil {
		return ""
	}
	for _, op := range ops {
		paths := []string{op.Path}
		if op.Op == "move" || op.Op == "copy" {
			paths = append(paths, op.From)
		}
		for _, path := range paths {
			first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
			switch {
			case path == "": // the whole object
				return strings.Join(valueFields, ", ")
			case slices.Contains(valueFields, first):
				return first
			}
		}
	}
	return ""
}

// withholds reports whether values of a kind are recorded nowhere. Those of Secrets never
// are.
func (x *executor) withholds(kind policy.Kind) bool {
	return isSecret(kind) || isSensitive(kind) && !x.keepsValues
}
