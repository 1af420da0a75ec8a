package module

import (
	"cmp"
	"maps"
	"slices"

	"federator.dev/federator/pkg/policy/internal/manifest"
)

// Candidate is what the packages of a source are to be instead.
type Candidate struct {
	Source string
	Set    *Set // with the packages of the source as they are to be, and those of all others as they are
	// Former are what Set has replaced before it took its place: policies may have versions of it in effect.
	Former []*Set
}

// versionDigits is how many digits of a digest tell the versions of a package apart.
const versionDigits = 12

// Beside returns an active set with what differs in candidates beside it: their versions of the packages of
// their sources, each compiled with its own candidate, and under a name of its own. All others read what is
// active.
func Beside(active *Set, candidates []Candidate) *Set {
	if len(candidates) == 0 {
		return active
	}
	out := &Set{
		Compiler: active.Compiler, Packages: slices.Clone(active.Packages), Modules: active.Modules, Tests: active.Tests, Skipped: active.Skipped,
		Templates: active.Templates, Constraints: active.Constraints,
		texts: active.texts, templateRules: active.templateRules, sources: active.sources,
		active: active, beside: candidates, candidates: map[string]string{},
	}
	for _, c := range candidates {
		versions := c.versions(active)
		for _, p := range c.Set.Packages {
			name := versions[p.Name]
			if name == "" || out.candidates[p.Name] != "" { // a package is of one source
				continue
			}
			out.candidates[p.Name] = name
			out.Packages = append(out.Packages, c.version(p, versions))
		}
	}
	for _, c := range candidates {
		for _, set := range c.Former {
			out.addFormer(&Candidate{Source: c.Source, Set: set})
		}
	}
	slices.SortFunc(out.Packages, func(a, b *Package) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// addFormer adds the versions of what was a candidate before, but those that are there already. It was compiled with what
// other sources had then: where they no longer have a view that it reads, none of it can be in effect.
func (s *Set) addFormer(c *Candidate) {
	versions := c.versions(s.active)
	if !c.findsViews(s.active, versions) {
		return
	}
	for _, p := range c.Set.Packages {
		name := versions[p.Name]
		if name == "" || slices.ContainsFunc(s.Packages, func(x *Package) bool { return x.Name == name }) {
			continue
		}
		s.Packages = append(s.Packages, c.version(p, versions))
	}
}

// findsViews reports whether all views are there that the versions of the candidate read.
func (c *Candidate) findsViews(active *Set, versions map[string]string) bool {
	for name := range versions {
		for _, ref := range c.Set.Package(name).Reads.Views {
			if p := active.Package(ref.Package); versions[ref.Package] == "" && (p == nil || p.View(ref.View) == nil) {
				return false
			}
		}
	}
	return true
}

// versions returns the names of the candidate's packages that differ from the active ones, by what they are called.
func (c *Candidate) versions(active *Set) map[string]string {
	names := map[string]string{}
	for _, p := range c.Set.Packages {
		if p.Source != c.Source {
			continue
		}
		if active.Digest(p.Name) != c.Set.Digest(p.Name) { // or it is new
			names[p.Name] = p.Name + "@" + c.Set.Version(p.Name)
		}
	}
	return names
}

// constraintsOf returns what applies a package, by name.
func (s *Set) constraintsOf(p *Package) (list []*manifest.Constraint) {
	if !p.HasConstraints() {
		return nil
	}
	for _, c := range s.Constraints {
		if ofConstraint(c) == p.Path() {
			list = append(list, c)
		}
	}
	return list
}

// version returns a package of a candidate under its own name. What it reads of views that have versions, too, are
// those of the candidate.
func (c *Candidate) version(p *Package, versions map[string]string) *Package {
	v := *p
	v.Name, v.versionOf, v.home, v.candidates = versions[p.Name], p.Name, c.Set, versions
	if v.Compiler == nil {
		v.Compiler = c.Set.Compiler
	}
	v.Reads.Views = nil
	for _, ref := range p.Reads.Views {
		v.Reads.Views = append(v.Reads.Views, ViewRef{v.Reader(ref.Package), ref.View})
	}
	return &v
}

// Candidates returns what is beside the active packages. It must not be changed.
func (s *Set) Candidates() []Candidate { return s.beside }

// Candidate returns the name of the version that is to take the place of a package, "" where there is none.
func (s *Set) Candidate(pkg string) string { return s.candidates[pkg] }

// Former returns the names of versions of a package that were to take its place, before another candidate has.
func (s *Set) Former(pkg string) (names []string) {
	for _, p := range s.Packages {
		if p.versionOf == pkg && s.IsFormer(p) {
			names = append(names, p.Name)
		}
	}
	return names
}

// IsFormer reports whether a package is one of those that Former names.
func (s *Set) IsFormer(p *Package) bool {
	return p.versionOf != "" && p.Name != s.candidates[p.versionOf]
}

// VersionOf returns the name of the package of which this is a version that is to take its place; "" for others.
func (p *Package) VersionOf() string { return p.versionOf }

// Path is what the package is called in its rules.
func (p *Package) Path() string { return cmp.Or(p.versionOf, p.Name) }

// Reader returns the name of the package whose views the package reads where its rules name one.
func (p *Package) Reader(pkg string) string { return cmp.Or(p.candidates[pkg], pkg) }

// Of returns the set that a package was loaded with: a version of a candidate has files and constraints of its own.
func (s *Set) Of(p *Package) *Set {
	if p.home != nil {
		return p.home
	}
	return s
}

// of returns the set that a package by its name was loaded with, and what it is called there.
func (s *Set) of(name string) (*Set, string) {
	if p := s.Package(name); p != nil && p.home != nil {
		return p.home, p.versionOf
	}
	return s, name
}

// besidePrints are the fingerprints of a set with candidates.
func (s *Set) besidePrints() map[string]string {
	prints := maps.Clone(s.active.Fingerprints())
	for _, p := range s.Packages {
		if p.home != nil {
			prints[p.Name] = p.home.Fingerprints()[p.versionOf]
		}
	}
	return prints
}
