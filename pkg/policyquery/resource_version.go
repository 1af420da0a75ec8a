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

// A resourceVersion is a point of the verdicts and, after a dot, a digest of what the
// caller may not read of them. Verdicts do not change with grants, so a watch that resumes
// from a point would miss what has been granted or revoked since. Callers who may read all
// evaluated kinds in all members get the point alone.

// joinVersion makes a resourceVersion.
func joinVersion(point, hidden string) string {
	if hidden == "" {
		return point
	}
	return point + "." + hidden
}

// splitVersion is the inverse of joinVersion.
func splitVersion(version string) (point, hidden string) {
	point, hidden, _ = strings.Cut(version, ".")
	return point, hidden
}

// hiddenDigest is a digest of what the caller may not read of the selection: "" where that
// is nothing. readable are the bindings whose findings may be read.
func (s readScope) hiddenDigest(a *params, readable map[string]bool) string {
	sum, some := fnv.New64a(), false
	add := func(what ...string) {
		some = true
		for _, w := range what {
			_, _ = io.WriteString(sum, w+"\x00") // never fails
		}
	}
	var kinds []aggregate.Kind
	for b := range boundIn(s.state) {
		if !a.matchesBinding(b) {
			continue
		}
		if !readable[b.Name] {
			add("policy", b.Name)
			continue
		}
		kinds = append(kinds, s.evaluatedKinds(b.Name)...)
	}
	slices.Sort(kinds)
	wide := false
	for _, kind := range slices.Compact(kinds) {
		if !matches(a.kinds, string(kind)) || !s.reader.kinds[kind] && len(s.state.Snapshot.Resources(kind)) == 0 {
			continue // there are no such objects
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
	// whether there are members that are hidden from it.
	if !wide {
		add("members")
		add(s.reader.visible...)
	}
	if !some {
		return ""
	}
	return fmt.Sprintf("%016x", sum.Sum64())
}

// evaluatedKinds returns the kinds that the versions in effect of a binding evaluate; where one names kinds by a wildcard,
// those with findings, in members that are visible to the caller.
func (s readScope) evaluatedKinds(binding string) (kinds []aggregate.Kind) {
	open := false
	for p := range s.state.Packages(binding) {
		open = open || p.IsOpen()
		for _, k := range p.Kinds {
			kinds = append(kinds, k.Kind)
		}
	}
	if open {
		for _, member := range s.reader.visible {
			for kind, found := s.nextKind(binding, member, ""); found; kind, found = s.nextKind(binding, member, kind) {
				kinds = append(kinds, kind)
			}
		}
	}
	return kinds
}

// nextKind returns the first kind after another that a binding has findings on in a
// member, without iterating over the findings in between.
func (s readScope) nextKind(binding, member string, kind aggregate.Kind) (aggregate.Kind, bool) {
	after := policy.Subject{Ref: aggregate.Ref{Member: member, Kind: kind, Namespace: "\U0010ffff"}} // after every namespace
	for v := range s.state.FindingsAfter(binding, after) {
		return v.Subject.Ref.Kind, true
	}
	return "", false
}

func expiredError(version string) error {
	return apierrors.NewResourceExpired("the verdicts of resourceVersion " + version + " are no longer known: list again")
}

// grantsChanged is the error of a watch from a version with other grants.
func grantsChanged(version string) error {
	return apierrors.NewResourceExpired("your grants have changed since resourceVersion " + version + ", or it is of a list with other parameters: list again, with the parameters of the watch")
}
