package module

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/compiled"
)

// Lint returns what is better not so in a set that loads, by file, line and column.
func Lint(set *Set) []Finding {
	l := &linter{set: set, viewsRead: map[ViewRef]bool{}, tested: map[string]bool{}}
	for _, p := range set.Packages {
		for _, v := range p.Reads.Views {
			l.viewsRead[v] = true
		}
		if p.Subject == ViewSubject {
			l.viewsRead[ViewRef{p.Name, p.SubjectView}] = true
		}
	}
	for _, m := range set.Tests {
		l.tests(m)
	}
	for _, c := range set.Constraints {
		for _, w := range slices.Concat(c.Warnings, c.Unknown) {
			l.warn("constraint", &ast.Location{File: w.File, Row: w.Line, Col: w.Col}, "constraint %s: %s", c.FullName(), w.Message)
		}
	}
	for _, p := range set.Packages {
		if p.Admission != nil {
			l.lintAdmission(p)
			continue
		}
		if p.Template != nil {
			for _, f := range p.WideReads {
				l.out.add(f)
			}
			l.compiled(p)
			continue
		}
		l.compiled(p)
		l.checkDescription(p)
		l.kinds(p)
		l.views(p)
		l.remedies(p)
		l.parameters(p)
		l.hoisted(p)
		for _, f := range p.WideReads {
			l.out.add(f)
		}
		if !l.tested[p.Name] {
			l.warn("no-tests", p.annotations.Location, "package %s has no test", p.Name)
		}
	}
	return l.out.sorted()
}

type linter struct {
	set       *Set
	out       findings
	viewsRead map[ViewRef]bool
	tested    map[string]bool
}

func (l *linter) warn(code string, loc *ast.Location, format string, args ...any) {
	l.add(SeverityWarning, code, loc, format, args...)
}

func (l *linter) add(severity, code string, loc *ast.Location, format string, args ...any) {
	l.out.add(newFinding(severity, code, loc, format, args...))
}

// tests notes the packages that a test file reads.
func (l *linter) tests(m *ast.Module) {
	if name, ok := packageName(m.Package); ok {
		l.tested[name] = true // a test within the package
	}
	note := func(r ast.Ref) {
		if !r.HasPrefix(ast.DefaultRootRef) {
			return
		}
		for i := range r[1:] {
			if name, ok := packageName(&ast.Package{Path: r[:i+2]}); ok {
				l.tested[name] = true
			}
		}
	}
	for _, i := range m.Imports {
		if r, ok := i.Path.Value.(ast.Ref); ok {
			note(r)
		}
	}
	ast.WalkRefs(m, func(r ast.Ref) bool {
		note(r)
		return false
	})
}

// compiled finds the rule that keeps a package from being compiled.
func (l *linter) compiled(p *Package) {
	paths := []string{}
	if p.HasViolationRules || p.Template != nil {
		paths = append(paths, "violation")
	}
	for _, v := range p.Views {
		paths = append(paths, "view."+v.Name)
	}
	for _, path := range paths {
		_, err := p.Program(cmp.Or(p.Compiler, l.set.Compiler), path)
		if u, ok := errors.AsType[*compiled.Unsupported](err); ok {
			loc := u.Location
			if loc == nil || loc.File == "" {
				loc = p.location()
			}
			l.warn("interpreted", loc, "%s is interpreted by OPA, which takes several times as long: %s: %s", p.Name, u.Rule, u.What)
		}
	}
}

// location is where the package is.
func (p *Package) location() *ast.Location {
	return &ast.Location{File: p.File, Row: max(p.Row, 1), Col: 1}
}

// checkDescription looks at the METADATA.
func (l *linter) checkDescription(p *Package) {
	loc := p.annotations.Location
	if p.Title == "" {
		l.warn("no-title", loc, "METADATA has no title")
	}
	if p.Description == "" {
		l.warn("no-description", loc, "METADATA has no description")
	}
	for _, key := range unknownCustom(p.annotations) {
		l.warn("custom-key", loc, "custom.%s means nothing: %s are known", clip(key), strings.Join(customKeys, ", "))
	}
}

// kinds looks at whether rules fit the kinds that they are given.
func (l *linter) kinds(p *Package) {
	if len(p.guards) == 0 || p.IsOpen() {
		return
	}
	open := false
	for _, g := range p.guards {
		open = open || !g.guarded || g.kinds["*"]
		if len(p.Kinds) > 1 && !g.guarded && g.kindSpecific {
			l.warn("no-kind-guard", g.loc, "the rule is given %d kinds and reads more than metadata, but does not look at input.ref.kind", len(p.Kinds))
		}
		for _, name := range slices.Sorted(maps.Keys(g.kinds)) {
			if name != "*" && !slices.ContainsFunc(p.Kinds, func(k KindRef) bool { return named(k.Kind, name) }) {
				l.warn("kind-undeclared", g.loc, "the rule waits for kind %s, which custom.kinds does not have", clip(name))
			}
		}
	}
	if open {
		return
	}
	for _, k := range p.Kinds {
		if !slices.ContainsFunc(p.guards, func(g guard) bool { return matched(g, k.Kind) }) {
			l.warn("kind-unmatched", p.annotations.Location, "no rule matches %s of custom.kinds", k)
		}
	}
}

// named reports whether a name in a rule is that of a kind: input.ref.kind has the
// group, input.object.kind has not.
func named(k aggregate.Kind, name string) bool {
	kind, _ := k.Split()
	return name == string(k) || name == kind
}

