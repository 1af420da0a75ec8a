package policyquery

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/queryapi"
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

// ServeShared implements queryapi.Sharer: what each process counts, added. What people say of policies, and where they are from,
// is the same in all; what is not is of the process with the most to say.
func (q *Policies) ServeShared(w http.ResponseWriter, r *http.Request, _ queryapi.Caller, fleet queryapi.SharedFleet) error {
	if err := checkParameters(r.URL.Query(), policiesParameters); err != nil {
		return err
	}
	parts, err := fleet.Ask(r.URL.Query())
	if err != nil {
		return err
	}
	out := &PolicyList{APIVersion: "query.federator.dev/v1", Kind: "Policies", Revision: parts.Revision, Synced: len(parts.Absent) == 0, Items: []PolicyItem{}}
	at := map[string]int{}
	for _, body := range parts.Bodies {
		var part PolicyList
		if err := json.Unmarshal(body, &part); err != nil {
			return fmt.Errorf("policies: a part: %w", err)
		}
		out.Synced, out.Stale, out.Unreadable = out.Synced && part.Synced, out.Stale || part.Stale, max(out.Unreadable, part.Unreadable)
		out.HubForbidden = cmp.Or(out.HubForbidden, part.HubForbidden)
		for i := range part.Items {
			item := &part.Items[i]
			if n, again := at[item.Name]; again {
				out.Items[n].add(item)
				continue
			}
			at[item.Name] = len(out.Items)
			out.Items = append(out.Items, *item)
		}
	}
	slices.SortFunc(out.Items, func(a, b PolicyItem) int { return strings.Compare(a.Name, b.Name) })
	return writeJSON(w, out)
}

// add adds what another process has counted of the policy. What one withholds is withheld.
func (p *PolicyItem) add(o *PolicyItem) {
	p.Truncated = p.Truncated || o.Truncated
	for _, n := range []struct {
		to   **int
		more *int
	}{{&p.Violations, o.Violations}, {&p.Exempt, o.Exempt}, {&p.Errors, o.Errors}, {&p.Unknown, o.Unknown}, {&p.Subjects, o.Subjects}, {&p.Corrected, o.Corrected}} {
		switch {
		case *n.to == nil, n.more == nil: // one does not know, or may not say
			*n.to = nil
		default:
			sum := **n.to + *n.more
			*n.to = &sum
		}
	}
	if p.Withheld = p.Withheld || o.Withheld; p.Withheld {
		p.Violations, p.Exempt, p.Errors, p.Unknown, p.Subjects = nil, nil, nil, nil, nil
	}
	p.Cost = p.Cost.plus(o.Cost)
	p.Quarantines = append(p.Quarantines, o.Quarantines...)
	slices.SortFunc(p.Quarantines, func(a, b PolicyQuarantine) int { return strings.Compare(a.Member, b.Member) })
}
