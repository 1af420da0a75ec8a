package binding

import (
	"federator.dev/federator/pkg/policy/internal/module"
)

// Firsts returns a binding for each package and constraint that none of the bindings names and that Defaults has once
// the candidate of its source is active: it observes everywhere. Packages that require parameters get none.
func Firsts(set *module.Set, bindings []Binding) []Binding {
	bound, constraints, names := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, b := range bindings {
		bound[b.Package], names[b.Name] = true, true
		if p := set.Package(b.Package); p != nil {
			bound[p.Path()] = true
		}
		if b.Constraint != "" {
			constraints[b.Constraint] = true
		}
	}
	var out []Binding
	for _, p := range set.Packages {
		if p.VersionOf() == "" || set.IsFormer(p) || !p.HasViolationRules {
			continue // or it is of a commit that another one has replaced
		}
		var of []Binding
		if p.HasConstraints() {
			of = firstConstraints(set, p, constraints)
		} else if !bound[p.Path()] { // the active one may have views only, or need parameters
			if parameters, problems := p.Parameters.Resolve(nil); len(problems) == 0 {
				of = []Binding{{Name: p.Path(), Package: p.Name, Parameters: parameters, Mode: Observe}}
			}
		}
		for i := range of {
			if !names[of[i].Name] {
				out = append(out, of[i])
			}
		}
	}
	return out
}

// firstConstraints returns bindings of the constraints of a candidate's template that the active set does not have, and
// that are not bound.
func firstConstraints(set *module.Set, p *module.Package, bound map[string]bool) []Binding {
	var out []Binding
	for _, c := range set.Of(p).Constraints {
		name := c.FullName()
		if set.ConstraintOf(p, name) == nil || bound[name] || set.Constraint(name) != nil {
			continue
		}
		out = append(out, constraintBinding(p, c))
	}
	return out
}
