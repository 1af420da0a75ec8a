package module

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/types"

	"federator.dev/federator/pkg/policy/internal/compiled"
	"federator.dev/federator/pkg/policy/internal/limits"
)

// packageName returns the path of a package after "data."; ok is false if a part of it
// is no identifier.
func packageName(p *ast.Package) (string, bool) {
	parts := make([]string, 0, len(p.Path))
	for _, t := range p.Path[1:] {
		s, ok := t.Value.(ast.String)
		if !ok || !ast.IsVarCompatibleString(string(s)) {
			return "", false
		}
		parts = append(parts, string(s))
	}
	return strings.Join(parts, "."), true
}

// collect groups modules by package, and reads their METADATA.
func (l *loader) collect() {
	for _, file := range slices.Sorted(maps.Keys(l.set.Modules)) {
		m := l.set.Modules[file]
		name, ok := packageName(m.Package)
		switch {
		case !ok:
			l.findings.errorAt("package", m.Package.Location, "a part of the package's name is not an identifier")
			continue
		case name == "fleet" || strings.HasPrefix(name, "fleet."):
			l.findings.errorAt("package", m.Package.Location, "data.fleet holds the documents of the fleet")
			continue
		}
		p := l.packages[name]
		if p == nil {
			p = &Package{Name: name, Source: l.source[file], File: file, Row: m.Package.Location.Row}
			l.packages[name] = p
		}
		if p.Source != l.source[file] {
			l.findings.errorAt("package", m.Package.Location, "package %s is already that of source %q", name, p.Source)
			continue
		}
		p.modules = append(p.modules, m)
		for _, a := range m.Annotations {
			if a.Scope == "package" {
				l.readMetadata(p, file, a)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.packages)) {
		p := l.packages[name]
		if p.annotations == nil && !isLibrary(name) {
			l.findings.errorAt("metadata", p.modules[0].Package.Location, "package %s has no METADATA with custom.severity and custom.kinds", name)
		}
		if !isLibrary(name) {
			l.set.Packages = append(l.set.Packages, p)
		}
	}
}

func (l *loader) readMetadata(p *Package, file string, a *ast.Annotations) {
	if isLibrary(p.Name) {
		return
	}
	if p.annotations != nil {
		l.findings.errorAt("metadata", a.Location, "the package has METADATA already, in %s", p.File)
		return
	}
	p.File = file
	(&metadata{findings: &l.findings, text: l.text[file], annotations: a, pkg: p}).read()
}

// compile compiles the running set, and again with the tests, so that these are valid
// as well.
func (l *loader) compile() {
	defer recoverPanic("", &l.findings, func() {})
	c := ast.NewCompiler().WithCapabilities(capabilities()).WithStrict(true).SetErrorLimit(0)
	if c.Compile(l.set.Modules); c.Failed() {
		l.findings.opaErrors("compile", "", c.Errors)
		return
	}
	if errs := limits.Check(c.Modules); len(errs) > 0 {
		l.findings.opaErrors("expansion", "", errs)
	}
	l.set.Compiler = c
	for _, m := range c.Modules {
		name, _ := packageName(m.Package)
		l.packages[name].addRules(m)
	}
	if len(l.set.Tests) == 0 {
		return
	}
	all := maps.Clone(l.set.Modules)
	maps.Copy(all, l.set.Tests)
	t := ast.NewCompiler().WithCapabilities(capabilities()).WithStrict(true).SetErrorLimit(0)
	if t.Compile(all); t.Failed() {
		l.findings.opaErrors("compile", "", t.Errors)
		return
	}
	if errs := limits.Check(t.Modules); len(errs) > 0 && len(l.findings.list) == 0 {
		l.findings.opaErrors("expansion", "", errs)
	}
}

// addRules adds the compiled rules of a module.
func (p *Package) addRules(m *ast.Module) {
	p.rules = append(p.rules, m.Rules...)
	slices.SortStableFunc(p.rules, func(a, b *ast.Rule) int { return compareLocations(a.Location, b.Location) })
	p.byName = make(map[string][]*ast.Rule, len(p.rules))
	for _, r := range p.rules {
		first := name(r.Head.Ref()[0])
		p.byName[first] = append(p.byName[first], r)
	}
}

func compareLocations(a, b *ast.Location) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Row, b.Row), cmp.Compare(a.Col, b.Col))
}

// checkAll checks the rules of every package, and finds what they read.
func (l *loader) checkAll() {
	for _, p := range l.set.Packages {
		if !p.HasConstraints() {
			l.views(p)
		}
	}
	for _, p := range l.set.Packages {
		if p.HasConstraints() {
			l.checkTemplate(p)
		} else {
			l.check(p)
		}
	}
}

// views finds the views of a package.
func (l *loader) views(p *Package) {
	for _, r := range p.rules {
		ref := r.Head.Ref()
		if ref[0].Value.Compare(ast.Var("view")) != 0 {
			continue
		}
		name := ast.String("")
		if len(ref) > 1 {
			name, _ = ref[1].Value.(ast.String)
		}
		if len(ref) != 3 || name == "" || r.Head.RuleKind() != ast.MultiValue || r.Default || len(r.Head.Args) > 0 || r.Else != nil {
			l.findings.errorAt("view", r.Location, "write a view as view.NAME[key] contains value, with one key")
			continue
		}
		if p.View(string(name)) == nil {
			p.Views = append(p.Views, View{Name: string(name), Row: r.Location.Row, File: r.Location.File})
			slices.SortFunc(p.Views, func(a, b View) int { return cmp.Compare(a.Name, b.Name) })
		}
	}
}

