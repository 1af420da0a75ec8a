package policyquery

import (
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// A resourceVersion names a point of the verdicts and, after a dot, a sum of what the
// caller may not read of them. Verdicts do not change with grants, so a watch that resumes
// from there would never be told what has been granted or revoked in between. Callers who
// may read all judged kinds in all members get the point alone.

// joinVersion returns the resourceVersion of a point.
func joinVersion(point, untold string) string {
	if untold == "" {
		return point
	}
	return point + "." + untold
}

// splitVersion is the inverse of versionOf.
func splitVersion(version string) (point, untold string) {
	point, untold, _ = strings.Cut(version, ".")
	return point, untold
}

// hiddenDigest sums up what the caller may not read of what is asked for: "" where that is
// nothing. told are the bindings whose findings may be read.
func (s readScope) hiddenDigest(a *params, told map[string]bool) string {
	sum, some := fnv.New64a(), false
	add := func(what ...string) {
		some = true
		for _, w := range what {
			_, _ = io.WriteString(sum, w+"\x00") // never fails
		}
	}
	var kinds []aggregate.Kind
	for b, severity := range s.state.Bindings() {
		if !a.matchesBinding(boundBinding{b, severity}) {
			continue
		}
		if !told[b.Name] {
			add("policy", b.Name)
			continue
		}
		kinds = append(kinds, s.judgedKinds(b.Name)...)
	}
	slices.Sort(kinds)
	wide := false
	for _, kind := range slices.Compact(kinds) {
		if !matches(a.kinds, string(kind)) || !s.reader.kinds[kind] && len(s.state.Snapshot.Resources(kind)) == 0 {
			continue // there is none of it
		}
		if s.reader.everything(s.state.Snapshot, kind) {
			wide = true
			continue
		}
		for _, member := range s.reader.visible {
			if !matches(a.members, member) {
				continue
			}
			if reach := s.reader.grant(s.state.Snapshot, member, kind); !reach.All {
				add("kind", string(kind), member)
				add(reach.Namespaces...)
			}
		}
	}
	// A caller who may read all of a kind sees all members. No other caller may learn
	// whether there are members that it does not see.
	if !wide {
		add("members")
		add(s.reader.visible...)
	}
	if !some {
		return ""
	}
	return fmt.Sprintf("%016x", sum.Sum64())
}

// judgedKinds returns the kinds of the objects that a binding judges; of one that judges any,
// those that it has found something on, in members that the caller sees.
func (s readScope) judgedKinds(binding string) []aggregate.Kind {
	p := s.state.Package(binding)
	var kinds []aggregate.Kind
	if p.AnyKind {
		for _, member := range s.reader.visible {
			for kind, found := s.nextKind(binding, member, ""); found; kind, found = s.nextKind(binding, member, kind) {
				kinds = append(kinds, kind)
			}
		}
	}
	for _, k := range p.Kinds {
		kinds = append(kinds, k.Kind)
	}
	return kinds
}

// nextKind returns the first kind after another that a binding has findings on in a
// member, without looking at the findings in between.
func (s readScope) nextKind(binding, member string, kind aggregate.Kind) (aggregate.Kind, bool) {
	after := policy.Subject{Ref: aggregate.Ref{Member: member, Kind: kind, Namespace: "\U0010ffff"}} // which no namespace comes after
	for v := range s.state.FindingsAfter(binding, after) {
		return v.Subject.Ref.Kind, true
	}
	return "", false
}

func expiredError(version string) error {
	return apierrors.NewResourceExpired("the verdicts of resourceVersion " + version + " are not known any more: list them again")
}

// grantsChanged refuses to go on from a version.
func grantsChanged(version string) error {
	return apierrors.NewResourceExpired("what you may read is not what it was in the answer of resourceVersion " + version + ", or the answer was to other parameters: list again, with those of the watch")
}
