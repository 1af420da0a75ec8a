package module

import (
	"cmp"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/limits"
	"federator.dev/federator/pkg/policy/internal/manifest"
)

// Packages that templates are translated to: one for the rules, and one for each library.
const (
	templatePackage = "gatekeeper"
	libraryPackage  = "gatekeeper_lib"
)

// defaultSeverity is that of templates and constraints without an annotation.
const defaultSeverity = "medium"

// IsTemplate reports whether the package was translated from a ConstraintTemplate.
func (p *Package) IsTemplate() bool { return p.Template != nil }

// Constraint returns the constraint of a name, <kind>/<name>, nil when there is none.
func (s *Set) Constraint(name string) *manifest.Constraint {
	i, ok := slices.BinarySearchFunc(s.Constraints, name, func(c *manifest.Constraint, name string) int {
		return cmp.Compare(c.FullName(), name)
	})
	if !ok {
		return nil
	}
	return s.Constraints[i]
}

// ConstraintOf returns the constraint of a name that applies a package, nil when there is none.
func (s *Set) ConstraintOf(p *Package, name string) *manifest.Constraint {
	s = s.Of(p)
	if c := s.Constraint(name); c != nil && s.PackageOf(c) != nil && s.PackageOf(c).Name == p.Path() {
		return c
	}
	return nil
}

// PackageOf returns the package that a constraint is of.
func (s *Set) PackageOf(c *manifest.Constraint) *Package {
	return s.Package(ofConstraint(c))
}

// TemplateRules returns the Rego of templates as it is written, by file, with its lines there. That of one
// in CEL is not among it.
func (s *Set) TemplateRules() map[string]*ast.Module {
	out := map[string]*ast.Module{}
	for _, name := range slices.Sorted(maps.Keys(s.templateRules)) {
		m := s.templateRules[name]
		pkg, _, _ := strings.Cut(name, "/")
		if p := s.Package(pkg); p == nil || p.CEL != nil {
			continue
		}
		file := m.Package.Location.File
		if out[file] == nil {
			out[file] = &ast.Module{Package: m.Package}
		}
		out[file].Rules = append(out[file].Rules, m.Rules...)
	}
	return out
}

// readDocuments reads the policies of a file that are Kubernetes objects.
func (l *loader) readDocuments(source, name string, f File) {
	if len(f.Data) > l.opts.MaxFile {
		l.findings.fileError("too-large", name, "the file has %d bytes; at most %d are allowed", len(f.Data), l.opts.MaxFile)
		return
	}
	l.text[name] = slices.Clone(f.Data)
	l.source[name] = source
	l.set.texts[name] = l.text[name]
	l.documents.Read(name, l.text[name])
}

// templates translates what was read.
func (l *loader) templates() {
	for _, p := range l.documents.Problems {
		l.problem("template", p.Position, "%s", p.Message)
	}
	kept := map[string]*manifest.Template{}
	for _, t := range l.documents.Templates {
		if other := kept[t.Kind]; other != nil {
			if !reflect.DeepEqual(other.Body, t.Body) {
				l.problem("template", t.Position, "the template of %s is also in %s:%d, with other content", t.Kind, other.File, other.Line)
			}
			continue
		}
		kept[t.Kind] = t
		l.set.Templates = append(l.set.Templates, t)
	}
	policies := l.admissionPolicies()
	l.constraints(kept, policies)
	l.parameters(kept)
	if len(l.findings.list) > 0 {
		return
	}
	modules := map[string]*ast.Module{}
	for _, kind := range slices.Sorted(maps.Keys(kept)) {
		l.template(kept[kind], modules)
	}
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		l.admission(policies[name], modules)
	}
	if len(l.findings.list) == 0 && len(modules) > 0 {
		l.compileTemplates(modules)
	}
}

func (l *loader) problem(code string, at manifest.Position, format string, args ...any) {
	l.findings.errorAt(code, &ast.Location{File: at.File, Row: at.Line, Col: at.Col}, format, args...)
}

