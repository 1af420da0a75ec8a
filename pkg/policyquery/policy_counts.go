package policyquery

import (
	"iter"
	"slices"
	"sync"
	"time"

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
	p := s.state.Package(binding)
	if p == nil || !s.seesAllMembers() {
		return false
	}
	kinds := make([]aggregate.Kind, 0, len(p.Kinds))
	for _, k := range p.Kinds {
		kinds = append(kinds, k.Kind)
	}
	if p.AnyKind {
		kinds = slices.AppendSeq(kinds, s.state.Snapshot.Kinds())
	}
	return len(s.partly(kinds)) == 0
}

// whole reports whether the caller may read all that a policy, which it may read, evaluates in a member.
func (s readScope) whole(binding, member string) bool {
	p := s.state.Package(binding)
	switch {
	case p == nil:
		return false
	case member == "": // keys of a view: mayRead has checked what it is built from
		return p.SubjectView != ""
	case !s.reader.MayReadMember(member):
		return false
	case p.AnyKind:
		for _, kind := range s.state.Snapshot.KindsOf(member) {
			if !s.wholeKind(member, kind) {
				return false
			}
		}
	}
	for _, k := range p.Kinds {
		if !s.wholeKind(member, k.Kind) {
			return false
		}
	}
	return true
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

// Times between the samples of a costHistory, and how long they are used.
const (
	costStep = 10 * time.Second
	costKept = 5 * time.Minute
)

// costHistory keeps what evaluations had taken at some times in the past, so that it can be said what they
// take now. The zero value is ready to use.
type costHistory struct {
	mu      sync.Mutex
	samples []costSample // the oldest first
}

type costSample struct {
	at       time.Time
	byPolicy map[string]costTotal
}

type costTotal struct{ evaluations, nanoseconds int64 }

// rates returns what policies have taken between the oldest sample and a state, which is of now. Policies
// that are not in both are left out.
func (h *costHistory) rates(s *policy.State, now time.Time) map[string]PolicyCost {
	totals := map[string]costTotal{}
	for b := range s.Bindings() {
		health, _ := s.Health(b.Name)
		totals[b.Name] = costTotal{health.Evaluations, health.Nanoseconds}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.samples) > 1 && now.Sub(h.samples[1].at) >= costKept {
		h.samples = h.samples[1:]
	}
	if n := len(h.samples); n == 0 || now.Sub(h.samples[n-1].at) >= costStep {
		h.samples = append(h.samples, costSample{now, totals})
	}
	oldest := h.samples[0]
	seconds := now.Sub(oldest.at).Seconds()
	if seconds < costStep.Seconds() {
		return nil // too short to say anything
	}
	out := map[string]PolicyCost{}
	for name, total := range totals {
		before, ok := oldest.byPolicy[name]
		if n := total.evaluations - before.evaluations; ok && n >= 0 && total.nanoseconds >= before.nanoseconds {
			cost := PolicyCost{CPUShare: float64(total.nanoseconds-before.nanoseconds) / 1e9 / seconds, EvaluationsPerSecond: float64(n) / seconds}
			if n > 0 {
				cost.PerEvaluationMicros = float64(total.nanoseconds-before.nanoseconds) / 1e3 / float64(n)
			}
			out[name] = cost
		}
	}
	return out
}
