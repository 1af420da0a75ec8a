package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// candidateName is the name of a source whose caller gives it none.
const candidateName = "candidate"

// Replace returns what a set was loaded from with another source in place of its own of that name. A source
// without a name replaces the packages that it has, whose ever these are, and is added. Tests are left out.
func Replace(set *Set, with Source) []Source {
	replaced := map[string]bool{}
	if with.Name == "" {
		for _, f := range with.Files {
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
			m := set.Modules[strings.TrimPrefix(s.Name+"/"+f.Path, "/")]
			return m == nil || replaced[m.Package.Path.String()]
		})})
	}
	with.Name = cmp.Or(with.Name, candidateName)
	with.Files = slices.DeleteFunc(slices.Clone(with.Files), func(f File) bool { return strings.HasSuffix(f.Path, "_test.rego") })
	return append(out, with)
}
