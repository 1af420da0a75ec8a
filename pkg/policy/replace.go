package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/manifest"
)

// CandidateName is the name of a source whose caller gives it none.
const CandidateName = "candidate"

// Replace returns what a set was loaded from with another source in place of its own of that name. A source
// without a name replaces the packages that it has, whose ever these are, and files of templates,
// constraints and ValidatingAdmissionPolicies all of which it has, and is added. Tests are left out.
func Replace(set *Set, with Source) []Source {
	replaced, documents := map[string]bool{}, map[string]bool{}
	if with.Name == "" {
		for _, f := range with.Files {
			for _, id := range documentsOf(f) {
				documents[id] = true
			}
			if !strings.HasSuffix(f.Path, ".rego") {
				continue
			}
			if m, err := ast.ParseModule(f.Path, string(f.Data)); err == nil && m != nil { // Load says what is wrong with others
				replaced[m.Package.Path.String()] = true
			}
		}
	}
	var out []Source
	for _, s := range set.Sources() {
		if with.Name != "" && s.Name == with.Name {
			continue
		}
		out = append(out, Source{Name: s.Name, Files: slices.DeleteFunc(slices.Clone(s.Files), func(f File) bool {
			if !strings.HasSuffix(f.Path, ".rego") {
				ids := documentsOf(f)
				return len(ids) > 0 && !slices.ContainsFunc(ids, func(id string) bool { return !documents[id] })
			}
			m := set.Modules[strings.TrimPrefix(s.Name+"/"+f.Path, "/")]
			return m == nil || replaced[m.Package.Path.String()]
		})})
	}
	with.Name = cmp.Or(with.Name, CandidateName)
	with.Files = slices.DeleteFunc(slices.Clone(with.Files), func(f File) bool { return strings.HasSuffix(f.Path, "_test.rego") })
	return append(out, with)
}

// documentsOf returns which policies that are Kubernetes objects a file has.
func documentsOf(f File) (ids []string) {
	if !manifest.Reads(f.Path) {
		return nil
	}
	var d manifest.Documents
	d.Read(f.Path, f.Data)
	for _, t := range d.Templates {
		ids = append(ids, "template "+t.Kind)
	}
	for _, p := range d.AdmissionPolicies {
		ids = append(ids, "policy "+p.Name)
	}
	for _, c := range d.Constraints {
		ids = append(ids, "constraint "+c.FullName())
	}
	return ids
}
