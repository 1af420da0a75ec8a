package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The groups of the documents that Read returns.
const (
	TemplateGroup   = "templates.gatekeeper.sh"
	ConstraintGroup = "constraints.gatekeeper.sh"
)

// Bounds on a file.
const (
	maxDocuments = 1000
	maxDepth     = 100
	maxNodes     = 200_000
)

// Position is a place in a file.
type Position struct {
	File      string
	Line, Col int // from 1; 0: the whole file
}

// Problem is why a document cannot be used.
type Problem struct {
	Position

	Message string
}

// Documents are those of one or more files, in order.
type Documents struct {
	Templates         []*Template
	AdmissionPolicies []*AdmissionPolicy
	Constraints       []*Constraint // bindings of AdmissionPolicies among them
	Problems          []Problem

	GatekeeperOnly bool // Read ignores AdmissionGroup

	lines [][]byte // of the file that is read
}

func (d *Documents) problem(at Position, format string, args ...any) {
	d.Problems = append(d.Problems, Problem{at, fmt.Sprintf(format, args...)})
}

// Reads reports whether a file may hold documents that Read returns, by its name.
func Reads(file string) bool {
	switch path.Ext(file) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// Mentions reports whether a file may hold documents that Read returns, by its content:
// other YAML is nobody's concern, however broken.
func Mentions(data []byte) bool {
	return bytes.Contains(data, []byte(TemplateGroup+"/")) || bytes.Contains(data, []byte(ConstraintGroup+"/")) || bytes.Contains(data, []byte(AdmissionPolicyKind))
}

// Read adds the documents of a file. Of one that is broken it adds a Problem.
func (d *Documents) Read(file string, data []byte) {
	if !Mentions(data) {
		return
	}
	d.lines = bytes.Split(data, []byte("\n"))
	defer func() { d.lines = nil }()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for i := 0; ; i++ {
		var doc yaml.Node
		switch err := dec.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			at, message := syntaxError(err)
			d.problem(Position{file, at, min(at, 1)}, "%s", message)
			return
		case i == maxDocuments:
			d.problem(Position{File: file}, "the file has more than %d documents", maxDocuments)
			return
		}
		if len(doc.Content) == 1 {
			d.document(file, doc.Content[0])
		}
	}
}

var lineOf = regexp.MustCompile(`^yaml: line (\d+): `)

func syntaxError(err error) (line int, message string) {
	text := err.Error()
	if m := lineOf.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		return line, text[len(m[0]):]
	}
	return 0, strings.TrimPrefix(text, "yaml: ")
}

// document adds one document, or the items of a list.
func (d *Documents) document(file string, n *yaml.Node) {
	apiVersion, kind := text(n, "apiVersion"), text(n, "kind")
	if apiVersion == "v1" && kind == "List" {
		if items := field(n, "items"); items != nil {
			for _, item := range append([]*yaml.Node{items}, items.Content...) {
				if item.Kind == yaml.AliasNode {
					d.problem(Position{file, item.Line, item.Column}, "List: anchors and aliases are not taken")
				}
			}
			for _, item := range items.Content {
				d.document(file, item)
			}
		}
		return
	}
	group, version, _ := strings.Cut(apiVersion, "/")
	isAdmission := !d.GatekeeperOnly && group == AdmissionGroup && (kind == AdmissionPolicyKind || kind == AdmissionBindingKind)
	if group != TemplateGroup && group != ConstraintGroup && !isAdmission {
		return
	}
	at := Position{file, n.Line, n.Column}
	budget := maxNodes
	if err := checkBounds(n, 0, &budget); err != nil {
		d.problem(at, "%s: %v", kind, err)
		return
	}
	var body map[string]any
	if err := decode(n, &body); err != nil {
		d.problem(at, "%s: %v", kind, err)
		return
	}
	switch group {
	case TemplateGroup:
		d.template(at, n, version, body)
	case ConstraintGroup:
		d.constraint(at, n, body)
	default:
		d.admission(at, n, kind, version, body)
	}
}

func checkBounds(n *yaml.Node, depth int, budget *int) error {
	if *budget--; depth > maxDepth || *budget < 0 {
		return errors.New("the document is too large or nests too deep")
	}
	if n.Kind == yaml.AliasNode {
		return errors.New("anchors and aliases are not taken")
	}
	for _, c := range n.Content {
		if err := checkBounds(c, depth+1, budget); err != nil {
			return err
		}
	}
	return nil
}

// decode decodes a node as an API server does: by way of JSON.
func decode(n *yaml.Node, into any) error {
	v, err := plain(n)
	if err != nil {
		return err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return dec.Decode(into)
}

// plain returns the value of a node with string keys.
func plain(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.MappingNode:
		out := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("line %d: a key is not a string", key.Line)
			}
			if _, twice := out[key.Value]; twice {
				return nil, fmt.Errorf("line %d: %q is there twice", key.Line, key.Value)
			}
			v, err := plain(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			out[key.Value] = v
		}
		return out, nil
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, c := range n.Content {
			v, err := plain(c)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	}
	switch n.ShortTag() {
	case "!!timestamp", "!!str", "!!binary":
		return n.Value, nil
	}
	var v any
	err := n.Decode(&v)
	return v, err
}

// field returns the value of a key, nil when there is none.
func field(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		if n == nil || n.Kind != yaml.MappingNode {
			return nil
		}
		var found *yaml.Node
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				found = n.Content[i+1]
			}
		}
		n = found
	}
	return n
}

func text(n *yaml.Node, keys ...string) string {
	if n = field(n, keys...); n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// place is where a key's value begins, or where the document does.
func place(file string, n *yaml.Node, keys ...string) Position {
	for i := len(keys); i > 0; i-- {
		if f := field(n, keys[:i]...); f != nil {
			return Position{file, f.Line, f.Column}
		}
	}
	return Position{file, n.Line, n.Column}
}
