package versions

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
)

const (
	compareInterval = 2 * time.Second // between two comparisons of a policy
	compareRest     = 19              // times what comparing took, until the next: 5 % of the time
	costEvaluations = 20              // of each version, before their costs are compared
)

// Evidence compares the versions of policies, each every other second, and all of them in a
// twentieth of the time at most. It belongs to one goroutine.
type Evidence struct {
	of   map[types.UID]*compared
	next time.Time // no policy is compared before
}

type compared struct {
	version  string
	at       time.Time
	evidence *v1alpha1.RolloutEvidence
}

// Compared is a policy with versions to compare.
type Compared struct {
	UID     types.UID
	Name    string
	Version string // of the next one, as verdicts name it
	First   bool   // there is no other
}

// Update compares those that are due, the one that was compared longest ago first, and forgets
// all others than these.
func (e *Evidence) Update(state *policy.State, policies []Compared, clock func() time.Time) {
	next := make(map[types.UID]*compared, len(policies))
	due := make([]*Compared, 0, len(policies))
	for i := range policies {
		p := &policies[i]
		is := e.of[p.UID]
		if is == nil || is.version != p.Version {
			is = &compared{version: p.Version}
		}
		next[p.UID] = is
		due = append(due, p)
	}
	e.of = next
	slices.SortStableFunc(due, func(a, b *Compared) int { return next[a.UID].at.Compare(next[b.UID].at) })
	for _, p := range due {
		is, now := next[p.UID], clock()
		if now.Before(e.next) || !is.at.IsZero() && now.Sub(is.at) < compareInterval {
			return // those after it were compared later
		}
		is.evidence = evidenceOf(state, p)
		is.at = clock()
		e.next = is.at.Add(compareRest * is.at.Sub(now))
	}
}

// Of returns the evidence on a policy's next version, nil while there is none.
func (e *Evidence) Of(uid types.UID) *v1alpha1.RolloutEvidence {
	if is := e.of[uid]; is != nil {
		return is.evidence
	}
	return nil
}

// evidenceOf compares the versions of a policy: nil where the state is not of them.
func evidenceOf(state *policy.State, p *Compared) *v1alpha1.RolloutEvidence {
	if p.First {
		return evidenceOfFirst(state, p)
	}
	c, ok := state.Compare(p.Name)
	if !ok || c.Version != p.Version {
		return nil
	}
	return FromComparison(&c)
}

// FromComparison returns evidence as a status has it.
func FromComparison(c *policy.Comparison) *v1alpha1.RolloutEvidence {
	out := &v1alpha1.RolloutEvidence{Complete: c.Complete, Unknown: int64(c.Unknown + c.Unsettled), Subjects: int64(c.Subjects), New: int64(c.New), Gone: int64(c.Gone), Errors: int64(c.Errors)}
	out.Cost = Cost(&c.Former, &c.Next)
	return out
}

// Cost returns the CPU time of an evaluation in percent of the former version's: nil until each
// was evaluated often enough.
func Cost(former, next *policy.Health) *int64 {
	if former.Evaluations < costEvaluations || next.Evaluations < costEvaluations || former.Nanoseconds <= 0 {
		return nil
	}
	per := func(h *policy.Health) float64 { return float64(h.Nanoseconds) / float64(h.Evaluations) }
	cost := int64(100 * per(next) / per(former))
	return &cost
}

// evidenceOfFirst returns what the first version of a policy finds.
func evidenceOfFirst(state *policy.State, p *Compared) *v1alpha1.RolloutEvidence {
	for b := range state.Bindings() {
		if b.Name == p.Name && b.Version == p.Version {
			return FromFirst(state, p.Name)
		}
	}
	return nil
}

// FromFirst returns what a version finds that has no former one. While none of its verdicts is known it was judged on
// nothing; a member that is away for days holds up none of which others are known.
func FromFirst(state *policy.State, name string) *v1alpha1.RolloutEvidence {
	n := state.Total(name)
	out := &v1alpha1.RolloutEvidence{Subjects: int64(n.Known + n.Unknown + n.Errors), New: int64(n.Violations), Errors: int64(n.Errors)}
	if n.Known == 0 && n.Errors == 0 {
		out.Unknown = int64(n.Unknown)
	}
	out.Complete = out.Unknown == 0 && state.Synced && state.BindingSynced(name)
	return out
}
