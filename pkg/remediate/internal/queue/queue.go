// Package queue has the targets of one policy that are to be written, by member and in
// order. A change costs what it changes, however many targets there are.
package queue

import (
	"cmp"
	"strings"
	"time"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/pqueue"
)

// Queue is not safe for concurrent use.
type Queue struct {
	members map[string]*member
	retries *pqueue.Queue[policy.Ref, retry]
	due     int
	running int
}

// member has the targets in one member.
type member struct {
	due     *pqueue.Queue[policy.Ref, string]
	running map[policy.Ref]bool
}

// retry is when a target is due again, and its name: times may be equal.
type retry struct {
	at   time.Time
	name string
}

// New returns an empty queue.
func New() *Queue {
	return &Queue{members: map[string]*member{}, retries: pqueue.New[policy.Ref](func(a, b retry) int {
		return cmp.Or(a.at.Compare(b.at), strings.Compare(a.name, b.name))
	})}
}

func (q *Queue) member(name string) *member {
	m := q.members[name]
	if m == nil {
		m = &member{pqueue.New[policy.Ref](strings.Compare), map[policy.Ref]bool{}}
		q.members[name] = m
	}
	return m
}

// drop drops a member without targets.
func (q *Queue) drop(name string) {
	if m := q.members[name]; m != nil && m.due.Len() == 0 && len(m.running) == 0 {
		delete(q.members, name)
	}
}

// Add makes a target due, unless it is being written: End says whether it is due after that.
func (q *Queue) Add(target policy.Ref) {
	m := q.member(target.Member)
	if m.running[target] || m.due.Has(target) {
		return
	}
	q.retries.Remove(target)
	m.due.Set(target, target.String())
	q.due++
}

// AddAt makes a target due at a time.
func (q *Queue) AddAt(target policy.Ref, at time.Time) {
	q.Remove(target)
	if m := q.members[target.Member]; m == nil || !m.running[target] {
		q.retries.Set(target, retry{at, target.String()})
	}
}

// Remove makes a target not due; it may be being written.
func (q *Queue) Remove(target policy.Ref) {
	q.retries.Remove(target)
	if m := q.members[target.Member]; m != nil && m.due.Remove(target) {
		q.due--
		q.drop(target.Member)
	}
}

// Begin takes a target that is due, which is being written until End.
func (q *Queue) Begin(target policy.Ref) {
	q.Remove(target)
	q.member(target.Member).running[target] = true
	q.running++
}

// End ends Begin. The target is not due.
func (q *Queue) End(target policy.Ref) {
	if m := q.members[target.Member]; m != nil && m.running[target] {
		delete(m.running, target)
		q.running--
		q.drop(target.Member)
	}
}

// Next returns the first target of a member that is due.
func (q *Queue) Next(name string) (target policy.Ref, ok bool) {
	m := q.members[name]
	if m == nil {
		return target, false
	}
	target, _, ok = m.due.Min()
	return target, ok
}

// Retries makes the targets due whose time has come, and returns these, and when the next
// one comes; zero is never.
func (q *Queue) Retries(now time.Time) (due []policy.Ref, next time.Time) {
	for target, at, ok := q.retries.Min(); ok; target, at, ok = q.retries.Min() {
		if at.at.After(now) {
			return due, at.at
		}
		q.Add(target)
		due = append(due, target)
	}
	return due, time.Time{}
}

// Len returns how many targets are due or being written.
func (q *Queue) Len() int { return q.due + q.running }

// Members calls f with each member that has targets that are due or being written, and how
// many, in no order.
func (q *Queue) Members(f func(name string, due, running int)) {
	for name, m := range q.members {
		f(name, m.due.Len(), len(m.running))
	}
}
