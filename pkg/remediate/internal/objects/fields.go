package objects

import (
	"encoding/json"
)

// Fields are those that a change has set, as the maps on the way to them. What is not a map
// is a field; of a list of the same length only the elements' fields are.
type Fields map[string]any

// FieldsOf returns the fields of an applied object or a merge patch, and those that its
// inverse restores beyond them: admission may have set more than was asked for. Either may be
// nil.
func FieldsOf(change, inverse json.RawMessage) Fields {
	var a, b map[string]any
	// What is no object, such as a JSON patch, sets nothing by itself.
	if json.Unmarshal(change, &a) != nil {
		a = nil
	}
	if json.Unmarshal(inverse, &b) != nil {
		b = nil
	}
	return union(a, b)
}

func union(change, inverse map[string]any) Fields {
	out := Fields{}
	for field, value := range change {
		out[field] = value
	}
	for field, value := range inverse {
		a, isMap := out[field].(map[string]any)
		b, toMap := value.(map[string]any)
		_, set := out[field]
		switch {
		case isMap && toMap:
			out[field] = map[string]any(union(a, b))
		case !set && toMap:
			out[field] = map[string]any(union(nil, b))
		case !set:
			out[field] = nil // a list of before has other elements
		}
	}
	return out
}

// DigestOf hashes some fields of an object, as Digest does with all. What servers and
// controllers set besides them makes no difference.
func DigestOf(object map[string]any, fields Fields, withheld bool) string {
	if object == nil {
		return ""
	}
	text, err := json.Marshal(project(normalize(object, withheld), map[string]any(fields)))
	if err != nil {
		panic("objects: decoded JSON cannot be encoded: " + err.Error())
	}
	return Hash(text)
}

func project(value, fields any) any {
	switch f := fields.(type) {
	case map[string]any:
		object, ok := value.(map[string]any)
		if !ok || len(f) == 0 {
			return value
		}
		out := map[string]any{}
		for field, below := range f {
			if v, has := object[field]; has {
				out[field] = project(v, below)
			}
		}
		return out
	case []any:
		list, ok := value.([]any)
		if !ok || len(list) != len(f) {
			return value
		}
		out := make([]any, len(list))
		for i := range list {
			out[i] = project(list[i], f[i])
		}
		return out
	}
	return value
}

// OtherManager returns a field manager other than one, "" if there is none, that has set
// fields of the object: not its status, and not only notes in its metadata.
func OtherManager(object map[string]any, manager string) string {
	meta, _ := object["metadata"].(map[string]any)
	entries, _ := meta["managedFields"].([]any)
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		name, _ := entry["manager"].(string)
		if sub, _ := entry["subresource"].(string); sub != "" || name == manager {
			continue
		}
		fields, _ := entry["fieldsV1"].(map[string]any)
		for field := range fields {
			if field != "f:metadata" && field != "f:status" {
				return name
			}
		}
	}
	return ""
}
