package binding

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/constraintmatch"
	"federator.dev/federator/pkg/policy/internal/manifest"
	"federator.dev/federator/pkg/policy/internal/module"
)

// constraintDefaults returns a binding for each constraint that none of the bindings names.
func constraintDefaults(set *module.Set, bindings []Binding) []Binding {
	var out []Binding
	for _, c := range set.Constraints {
		name := c.FullName()
		p := set.PackageOf(c)
		if p == nil || slices.ContainsFunc(bindings, func(b Binding) bool { return b.Constraint == name }) {
			continue
		}
		out = append(out, constraintBinding(p, c))
	}
	return out
}

// constraintBinding returns the binding of a constraint that none names: it observes the members that the constraint
// selects.
func constraintBinding(p *module.Package, c *manifest.Constraint) Binding {
	name := c.FullName()
	return Binding{
		Name: name, Package: p.Name, Constraint: name, Parameters: c.Parameters, Mode: Observe,
		Members: MemberSelector{Names: c.Members, Labels: c.MemberSelector},
	}
}

// checkConstraint finds the constraint of a binding of a package that has some.
func (b *Binding) checkConstraint(set *module.Set, p *module.Package, report func(path, format string, args ...any)) {
	b.constraint, b.admission = nil, p.Admission
	if !p.HasConstraints() {
		if b.Constraint != "" {
			report("constraint", "package %s is not that of a ConstraintTemplate or a ValidatingAdmissionPolicy", p.Name)
		}
		return
	}
	what := "a ConstraintTemplate: name one of its constraints"
	if p.Admission != nil {
		what = "a ValidatingAdmissionPolicy: name one of its bindings as the constraint"
	}
	c := set.ConstraintOf(p, b.Constraint)
	switch {
	case b.Constraint == "":
		report("package", "package %s is that of %s", p.Name, what)
		return
	case c == nil && set.Of(p).Constraint(b.Constraint) == nil:
		report("constraint", "there is no constraint %q", b.Constraint)
		return
	case c == nil:
		report("constraint", "constraint %q is not of package %s", b.Constraint, p.Name)
		return
	}
	if b.Mode != "" && b.Mode != Observe {
		report("mode", "constraint %q only observes: what it finds has no remedy", b.Constraint)
	}
	b.constraint, b.Parameters = c, c.Parameters
}

// Applied returns the constraint that the binding applies, nil for none.
func (b *Binding) Applied() *manifest.Constraint { return b.constraint }

// Describe returns a package as the constraint describes it: with its title, description
// and severity, where it has these.
func (b *Binding) Describe(p *module.Package) *module.Package {
	c := b.constraint
	if c == nil || c.Title == "" && c.Description == "" && c.Severity == "" {
		return p
	}
	described := *p
	described.Title, described.Description, described.Severity = cmp.Or(c.Title, p.Title), cmp.Or(c.Description, p.Description), cmp.Or(c.Severity, p.Severity)
	return &described
}

// objectMatch is what a constraint says of the objects that it is about.
type objectMatch interface {
	SelectsKind(group, kind string) bool
	Static(o *constraintmatch.Object) bool
	ReadsNamespace(o *constraintmatch.Object) bool
	Namespace(of labels.Labels) bool
	Named(o *constraintmatch.Object) bool
	ByLabels() bool
	ByNamespaceLabels() bool
}

// match returns what the binding's constraint matches, nil where it has none.
func (b *Binding) match() objectMatch {
	switch {
	case b.constraint == nil:
		return nil
	case b.constraint.Admission != nil:
		return &admissionMatch{policy: b.admission.Selection, binding: b.constraint.Admission.Selection}
	default:
		return b.constraint.Selection
	}
}

// matches reports whether the constraint may match an object: all that asks the object
// alone.
func (s *Selection) matches(o aggregate.Object) bool {
	m := s.matchable(o)
	return s.constraint.Static(&m)
}

func (s *Selection) matchable(o aggregate.Object) constraintmatch.Object {
	kind, group := o.Ref().Kind.Split()
	m := constraintmatch.Object{
		Group: group, Kind: kind, Namespace: o.Namespace(), Name: o.Name(), Labels: labelList(o.Labels()), Generated: s.Generated, Manifest: s.Manifests,
	}
	if _, is := s.constraint.(*admissionMatch); is { // constraints of Gatekeeper ask for neither
		m.Version, m.Resource = versionOf(o), ResourceOf(o)
	}
	return m
}

// ReadsNamespace reports whether the labels of an object's Namespace decide whether it is
// selected.
func (s *Selection) ReadsNamespace(o aggregate.Object) bool {
	if s.constraint == nil || !s.constraint.ByNamespaceLabels() {
		return false
	}
	m := s.matchable(o)
	return s.constraint.ReadsNamespace(&m)
}

// SelectsIn reports whether an object is selected that is in a Namespace with these labels.
func (s *Selection) SelectsIn(of []aggregate.Label, o aggregate.Object) bool {
	m := s.matchable(o)
	return s.constraint.Namespace(labelList(of)) && (!m.Manifest || s.constraint.Named(&m))
}

// ByNamespaceLabels reports whether the selection depends on labels of Namespaces.
func (s *Selection) ByNamespaceLabels() bool {
	return s.constraint != nil && s.constraint.ByNamespaceLabels()
}

// ReadKinds are the kinds that the selection reads besides those of its subjects.
func (s *Selection) ReadKinds() []module.KindRef {
	if s.ByNamespaceLabels() {
		return []module.KindRef{{Kind: "Namespace"}}
	}
	return nil
}
