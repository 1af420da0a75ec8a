package module

import (
	"cmp"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	bounded "federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
)

var (
	kindName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,62}$`)
	version  = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)
)

// ParseKind reads a kind as policies write it: "Pod", "Deployment.apps", or pinned
// to a version, as kubectl writes that: "HTTPRoute.v1.gateway.networking.k8s.io",
// "Pod.v1".
func ParseKind(s string) (KindRef, error) {
	kind, group, _ := strings.Cut(s, ".")
	var k KindRef
	if first, rest, _ := strings.Cut(group, "."); version.MatchString(first) {
		k.Version, group = first, rest
	}
	if !kindName.MatchString(kind) || strings.HasSuffix(s, ".") {
		return KindRef{}, fmt.Errorf("%q is not a kind such as Pod, Deployment.apps or Deployment.v1.apps", clip(s))
	}
	if group != "" {
		if problems := validation.IsDNS1123Subdomain(group); len(problems) > 0 {
			return KindRef{}, fmt.Errorf("%q is not a kind: %q is not an API group", clip(s), clip(group))
		}
	}
	k.Kind = aggregate.MakeKind(kind, group)
	return k, nil
}

// String writes the kind as ParseKind reads it.
func (k KindRef) String() string {
	if k.Version == "" {
		return string(k.Kind)
	}
	kind, group := k.Kind.Split()
	if group == "" {
		return kind + "." + k.Version
	}
	return kind + "." + k.Version + "." + group
}

// clip keeps messages about hostile input short.
func clip(s string) string {
	return bounded.Text(s, 80)
}

// KindSet is kinds that are named: each of them, all of some groups, or all there are.
type KindSet struct {
	Kinds  []aggregate.Kind
	Groups []string // "": the core group
	All    bool
}

// Has reports whether a kind is named.
func (s *KindSet) Has(kind aggregate.Kind) bool {
	return s.open(kind) || slices.Contains(s.Kinds, kind)
}

// open reports whether a kind is named by no more than its group.
func (s *KindSet) open(kind aggregate.Kind) bool {
	if len(s.Groups) == 0 || s.All {
		return s.All
	}
	_, group := kind.Split()
	return slices.Contains(s.Groups, group)
}

// IsOpen reports whether kinds may be named that nobody has heard of yet.
func (s *KindSet) IsOpen() bool { return s.All || len(s.Groups) > 0 }

// and returns what both name by wildcards.
func (s *KindSet) and(other *KindSet) KindSet {
	switch {
	case s.All:
		return KindSet{Groups: other.Groups, All: other.All}
	case other.All:
		return KindSet{Groups: s.Groups}
	}
	return KindSet{Groups: slices.DeleteFunc(slices.Clone(s.Groups), func(group string) bool { return !slices.Contains(other.Groups, group) })}
}

// Among returns the kinds that are named one by one, and those among some that are named
// otherwise, sorted.
func (s *KindSet) Among(all iter.Seq[aggregate.Kind]) []aggregate.Kind {
	out := slices.Clone(s.Kinds)
	if s.IsOpen() {
		for kind := range all {
			if s.open(kind) {
				out = append(out, kind)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Names writes the set as METADATA does.
func (s *KindSet) Names() (out []string) {
	if s.All {
		return []string{"*"}
	}
	for _, group := range s.Groups {
		out = append(out, "*."+group)
	}
	for _, kind := range s.Kinds {
		out = append(out, string(kind))
	}
	return out
}

// Add adds what another set names.
func (s *KindSet) Add(other *KindSet) {
	s.Kinds = sorted(append(s.Kinds, other.Kinds...))
	s.Groups = sorted(append(s.Groups, other.Groups...))
	s.All = s.All || other.All
}

// AddKinds adds kinds, whatever their versions.
func (s *KindSet) AddKinds(refs []KindRef) {
	for _, k := range refs {
		s.Kinds = append(s.Kinds, k.Kind)
	}
	s.Kinds = sorted(s.Kinds)
}

func sorted[S ~[]E, E cmp.Ordered](list S) S {
	slices.Sort(list)
	return slices.Compact(list)
}

// Evaluates returns the kinds of the package's subjects, or that contribute to its views.
func (p *Package) Evaluates() *KindSet {
	s := &KindSet{Groups: slices.Clone(p.Groups), All: p.AnyKind}
	s.AddKinds(p.Kinds)
	return s
}

// Evaluated writes them as METADATA does, with versions that are pinned.
func (p *Package) Evaluated() []string {
	out := (&KindSet{Groups: p.Groups, All: p.AnyKind}).Names()
	for _, k := range p.Kinds {
		if !p.AnyKind {
			out = append(out, k.String())
		}
	}
	return out
}

// HasKind reports whether the package evaluates a kind, or has it contribute to its views.
func (p *Package) HasKind(kind aggregate.Kind) bool {
	if p.AnyKind || slices.ContainsFunc(p.Kinds, func(k KindRef) bool { return k.Kind == kind }) {
		return true
	}
	_, group := kind.Split()
	return slices.Contains(p.Groups, group)
}

// IsOpen reports whether the package evaluates kinds that it does not name one by one.
func (p *Package) IsOpen() bool { return p.AnyKind || len(p.Groups) > 0 }

// addGroup adds all kinds of a group, which is nothing if no API server can have it.
func (s *KindSet) addGroup(group string) {
	if group == "" || len(validation.IsDNS1123Subdomain(group)) == 0 {
		s.Groups = sorted(append(s.Groups, group))
	}
}

// parseGroup reads a wildcard of a group, such as "*.constraints.gatekeeper.sh".
func parseGroup(s string) (group string, ok bool, err error) {
	if group, ok = strings.CutPrefix(s, "*."); !ok {
		return "", false, nil
	}
	if problems := validation.IsDNS1123Subdomain(group); len(problems) > 0 {
		return "", true, fmt.Errorf(`%q is not "*.GROUP": %q is not an API group`, clip(s), clip(group))
	}
	return group, true, nil
}
