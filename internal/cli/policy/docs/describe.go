package docs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"federator.dev/federator/pkg/policy"
)

// docs describes the policies of a tree.
type docs []doc

// doc describes one policy.
type doc struct {
	Package     string      `json:"package"`
	Category    string      `json:"category,omitempty"`
	File        string      `json:"file"` // within the tree
	Title       string      `json:"title,omitempty"`
	Description string      `json:"description,omitempty"`
	Severity    string      `json:"severity"`
	Kinds       []string    `json:"kinds,omitempty"`
	Subject     string      `json:"subject"`
	Views       []string    `json:"views,omitempty"`
	Fleet       []string    `json:"fleet,omitempty"` // the documents of data.fleet that it reads, and the kind of its params
	Remedies    []string    `json:"remedies,omitempty"`
	Parameters  []parameter `json:"parameters,omitempty"`
}

// parameter describes one parameter, or a property of one.
type parameter struct {
	Name        string `json:"name"` // properties as a.b and a[].b
	Type        string `json:"type"`
	Required    bool   `json:"required,omitempty"`
	Default     any    `json:"default,omitempty"`
	Description string `json:"description,omitempty"`

	hasDefault bool
}

// readDocs describes the policies of a tree, by category and file.
func readDocs(tree fs.FS, name string) (docs, error) {
	source, err := policy.ReadSource(name, tree)
	if err != nil {
		return nil, err
	}
	set, err := policy.Load([]policy.Source{source}, policy.LoadOptions{})
	if err != nil {
		return nil, err
	}
	if len(set.Packages) == 0 {
		return nil, fmt.Errorf("no policy found in %s", cmp.Or(name, "."))
	}
	var docs docs
	for _, p := range set.Packages {
		docs = append(docs, describePolicy(p, name))
	}
	slices.SortFunc(docs, func(a, b doc) int {
		return slices.Compare([]string{a.Category, a.File, a.Package}, []string{b.Category, b.File, b.Package})
	})
	return docs, nil
}

func describePolicy(p *policy.Package, source string) doc {
	d := doc{
		Package: p.Name, File: strings.TrimPrefix(strings.TrimPrefix(p.File, source), "/"),
		Title: p.Title, Description: strings.TrimSpace(p.Description), Severity: p.Severity,
		Subject: subjectOf(p), Fleet: fleetReads(p),
	}
	if parts := strings.Split(d.File, "/"); len(parts) > 1 {
		d.Category = parts[0]
	}
	d.Kinds = p.Evaluated()
	for _, v := range p.Views {
		d.Views = append(d.Views, v.Name)
	}
	for _, r := range p.Remedies {
		d.Remedies = append(d.Remedies, r.Action+" "+string(r.Kind))
	}
	if p.Parameters != nil {
		d.Parameters = describeParameters(nil, "", p.Parameters.Raw)
	}
	return d
}

// subjectOf returns the subject of a policy, as custom.subject in METADATA names it.
func subjectOf(p *policy.Package) string {
	if p.SubjectView != "" {
		return p.Subject.String() + "." + p.SubjectView
	}
	return p.Subject.String()
}

// fleetReads lists the documents of data.fleet that a policy reads.
func fleetReads(p *policy.Package) []string {
	var out []string
	kinds := func(document string, list []policy.KindRef) {
		for _, k := range list {
			out = append(out, document+" "+k.String())
		}
	}
	kinds("by_name", p.Reads.ByName)
	if p.Reads.Members != nil {
		out = append(out, "members")
	}
	if p.Reads.Names {
		out = append(out, "names")
	}
	kinds("objects", p.Reads.Objects)
	if p.Admission != nil && p.Admission.ParamKind != "" {
		out = append(out, "params "+string(p.Admission.ParamKind))
	}
	for _, source := range p.Reads.External {
		out = append(out, "external "+source)
	}
	if p.Reads.Time {
		out = append(out, "passed")
	}
	if p.Reads.Scopes {
		out = append(out, "scopes")
	}
	for _, v := range p.Reads.Views {
		name := "views " + v.View
		if v.Package != p.Name {
			name += " of " + v.Package
		}
		out = append(out, name)
	}
	return out
}

// describeParameters describes the properties of a schema, and those below them.
func describeParameters(out []parameter, prefix string, schema map[string]any) []parameter {
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		s, ok := properties[name].(map[string]any)
		if !ok {
			continue
		}
		p := parameter{Name: prefix + name, Type: schemaType(s), Required: slices.Contains(required, any(name))}
		p.Description, _ = s["description"].(string)
		p.Default, p.hasDefault = s["default"]
		out = append(out, p)
		below, items := s, ""
		for {
			next, ok := below["items"].(map[string]any)
			if !ok {
				break
			}
			below, items = next, items+"[]"
		}
		out = describeParameters(out, p.Name+items+".", below)
	}
	return out
}

// schemaType describes the values that a schema accepts.
func schemaType(s map[string]any) string {
	if list, ok := s["enum"].([]any); ok {
		var values []string
		for _, x := range list {
			values = append(values, compactJSON(x))
		}
		return "one of " + strings.Join(values, ", ")
	}
	name, _ := s["type"].(string)
	if list, ok := s["type"].([]any); ok {
		var names []string
		for _, x := range list {
			names = append(names, fmt.Sprint(x))
		}
		name = strings.Join(names, " or ")
	}
	if items, ok := s["items"].(map[string]any); ok && name == "array" {
		name = "array of " + schemaType(items)
	}
	if values, ok := s["additionalProperties"].(map[string]any); ok && name == "object" {
		name = "map of " + schemaType(values)
	}
	if name == "" {
		name = "any"
	}
	for _, bound := range []struct{ key, words string }{
		{"minimum", "at least %v"},
		{"exclusiveMinimum", "more than %v"},
		{"maximum", "at most %v"},
		{"exclusiveMaximum", "less than %v"},
		{"format", "format %v"},
		{"pattern", "like `%v`"},
	} {
		if x, ok := s[bound.key]; ok {
			name += ", " + fmt.Sprintf(bound.words, x)
		}
	}
	return name
}

// compactJSON writes a value of METADATA on one line.
func compactJSON(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(b.String())
}
