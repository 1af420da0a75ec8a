package manifest

import "slices"

// GatorPoint is the enforcement point of gator, and so of manifests that are checked
// before they are applied.
const GatorPoint = "gator.gatekeeper.sh"

// ActionsAt returns what the constraint says is done at an enforcement point: its
// enforcementAction, or those of its scopedEnforcementActions that name the point, each
// once, in their order. None means that it is not evaluated there. Those of a
// ValidatingAdmissionPolicyBinding are its validationActions everywhere.
func (c *Constraint) ActionsAt(point string) []string {
	if c.Admission != nil {
		return c.Admission.Actions
	}
	if c.EnforcementAction != "scoped" {
		return []string{c.EnforcementAction}
	}
	var out []string
	for _, s := range c.Scoped {
		of, _ := s.(map[string]any)
		points, _ := of["enforcementPoints"].([]any)
		for _, p := range points {
			at, _ := p.(map[string]any)
			action, _ := of["action"].(string)
			if name := at["name"]; name == point || name == "*" {
				if !slices.Contains(out, action) {
					out = append(out, action)
				}
				break
			}
		}
	}
	return out
}
