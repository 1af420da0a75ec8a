package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxConfigBytes bounds a configuration file; a larger one is a mistake.
const maxConfigBytes = 4 << 20

// document is a configuration file as written: where its keys are, for errors
// that name the line.
type document struct {
	path string
	root *yaml.Node
}

// readConfig lays a file over cfg. Its error has every unknown key and every
// value of a wrong type, each with its line.
func readConfig(path string, cfg *Config) (*document, error) {
	data, err := ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	doc := &document{path: path}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(cfg); err != nil && !errors.Is(err, io.EOF) {
		return nil, doc.decodeError(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: more than one YAML document", path)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, doc.decodeError(err)
	}
	if len(root.Content) == 1 {
		doc.root = root.Content[0]
	}
	return doc, nil
}

// ReadFile reads a file of bounded size that a person has written.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxConfigBytes {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxConfigBytes)
	}
	return data, nil
}

var (
	linePrefix   = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)
	unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)
	wrongType    = regexp.MustCompile("cannot unmarshal !!(\\w+)(?: `(.*)`)? into (\\S+)")
)

// decodeError rewords errors of the YAML package: with file:line, without Go types.
func (d *document) decodeError(err error) error {
	messages := []string{err.Error()}
	var several *yaml.TypeError
	if errors.As(err, &several) {
		messages = several.Errors
	}
	var errs []error
	for _, m := range messages {
		at := d.path
		if p := linePrefix.FindStringSubmatch(m); p != nil {
			at += ":" + p[1]
			m = m[len(p[0]):]
		}
		m = unknownField.ReplaceAllString(m, `unknown key "$1"`)
		if p := wrongType.FindStringSubmatch(m); p != nil {
			m = fmt.Sprintf("%s, not %s", typeName("!!"+p[1]), typeName(p[3]))
			if p[2] != "" {
				m = fmt.Sprintf("%q is %s", p[2], m)
			} else {
				m = "this is " + m
			}
		}
		errs = append(errs, fmt.Errorf("%s: %s", at, strings.TrimPrefix(m, "yaml: ")))
	}
	return errors.Join(errs...)
}

// typeName is a YAML tag or a Go type in words.
func typeName(t string) string {
	switch {
	case t == "!!str" || t == "string":
		return "a string"
	case t == "!!int" || t == "int" || t == "int64":
		return "a whole number"
	case t == "!!float":
		return "a number"
	case t == "!!bool" || t == "bool":
		return "true or false"
	case t == "time.Duration":
		return `a duration such as "30s"`
	case t == "!!seq" || strings.HasPrefix(t, "[]"):
		return "a list"
	case t == "!!null":
		return "nothing"
	default:
		return "a mapping"
	}
}

var pathStep = regexp.MustCompile(`([^.\[\]]+)|\[(\d+)\]`)

// at returns file:line of a path such as kinds[0].labels, or of the nearest key
// above it that the file has; just the file when there is none, and "" without
// a file.
func (d *document) at(path string) string {
	if d == nil {
		return ""
	}
	node, line := d.root, 0
	for _, step := range pathStep.FindAllStringSubmatch(path, -1) {
		next, at := child(node, step[1], step[2])
		if next == nil {
			break
		}
		node, line = next, at
	}
	if line == 0 {
		return d.path + ": "
	}
	return fmt.Sprintf("%s:%d: ", d.path, line)
}

// child returns a key's value and the key's line, or an element and its line.
func child(n *yaml.Node, key, index string) (*yaml.Node, int) {
	switch {
	case n == nil:
	case n.Kind == yaml.MappingNode && key != "":
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				return n.Content[i+1], n.Content[i].Line
			}
		}
	case n.Kind == yaml.SequenceNode && index != "":
		var i int
		if _, err := fmt.Sscan(index, &i); err == nil && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line
		}
	}
	return nil, 0
}
