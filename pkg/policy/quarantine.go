package policy

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
)

// overruns notices what uses its time again and again without an answer, by the member
// that it is about: to exceed the budget is one way to do so. A hundredth of an overrun
// is forgiven with every answer. It also notices slow evaluations that together take so
// long that those of other members wait for them. A member in quarantine is evaluated no more until its
// time is over; each time that follows on another is twice as long.
type overruns struct {
	some atomic.Bool // there is a score
	mu   sync.Mutex
	by   map[string]*score
}

// score is that of one member.
type score struct {
	points int64
	slow   time.Duration // of slow evaluations, not yet forgiven
	seen   time.Time     // when it was last counted
	why    string        // of the quarantine; "" when there is none
	until  time.Time     // when the quarantine ends, or ended
	last   time.Duration
}

const (
	overrun = 100 // points

	firstQuarantine   = time.Minute
	longestQuarantine = time.Hour
)

// count takes note of what an evaluation has cost.
func (o *overruns) count(member string, c cost, opts *EngineOptions) {
	if c.none() && !o.some.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.by[member]
	if s == nil {
		if c.none() {
			return
		}
		if o.by == nil {
			o.by = map[string]*score{}
		}
		s = &score{}
		o.by[member] = s
		o.some.Store(true)
	}
	if c.err == nil && s.points > 0 {
		s.points--
	}
	s.points += max(c.wasted, 0)
	if c.slow > 0 {
		s.charge(c.slow, opts.Clock(), opts.Parallelism)
	}
	why := ""
	switch {
	case s.why != "":
	case s.points >= int64(opts.Limits.Overruns)*overrun:
		why = waste(c.err)
	case s.slow >= opts.Limits.Slow:
		why = fmt.Sprintf("its evaluations are slow: they took %v of CPU time, which others waited for", s.slow.Round(time.Millisecond))
	}
	if why != "" {
		at := opts.Clock()
		if s.last == 0 || at.Sub(s.until) > s.last { // the one before is long over
			s.last = firstQuarantine
		} else {
			s.last = min(2*s.last, longestQuarantine)
		}
		s.why, s.until = why, at.Add(s.last)
	}
}

// charge adds the time of a slow evaluation, and forgives what a quarter of the
// processors could do since the last one: others have the rest.
func (s *score) charge(slow time.Duration, at time.Time, processors int) {
	if !s.seen.IsZero() {
		s.slow = max(0, s.slow-max(0, at.Sub(s.seen))*time.Duration(processors)/4)
	}
	s.slow, s.seen = s.slow+slow, at
}

// held is why a member is in quarantine; "" if it is not.
func (o *overruns) held(member string) string {
	if !o.some.Load() {
		return ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.by[member]; s != nil && s.why != "" {
		return "it is quarantined: " + s.why
	}
	return ""
}

// due ends the quarantines whose time is over, and returns their members.
func (o *overruns) due(now time.Time) []string {
	if !o.some.Load() {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var members []string
	for member, s := range o.by {
		if s.why != "" && !now.Before(s.until) {
			s.why, s.points, s.slow = "", 0, 0
			members = append(members, member)
		}
	}
	return members
}

// quarantines yields the members in quarantine, in order.
func (o *overruns) quarantines() (list []Quarantine) {
	if !o.some.Load() {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, member := range slices.Sorted(maps.Keys(o.by)) {
		if s := o.by[member]; s.why != "" {
			list = append(list, Quarantine{Member: member, Why: s.why, Until: s.until})
		}
	}
	return list
}

// forget forgets a member that is gone.
func (o *overruns) forget(member string) {
	if !o.some.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.by, member)
	o.some.Store(len(o.by) > 0)
}

// forgetAll forgets all members.
func (o *overruns) forgetAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.by = nil
	o.some.Store(false)
}

// Quarantine is a member for which a policy is not evaluated for a while: evaluations
// use up their time and give no answer, again and again, or are slow for so long that
// others wait for them. Verdicts that nothing touches
// stay what they are; others of the member are Errors, and are evaluated when it ends.
type Quarantine struct {
	Member string    `json:"member"`
	Why    string    `json:"why"`
	Until  time.Time `json:"until"`
}

// blamed is the member of which an evaluation's waste is held against: the subject's,
// or the one that has contributed most to a key.
func (b *bound) blamed(s Subject) string {
	if b.pkg.Subject != module.ViewSubject {
		return s.Ref.Member
	}
	sizes, worst := map[string]int64{}, ""
	for e := range b.view.under(s.Key) {
		m := e.of.ref.Member
		if sizes[m] += e.size(); worst == "" || sizes[m] > sizes[worst] {
			worst = m
		}
	}
	return worst
}

// held is why an evaluation is held back, and the member for which; "" if it is not.
func (b *bound) held(s Subject) (member, why string) {
	if !b.score.some.Load() {
		return "", ""
	}
	member = b.blamed(s)
	return member, b.score.held(member)
}

// release marks what quarantines have held back whose time is over. Contributions are
// evaluated at once.
func (r *round) release() error {
	now := r.e.opts.Clock()
	for _, v := range r.e.views {
		members := v.score.due(now)
		if len(members) == 0 {
			continue
		}
		var list []aggregate.Object
		v.failed.Scan(func(c *contrib) bool {
			if c.held && slices.Contains(members, c.ref.Member) {
				if o, ok := r.after.Get(c.ref); ok {
					list = append(list, o)
				}
			}
			return true
		})
		if err := r.fill(v, list); err != nil {
			return err
		}
	}
	for _, b := range r.e.bounds {
		members := b.score.due(now)
		if len(members) == 0 {
			continue
		}
		b.records.Scan(func(rec record) bool {
			switch {
			case rec.found == nil || rec.found.held == "" || !slices.Contains(members, rec.found.held):
			case b.pkg.Subject == module.ObjectSubject:
				r.mark(b, rec.subject.Ref)
			default:
				r.markSubject(b, rec.subject)
			}
			return true
		})
	}
	return nil
}
