package history

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
)

// Verdicts are where verdicts come from.
type Verdicts interface {
	Point() *enforce.Point
	Newer(*enforce.Point) <-chan struct{}
}

// FollowVerdicts records which violations open, change and close until ctx is done. What the process before has
// recorded as open, and still is, is not recorded again.
func (h *History) FollowVerdicts(ctx context.Context, from Verdicts) error {
	f := &follower{history: h, open: map[string]map[string]opened{}}
	for last := (*enforce.Point)(nil); ; {
		select {
		case <-from.Newer(last):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		next := from.Point()
		if last != nil {
			next = last.Next()
		}
		f.now = h.clock.now().UTC()
		if err := f.point(last, next); err != nil {
			return err
		}
		last = next
		if err := f.tell(ctx); err != nil {
			return err
		}
	}
}

// follower takes transitions of verdicts. It belongs to one goroutine.
type follower struct {
	history *History
	state   *policy.State // as recorded
	now     time.Time
	last    time.Time // of the point before
	out     []Record

	// open are violations that the process before has recorded as open, and of which it is not known yet whether they still are: by policy, and what
	// identifies them. asked are the policies that were looked up.
	open  map[string]map[string]opened
	asked map[string]bool

	doubts doubts
	// hidden are the violations that a failure hides, by what identifies them: why each is exempt as recorded.
	hidden map[string]string
	reads  map[readsKey]readBy // of the states of this point
}

type readsKey struct {
	state  *policy.State
	policy string
}

type opened struct {
	record Record
	still  bool
}

func (f *follower) tell(ctx context.Context) error {
	for batch := range slices.Chunk(f.out, batchRecords) {
		if err := f.history.Tell(ctx, slices.Clone(batch)); err != nil {
			return err
		}
	}
	f.out = f.out[:0]
	return nil
}

// point takes how the verdicts differ from those of the point before.
func (f *follower) point(last, next *enforce.Point) error {
	f.reads = map[readsKey]readBy{}
	changes, state := next.Changes(), next.State()
	if changes != nil && last != nil {
		state = changes.After
	}
	if err := f.recall(state); err != nil {
		return err
	}
	switch {
	case last == nil || changes == nil: // the first, or one that was not kept long enough
		if f.state != nil {
			f.gap("verdicts changed faster than they could be recorded")
		}
		f.compare(f.state, state)
		f.state = state
	default:
		for c := range changes.All() {
			f.change(changes.Before, changes.After, &c)
		}
		f.state = changes.After
	}
	f.settle()
	f.out = f.doubts.settle(f.state, f.now, f.out)
	f.last = f.now
	return nil
}

// compare takes all that differs between two states; before is nil where there is none.
func (f *follower) compare(before, after *policy.State) {
	each := func(of *policy.State, is func(policy.Verdict)) {
		if of == nil {
			return
		}
		for b := range of.Bindings() {
			for v := range of.Findings(b.Name, "") {
				is(v)
			}
		}
	}
	each(before, func(v policy.Verdict) {
		if now, ok := after.Get(v.Binding, v.Subject); !ok || now.Clean() {
			f.change(before, after, &policy.Change{Before: &v})
		}
	})
	each(after, func(v policy.Verdict) {
		c := policy.Change{After: &v}
		if before != nil {
			if was, ok := before.Get(v.Binding, v.Subject); ok {
				c.Before = &was
			}
		}
		f.change(before, after, &c)
	})
}

// change takes how the verdict on one subject differs.
func (f *follower) change(before, after *policy.State, c *policy.Change) {
	v := c.After
	if v == nil {
		v = c.Before
	}
	if member := v.Subject.Ref.Member; member != "" && !after.Judges(member) {
		if _, is := after.Snapshot.Member(member); is {
			return // another process goes on with it
		}
	}
	if c.After == nil {
		f.doubts.checked = 0 // the subject may be gone
	}
	was, is := violationsOf(before, c.Before), violationsOf(after, c.After)
	for _, x := range is {
		i := slices.IndexFunc(was, func(y seenViolation) bool { return x.digest == y.digest })
		if i < 0 {
			f.found(after, v, x)
		} else {
			f.stays(after, v, was[i], x)
		}
	}
	for _, x := range was {
		if slices.ContainsFunc(is, func(y seenViolation) bool { return x.digest == y.digest }) {
			continue
		}
		if !x.shown {
			x.exempt, _ = f.unhide(before, v, x)
		}
		if c.After != nil && c.After.State == policy.Unknown {
			f.doubts.add(f.violationRecord(before, v, x, Closed), v)
		} else {
			f.violation(before, v, x, Closed)
		}
	}
	failed := c.Before != nil && c.Before.State == policy.Error
	fails := c.After != nil && c.After.State == policy.Error
	switch {
	case fails && (!failed || c.Before.Message != c.After.Message):
		f.verdict(after, v, Failed, c.After.Message, v.FirstSeen.At(0))
	case failed && c.After == nil: // it is not judged any more
		f.verdict(before, v, Known, "", c.Before.FirstSeen.At(0))
	case failed && !fails:
		f.verdict(after, v, Known, "", c.Before.FirstSeen.At(0))
	}
}

// verdict takes that an evaluation fails, or no longer does.
func (f *follower) verdict(s *policy.State, v *policy.Verdict, transition, message string, since time.Time) {
	r := f.record(s, v, transition)
	r.Message = message
	if !since.IsZero() {
		since = since.UTC()
		r.FirstSeen = &since
	}
	r.Key = join(r.key(), fmt.Sprintf("%016x", xxhash.Sum64String(message)))
	f.out = append(f.out, r)
}

func (f *follower) record(s *policy.State, v *policy.Verdict, transition string) Record {
	ref, reads := v.Subject.Ref, f.readsOf(s, v.Binding)
	r := Record{
		Time: f.now, Type: Verdict, Transition: transition, Revision: s.Snapshot.Revision(), Member: ref.Member, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name,
		Policy: v.Binding, Version: v.Version, Subject: v.Subject.Key, Reads: reads.fleet, External: reads.external,
	}
	if p := s.PackageIn(v.Binding, ref.Member); p != nil {
		r.Severity = p.Severity
	}
	if m, ok := s.Snapshot.Member(ref.Member); ok {
		r.MemberUID = m.UID
	}
	if o, ok := s.Snapshot.Get(ref); ok {
		r.UID, r.ResourceVersion, r.Resource = o.UID(), o.ResourceVersion(), o.Resource()
	}
	return r
}

// maxReadMembers is how many members are recorded that a policy sees, and maxReadSources how many sources of external documents.
const (
	maxReadMembers = 16
	maxReadSources = 16
)

// readBy is what a policy looks at besides its subjects.
type readBy struct {
	fleet    *Reads
	external []string
}

// readsOf returns what a policy looks at besides its subjects.
func (f *follower) readsOf(s *policy.State, binding string) readBy {
	key := readsKey{s, binding}
	if r, known := f.reads[key]; known {
		return r
	}
	scope := s.ReadScope(binding)
	var r *Reads
	external := scope.Sources
	if len(external) > maxReadSources {
		external = []string{""}
	}
	if scope.Fleet {
		r = &Reads{Kinds: slices.Collect(slices.Values(scope.Kinds.Among(s.Kinds())))}
		all := 0
		for range s.Snapshot.Members() {
			all++
		}
		if len(scope.Members) < all && len(scope.Members) <= maxReadMembers {
			r.Members = scope.Members
			for _, name := range scope.Members {
				m, _ := s.Member(name)
				r.MemberUIDs = append(r.MemberUIDs, m.UID)
			}
		}
	}
	by := readBy{r, external}
	f.reads[key] = by
	return by
}

func (f *follower) gap(why string) {
	to := f.now
	from := f.last
	f.out = append(f.out, Record{Time: f.now, Type: Gap, Transition: "Gap", From: &from, To: &to, Message: why, Key: join("gap", verdictsGap, to.Format(time.RFC3339Nano))})
}
