package module

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Fingerprints are hashes that tell whether the rules of packages are the same: of
// each package and of those that it names. The map is the set's own, to be read only.
func (s *Set) Fingerprints() map[string]string {
	s.once.Do(func() { s.prints = fingerprints(s.Modules) })
	return s.prints
}

func fingerprints(modules map[string]*ast.Module) map[string]string {
	text, names := map[string]string{}, map[string]map[string]bool{}
	for _, file := range slices.Sorted(maps.Keys(modules)) {
		m := modules[file]
		name := strings.TrimPrefix(m.Package.Path.String(), "data.")
		text[name] += m.String()
		if names[name] == nil {
			names[name] = map[string]bool{}
		}
		ast.WalkRefs(m, func(r ast.Ref) bool {
			if r[0].Equal(ast.DefaultRootDocument) {
				names[name][r.ConstantPrefix().String()] = true
			}
			return false
		})
	}
	out := make(map[string]string, len(text))
	for name := range text {
		var b strings.Builder
		seen := map[string]bool{}
		fingerprint(&b, name, text, names, seen)
		sum := sha256.Sum256([]byte(b.String()))
		out[name] = string(sum[:])
	}
	return out
}

func fingerprint(b *strings.Builder, name string, text map[string]string, names map[string]map[string]bool, seen map[string]bool) {
	if seen[name] {
		return
	}
	seen[name] = true
	b.WriteString(text[name])
	for _, other := range slices.Sorted(maps.Keys(text)) {
		for ref := range names[name] {
			path := "data." + other
			if ref == path || strings.HasPrefix(ref, path+".") || strings.HasPrefix(ref, path+"[") {
				fingerprint(b, other, text, names, seen)
				break
			}
		}
	}
}
