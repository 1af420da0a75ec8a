package binding

import (
	"fmt"
	"slices"
	"strings"

	"federator.dev/federator/internal/strictyaml"
	"federator.dev/federator/pkg/policy/internal/module"
)

// maxBindings bounds the bindings of one file.
const maxBindings = 10_000

// Parse reads the bindings of a YAML or JSON file, {bindings: […]}, and validates them
// as Validate does. Its errors are module.Errors with their lines, and ErrInvalid.
func Parse(set *module.Set, file string, data []byte) ([]Binding, error) {
	var doc struct {
		Bindings []Binding `json:"bindings"`
	}
	lines, problems := strictyaml.Decode(data, &doc)
	var bad module.Errors
	for _, p := range problems {
		bad = append(bad, module.Finding{Code: "binding", Severity: module.SeverityError, File: file, Line: p.Line, Col: p.Col, Message: p.Message})
	}
	if len(doc.Bindings) > maxBindings {
		first := lines[fmt.Sprintf("bindings[%d]", maxBindings)]
		bad = append(bad, module.Finding{
			Code: "binding", Severity: module.SeverityError, File: file, Line: first.Line, Col: first.Col,
			Message: fmt.Sprintf("there are more than %d bindings", maxBindings),
		})
	}
	if len(bad) > 0 {
		return nil, asError(bad)
	}
	at := func(i int, path string) (line, col int) {
		// A missing key is reported where its parent begins.
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
	return out, asError(unfit.findings())
}

// Defaults returns a binding for each package that none of the bindings
// names: it observes everywhere. Packages that require parameters get a warning
// instead of a binding; packages with views only get neither.
func Defaults(set *module.Set, bindings []Binding) ([]Binding, []module.Finding) {
	bound, names := map[string]bool{}, map[string]bool{}
	for _, b := range bindings {
		bound[b.Package], names[b.Name] = true, true
		if p := set.Package(b.Package); p != nil {
			bound[p.Path()] = true // also by a version that has taken the package's place
		}
	}
	var out []Binding
	var warnings []module.Finding
	for _, p := range set.Packages {
		if bound[p.Name] || !p.HasViolationRules || p.HasConstraints() || p.VersionOf() != "" {
			continue
		}
		parameters, problems := p.Parameters.Resolve(nil)
		name := p.Name
		if names[name] {
			problems = append(problems, fmt.Sprintf("a binding of package %s has the same name", bindingNamed(bindings, name).Package))
		}
		if len(problems) > 0 {
			warnings = append(warnings, module.Finding{
				Code: "needs-binding", Severity: module.SeverityWarning, File: p.File, Line: p.Row, Col: 1,
				Message: fmt.Sprintf("package %s has no binding and is not evaluated: %s", p.Name, strings.Join(problems, "; ")),
			})
			continue
		}
		out = append(out, Binding{Name: name, Package: p.Name, Parameters: parameters, Mode: Observe})
	}
	return append(out, constraintDefaults(set, bindings)...), warnings
}

func bindingNamed(bindings []Binding, name string) Binding {
	i := slices.IndexFunc(bindings, func(b Binding) bool { return b.Name == name })
	return bindings[i]
}
