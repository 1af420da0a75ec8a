package binding

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"federator.dev/federator/pkg/policy/internal/module"
)

// Validate checks bindings against the packages of a set: names are unique, packages
// exist, parameters match their schemas, and no field is set that has no effect for the
// package's subjects. It returns copies with the defaults of missing parameters, or
// module.Errors that are ErrInvalid.
func Validate(set *module.Set, bindings []Binding) ([]Binding, error) {
	out, bad := resolve(set, bindings)
	for i := range bad {
		b := bindings[bad[i].binding]
		bad[i].Message = fmt.Sprintf("binding %q: %s", b.Name, bad[i].Message)
	}
	return out, asError(bad.findings())
}

// resolve checks bindings and sets the defaults of their parameters.
func resolve(set *module.Set, bindings []Binding) ([]Binding, bindingFindings) {
	out := slices.Clone(bindings)
	var bad bindingFindings
	names := make(map[string]bool, len(bindings))
	for i := range out {
		b := &out[i]
		report := func(path, format string, args ...any) {
			bad = append(bad, bindingFinding{module.Finding{Code: "binding", Severity: module.SeverityError, Message: fmt.Sprintf(format, args...)}, i, path})
		}
		if names[b.Name] && b.Name != "" {
			report("name", "another binding is named %q", b.Name)
		}
		names[b.Name] = true
		b.resolve(set, report)
		b.Next = b.Next.resolve(set, b.Name, report)
	}
	if len(bad) > 0 {
		return nil, bad
	}
	return out, nil
}

// resolve checks one binding, and sets its defaults.
func (b *Binding) resolve(set *module.Set, report func(path, format string, args ...any)) {
	if p := set.Package(b.Package); p == nil {
		report("package", "there is no package %q", b.Package)
	} else {
		b.checkPackage(p, report)
		b.checkConstraint(set, p, report)
	}
	_, misfits := b.check()
	for _, m := range misfits {
		report(m.path, "%s: %v", m.path, m.err)
	}
	if b.Mode == "" {
		b.Mode = Observe
	}
}

// checkPackage checks a binding against its package, and sets the defaults of its
// parameters.
func (b *Binding) checkPackage(p *module.Package, report func(path, format string, args ...any)) {
	for _, m := range b.withoutEffect(p) {
		report(m.path, "%s: %v", m.path, m.err)
	}
	for j, k := range b.Match.Kinds {
		at := fmt.Sprintf("match.kinds[%d]", j)
		if ref, err := module.ParseKind(string(k)); err != nil || ref != (module.KindRef{Kind: k}) {
			report(at, "match.kinds: %q is not a kind, or has a version", k)
		} else if p.Subject != module.MemberSubject && !p.HasKind(k) {
			report(at, "match.kinds has %s, which package %s does not evaluate", k, p.Name)
		}
	}
	if p.HasConstraints() {
		return // the constraint has them
	}
	parameters, problems := p.Parameters.Resolve(b.Parameters)
	for _, problem := range problems {
		report("parameters"+parameterPath(problem), "parameters: %s", problem)
	}
	if len(problems) == 0 {
		b.Parameters = parameters
	}
}

// withoutEffect returns the fields of a binding that have no effect for its package's
// subjects: the one who set them relies on them.
func (b *Binding) withoutEffect(p *module.Package) []problem {
	var bad []problem
	refuse := func(set bool, path string, err error) {
		if set {
			bad = append(bad, problem{path, err})
		}
	}
	if p.Subject == module.MemberSubject {
		err := fmt.Errorf("package %s evaluates members, not objects", p.Name)
		refuse(len(b.Match.Kinds) > 0, "match.kinds", err)
		refuse(len(b.Match.Namespaces) > 0, "match.namespaces", err)
		refuse(b.Match.Labels != nil, "match.labels", err)
	}
	for i, e := range b.Exemptions {
		at := fmt.Sprintf("exemptions[%d].", i)
		switch p.Subject {
		case module.MemberSubject:
			refuse(len(e.Namespaces) > 0, at+"namespaces", fmt.Errorf("package %s evaluates members, which have no namespace", p.Name))
			refuse(e.Labels != nil, at+"labels", fmt.Errorf("package %s evaluates members; their labels are %smembers.labels", p.Name, at))
		case module.ViewSubject:
			err := fmt.Errorf("package %s evaluates the keys of view %s, which are exempted by name only", p.Name, p.SubjectView)
			refuse(len(e.Members.Names) > 0 || e.Members.Labels != nil, at+"members", err)
			refuse(len(e.Namespaces) > 0, at+"namespaces", err)
			refuse(e.Labels != nil, at+"labels", err)
		}
	}
	return bad
}

// parameterPath is the path, below the parameters, of what a validator of JSON
// schemas reports, such as "names.1: Invalid type", or that of its parent.
func parameterPath(problem string) string {
	field, rest, ok := strings.Cut(problem, ": ")
	if !ok {
		field, rest = "", problem
	}
	path := ""
	for step := range strings.SplitSeq(field, ".") {
		if _, err := strconv.Atoi(step); err == nil {
			path += "[" + step + "]"
		} else if step != "" {
			path += "." + step
		}
	}
	if name, ok := strings.CutPrefix(rest, "Additional property "); ok {
		path += "." + strings.TrimSuffix(name, " is not allowed")
	}
	return path
}
