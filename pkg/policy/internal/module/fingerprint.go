package module

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Fingerprints returns hashes by which to compare the rules of packages: of each package
// and of those that it refers to. The map is read-only.
func (s *Set) Fingerprints() map[string]string {
	s.once.Do(func() {
		if s.active != nil {
			s.fingerprints = s.besidePrints()
			return
		}
		all := maps.Clone(s.Modules)
		maps.Copy(all, s.templateRules)
		s.fingerprints = fingerprints(all)
	})
	return s.fingerprints
}

// Digest returns a digest of what the verdicts of a package follow from: its modules, those
// that they refer to, those of the views that they read, and of a template its constraints. It is the same in every set
// that has these, wherever their files are. "" for a package that is not in the set.
func (s *Set) Digest(pkg string) string {
	s, pkg = s.of(pkg)
	p := s.Package(pkg)
	if p == nil {
		return ""
	}
	prints := s.Fingerprints()
	sum := sha256.New()
	sum.Write([]byte(prints[pkg]))
	for _, v := range p.Reads.Views { // sorted
		sum.Write([]byte(v.Package + "\x00" + v.View + "\x00" + prints[v.Package]))
	}
	for _, c := range s.constraintsOf(p) { // by name; maps are written in the order of their keys
		fmt.Fprintf(sum, "\x00%s\x00%#v\x00%#v", c.FullName(), c.Body, c.Parameters) // with the defaults of the template
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Version names a package as it is: the start of its digest. "" for a package that is not in the set.
func (s *Set) Version(pkg string) string {
	digest := s.Digest(pkg)
	return digest[:min(len(digest), versionDigits)]
}

func fingerprints(modules map[string]*ast.Module) map[string]string {
	text, names := map[string]string{}, map[string][]ast.Ref{}
	paths := map[string]ast.Ref{}
	for _, file := range slices.Sorted(maps.Keys(modules)) {
		m := modules[file]
		name := strings.TrimPrefix(m.Package.Path.String(), "data.")
		text[name] += m.String()
		paths[name] = m.Package.Path
		take := func(r ast.Ref) bool {
			if r[0].Equal(ast.DefaultRootDocument) {
				names[name] = append(names[name], r.ConstantPrefix())
			}
			return false
		}
		for _, i := range m.Imports {
			ast.WalkRefs(i, take)
		}
		for _, r := range m.Rules {
			ast.WalkRefs(r, take)
		}
	}
	out := make(map[string]string, len(text))
	for name := range text {
		var b strings.Builder
		seen := map[string]bool{}
		fingerprint(&b, name, text, paths, names, seen)
		sum := sha256.Sum256([]byte(b.String()))
		out[name] = string(sum[:])
	}
	return out
}

// fingerprint writes the texts of a package and of those that it may refer to: a
// reference reaches packages above it, and those below it, as the import of a parent does.
func fingerprint(b *strings.Builder, name string, text map[string]string, paths map[string]ast.Ref, names map[string][]ast.Ref, seen map[string]bool) {
	if seen[name] {
		return
	}
	seen[name] = true
	b.WriteString(text[name])
	for _, other := range slices.Sorted(maps.Keys(text)) {
		path := paths[other]
		if slices.ContainsFunc(names[name], func(r ast.Ref) bool { return r.HasPrefix(path) || path.HasPrefix(r) }) {
			fingerprint(b, other, text, paths, names, seen)
		}
	}
}
