package gatekeeper

import (
	"path"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Constraint is a constraint.
type Constraint struct {
	Position

	Kind, Name  string
	Title       string
	Description string
	Severity    string // "" when no annotation says
	// Match is spec.match as it is written; nil matches everything.
	Match      map[string]any
	Parameters map[string]any
	// MatchAt and ParametersAt are where they begin, or where the constraint does.
	MatchAt, ParametersAt Position
	// EnforcementAction is what Gatekeeper's admission does, deny when nothing is said;
	// Scoped are its scopedEnforcementActions. Neither has an effect here.
	EnforcementAction string
	Scoped            []any

	Members        []string              // patterns of their names; none is all
	MemberSelector *metav1.LabelSelector // of their labels
	FleetInventory bool                  // data.inventory is of all visible members
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
	c.MatchAt, c.ParametersAt = place(at.File, n, "spec", "match"), place(at.File, n, "spec", "parameters")
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
		c.Members = strings.FieldsFunc(raw, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
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