// check checks one package whose views are known.
func (l *loader) check(p *Package) {
	loc := p.modules[0].Package.Location
	violations := 0
	for _, r := range p.rules {
		if r.Head.Ref()[0].Value.Compare(ast.Var("violation")) != 0 {
			continue
		}
		violations++
		if len(r.Head.Ref()) != 1 || r.Head.RuleKind() != ast.MultiValue || len(r.Head.Args) > 0 {
			l.findings.errorAt("violation", r.Location, "write violation contains {…}")
		}
	}
	p.HasViolationRules = violations > 0
	meta := p.annotations.Location
	switch {
	case violations == 0 && len(p.Views) == 0:
		l.findings.errorAt("violation", loc, "package %s has neither violation nor views; helpers for others belong in federator.lib.*", p.Name)
	case p.Subject == ViewSubject && p.View(p.SubjectView) == nil:
		l.findings.errorAt("subject", meta, "custom.subject: the package has no view %q", p.SubjectView)
	case len(p.Kinds) == 0 && !p.IsOpen() && (p.Subject == ObjectSubject || len(p.Views) > 0):
		l.findings.errorAt("kinds", meta, `METADATA has no custom.kinds: which kinds are evaluated or contribute to views; "*.GROUP" is all of a group, "*" all`)
	}
	for i := range p.Views {
		v := &p.Views[i]
		a := l.analyse(p, "view "+v.Name, func(r *ast.Rule) bool { return isView(r, v.Name) })
		v.Mask = a.object()
	}
	a := l.analyse(p, "", func(r *ast.Rule) bool { return r.Head.Ref()[0].Value.Compare(ast.Var("violation")) == 0 })
	p.Reads, p.WideReads = a.reads(), a.wideReads.sorted()
	if len(l.findings.list) == 0 {
		l.guards(p)
	}
}

// guard is what one rule compares the kind of its object with.
type guard struct {
	loc          *ast.Location
	guarded      bool
	kinds        map[string]bool // as the rule writes them; "*" for what is not constant
	kindSpecific bool            // it reads fields of the object that not all kinds have
}

// guards analyses the rules whose input is an object.
func (l *loader) guards(p *Package) {
	for _, r := range p.rules {
		view := name(r.Head.Ref()[0]) == "view"
		if !view && (name(r.Head.Ref()[0]) != "violation" || p.Subject != ObjectSubject) {
			continue
		}
		what := ""
		if view {
			what = "view " + name(r.Head.Ref()[1])
		}
		a := l.analyse(p, what, func(x *ast.Rule) bool { return x == r })
		g := guard{loc: r.Location, guarded: a.guarded, kinds: a.guards}
		if m := a.object(); m != nil {
			g.kindSpecific = m.All || m.Elem != nil
			for key := range m.Fields {
				g.kindSpecific = g.kindSpecific || key != "metadata" && key != "apiVersion" && key != "kind"
			}
		}
		p.guards = append(p.guards, g)
	}
}

func isView(r *ast.Rule, name string) bool {
	ref := r.Head.Ref()
	return len(ref) > 1 && ref[0].Value.Compare(ast.Var("view")) == 0 && ref[1].Value.Compare(ast.String(name)) == 0
}

// Answer is the variable of a query for one document.
const Answer = ast.Var("answer")

// Query returns the query for a document below data.
func Query(c *ast.Compiler, path string) (ast.Body, error) {
	body, err := ast.ParseBody(string(Answer) + " = data." + path)
	if err != nil {
		return nil, err
	}
	return c.QueryCompiler().Compile(body)
}

// Program compiles the query for a rule of the package, "violation" or a view. The error is
// a *compiled.Unsupported if OPA has to interpret it.
func (p *Package) Program(c *ast.Compiler, rule string) (*compiled.Program, error) {
	body, err := Query(c, p.Path()+"."+rule)
	if err != nil {
		return nil, err
	}
	return compiled.Compile(c, body, []ast.Var{Answer}, CompileOptions(p.IsTemplate()))
}

// CompileOptions are those of all programs of policies, or of templates.
func CompileOptions(template bool) compiled.Options {
	if !template {
		return compiled.Options{}
	}
	return compiled.Options{Lenient: true, Builtins: TemplateBuiltins}
}

// Steps of an encoded lookup that are not known, and that no path has.
const (
	UnknownStep = "\x01"
	NoStep      = "\x02"
)

// TemplateBuiltins has what rewritten references call: it encodes a lookup as one step of
// a path.
var TemplateBuiltins = map[string]*topdown.Builtin{LookupBuiltin: {
	Decl: &ast.Builtin{Name: LookupBuiltin, Decl: types.NewFunction(types.Args(types.A), types.S)},
	Func: func(_ topdown.BuiltinContext, args []*ast.Term, iter func(*ast.Term) error) error {
		return iter(ast.StringTerm(encodeLookup(args[0].Value.(*ast.Array)))) // as the indexer writes it
	},
}}

func encodeLookup(a *ast.Array) string {
	var b strings.Builder
	for i := range a.Len() - 1 {
		switch v := a.Elem(i).Value.(type) {
		case ast.String:
			b.WriteString(string(v))
		case ast.Number:
			b.WriteString(v.String()) // OPA's stores have no other keys than strings
		case ast.Null:
			b.WriteString(UnknownStep)
		default:
			b.WriteString(NoStep)
		}
		b.WriteByte(0)
	}
	b.WriteString(IndexKey(a.Elem(a.Len() - 1).Value))
	return b.String()
}

// IndexKey is the key of a value in an index. Equal values have the same; others rarely.
func IndexKey(v ast.Value) string {
	if s, ok := v.(ast.String); ok && len(s) <= 64 {
		return "=" + string(s)
	}
	return strconv.Itoa(v.Hash())
}