func matched(g guard, k aggregate.Kind) bool {
	for name := range g.kinds {
		if named(k, name) {
			return true
		}
	}
	return false
}

// views looks for views that nothing reads.
func (l *linter) views(p *Package) {
	for _, v := range p.Views {
		if !l.viewsRead[ViewRef{p.Name, v.Name}] {
			l.warn("unused-view", &ast.Location{File: v.File, Row: v.Row, Col: 1}, "no policy reads view %s", v.Name)
		}
	}
}

// remedies looks at the remedies that rules write out. What is wrong with that of a
// violation is an error: the engine refuses it.
func (l *linter) remedies(p *Package) {
	found := false
	for _, m := range p.modules {
		violations := map[*ast.Term]bool{}
		for _, r := range m.Rules {
			if name(r.Head.Ref()[0]) == "violation" && r.Head.Key != nil {
				violations[r.Head.Key] = true
			}
		}
		ast.WalkTerms(m, func(t *ast.Term) bool {
			o, ok := t.Value.(ast.Object)
			if !ok {
				return false
			}
			if r := o.Get(ast.InternedTerm("remedy")); r != nil {
				found = true
				severity := SeverityWarning
				if violations[t] {
					severity = SeverityError
				}
				l.remedy(p, r, severity)
			}
			return false
		})
	}
	if len(p.Remedies) > 0 && !found {
		l.warn("remedy-unused", p.annotations.Location, "custom.remedies are declared, but no rule has a remedy")
	}
}

func (l *linter) remedy(p *Package, t *ast.Term, severity string) {
	o, ok := t.Value.(ast.Object)
	if !ok {
		return // made elsewhere: the engine looks at it
	}
	if a := o.Get(ast.InternedTerm("action")); a != nil {
		action, ok := a.Value.(ast.String)
		if ok && !slices.ContainsFunc(p.Remedies, func(r Remedy) bool { return r.Action == string(action) }) {
			l.add(severity, "remedy-undeclared", t.Location, "custom.remedies has no %s: the engine refuses it", clip(string(action)))
		}
	} else {
		l.add(severity, "remedy-action", t.Location, "the remedy has no action")
	}
	if p.Subject != ObjectSubject && o.Get(ast.InternedTerm("target")) == nil {
		l.add(severity, "remedy-target", t.Location, "the remedy has no target, and %s is not an object", subjectName(p))
	}
	l.values(p, o)
}

// values looks for remedies that write values which are redacted.
func (l *linter) values(p *Package, remedy ast.Object) {
	action := constant(remedy.Get(ast.InternedTerm("action")))
	kind := ""
	for _, r := range p.Remedies {
		if (action == "" || r.Action == action) && (r.Kind == "Secret" || r.Kind == "ConfigMap") {
			kind = string(r.Kind)
		}
	}
	target, _ := field(remedy, "target").(ast.Object)
	if target != nil {
		if k := constant(target.Get(ast.InternedTerm("kind"))); k != "" && k != "Secret" && k != "ConfigMap" {
			return
		}
	}
	if object, ok := field(remedy, "object").(ast.Object); ok {
		if k := constant(object.Get(ast.InternedTerm("kind"))); k != "" && k != "Secret" && k != "ConfigMap" {
			return
		}
	}
	if kind == "" {
		return
	}
	for _, content := range []string{"object", "patch"} {
		t := remedy.Get(ast.InternedTerm(content))
		if t == nil {
			continue
		}
		if f := valueField(t); f != "" {
			l.warn("remedy-values", t.Location, "the remedy carries %s of a %s: it is refused unless keepSecretValues is configured", f, kind)
		}
	}
}

// valueField returns the field with values that an object or a patch writes, "" if none is
// written out.
func valueField(t *ast.Term) string {
	fields := []string{"data", "stringData", "binaryData"}
	switch v := t.Value.(type) {
	case ast.Object:
		for _, f := range fields {
			if v.Get(ast.InternedTerm(f)) != nil {
				return f
			}
		}
	case *ast.Array:
		for i := range v.Len() {
			op, ok := v.Elem(i).Value.(ast.Object)
			if !ok {
				continue
			}
			for _, key := range []string{"path", "from"} {
				first, _, _ := strings.Cut(strings.TrimPrefix(constant(op.Get(ast.InternedTerm(key))), "/"), "/")
				if slices.Contains(fields, first) {
					return first
				}
			}
		}
	}
	return ""
}

// field returns the value of a field, nil if there is none.
func field(o ast.Object, name string) ast.Value {
	if t := o.Get(ast.InternedTerm(name)); t != nil {
		return t.Value
	}
	return nil
}

// constant returns a text that is written out, "" for anything else.
func constant(t *ast.Term) string {
	if t == nil {
		return ""
	}
	s, _ := t.Value.(ast.String)
	return string(s)
}

func subjectName(p *Package) string {
	switch p.Subject {
	case MemberSubject:
		return "a member"
	case ViewSubject:
		return fmt.Sprintf("a key of view %s", p.SubjectView)
	}
	return "the subject"
}

// parameters says which packages cannot do without a binding.
func (l *linter) parameters(p *Package) {
	if _, problems := p.Parameters.Resolve(nil); len(problems) > 0 {
		l.warn("needs-binding", p.annotations.Location, "without a binding the policy is not evaluated: %s", strings.Join(problems, "; "))
	}
}
