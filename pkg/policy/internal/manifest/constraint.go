package manifest

import (
	"fmt"
	"path"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/policy/internal/constraintmatch"
)

// Constraint is a constraint: what applies a template, or a ValidatingAdmissionPolicy.
type Constraint struct {
	Position

	Kind, Name  string
	Title       string
	Description string
	Severity    string // "" when no annotation says
	// Match is spec.match as it is written; nil matches everything.
	Match     map[string]any
	Selection *constraintmatch.Match // Match, compiled; nil where Admission is not
	// Parameters are spec.parameters as they are written; in a set that was loaded, as a
	// cluster has them by the template's schema. Unknown are the fields that it left out.
	Parameters map[string]any
	Unknown    []Problem
	// EnforcementAction is what Gatekeeper's admission does, deny when nothing is said;
	// Scoped are its scopedEnforcementActions. Neither has an effect here.
	EnforcementAction string
	Scoped            []any

	Members        []string              // patterns of their names; none is all
	MemberSelector *metav1.LabelSelector // of their labels
	FleetInventory bool                  // data.inventory is of all visible members

	Admission *AdmissionBinding // nil: it is Gatekeeper's, and has what is above

	Warnings []Problem
	Body     map[string]any // all of the document
	lines    map[string]Position
}

// Place returns where a field is, by its path such as spec.match.kinds[0], or the nearest
// above it.
func (c *Constraint) Place(path string) Position { return placeIn(c.lines, path, c.Position) }

func placeIn(lines map[string]Position, path string, document Position) Position {
	for ; path != ""; path = path[:max(strings.LastIndexAny(path, ".["), 0)] {
		if at, ok := lines[path]; ok {
			return at
		}
	}
	return document
}

// FullName is the name of the constraint's binding: <kind>/<name>.
func (c *Constraint) FullName() string { return c.Kind + "/" + c.Name }

// constraint adds a constraint.
func (d *Documents) constraint(at Position, n *yaml.Node, body map[string]any) {
	c := &Constraint{
		Position: at, Kind: text(n, "kind"), Name: text(n, "metadata", "name"), EnforcementAction: text(n, "spec", "enforcementAction"),
		Title: text(n, "metadata", "annotations", titleAnnotation), Description: text(n, "metadata", "annotations", descriptionAnnotation),
		Severity: text(n, "metadata", "annotations", severityAnnotation),
	}
	if c.EnforcementAction == "" {
		c.EnforcementAction = "deny"
	}
	c.Body, c.lines = body, map[string]Position{}
	findLines(c.lines, at.File, "spec", field(n, "spec"))
	before := len(d.Problems)
	if c.Kind == "" || c.Name == "" {
		d.problem(at, "a constraint has a kind and a name")
	}
	spec, isObject := body["spec"].(map[string]any)
	if body["spec"] != nil && !isObject {
		d.problem(place(at.File, n, "spec"), "spec is not an object")
	}
	for key, into := range map[string]*map[string]any{"match": &c.Match, "parameters": &c.Parameters} {
		if spec[key] == nil {
			continue
		}
		if *into, isObject = spec[key].(map[string]any); !isObject {
			d.problem(place(at.File, n, "spec", key), "spec.%s is not an object", key)
		}
	}
	c.Scoped, _ = spec["scopedEnforcementActions"].([]any)
	d.scope(c, n)
	d.match(c)
	if len(d.Problems) == before {
		d.Constraints = append(d.Constraints, c)
	}
}

// scope reads the annotations that say what of the fleet a constraint is about.
func (d *Documents) scope(c *Constraint, n *yaml.Node) {
	annotation := func(key string) (string, Position) {
		return text(n, "metadata", "annotations", key), place(c.File, n, "metadata", "annotations", key)
	}
	if raw, at := annotation(membersAnnotation); raw != "" {
		c.Members = strings.FieldsFunc(raw, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
		if len(c.Members) == 0 {
			d.problem(at, "%s names no member", membersAnnotation) // none would be all
		}
		for _, p := range c.Members {
			if _, err := path.Match(p, ""); err != nil {
				d.problem(at, "%s: %q is not a pattern of a member's name", membersAnnotation, p)
			}
		}
	}
	if raw, at := annotation(selectorAnnotation); raw != "" {
		selector, err := metav1.ParseToLabelSelector(raw)
		if err != nil {
			d.problem(at, "%s: %v", selectorAnnotation, err)
		}
		c.MemberSelector = selector
	}
	switch raw, at := annotation(inventoryAnnotation); raw {
	case "", "member":
	case "fleet":
		c.FleetInventory = true
	default:
		d.problem(at, "%s is member or fleet, not %q", inventoryAnnotation, raw)
	}
}

// match compiles spec.match.
func (d *Documents) match(c *Constraint) {
	var match any
	if c.Match != nil {
		match = c.Match
	}
	selection, problems := constraintmatch.Parse(match)
	for _, p := range problems {
		if !p.Warning {
			d.problem(c.Place(p.Path), "%s", p)
			continue
		}
		c.Warnings = append(c.Warnings, Problem{c.Place(p.Path), p.String()})
	}
	c.Selection = selection
}

// findLines notes where the fields below a node are.
func findLines(lines map[string]Position, file, path string, n *yaml.Node) {
	if n == nil {
		return
	}
	lines[path] = Position{file, n.Line, n.Column}
	for i, c := range n.Content {
		switch {
		case n.Kind == yaml.SequenceNode:
			findLines(lines, file, fmt.Sprintf("%s[%d]", path, i), c)
		case n.Kind == yaml.MappingNode && i%2 == 1:
			findLines(lines, file, path+"."+n.Content[i-1].Value, c)
		}
	}
}
