package aggregate

import (
	"bytes"
	"strings"
)

// fieldPath is a declared field, split: spec.nodeName is ["spec" "nodeName"].
type fieldPath struct {
	name  string
	steps []string
}

func splitFields(names []string) []fieldPath {
	out := make([]fieldPath, len(names))
	for i, n := range names {
		out[i] = fieldPath{name: n, steps: strings.Split(n, ".")}
	}
	return out
}

// fieldValues appends the declared fields that the body has as scalars. A
// string's value is its text where it has no escapes; numbers, true and false
// are as they stand. Anything else (null, lists, objects) is not indexed.
func fieldValues(dst []Label, body []byte, fields []fieldPath) []Label {
	for _, f := range fields {
		v := body
		for _, step := range f.steps {
			if v = member(v, step); v == nil {
				break
			}
		}
		if s, ok := scalar(v); ok {
			dst = append(dst, Label{Key: f.name, Value: s})
		}
	}
	return dst
}

func scalar(v []byte) (string, bool) {
	if len(v) == 0 {
		return "", false
	}
	switch c := v[0]; {
	case c == '"':
		if len(v) < 2 || bytes.IndexByte(v, '\\') >= 0 {
			return "", false
		}
		return string(v[1 : len(v)-1]), true
	case c == '{' || c == '[' || c == 'n':
		return "", false
	}
	return string(v), true
}

// member returns the value of a key in a canonical JSON object, nil when it is
// absent or v is no object. Keys are sorted, so the search ends early.
func member(v []byte, name string) []byte {
	if len(v) < 2 || v[0] != '{' {
		return nil
	}
	i := 1
	for i < len(v) && v[i] == '"' {
		end := skipString(v, i)
		if end < 0 || end >= len(v) || v[end] != ':' {
			return nil
		}
		k := v[i+1 : end-1]
		start := end + 1
		if end = skipValue(v, start); end < 0 {
			return nil
		}
		if string(k) == name {
			return v[start:end]
		}
		if end >= len(v) || v[end] != ',' {
			return nil
		}
		i = end + 1
	}
	return nil
}

// skipString returns the index after the string that starts at i, -1 when it
// does not end.
func skipString(b []byte, i int) int {
	for i++; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		slashes := 0
		for j := i - 1; b[j] == '\\'; j-- {
			slashes++
		}
		if slashes%2 == 0 {
			return i + 1
		}
	}
}

// skipValue returns the index after the JSON value that starts at i, -1 when
// it does not end.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i < 0 {
				return -1
			}
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return -1
}
