// Package values knows which objects hold values that the index redacts, and which remedies
// carry such values.
package values

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"federator.dev/federator/pkg/policy"
)

// IsSensitive reports whether objects of a kind hold values that the index redacts unless
// it is told to keep them.
func IsSensitive(kind policy.Kind) bool { return IsSecret(kind) || kind == "ConfigMap" }

// IsSecret reports whether objects of a kind are Secrets, whose values are recorded nowhere.
func IsSecret(kind policy.Kind) bool { return kind == "Secret" }

// valueFields are the fields of sensitive kinds that hold values.
var valueFields = []string{"data", "stringData", "binaryData"}

// Refuse returns why a remedy must not be sent, "" when it may be: policies see keys
// of Secrets and ConfigMaps, but no values, so that values which a remedy carries are not
// those of the object, or are empty.
func Refuse(r *policy.Remedy) string {
	if !IsSensitive(r.Target.Kind) {
		return ""
	}
	field := ""
	switch r.Action {
	case "apply":
		field = valueField(r.Object)
	case "patch":
		if field = valueField(r.Patch); IsJSONPatch(r.Patch) {
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
	var ops []PatchOp
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

// IsJSONPatch reports whether a patch is one of RFC 6902, and not a merge patch.
func IsJSONPatch(patch []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(patch), []byte("[")) }

// PatchOp is an operation of a JSON patch, RFC 6902.
type PatchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from,omitempty"`
	Value any    `json:"value"`
}
