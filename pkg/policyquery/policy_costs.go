package policyquery

import (
	"math"
	"slices"
	"sync"
	"time"

	"federator.dev/federator/pkg/policy"
)

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
