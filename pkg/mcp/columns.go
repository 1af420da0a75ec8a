package mcp

import (
	"encoding/json"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
)

// maxFields bounds the values that are shown of each object.
const maxFields = 16

// column is one value of each object.
type column struct {
	text string
	path *jsonpath.JSONPath // nil: the whole object
}

// newColumns parses paths; nil without any.
func newColumns(paths []string) ([]column, error) {
	if len(paths) > maxFields {
		return nil, badArgument("fields", "has %d paths, %d at most", len(paths), maxFields)
	}
	var out []column
	for _, text := range paths {
		c := column{text: text}
		if text != "@" {
			if len(text) > maxName {
				return nil, badArgument("fields", "has a path of more than %d bytes", maxName)
			}
			path := strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
			if !strings.HasPrefix(path, ".") && !strings.HasPrefix(path, "[") {
				path = "." + path
			}
			if !single(path) {
				return nil, badArgument("fields", "has %.64q: one JSONPath, without unions and .., is supported", text)
			}
			c.path = jsonpath.New("fields").AllowMissingKeys(true)
			if err := c.path.Parse("{" + path + "}"); err != nil {
				return nil, badArgument("fields", "has %.64q: %v", text, err)
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// of returns the value of an object: texts as they are, others in JSON, several ones with commas between them.
func (c *column) of(raw json.RawMessage) (string, error) {
	var object map[string]any
	if err := utiljson.Unmarshal(raw, &object); err != nil { // integers keep their digits
		return "", err
	}
	if c.path == nil {
		if meta, ok := object["metadata"].(map[string]any); ok {
			delete(meta, "managedFields")
		}
		text, err := json.Marshal(object)
		return string(text), err
	}
	found, err := c.path.FindResults(object)
	if err != nil {
		return "", badArgument("fields", "has %.64q: %v", c.text, err)
	}
	var parts []string
	for _, group := range found {
		for _, v := range group {
			if !v.IsValid() || !v.CanInterface() {
				continue
			}
			if s, ok := v.Interface().(string); ok {
				parts = append(parts, s)
				continue
			}
			text, err := json.Marshal(v.Interface())
			if err != nil {
				return "", err
			}
			parts = append(parts, string(text))
		}
	}
	return strings.Join(parts, ","), nil
}

// single reports whether a path gives each value of an object once at most: several unions, or descents, one after the other
// would multiply what they find.
func single(path string) bool {
	quote, before := rune(0), rune(0)
	for _, r := range path {
		switch {
		case quote != 0:
			if r == quote && before != '\\' {
				quote = 0
			}
		case r == '\'' || r == '"':
			quote = r
		case r == ',' || r == '{' || r == '}' || r == '.' && before == '.':
			return false
		}
		before = r
	}
	return quote == 0
}
