// Package quarantine withholds a policy's evaluations for members for which they
// repeatedly use up their time.
package quarantine

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"federator.dev/federator/pkg/policy/internal/budget"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// Scores detects, by member, evaluations that repeatedly use their time without a result,
// for instance by exceeding the budget; every result forgives a hundredth of an overrun.
// It also detects slow evaluations that together take so long that those of other members
// wait for them. A quarantined member is not evaluated until the quarantine expires; each
// one that closely follows another is twice as long.
type Scores struct {
	nonEmpty atomic.Bool // byMember has entries
	mu       sync.Mutex
	byMember map[string]*score
}

// score is the score of one member.
type score struct {
	points  int64
	slow    time.Duration // of slow evaluations, decaying
	counted time.Time     // when slow was last charged
	reason  string        // of the quarantine; "" when there is none
	until   time.Time     // end of the present or last quarantine
	last    time.Duration
}

const (
	firstQuarantine   = time.Minute
	longestQuarantine = time.Hour
)

// Rules say when a member is quarantined.
type Rules struct {
	Overruns   int           // evaluations that use their time without a result
	Slow       time.Duration // CPU time of slow evaluations
	Processors int
	Clock      func() time.Time
}

// Count adds the cost of an evaluation.
func (o *Scores) Count(member string, c budget.Cost, rules *Rules) {
	if c.None() && !o.nonEmpty.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.byMember[member]
	if s == nil {
		if c.None() {
			return
		}
		if o.byMember == nil {
			o.byMember = map[string]*score{}
		}
		s = &score{}
		o.byMember[member] = s
		o.nonEmpty.Store(true)
	}
	if c.Err == nil && s.points > 0 {
		s.points--
	}
	s.points += max(c.Wasted, 0)
	if c.Slow > 0 {
		s.charge(c.Slow, rules.Clock(), rules.Processors)
	}
	why := ""
	switch {
	case s.reason != "":
	case s.points >= int64(rules.Overruns)*budget.OverrunPoints:
		why = budget.QuarantineReason(c.Err)
	case s.slow >= rules.Slow:
		why = fmt.Sprintf("its evaluations are slow: they took %v of CPU time while others waited", s.slow.Round(time.Millisecond))
	}
	if why != "" {
		at := rules.Clock()
		if s.last == 0 || at.Sub(s.until) > s.last { // the last one ended long ago
			s.last = firstQuarantine
		} else {
			s.last = min(2*s.last, longestQuarantine)
		}
		s.reason, s.until = why, at.Add(s.last)
	}
}

// charge adds the time of a slow evaluation, and subtracts what a quarter of the
// processors could do since the last one: the others are left to other members.
func (s *score) charge(slow time.Duration, at time.Time, processors int) {
	if !s.counted.IsZero() {
		s.slow = max(0, s.slow-max(0, at.Sub(s.counted))*time.Duration(processors)/4)
	}
	s.slow, s.counted = s.slow+slow, at
}

// NonEmpty reports whether any member has a score.
func (o *Scores) NonEmpty() bool { return o.nonEmpty.Load() }

// Reason is why a member is quarantined; "" if it is not.
func (o *Scores) Reason(member string) string {
	if !o.nonEmpty.Load() {
		return ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.byMember[member]; s != nil && s.reason != "" {
		return "it is quarantined: " + s.reason
	}
	return ""
}

// Expire ends expired quarantines, and returns their members.
func (o *Scores) Expire(now time.Time) []string {
	if !o.nonEmpty.Load() {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var members []string
	for member, s := range o.byMember {
		if s.reason != "" && !now.Before(s.until) {
			s.reason, s.points, s.slow = "", 0, 0
			members = append(members, member)
		}
	}
	return members
}

// List returns the quarantines, by member.
func (o *Scores) List() (list []verdict.Quarantine) {
	if !o.nonEmpty.Load() {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, member := range slices.Sorted(maps.Keys(o.byMember)) {
		if s := o.byMember[member]; s.reason != "" {
			list = append(list, verdict.Quarantine{Member: member, Reason: s.reason, Until: s.until})
		}
	}
	return list
}

// Kept is what of a member's score outlasts a process: its quarantine, or when the last one ended, from
// which the length of the next one follows.
type Kept struct {
	Member string        `json:"member"`
	Reason string        `json:"reason,omitempty"` // "": it has ended
	Until  time.Time     `json:"until"`
	Last   time.Duration `json:"last"` // how long it is
}

// Kept returns what outlasts the process, by member.
func (o *Scores) Kept(now time.Time) (list []Kept) {
	if !o.nonEmpty.Load() {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, member := range slices.Sorted(maps.Keys(o.byMember)) {
		if s := o.byMember[member]; s.last > 0 && now.Sub(s.until) <= s.last {
			list = append(list, Kept{Member: member, Reason: s.reason, Until: s.until.UTC().Round(0), Last: s.last})
		}
	}
	return list
}

// Restore restores what an earlier process has kept of a member: a quarantine that has not ended meanwhile,
// for longestQuarantine at most, whatever was kept.
func (o *Scores) Restore(k Kept, now time.Time) {
	if latest := now.Add(longestQuarantine); k.Until.After(latest) {
		k.Until = latest
	}
	if !now.Before(k.Until) {
		k.Reason = ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byMember == nil {
		o.byMember = map[string]*score{}
	}
	o.byMember[k.Member] = &score{reason: k.Reason, until: k.Until, last: min(max(k.Last, firstQuarantine), longestQuarantine)}
	o.nonEmpty.Store(true)
}

// Remove forgets a member that left.
func (o *Scores) Remove(member string) {
	if !o.nonEmpty.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.byMember, member)
	o.nonEmpty.Store(len(o.byMember) > 0)
}

// Reset forgets all members.
func (o *Scores) Reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.byMember = nil
	o.nonEmpty.Store(false)
}
