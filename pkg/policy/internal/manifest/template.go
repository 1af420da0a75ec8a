package manifest

import (
	"encoding/json"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Target is the one target of templates that are about objects of clusters.
const Target = "admission.k8s.gatekeeper.sh"

// Annotations of templates and constraints, Gatekeeper's and ours.
const (
	titleAnnotation       = "metadata.gatekeeper.sh/title"
	descriptionAnnotation = "description"
	syncAnnotation        = "metadata.gatekeeper.sh/requires-sync-data"
	severityAnnotation    = "federator.dev/severity"
	membersAnnotation     = "federator.dev/members"
	selectorAnnotation    = "federator.dev/member-selector"
	inventoryAnnotation   = "federator.dev/inventory"
)

// Template is a ConstraintTemplate.
type Template struct {
	Position

	Name        string // as metadata.name has it
	Kind        string // of its constraints
	Version     string // v1, v1beta1 or v1alpha1
	Title       string
	Description string
	Severity    string // "" when no annotation says
	// Schema is the openAPIV3Schema of parameters, nil when it has none; LegacySchema is
	// whether it need not be structural.
	Schema       map[string]any
	SchemaAt     Position
	LegacySchema bool
	Rego         *Code // nil: other engines only
	Engines      []Engine
	Synced       []GroupVersionKind // what requires-sync-data lists
	Body         map[string]any     // all of the document
}

// Engine is the source for one engine of a template.
type Engine struct {
	Position

	Name   string
	Source map[string]any
}

// Code is the Rego of a template.
type Code struct {
	V1   bool // of the language
	Main Text
	Libs []Text
}

// Text is the text of a scalar, with its place in the file.
type Text struct {
	Position // of the scalar

	Value string
	block bool // its lines are those of the file, after the first
	// indent is by how many columns the lines of a block are indented.
	indent int
}

// Place returns where a place of the text is in the file.
func (t *Text) Place(row, col int) (line, column int) {
	if !t.block {
		return t.Line, t.Col
	}
	return t.Line + row, col + t.indent
}

// GroupVersionKind is a kind as requires-sync-data writes it.
type GroupVersionKind struct{ Group, Version, Kind string }

var templateName = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

// template adds a ConstraintTemplate.
func (d *Documents) template(at Position, n *yaml.Node, version string, body map[string]any) {
	if text(n, "kind") != "ConstraintTemplate" {
		return
	}
	t := &Template{
		Position: at, Version: version, Name: text(n, "metadata", "name"), Kind: text(n, "spec", "crd", "spec", "names", "kind"), Body: body,
		Title: text(n, "metadata", "annotations", titleAnnotation), Description: text(n, "metadata", "annotations", descriptionAnnotation),
		Severity: text(n, "metadata", "annotations", severityAnnotation),
	}
	before := len(d.Problems)
	switch version {
	case "v1", "v1beta1", "v1alpha1":
	default:
		d.problem(at, "ConstraintTemplate has versions v1, v1beta1 and v1alpha1, not %q", version)
	}
	switch {
	case !templateName.MatchString(t.Name):
		d.problem(place(at.File, n, "metadata", "name"), "the name of a ConstraintTemplate is the lower case of its kind, not %q", t.Name)
	case t.Kind == "":
		d.problem(place(at.File, n, "spec", "crd"), "spec.crd.spec.names.kind is required")
	case strings.ToLower(t.Kind) != t.Name:
		d.problem(place(at.File, n, "spec", "crd", "spec", "names", "kind"), "the template is named %q, which is not the lower case of its kind %q", t.Name, t.Kind)
	}
	d.schema(t, n, body)
	d.targets(t, n)
	if raw := text(n, "metadata", "annotations", syncAnnotation); raw != "" {
		synced, err := readSynced(raw)
		if err != nil {
			d.problem(place(at.File, n, "metadata", "annotations", syncAnnotation), "%s: %v", syncAnnotation, err)
		}
		t.Synced = synced
	}
	if len(d.Problems) == before {
		d.Templates = append(d.Templates, t)
	}
}

func (d *Documents) schema(t *Template, n *yaml.Node, body map[string]any) {
	t.LegacySchema = t.Version != "v1"
	if legacy := text(n, "spec", "crd", "spec", "validation", "legacySchema"); legacy != "" {
		t.LegacySchema = legacy == "true"
	}
	var at any = body
	for _, key := range []string{"spec", "crd", "spec", "validation", "openAPIV3Schema"} {
		m, _ := at.(map[string]any)
		at = m[key]
	}
	schema, isObject := at.(map[string]any)
	if at != nil && !isObject {
		d.problem(place(t.File, n, "spec", "crd", "spec", "validation", "openAPIV3Schema"), "openAPIV3Schema is not an object")
	}
	t.Schema = schema
	t.SchemaAt = place(t.File, n, "spec", "crd", "spec", "validation", "openAPIV3Schema")
}

// targets reads the code of the target.
func (d *Documents) targets(t *Template, n *yaml.Node) {
	list := field(n, "spec", "targets")
	if list == nil || len(list.Content) != 1 {
		d.problem(place(t.File, n, "spec", "targets"), "spec.targets has one target, %s", Target)
		return
	}
	target := list.Content[0]
	if name := text(target, "target"); name != Target {
		d.problem(place(t.File, target, "target"), "the target is %s, not %q", Target, name)
		return
	}
	code := field(target, "code")
	if code != nil {
		for _, c := range code.Content {
			d.engine(t, c)
		}
	}
	if rego := field(target, "rego"); rego != nil && rego.Value != "" {
		if t.Rego != nil {
			d.problem(place(t.File, target, "rego"), "the template has Rego twice, in rego and in code")
			return
		}
		t.Engines = append(t.Engines, Engine{Position: place(t.File, target, "rego"), Name: "Rego"})
		t.Rego = d.code(t.File, target)
	}
	if len(t.Engines) == 0 {
		d.problem(place(t.File, n, "spec", "targets"), "the template has no code")
	}
}

func (d *Documents) engine(t *Template, n *yaml.Node) {
	e := Engine{Position: Position{t.File, n.Line, n.Column}, Name: text(n, "engine")}
	source := field(n, "source")
	if e.Name == "" || source == nil {
		d.problem(e.Position, "code has an engine and a source")
		return
	}
	if err := decode(source, &e.Source); err != nil {
		d.problem(Position{t.File, source.Line, source.Column}, "source: %v", err)
		return
	}
	for _, other := range t.Engines {
		if other.Name == e.Name {
			d.problem(e.Position, "the template has code for engine %s twice", e.Name)
			return
		}
	}
	t.Engines = append(t.Engines, e)
	if e.Name == "Rego" {
		t.Rego = d.code(t.File, source)
	}
}

// code reads the keys rego, libs and version of a node.
func (d *Documents) code(file string, n *yaml.Node) *Code {
	c := &Code{V1: text(n, "version") == "v1"}
	main := field(n, "rego")
	if main == nil || main.Kind != yaml.ScalarNode {
		d.problem(Position{file, n.Line, n.Column}, "rego is a string with the code")
		return nil
	}
	c.Main = d.textOf(file, main)
	if libs := field(n, "libs"); libs != nil {
		for _, l := range libs.Content {
			c.Libs = append(c.Libs, d.textOf(file, l))
		}
	}
	return c
}

// textOf returns the text of a scalar.
func (d *Documents) textOf(file string, n *yaml.Node) Text {
	t := Text{Position: Position{file, n.Line, n.Column}, Value: n.Value, block: n.Style&yaml.LiteralStyle != 0}
	if t.block {
		t.indent = d.indent(n.Line, n.Value)
	}
	return t
}

// indent returns by how many columns the lines of a block scalar are indented: those of its
// first line with text, less what the value has of them.
func (d *Documents) indent(header int, value string) int {
	for line := range strings.SplitSeq(value, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		if trimmed != "" && header < len(d.lines) {
			of := string(d.lines[header])
			return max(0, len(of)-len(strings.TrimLeft(of, " "))-(len(line)-len(trimmed)))
		}
		header++
	}
	return 0
}

// readSynced reads what the annotation requires-sync-data lists: JSON within quotes,
// alternatives of requirements, of which each names groups, versions and kinds.
func readSynced(raw string) ([]GroupVersionKind, error) {
	var requirements [][]struct {
		Groups, Versions, Kinds []string
	}
	if err := json.Unmarshal([]byte(strings.Trim(raw, "\n\"")), &requirements); err != nil {
		return nil, err
	}
	var out []GroupVersionKind
	for _, alternatives := range requirements {
		for _, c := range alternatives {
			for _, g := range c.Groups {
				for _, v := range c.Versions {
					for _, k := range c.Kinds {
						out = append(out, GroupVersionKind{g, v, k})
					}
				}
			}
		}
	}
	return out, nil
}
