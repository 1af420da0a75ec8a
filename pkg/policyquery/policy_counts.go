package policyquery

import (
	"iter"
	"slices"
	"sync"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// memberCounts are the counts of verdicts in a member; "" is for keys of views.
type memberCounts struct {
	member string
	policy.Counts
}

// keptCounts are the counts of the newest state, which all requests about it share. The zero value is
// ready to use.
type keptCounts struct {
	mu       sync.Mutex
	state    *policy.State
	byPolicy map[string][]memberCounts
}

// of returns the counts of a state, by policy. They must not be changed.
func (k *keptCounts) of(s *policy.State) map[string][]memberCounts {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == s {
		return k.byPolicy
	}
	out := map[string][]memberCounts{}
	for b := range s.Bindings() {
		var list []memberCounts
		for member, c := range s.Counts(b.Name) {
			list = append(list, memberCounts{member, c})
		}
		out[b.Name] = list
	}
	k.state, k.byPolicy = s, out
	return out
}

// everywhere reports whether the caller may read all that a policy, which it may read, evaluates in all members.
func (s readScope) everywhere(binding string) bool {
	if !s.seesAllMembers() {
		return false
	}
	known, kinds := false, []aggregate.Kind(nil)
	for p := range s.state.Packages(binding) {
		known = true
		kinds = append(kinds, p.Evaluates().Among(s.state.Snapshot.Kinds())...)
	}
	return known && len(s.partly(kinds)) == 0
}

// whole reports whether the caller may read all that a policy, which it may read, evaluates in a member.
func (s readScope) whole(binding, member string) bool {
	return s.wholeOf(s.state.PackageIn(binding, member), member)
}

// wholeOf reports whether the caller may read all that a version of a policy, which it may read, evaluates in a member.
func (s readScope) wholeOf(p *policy.Package, member string) bool {
	switch {
	case p == nil:
		return false
	case member == "": // keys of a view: mayRead has checked what it is built from
		return p.SubjectView != ""
	case !s.reader.MayReadMember(member):
		return false
	}
	for _, k := range p.Kinds {
		if !s.wholeKind(member, k.Kind) {
			return false
		}
	}
	return !p.IsOpen() || !slices.ContainsFunc(s.state.Snapshot.KindsOf(member), func(kind aggregate.Kind) bool {
		return p.HasKind(kind) && !s.wholeKind(member, kind)
	})
}

func (s readScope) wholeKind(member string, kind aggregate.Kind) bool {
	return s.reader.grant(s.state.Snapshot, member, kind).All || s.nothingHeld(member, kind)
}

// readableFindings yields the findings of a policy in a member that the caller may read, without visiting
// those of other namespaces.
func (s readScope) readableFindings(binding, member string) iter.Seq[policy.Verdict] {
	return func(yield func(policy.Verdict) bool) {
		for kind, found := s.nextKind(binding, member, ""); found; kind, found = s.nextKind(binding, member, kind) {
			grant := s.reader.grant(s.state.Snapshot, member, kind)
			from := policy.Subject{Ref: aggregate.Ref{Member: member, Kind: kind}}
			if grant.All {
				if !s.yieldWhile(binding, from, yield, func(r aggregate.Ref) bool { return r.Kind == kind }) {
					return
				}
				continue
			}
			for _, namespace := range grant.Namespaces {
				from.Ref.Namespace = namespace
				if !s.yieldWhile(binding, from, yield, func(r aggregate.Ref) bool { return r.Kind == kind && r.Namespace == namespace }) {
					return
				}
			}
		}
	}
}

// yieldWhile yields findings after a subject while their refs are wanted, and reports whether to go on.
func (s readScope) yieldWhile(binding string, after policy.Subject, yield func(policy.Verdict) bool, wanted func(aggregate.Ref) bool) bool {
	for v := range s.state.FindingsAfter(binding, after) {
		if !wanted(v.Subject.Ref) {
			return true
		}
		if !yield(v) {
			return false
		}
	}
	return true
}
