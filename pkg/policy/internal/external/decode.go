package external

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/strictyaml"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/value"
)

// maxDepth bounds nested objects and arrays.
const maxDepth = 64

// Error is a text that is no document, at a line and column from 1; 0: the whole text.
type Error struct {
	Line, Col int
	Message   string
}

func (e *Error) Error() string {
	switch {
	case e.Line == 0:
		return e.Message
	case e.Col == 0:
		return fmt.Sprintf("line %d: %s", e.Line, e.Message)
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Col, e.Message)
}

// Decode returns the document that a text is, as canonical JSON: with sorted keys and without spaces. The text is JSON, or YAML
// where that is allowed. Repeated keys, invalid UTF-8, more than maxBytes, and what does not match the schema, which may be nil,
// are an Error.
func Decode(text []byte, yaml bool, maxBytes int, schema *Schema) ([]byte, error) {
	if maxBytes <= 0 || maxBytes > MaxBytes {
		maxBytes = MaxBytes
	}
	if len(text) > maxBytes {
		return nil, &Error{Message: fmt.Sprintf("it has more than %d bytes", maxBytes)}
	}
	if !utf8.Valid(text) {
		return nil, at(text, invalidAt(text), "invalid UTF-8")
	}
	var x any
	var err error
	if yaml {
		x, err = decodeYAML(text)
	} else {
		x, err = decodeJSON(text)
	}
	if err != nil {
		return nil, err
	}
	if err := checkNumbers(x); err != nil {
		return nil, err
	}
	out, err := canonical(x)
	if err != nil {
		return nil, err
	}
	if len(out) > maxBytes {
		return nil, &Error{Message: fmt.Sprintf("it has more than %d bytes", maxBytes)}
	}
	if _, err := value.DecodeCopy(out, mask.Whole()); err != nil {
		return nil, &Error{Message: err.Error()}
	}
	return out, schema.check(x)
}

// checkNumbers refuses numbers that are not in the range of float64: validators of schemas decode them as such, and compute with
// all digits that an exponent stands for.
func checkNumbers(x any) error {
	switch x := x.(type) {
	case json.Number:
		if !inRange(string(x)) {
			return &Error{Message: fmt.Sprintf("the number %s is out of range", clip.Text(string(x), 32))}
		}
	case []any:
		for _, v := range x {
			if err := checkNumbers(v); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(x)) {
			if err := checkNumbers(x[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

func inRange(number string) bool {
	const digits = 400 // of the smallest float64, and some that are nothing
	if len(number) > digits {
		return false
	}
	if _, err := strconv.ParseFloat(number, 64); err != nil {
		return false
	}
	_, exponent, has := strings.Cut(strings.ToLower(number), "e")
	n, err := strconv.Atoi(exponent)
	return !has || err == nil && n >= -digits
}

// canonical writes a decoded document.
func canonical(x any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(x); err != nil {
		return nil, &Error{Message: err.Error()}
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func invalidAt(text []byte) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return 0
}

// at returns an error at an offset.
func at(text []byte, offset int, format string, args ...any) *Error {
	before := text[:min(max(offset, 0), len(text))]
	return &Error{
		Line: bytes.Count(before, []byte("\n")) + 1, Col: len(before) - bytes.LastIndexByte(before, '\n'), Message: fmt.Sprintf(format, args...),
	}
}

func decodeYAML(text []byte) (any, error) {
	var x any
	lines, problems := strictyaml.Decode(text, &x)
	if len(problems) > 0 {
		p := problems[0]
		return nil, &Error{Line: p.Line, Col: p.Col, Message: p.Message}
	}
	if len(lines) == 0 {
		return nil, &Error{Message: "it is empty"}
	}
	return x, nil
}

func decodeJSON(text []byte) (any, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, &Error{Message: "it is empty"}
	}
	if err := json.Unmarshal(text, new(json.RawMessage)); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, at(text, int(syntax.Offset)-1, "%s", syntax.Error())
		}
		return nil, &Error{Message: err.Error()}
	}
	d := &jsonDecoder{text: text, Decoder: json.NewDecoder(bytes.NewReader(text))}
	d.UseNumber()
	return d.value(0)
}

// jsonDecoder decodes what is JSON.
type jsonDecoder struct {
	*json.Decoder

	text []byte
}

func (d *jsonDecoder) failed(err error) error { return at(d.text, int(d.InputOffset()), "%v", err) }

func (d *jsonDecoder) value(depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, d.failed(err)
	}
	delim, nested := token.(json.Delim)
	if !nested {
		return token, nil
	}
	if depth++; depth > maxDepth {
		return nil, at(d.text, int(d.InputOffset())-1, "it is nested more than %d deep", maxDepth)
	}
	if delim == '[' {
		list := []any{}
		for d.More() {
			x, err := d.value(depth)
			if err != nil {
				return nil, err
			}
			list = append(list, x)
		}
		return list, d.end()
	}
	object := map[string]any{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, d.failed(err)
		}
		key, _ := token.(string) // Token has checked it.
		if _, twice := object[key]; twice {
			return nil, at(d.text, int(d.InputOffset()), "key %q is there twice", clip.Text(key, 64))
		}
		if object[key], err = d.value(depth); err != nil {
			return nil, err
		}
	}
	return object, d.end()
}

func (d *jsonDecoder) end() error {
	if _, err := d.Token(); err != nil {
		return d.failed(err)
	}
	return nil
}