// constraints checks the constraints against the templates and policies that they apply.
func (l *loader) constraints(templates map[string]*manifest.Template, policies map[string]*manifest.AdmissionPolicy) {
	names := map[string]*manifest.Constraint{}
	for _, c := range l.documents.Constraints {
		name := c.FullName()
		switch other := names[name]; {
		case other != nil && reflect.DeepEqual(other.Body, c.Body):
			continue
		case other != nil:
			l.problem("constraint", c.Position, "constraint %s is also in %s:%d, with other content", name, other.File, other.Line)
			continue
		case c.Admission != nil:
			if policies[c.Admission.Policy] == nil && len(l.documents.Problems) == 0 {
				l.problem("constraint", c.Place("spec.policyName"), "%s: there is no ValidatingAdmissionPolicy %s", name, clip(c.Admission.Policy))
			}
		case templates[c.Kind] == nil:
			l.problem("constraint", c.Position, "constraint %s: there is no ConstraintTemplate of %s", name, c.Kind)
		}
		if c.Severity != "" && !slices.Contains(Severities, c.Severity) {
			l.problem("severity", c.Position, "severity is %q; it is one of %s", clip(c.Severity), strings.Join(Severities, ", "))
		}
		names[name] = c
		l.set.Constraints = append(l.set.Constraints, c)
	}
	slices.SortFunc(l.set.Constraints, func(a, b *manifest.Constraint) int { return cmp.Compare(a.FullName(), b.FullName()) })
}

// template parses one template and adds its package.
func (l *loader) template(t *manifest.Template, modules map[string]*ast.Module) {
	name := templatePackage + "." + t.Name
	if l.packages[name] != nil {
		l.problem("package", t.Position, "package %s is already there", name)
		return
	}
	cel := engineOf(t, celEngine)
	if t.Rego == nil && cel == nil {
		l.problem("engine", t.Position, "the template of %s has neither Rego nor CEL: its engine is not evaluated over a fleet", t.Kind)
		return
	}
	p := &Package{
		Name: name, Source: l.source[t.File], File: t.File, Row: t.Line, Title: t.Title, Description: t.Description,
		Severity: cmp.Or(t.Severity, defaultSeverity), Template: t,
	}
	if !slices.Contains(Severities, p.Severity) {
		l.problem("severity", t.Position, "severity is %q; it is one of %s", clip(p.Severity), strings.Join(Severities, ", "))
	}
	if p.Title == "" {
		p.Title = t.Kind
	}
	l.packages[name] = p
	l.set.Packages = append(l.set.Packages, p)
	l.templateKinds(p)
	if cel != nil {
		if m := l.templateCEL(p, cel); m != nil {
			p.modules = []*ast.Module{m}
			modules[name] = m
		}
		return
	}
	for i := range t.Rego.Libs {
		lib := l.parseTemplate(&t.Rego.Libs[i], t.Rego.V1)
		if lib == nil {
			continue
		}
		path, ok := packageName(lib.Package)
		if !ok || !strings.HasPrefix(path, "lib.") {
			l.findings.errorAt("package", lib.Package.Location, "a library is a package below lib, not %s", clip(lib.Package.Path.String()))
			continue
		}
		l.rename(lib, t.Name, libraryPackage+"."+t.Name+"."+path)
		of := l.packages[libraryPackage+"."+t.Name+"."+path]
		if of == nil {
			of = &Package{Name: libraryPackage + "." + t.Name + "." + path, Source: p.Source, File: p.File, libraryOf: p}
			l.packages[of.Name] = of
		}
		of.modules = append(of.modules, lib)
		p.modules = append(p.modules, lib)
		modules[moduleName(p, len(p.modules))] = lib
	}
	m := l.parseTemplate(&t.Rego.Main, t.Rego.V1)
	if m == nil {
		return
	}
	if !slices.ContainsFunc(m.Rules, isViolation) {
		l.problem("violation", t.Rego.Main.Position, "the template of %s has no rule violation", t.Kind)
		return
	}
	l.rename(m, t.Name, name)
	p.modules = slices.Insert(p.modules, 0, m)
	modules[name] = m
}

func moduleName(p *Package, i int) string { return p.Name + "/" + string(rune('a'+i)) }

func isViolation(r *ast.Rule) bool { return r.Head.Ref()[0].Value.Compare(ast.Var("violation")) == 0 }

