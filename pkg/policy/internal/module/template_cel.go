package module

import (
	"encoding/json"
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/admissioncel"
	"federator.dev/federator/pkg/policy/internal/manifest"
	"federator.dev/federator/pkg/policy/internal/mask"
)

// celEngine is the engine that Gatekeeper takes where a template has it, whatever else
// the template has.
const celEngine = "K8sNativeValidation"

func engineOf(t *manifest.Template, name string) *manifest.Engine {
	for i := range t.Engines {
		if t.Engines[i].Name == name {
			return &t.Engines[i]
		}
	}
	return nil
}

// templateCEL compiles the CEL of a template. The package's module has no rule that is
// evaluated: it carries the source, by which packages are compared.
func (l *loader) templateCEL(p *Package, e *manifest.Engine) *ast.Module {
	policy, problems := admissioncel.FromTemplate(e.Source, "source")
	if len(problems) == 0 {
		p.CEL, problems = admissioncel.Compile(policy)
	}
	l.celProblems(p, problems, func(string) manifest.Position { return e.Position })
	if p.CEL == nil {
		return nil
	}
	source, err := json.Marshal(e.Source)
	if err != nil {
		l.problem("cel", e.Position, "%v", err)
		return nil
	}
	return l.celModule(p, e.Position, string(source))
}

// celProblems adds what is wrong with the CEL of a package, where its fields are.
func (l *loader) celProblems(p *Package, problems []admissioncel.Problem, at func(path string) manifest.Position) {
	for _, problem := range problems {
		switch {
		case problem.Warning:
			p.celWarnings = append(p.celWarnings, problem.String())
		case problem.Request:
			l.problem("request", at(problem.Path), "%s", problem)
		default:
			l.problem("cel", at(problem.Path), "%s", problem)
		}
	}
}

// celModule returns the module of a package in CEL, which carries its source.
func (l *loader) celModule(p *Package, at manifest.Position, source string) *ast.Module {
	m, err := ast.ParseModuleWithOpts(p.File, "package "+p.Name+"\nviolation[source] { false; source := "+strconv.Quote(source)+" }", ast.ParserOptions{RegoVersion: ast.RegoV0})
	if err != nil {
		l.problem("cel", at, "%v", err)
		return nil
	}
	place := func(loc *ast.Location) {
		if loc != nil {
			loc.File, loc.Row, loc.Col = at.File, at.Line, at.Col
		}
	}
	place(m.Package.Location)
	for _, r := range m.Rules {
		place(r.Location)
	}
	return m
}

// celReads is what CEL reads: all of the object.
func celReads(p *admissioncel.Program) Reads {
	r := Reads{Object: mask.Whole(), Fleet: map[KindRef]*mask.Mask{}}
	if p.ReadsNamespace() {
		r.NamespaceObject = mask.Whole()
		r.Own = []KindRef{{Kind: namespaceKind}}
		r.Fleet[KindRef{Kind: namespaceKind}] = mask.Whole()
	}
	return r
}
