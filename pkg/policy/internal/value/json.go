package value

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/document"
)

// JSON returns the value as document.JSON writes it: with sorted keys, and sets as arrays.
func (v Value) JSON() ([]byte, error) {
	size, _ := v.Size(1 << 20)
	if text, ok := v.appendJSON(make([]byte, 0, size)); ok {
		return text, nil
	}
	return document.JSON(v.AST())
}

// appendJSON appends the value as JSON. ok is false for what has keys that are not strings.
func (v Value) appendJSON(to []byte) (text []byte, ok bool) {
	switch v.kind {
	case Null:
		return append(to, "null"...), true
	case Boolean:
		return strconv.AppendBool(to, v.n == 1), true
	case Integer:
		return strconv.AppendInt(to, int64(v.n), 10), true
	case Number:
		return append(to, v.Str()...), json.Valid([]byte(v.Str()))
	case String:
		return appendString(to, v.Str())
	case Array, Set:
		to = append(to, '[')
		for i, x := range v.Elems() {
			if i > 0 {
				to = append(to, ',')
			}
			if to, ok = x.appendJSON(to); !ok {
				return nil, false
			}
		}
		return append(to, ']'), true
	case Object:
		to = append(to, '{')
		pairs := v.Pairs()
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i].kind != String {
				return nil, false
			}
			if i > 0 {
				to = append(to, ',')
			}
			if to, ok = pairs[i].appendJSON(to); !ok {
				return nil, false
			}
			if to, ok = pairs[i+1].appendJSON(append(to, ':')); !ok {
				return nil, false
			}
		}
		return append(to, '}'), true
	}
	return nil, false
}

func appendString(to []byte, s string) ([]byte, bool) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf || c == 0x7f {
			var b bytes.Buffer
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			err := enc.Encode(s)
			return append(to, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...), err == nil
		}
	}
	to = append(to, '"')
	return append(append(to, s...), '"'), true
}

// SetJSON returns a set as an array, as document.SetJSON writes it.
func (v Value) SetJSON() (string, error) {
	for _, x := range v.Elems() {
		if x.hasSet() {
			set, _ := v.AST().(ast.Set) // it is one
			return document.SetJSON(set)
		}
	}
	text, err := ArrayOf(v.Elems()).JSON()
	return string(text), err
}

func (v Value) hasSet() bool {
	switch v.kind {
	case Set:
		return true
	case Array:
		return anyHasSet(v.Elems())
	case Object:
		return anyHasSet(v.Pairs())
	}
	return false
}

func anyHasSet(elems []Value) bool {
	for _, x := range elems {
		if x.hasSet() {
			return true
		}
	}
	return false
}

// Size estimates the bytes of the value as JSON, as limits.Size does, and reports whether
// they are within a limit. It stops soon after exceeding it.
func (v Value) Size(limit int) (size int, ok bool) {
	ok = v.addSize(&size, limit)
	return size, ok
}

func (v Value) addSize(size *int, limit int) bool {
	var elems []Value
	switch v.kind {
	case String:
		*size += v.n + 3
	case Integer, Number:
		*size += len(v.Str()) + 1
	case Array, Set:
		*size += 3
		elems = v.Elems()
	case Object:
		*size += 3
		elems = v.Pairs()
	default:
		*size += 6
	}
	if v.kind != Array && *size+v.collectionLen() > limit {
		return false
	}
	for _, x := range elems {
		if !x.addSize(size, limit) {
			return false
		}
	}
	return *size <= limit
}

func (v Value) collectionLen() int {
	if v.IsCollection() {
		return v.n
	}
	return 0
}
