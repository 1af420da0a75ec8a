package bulkrollback

import (
	"cmp"
	"slices"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/remediate/rollbackplan"
)

// Retries of what could not be done yet.
const (
	retryMember = time.Second
	retryFirst  = 2 * time.Second
	retryMost   = time.Minute
	maxScan     = 100 // targets of a member that are looked at for one that is due
	maxOutcomes = 20  // of a status
)

// item is a target that is not done.
type item struct {
	member, memberUID string
	actions           []string // that are left, the newest first
	tries             int
	due               time.Time
}

// outcome is what has become of an item.
type outcome struct {
	it      *item
	result  v1alpha1.RollbackResult // "" where it is done, or tried again
	reason  string
	message string
	retry   bool
}

// memberQueue are the items of a member.
type memberQueue struct {
	items   []*item
	running int
	due     time.Time
}

// queue are the targets of a Plan, members in turns.
type queue struct {
	names   []string
	members map[string]*memberQueue
	turn    int

	total, done, failed, refused, running int

	outcomes []v1alpha1.RollbackOutcome
	waiting  string // why something is tried again, the last time
}

func newQueue(planned []rollbackplan.Planned) *queue {
	q := &queue{members: map[string]*memberQueue{}, total: len(planned)}
	for _, p := range planned {
		m := q.members[p.Ref.Member]
		if m == nil {
			m = &memberQueue{}
			q.members[p.Ref.Member] = m
			q.names = append(q.names, p.Ref.Member)
		}
		m.items = append(m.items, &item{member: p.Ref.Member, memberUID: p.MemberUID, actions: p.Actions})
	}
	return q
}

// next takes an item that may be written now, nil if there is none.
func (q *queue) next(now time.Time) *item {
	for range q.names {
		m := q.members[q.names[q.turn]]
		q.turn = (q.turn + 1) % len(q.names)
		if m.running >= maxPerMember || now.Before(m.due) {
			continue
		}
		for n := range min(len(m.items), maxScan) {
			if it := m.items[n]; !now.Before(it.due) {
				m.items = slices.Delete(m.items, n, n+1)
				m.running++
				q.running++
				return it
			}
		}
	}
	return nil
}

// ended counts an item, or has it tried again.
func (q *queue) ended(o outcome, now time.Time) {
	m := q.members[o.it.member]
	m.running--
	q.running--
	switch {
	case o.retry:
		o.it.due = now.Add(min(retryFirst<<min(o.it.tries, 10), retryMost))
		o.it.tries++
		m.due, q.waiting = now.Add(retryMember), o.message
		m.items = append(m.items, o.it)
		return
	case o.result == v1alpha1.ResultFailed:
		q.failed++
	case o.result == v1alpha1.ResultRefused:
		q.refused++
	default:
		q.done++
	}
	if q.waiting = ""; o.result != "" {
		q.add(o)
	}
}

// add counts an outcome by its reason.
func (q *queue) add(o outcome) {
	n := slices.IndexFunc(q.outcomes, func(x v1alpha1.RollbackOutcome) bool { return x.Result == o.result && x.Reason == o.reason })
	if n < 0 {
		action := ""
		if len(o.it.actions) > 0 {
			action = o.it.actions[0]
		}
		q.outcomes = append(q.outcomes, v1alpha1.RollbackOutcome{Result: o.result, Reason: o.reason, Action: action, Message: clip.Line(o.message, 256)})
		n = len(q.outcomes) - 1
	}
	q.outcomes[n].Targets++
}

// left is how many targets are not accounted for.
func (q *queue) left() int { return q.total - q.done - q.failed - q.refused }

func (q *queue) isDone() bool { return q.left() == 0 }

// list returns what a status lists: of what was left out before, and of what was not done.
func (q *queue) list(leftOut []v1alpha1.RollbackOutcome) []v1alpha1.RollbackOutcome {
	out := slices.DeleteFunc(slices.Clone(leftOut), func(o v1alpha1.RollbackOutcome) bool { return o.Result != v1alpha1.ResultLeftOut })
	own := slices.SortedFunc(slices.Values(q.outcomes), func(a, b v1alpha1.RollbackOutcome) int {
		return cmp.Or(cmp.Compare(b.Targets, a.Targets), cmp.Compare(a.Result, b.Result), cmp.Compare(a.Reason, b.Reason))
	})
	out = append(out, own...)
	return out[:min(len(out), maxOutcomes)]
}