// templateKinds finds the kinds that the constraints of a template are about.
func (l *loader) templateKinds(p *Package) {
	seen := map[aggregate.Kind]bool{}
	var open KindSet
	for _, c := range l.set.Constraints {
		if c.Admission != nil || c.Kind != p.Template.Kind {
			continue
		}
		p.byNamespaces = p.byNamespaces || c.Selection.ByNamespaceLabels()
		for _, k := range c.Selection.Kinds() {
			switch {
			case k.AnyGroup:
				open.All = true
			case k.AnyKind:
				open.addGroup(k.Group)
			}
			if k.AnyKind {
				continue
			}
			kind := aggregate.MakeKind(k.Kind, k.Group)
			if k.AnyGroup {
				group, _ := builtinGroup(k.Kind)
				kind = aggregate.MakeKind(k.Kind, group)
			}
			if _, err := ParseKind(string(kind)); err == nil && !seen[kind] {
				seen[kind] = true
				p.Kinds = append(p.Kinds, KindRef{Kind: kind})
			}
		}
	}
	p.AnyKind, p.Groups = open.All, open.Groups
	sortKinds(p.Kinds)
}

// rename gives a module its package, and its references to libraries theirs: each template
// has libraries of its own.
func (*loader) rename(m *ast.Module, template, to string) {
	prefix := ast.Ref{ast.DefaultRootDocument, ast.StringTerm(libraryPackage), ast.StringTerm(template)}
	// Only references that change are written: modules share the terms of operators.
	ast.WalkTerms(m, func(t *ast.Term) bool {
		if r, ok := t.Value.(ast.Ref); ok && len(r) > 1 && r[0].Equal(ast.DefaultRootDocument) && name(r[1]) == "lib" {
			t.Value = append(slices.Clone(prefix), r[1:]...)
		}
		return false
	})
	m.Package.Path = ast.Ref{ast.DefaultRootDocument}
	for step := range strings.SplitSeq(to, ".") {
		m.Package.Path = append(m.Package.Path, ast.StringTerm(step))
	}
}

// compileTemplates compiles the templates as Gatekeeper does, which is not strictly.
func (l *loader) compileTemplates(modules map[string]*ast.Module) {
	defer recoverPanic("", &l.findings, func() {})
	l.set.templateRules = modules
	c := ast.NewCompiler().WithCapabilities(limits.TemplateCapabilities()).SetErrorLimit(0)
	if c.Compile(modules); c.Failed() {
		l.templateErrors(c.Errors)
		return
	}
	if errs := limits.Check(c.Modules); len(errs) > 0 {
		l.findings.opaErrors("expansion", "", errs)
	}
	for _, m := range c.Modules {
		name, _ := packageName(m.Package)
		l.packages[name].addRules(m)
	}
	for _, p := range l.packages {
		if p.HasConstraints() {
			p.Compiler = c
		}
	}
	slices.SortFunc(l.set.Packages, func(a, b *Package) int { return cmp.Compare(a.Name, b.Name) })
}

// templateErrors adds errors of the compiler. Builtins that are refused are refused by name.
func (l *loader) templateErrors(err error) {
	var list ast.Errors
	if !errors.As(err, &list) {
		l.findings.opaErrors("compile", "", err)
		return
	}
	for _, e := range list {
		if builtin, ok := strings.CutPrefix(e.Message, "undefined function "); ok {
			if reason := limits.Refused(builtin); reason != "" {
				l.findings.errorAt("builtin", e.Location, "%s is refused for the fleet: %s", builtin, reason)
				continue
			}
		}
		l.findings.opaErrors("compile", "", e)
	}
}

// checkTemplate checks a template's rules, and finds what they read.
func (l *loader) checkTemplate(p *Package) {
	for _, r := range p.rules {
		if isViolation(r) && (len(r.Head.Ref()) != 1 || r.Head.RuleKind() != ast.MultiValue || len(r.Head.Args) > 0) {
			l.findings.errorAt("violation", r.Location, "write violation[{…}]")
		}
	}
	p.HasViolationRules = true
	switch {
	case p.Admission != nil:
		p.Reads = admissionReads(p)
		return
	case p.CEL != nil:
		p.Reads = celReads(p.CEL)
		return
	}
	a := l.analyse(p, "", isViolation)
	p.Reads = a.templateReads()
	if len(l.findings.list) == 0 {
		l.index(p)
	}
}

// compilerOf returns the compiler of a package's rules.
func (l *loader) compilerOf(p *Package) *ast.Compiler {
	if p.Compiler != nil {
		return p.Compiler
	}
	return l.set.Compiler
}
