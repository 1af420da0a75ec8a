package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/strict"
)

// maxBindings bounds the bindings of one file.
const maxBindings = 10_000

// ParseBindings reads the bindings of a YAML or JSON file, {bindings: […]}, and
// holds them to a set as ValidateBindings does. What is wrong is LoadErrors, at
// their lines; errors.Is(err, ErrBinding) is true of it.
func ParseBindings(set *Set, file string, data []byte) ([]Binding, error) {
	var doc struct {
		Bindings []Binding `json:"bindings"`
	}
	lines, problems := strict.Decode(data, &doc)
	var bad LoadErrors
	for _, p := range problems {
		bad = append(bad, Finding{Code: "binding", Severity: SeverityError, File: file, Line: p.Line, Col: p.Col, Message: p.Message})
	}
	if len(doc.Bindings) > maxBindings {
		first := lines[fmt.Sprintf("bindings[%d]", maxBindings)]
		bad = append(bad, Finding{
			Code: "binding", Severity: SeverityError, File: file, Line: first.Line, Col: first.Col,
			Message: fmt.Sprintf("there are more than %d bindings", maxBindings),
		})
	}
	if len(bad) > 0 {
		return nil, bindingErrors(bad)
	}
	at := func(i int, path string) (line, col int) {
		// A key that is not there is reported where what it belongs to begins.
		for p := fmt.Sprintf("bindings[%d].%s", i, path); p != ""; p = p[:max(strings.LastIndexAny(p, ".["), 0)] {
			if place, ok := lines[p]; ok {
				return place.Line, place.Col
			}
		}
		return 0, 0
	}
	out, unfit := resolve(set, doc.Bindings)
	for i := range unfit {
		f := &unfit[i].Finding
		f.File = file
		f.Line, f.Col = at(unfit[i].binding, unfit[i].path)
	}
	return out, bindingErrors(unfit.findings())
}

// ValidateBindings holds bindings to the packages of a set: names are unique,
// packages are there, parameters are of their schemas, and nothing is said that means
// nothing for what a package judges. It returns copies with
// the defaults of parameters that are not given, or LoadErrors that are ErrBinding.
func ValidateBindings(set *Set, bindings []Binding) ([]Binding, error) {
	out, bad := resolve(set, bindings)
	for i := range bad {
		b := bindings[bad[i].binding]
		bad[i].Message = fmt.Sprintf("binding %q: %s", b.Name, bad[i].Message)
	}
	return out, bindingErrors(bad.findings())
}

// DefaultBindings returns a binding for each package that none of the bindings
// names: it observes everywhere. Packages that cannot do without parameters have
// none, and a warning instead; those that have views only have none.
func DefaultBindings(set *Set, bindings []Binding) ([]Binding, []Finding) {
	bound, names := map[string]bool{}, map[string]bool{}
	for _, b := range bindings {
		bound[b.Package], names[b.Name] = true, true
	}
	var out []Binding
	var warnings []Finding
	for _, p := range set.Packages {
		if bound[p.Name] || !p.Judges {
			continue
		}
		parameters, problems := p.Parameters.Resolve(nil)
		name := p.Name
		if names[name] {
			problems = append(problems, fmt.Sprintf("a binding of package %s has its name", bindingNamed(bindings, name).Package))
		}
		if len(problems) > 0 {
			warnings = append(warnings, Finding{
				Code: "needs-binding", Severity: SeverityWarning, File: p.File, Line: p.Row, Col: 1,
				Message: fmt.Sprintf("package %s has no binding and is not evaluated: %s", p.Name, strings.Join(problems, "; ")),
			})
			continue
		}
		out = append(out, Binding{Name: name, Package: p.Name, Parameters: parameters, Mode: Observe})
	}
	return out, warnings
}

func bindingNamed(bindings []Binding, name string) Binding {
	i := slices.IndexFunc(bindings, func(b Binding) bool { return b.Name == name })
	return bindings[i]
}

// badBinding is a finding about one of several bindings.
type badBinding struct {
	Finding
	binding int
	path    string // of what is wrong, within the binding
}

type badBindings []badBinding

func (b badBindings) findings() []Finding {
	var out []Finding
	for _, x := range b {
		out = append(out, x.Finding)
	}
	return out
}

