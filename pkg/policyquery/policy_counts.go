package policyquery

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

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

// Times between the samples of costHistory, and the longest time that costs are of.
const (
	costStep = 10 * time.Second
	costKept = 5 * time.Minute
)

// PolicyCost is what evaluating a policy has taken lately.
type PolicyCost struct {
	CPUShare             float64 `json:"cpuShare"` // processors in use
	EvaluationsPerSecond float64 `json:"evaluationsPerSecond"`
	PerEvaluationMicros  float64 `json:"perEvaluationMicros"`
	WindowSeconds        int     `json:"windowSeconds"` // the time before the answer that this is of
	// Rules are the lines that take most of it, where only this policy is asked for, from Samples
	// evaluations that were traced; views are not included.
	Rules   []PolicyRuleCost `json:"rules,omitempty"`
	Samples int              `json:"samples,omitempty"`
}

// PolicyRuleCost is a line of a policy and what it takes.
type PolicyRuleCost struct {
	Rule   string  `json:"rule,omitempty"` // that the line belongs to
	File   string  `json:"file"`           // as in the policy's Rego
	Line   int     `json:"line"`
	Share  float64 `json:"share"`  // of the time of evaluations, in thousandths
	Micros float64 `json:"micros"` // of one evaluation, of all since the policy is what it is
}

// maxRuleCosts bounds the lines of a PolicyCost.
const maxRuleCosts = 10

// addRules adds the dearest lines of a policy.
func (c *PolicyCost) addRules(s *policy.State, name string) {
	lines, samples := s.DearestLines(name, maxRuleCosts)
	c.Samples = samples
	h, _ := s.Health(name)
	perEvaluation := float64(h.Nanoseconds) / 1e3 / float64(max(h.Evaluations, 1)) // also of a policy that rests now
	for _, l := range lines {
		thousandths := func(x float64) float64 { return math.Round(1000*x) / 1000 }
		c.Rules = append(c.Rules, PolicyRuleCost{l.Rule, l.File, l.Line, thousandths(l.Share), thousandths(l.Share * perEvaluation)})
	}
}

// TestedBy is who has run tests that all have passed.
type TestedBy string

// Who has. A commit becomes active only after its tests have passed on the replica that answers.
const (
	TestedByGate  TestedBy = "gate"  // of the commit that is active
	TestedAtBuild TestedBy = "build" // of federator, for its own policies
	NotTested     TestedBy = ""
)

// PolicyTests are the Rego tests of a policy's package.
type PolicyTests struct {
	Rego int `json:"rego"` // how many there are: rules test_… of the package or of <package>_test
	// By is who has run them: gate, build, or nobody. Those whose name begins with todo_ are not
	// counted; what they cover is not measured.
	By TestedBy `json:"by,omitempty"`
}

// costHistory keeps what evaluations had taken at some times of the last minutes, so that it can be said what they
// take now, no matter who asks when. The zero value is ready to use.
type costHistory struct {
	mu      sync.Mutex
	samples []costSample // the oldest first
}

type costSample struct {
	at       time.Time
	byPolicy map[string]costTotal
}

type costTotal struct{ evaluations, nanoseconds int64 }

func costTotals(s *policy.State) map[string]costTotal {
	totals := map[string]costTotal{}
	for b := range s.Bindings() {
		health, _ := s.Health(b.Name)
		totals[b.Name] = costTotal{health.Evaluations, health.Nanoseconds}
	}
	return totals
}

// sample keeps what a state, which is of now, says.
func (h *costHistory) sample(s *policy.State, now time.Time) {
	totals := costTotals(s)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.samples = slices.DeleteFunc(h.samples, func(c costSample) bool { // the clock may have gone back
		return now.Sub(c.at) > costKept || c.at.After(now)
	})
	if n := len(h.samples); n == 0 || now.Sub(h.samples[n-1].at) >= costStep {
		h.samples = append(h.samples, costSample{now, totals})
	}
}

// rates returns what policies have taken between the oldest sample of the last minutes and a state, which is of
// now. Policies that are not in both are left out.
func (h *costHistory) rates(s *policy.State, now time.Time) map[string]PolicyCost {
	oldest, ok := h.oldest(now)
	if !ok {
		return nil
	}
	seconds := now.Sub(oldest.at).Seconds()
	out := map[string]PolicyCost{}
	for name, total := range costTotals(s) {
		before, ok := oldest.byPolicy[name]
		if n := total.evaluations - before.evaluations; ok && n >= 0 && total.nanoseconds >= before.nanoseconds {
			cost := PolicyCost{CPUShare: float64(total.nanoseconds-before.nanoseconds) / 1e9 / seconds, EvaluationsPerSecond: float64(n) / seconds, WindowSeconds: int(seconds)}
			if n > 0 {
				cost.PerEvaluationMicros = float64(total.nanoseconds-before.nanoseconds) / 1e3 / float64(n)
			}
			out[name] = cost
		}
	}
	return out
}

// oldest returns the oldest sample of the last minutes that is old enough to say something.
func (h *costHistory) oldest(now time.Time) (costSample, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.samples {
		if age := now.Sub(c.at); age >= costStep && age <= costKept {
			return c, true
		}
	}
	return costSample{}, false
}

// plus returns what two processes take together. The lines are those of the one that has traced more.
func (c *PolicyCost) plus(o *PolicyCost) *PolicyCost {
	if c == nil || o == nil {
		return nil // one does not know, or may not say
	}
	out := *c
	if o.Samples > c.Samples {
		out.Rules, out.Samples = o.Rules, o.Samples
	}
	out.CPUShare += o.CPUShare
	if out.EvaluationsPerSecond += o.EvaluationsPerSecond; out.EvaluationsPerSecond > 0 {
		out.PerEvaluationMicros = (c.PerEvaluationMicros*c.EvaluationsPerSecond + o.PerEvaluationMicros*o.EvaluationsPerSecond) / out.EvaluationsPerSecond
	}
	out.WindowSeconds = min(c.WindowSeconds, o.WindowSeconds)
	return &out
}
