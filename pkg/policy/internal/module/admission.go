package module

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/internal/builtin"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/admissioncel"
	"federator.dev/federator/pkg/policy/internal/manifest"
	"federator.dev/federator/pkg/policy/internal/mask"
)

// admissionPackage has the packages of ValidatingAdmissionPolicies.
const admissionPackage = "admission"

// Admission is what a package of a ValidatingAdmissionPolicy is.
type Admission struct {
	*manifest.AdmissionPolicy

	ParamKind aggregate.Kind // "": it takes no parameters
}

// HasConstraints reports whether the package's bindings are constraints: it is a template
// of Gatekeeper's, or a ValidatingAdmissionPolicy.
func (p *Package) HasConstraints() bool { return p.Template != nil || p.Admission != nil }

// admissionName is the package of a ValidatingAdmissionPolicy: its name, as Rego writes names.
func admissionName(policy string) string {
	name := strings.NewReplacer("-", "_", ".", "_").Replace(policy)
	if name == "" || name[0] >= '0' && name[0] <= '9' || ast.IsKeyword(name) {
		name = "_" + name
	}
	return admissionPackage + "." + name
}

// ofConstraint is the name of the package that a constraint applies.
func ofConstraint(c *manifest.Constraint) string {
	if c.Admission != nil {
		return admissionName(c.Admission.Policy)
	}
	return templatePackage + "." + strings.ToLower(c.Kind)
}

// admissionPolicies returns those that were read, by name. Copies are one.
func (l *loader) admissionPolicies() map[string]*manifest.AdmissionPolicy {
	kept := map[string]*manifest.AdmissionPolicy{}
	for _, p := range l.documents.AdmissionPolicies {
		other := kept[p.Name]
		if other != nil && !reflect.DeepEqual(other.Body, p.Body) {
			l.problem("admission", p.Position, "ValidatingAdmissionPolicy %s is also in %s:%d, with other content", p.Name, other.File, other.Line)
		}
		if other == nil {
			kept[p.Name] = p
		}
	}
	return kept
}

// admission adds the package of a ValidatingAdmissionPolicy.
func (l *loader) admission(of *manifest.AdmissionPolicy, modules map[string]*ast.Module) {
	name := admissionName(of.Name)
	if other := l.packages[name]; other != nil {
		l.problem("package", of.Place("metadata.name"), "package %s is already there, in %s", name, other.File)
		return
	}
	p := &Package{
		Name: name, Source: l.source[of.File], File: of.File, Row: of.Line, Title: cmp.Or(of.Title, of.Name), Description: of.Description,
		Severity: cmp.Or(of.Severity, defaultSeverity), Admission: &Admission{AdmissionPolicy: of},
	}
	if !slices.Contains(Severities, p.Severity) {
		l.problem("severity", of.Place("metadata.annotations"), "severity is %q; it is one of %s", clip(p.Severity), strings.Join(Severities, ", "))
	}
	l.packages[name] = p
	l.set.Packages = append(l.set.Packages, p)
	if k := of.Policy.Spec.ParamKind; k != nil {
		group, _, found := strings.Cut(k.APIVersion, "/")
		if !found {
			group = ""
		}
		p.Admission.ParamKind = aggregate.MakeKind(k.Kind, group)
		if _, err := ParseKind(string(p.Admission.ParamKind)); err != nil {
			l.problem("admission", of.Place("spec.paramKind"), "spec.paramKind: %v", err)
		}
	}
	l.admissionKinds(p)
	policy, problems := admissioncel.FromAdmissionPolicy(of.Policy)
	if len(problems) == 0 {
		p.CEL, problems = admissioncel.Compile(policy)
	}
	l.celProblems(p, problems, of.Place)
	if p.CEL == nil {
		return
	}
	source, err := json.Marshal(of.Policy.Spec)
	if err != nil {
		l.problem("cel", of.Position, "%v", err)
		return
	}
	if m := l.celModule(p, of.Position, string(source)); m != nil {
		p.modules = []*ast.Module{m}
		modules[name] = m
	}
}

// admissionKinds finds the kinds that a policy is about by its bindings: those of Kubernetes
// itself whose resources are named. Of other resources, and of wildcards, only discovery
// knows the kinds: then the package is about any of their group.
func (l *loader) admissionKinds(p *Package) {
	kinds := map[aggregate.Kind]bool{}
	policy := p.Admission.Selection
	for _, c := range l.set.Constraints {
		if c.Admission == nil || ofConstraint(c) != p.Name {
			continue
		}
		binding := c.Admission.Selection
		p.byNamespaces = p.byNamespaces || policy.ByNamespaceLabels() || binding.ByNamespaceLabels()
		named, open := namedKinds(policy.Included())
		more, others := namedKinds(binding.Included())
		maps.Copy(named, more)
		for kind, gr := range named {
			if policy.SelectsResource(gr.Group, gr.Resource) && binding.SelectsResource(gr.Group, gr.Resource) {
				kinds[kind] = true
			}
		}
		open = open.and(&others)
		p.AnyKind, p.Groups = p.AnyKind || open.All, sorted(append(p.Groups, open.Groups...))
	}
	for kind := range kinds {
		p.Kinds = append(p.Kinds, KindRef{Kind: kind})
	}
	sortKinds(p.Kinds)
}

// namedKinds returns the kinds of Kubernetes itself whose resources are named, and the groups
// of which others may be selected.
func namedKinds(list []schema.GroupResource) (named map[aggregate.Kind]schema.GroupResource, open KindSet) {
	named, open.All = map[aggregate.Kind]schema.GroupResource{}, len(list) == 0
	for _, gr := range list {
		kind, ok := builtin.KindOf(gr)
		if ok {
			named[kind] = gr
			continue
		}
		if open.All = open.All || gr.Group == "*"; !open.All {
			open.addGroup(gr.Group)
		}
		for kind, of := range builtin.All() {
			if gr.Group == "*" && gr.Resource == of.Resource {
				named[kind] = of
			}
		}
	}
	return named, open
}

// admissionReads is what a ValidatingAdmissionPolicy reads: all of the object, and its
// parameters and Namespace.
func admissionReads(p *Package) Reads {
	r := celReads(p.CEL)
	if kind := p.Admission.ParamKind; kind != "" {
		r.Own = sortKinds(append(r.Own, KindRef{Kind: kind}))
		r.Fleet[KindRef{Kind: kind}] = mask.Whole()
	}
	return r
}

// lintAdmission warns of a policy that nothing applies, and of resources of unknown kinds.
func (l *linter) lintAdmission(p *Package) {
	of := p.Admission
	warn := func(code, path, format string, args ...any) {
		at := of.Place(path)
		l.warn(code, &ast.Location{File: at.File, Row: at.Line, Col: at.Col}, format, args...)
	}
	if !slices.ContainsFunc(l.set.Constraints, func(c *manifest.Constraint) bool { return ofConstraint(c) == p.Name }) {
		warn("no-binding", "metadata.name", "ValidatingAdmissionPolicy %s has no ValidatingAdmissionPolicyBinding, and is evaluated nowhere", of.Name)
	}
	if len(of.Policy.Spec.Validations) == 0 {
		warn("no-validations", "spec", "ValidatingAdmissionPolicy %s has no validations: audit annotations are written into a request's audit event", of.Name)
	}
	for _, gr := range of.Selection.Included() {
		if _, ok := builtin.KindOf(gr); !ok && gr.Resource != "*" && gr.Group != "*" {
			warn("unknown-resource", "spec.matchConstraints.resourceRules", "%s is no resource of Kubernetes itself: objects of its kind are evaluated where something else has members read them", gr)
		}
	}
}