// bindingError is LoadErrors that are ErrBinding.
type bindingError struct{ LoadErrors }

func (bindingError) Is(target error) bool { return target == ErrBinding }
func (e bindingError) Unwrap() error      { return e.LoadErrors }

func bindingErrors(list []Finding) error {
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b Finding) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col)) })
	return bindingError{list}
}

// resolve checks bindings and gives their parameters defaults.
func resolve(set *Set, bindings []Binding) ([]Binding, badBindings) {
	out := slices.Clone(bindings)
	var bad badBindings
	names := make(map[string]bool, len(bindings))
	for i := range out {
		b := &out[i]
		report := func(path, format string, args ...any) {
			bad = append(bad, badBinding{Finding{Code: "binding", Severity: SeverityError, Message: fmt.Sprintf(format, args...)}, i, path})
		}
		if names[b.Name] && b.Name != "" {
			report("name", "another binding is named %q", b.Name)
		}
		names[b.Name] = true
		if p := set.Package(b.Package); p == nil {
			report("package", "there is no package %q", b.Package)
		} else {
			b.fit(p, report)
		}
		if _, misfits := b.check(); len(misfits) > 0 {
			for _, m := range misfits {
				report(m.path, "%s: %v", m.path, m.err)
			}
		}
		if b.Mode == "" {
			b.Mode = Observe
		}
	}
	if len(bad) > 0 {
		return nil, bad
	}
	return out, nil
}

// fit holds a binding to its package, and gives its parameters defaults.
func (b *Binding) fit(p *Package, report func(path, format string, args ...any)) {
	for _, m := range b.idle(p) {
		report(m.path, "%s: %v", m.path, m.err)
	}
	for j, k := range b.Match.Kinds {
		at := fmt.Sprintf("match.kinds[%d]", j)
		if ref, err := module.ParseKind(string(k)); err != nil || ref != (module.KindRef{Kind: k}) {
			report(at, "match.kinds: %q is no kind, or has a version", k)
		} else if p.Subject != module.MemberSubject && !p.AnyKind && !slices.ContainsFunc(p.Kinds, func(of KindRef) bool { return of.Kind == k }) {
			report(at, "match.kinds has %s, which package %s does not judge", k, p.Name)
		}
	}
	parameters, problems := p.Parameters.Resolve(b.Parameters)
	for _, problem := range problems {
		report("parameters"+parameterPath(problem), "parameters: %s", problem)
	}
	if len(problems) == 0 {
		b.Parameters = parameters
	}
}

// idle returns what a binding says that means nothing for what its package judges:
// somebody relies on it.
func (b *Binding) idle(p *Package) []misfit {
	var bad []misfit
	refuse := func(set bool, path string, err error) {
		if set {
			bad = append(bad, misfit{path, err})
		}
	}
	if p.Subject == module.MemberSubject {
		err := fmt.Errorf("package %s judges members, and no objects", p.Name)
		refuse(len(b.Match.Kinds) > 0, "match.kinds", err)
		refuse(len(b.Match.Namespaces) > 0, "match.namespaces", err)
		refuse(b.Match.Labels != nil, "match.labels", err)
	}
	for i, e := range b.Exemptions {
		at := fmt.Sprintf("exemptions[%d].", i)
		switch p.Subject {
		case module.MemberSubject:
			refuse(len(e.Namespaces) > 0, at+"namespaces", fmt.Errorf("package %s judges members, which no namespace exempts", p.Name))
			refuse(e.Labels != nil, at+"labels", fmt.Errorf("package %s judges members; their labels are %smembers.labels", p.Name, at))
		case module.ViewSubject:
			err := fmt.Errorf("package %s judges the keys of view %s, which only names exempt", p.Name, p.SubjectView)
			refuse(len(e.Members.Names) > 0 || e.Members.Labels != nil, at+"members", err)
			refuse(len(e.Namespaces) > 0, at+"namespaces", err)
			refuse(e.Labels != nil, at+"labels", err)
		}
	}
	return bad
}

// parameterPath is the path, below the parameters, of what a validator of JSON
// schemas found, such as "names.1: Invalid type"; where it cannot be told, of what
// it belongs to.
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
