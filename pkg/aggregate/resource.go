package aggregate

import (
	"iter"
	"slices"
)

// plurals are the distinct resources that the scopes of a kind were read under. Immutable.
type plurals struct {
	kind  Kind
	names []string // sorted
}

func lessPlurals(a, b plurals) bool { return a.kind < b.kind }

// pluralOf is the key by which scopes are counted.
type pluralOf struct {
	kind     Kind
	resource string
}

// count adds to the scopes of a kind that were read under a resource. x.mu must be held, and
// the scopes must be published afterwards.
func (x *Index) count(kind Kind, resource string, n int) {
	if resource == "" {
		return
	}
	k := pluralOf{kind, resource}
	was := x.counts[k]
	is := was + n
	if x.counts[k] = is; is == 0 {
		delete(x.counts, k)
	}
	if (was == 0) == (is == 0) {
		return
	}
	held, _ := x.plurals.Get(plurals{kind: kind})
	next := plurals{kind: kind}
	if is == 0 {
		next.names = slices.DeleteFunc(slices.Clone(held.names), func(name string) bool { return name == resource })
	} else {
		i, _ := slices.BinarySearch(held.names, resource)
		next.names = slices.Insert(slices.Clone(held.names), i, resource)
	}
	if x.renamed = true; len(next.names) == 0 {
		x.plurals.Delete(next)
		return
	}
	x.plurals.Set(next)
}

// Resources returns the resources that the scopes of a kind were read under, as far
// as they are known, sorted: one, unless members differ. The slice is shared and must
// not be changed.
func (s *Snapshot) Resources(kind Kind) []string {
	held, _ := s.plurals.Get(plurals{kind: kind})
	return held.names
}

// AllResources yields, in order, the kinds with scopes whose resource is known, with these
// resources.
func (s *Snapshot) AllResources() iter.Seq2[Kind, []string] {
	return func(yield func(Kind, []string) bool) {
		s.plurals.Scan(func(p plurals) bool { return yield(p.kind, p.names) })
	}
}

// Resource returns the resource that a scope was read under, "" when it is not known. For a
// scope that has not been opened it is that of the others, if these agree.
func (s *Snapshot) Resource(member string, kind Kind) string {
	names := s.Resources(kind)
	if len(names) == 1 {
		return names[0]
	}
	if len(names) == 0 {
		return ""
	}
	info, _ := s.Scope(member, kind)
	return info.Resource
}

// ScopesOf yields the scopes of a kind by member.
func (s *Snapshot) ScopesOf(kind Kind) iter.Seq[ScopeInfo] {
	return func(yield func(ScopeInfo) bool) {
		for r := range s.kindScopes(kind, "") {
			if !yield(r.info()) {
				return
			}
		}
	}
}
