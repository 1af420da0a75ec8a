package policyquery

import (
	"fmt"
	"slices"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/series"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// pollStep is how often changes of the index are counted: until then what they replace stays in memory.
const pollStep = 10 * time.Second

// arrival is how long the end of an Action may take until it is seen here.
const arrival = 30 * time.Second

// sampler is what Series counts with. It belongs to the goroutine of Run.
type sampler struct {
	cursor    *aggregate.Cursor // nil before the first sync
	deltas    map[string]int64  // by member, since the last step
	deltasAt  int64             // the step during which counting began; at that one they are not complete
	corrected time.Time         // until when corrections are counted; zero: not at all
	step      int64             // the last one that was sampled
	policies  map[string]string // what their numbers are of, by name; they are replaced under the Series' lock
	members   map[string]string // UIDs, by name; the same
	kinds     countedKinds      // the same
}

// countedKinds are the kinds whose objects were counted in members, by name.
type countedKinds map[string][]aggregate.Kind

// kindsOf returns the kinds of members that are served: nobody can be asked who may read others.
func kindsOf(state *policy.State, served map[aggregate.Kind]bool) countedKinds {
	out := countedKinds{}
	for m := range state.Snapshot.Members() {
		for _, kind := range state.Snapshot.KindsOf(m.Name) {
			if served[kind] {
				out[m.Name] = append(out[m.Name], kind)
			}
		}
	}
	return out
}

// lost returns the members of which kinds were counted that are not there now: who may read all that is there need not
// have been allowed to read these.
func (c countedKinds) lost(now countedKinds) (members []string) {
	for member, kinds := range c {
		if slices.ContainsFunc(kinds, func(k aggregate.Kind) bool { return !slices.Contains(now[member], k) }) {
			members = append(members, member)
		}
	}
	return members
}

// readers returns the policies that read kinds besides their subjects of which some are not there now: their numbers,
// those of keys of views too, are of what was there in any member.
func (c countedKinds) readers(state *policy.State, now countedKinds) (policies []string) {
	gone := map[aggregate.Kind]bool{}
	for member, kinds := range c {
		for _, k := range kinds {
			if !slices.Contains(now[member], k) {
				gone[k] = true
			}
		}
	}
	for b := range state.Bindings() {
		reads := state.ReadScope(b.Name)
		if len(gone) > 0 && (reads.AnyKind || slices.ContainsFunc(reads.Kinds, func(k aggregate.Kind) bool { return gone[k] })) {
			policies = append(policies, b.Name)
		}
	}
	return policies
}

// tick counts what has changed, and samples once in each step.
func (q *Series) tick(now time.Time) {
	s := &q.sampler
	state := q.loop.State()
	if state != nil {
		q.costs.sample(state, now)
	}
	if state == nil || !state.Synced {
		return // numbers would grow while members are listed
	}
	step := stepOf(now)
	if s.cursor == nil {
		s.cursor, s.deltas, s.deltasAt, s.step = q.index.Cursor(q.index.Snapshot()), map[string]int64{}, step+1, step-1
	}
	if batch, some := s.cursor.Poll(); some {
		for d := range batch.Deltas() {
			s.deltas[d.Ref.Member]++
		}
	}
	if step < s.step-1 { // the clock went back: nothing would be recorded until it is there again
		q.restart()
		return
	}
	if step <= s.step {
		return
	}
	s.step = step
	q.sample(state, step, now)
}

// restart forgets everything: what follows starts from nothing.
func (q *Series) restart() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sampler = sampler{}
	q.rings = newRings()
}

// sample records the numbers of a step.
func (q *Series) sample(state *policy.State, step int64, now time.Time) {
	s := &q.sampler
	violations, unknown := map[series.Key]int64{}, map[series.Key]int64{}
	for b := range state.Bindings() {
		for member, c := range state.Counts(b.Name) {
			if c.Violations > 0 {
				violations[series.Key{Policy: b.Name, Member: member, Metric: metricViolations}] = int64(c.Violations)
			}
			if c.Unknown > 0 {
				unknown[series.Key{Policy: b.Name, Member: member, Metric: metricUnknown}] = int64(c.Unknown)
			}
		}
	}
	deltas := map[series.Key]int64{}
	for member, n := range s.deltas {
		deltas[series.Key{Member: member, Metric: metricDeltas}] = n
	}
	s.deltas = map[string]int64{}
	corrections, known := q.corrections(state, now)
	q.mu.Lock()
	defer q.mu.Unlock()
	served, _ := q.kinds()
	policies, members := s.changed(state, served)
	for _, ring := range q.rings {
		for _, name := range policies {
			ring.ForgetPolicy(name)
		}
		for _, name := range members {
			ring.ForgetMember(name)
		}
	}
	q.rings[metricViolations].Record(step, violations)
	q.rings[metricUnknown].Record(step, unknown)
	if step > s.deltasAt {
		q.rings[metricDeltas].Record(step, deltas)
		for _, name := range members { // some were of what had the name before
			q.rings[metricDeltas].ForgetMember(name)
		}
	}
	if known {
		q.rings[metricCorrections].Record(step, corrections)
	}
}

// corrections counts the Actions that have succeeded since the last step. known is false where that is not known.
func (q *Series) corrections(state *policy.State, now time.Time) (n map[series.Key]int64, known bool) {
	from, until := q.sampler.corrected, now.Add(-arrival)
	if q.hub == nil {
		return nil, true
	}
	all, hub, err := q.hub.Actions()
	if err != nil || hub.Stale {
		q.sampler.corrected = time.Time{}
		return nil, false
	}
	q.sampler.corrected = until
	n = map[series.Key]int64{}
	for a := range all {
		if a.EndedAt == nil || a.EndedAt.Before(from) || !a.EndedAt.Before(until) {
			continue
		}
		m, ok := state.Snapshot.Member(a.Member)
		succeeded := a.Phase == string(v1alpha1.PhaseSucceeded) || a.Phase == string(v1alpha1.PhaseRolledBack)
		if succeeded && ok && (a.memberUID == "" || a.memberUID == m.UID) {
			n[series.Key{Policy: a.Policy, Member: a.Member, Metric: metricCorrections}]++
		}
	}
	return n, !from.IsZero()
}

// changed returns the policies and members whose numbers are not about the same as before: who may read what
// they count now need not have been allowed to read that.
func (s *sampler) changed(state *policy.State, served map[aggregate.Kind]bool) (policies, members []string) {
	now, uids := identities(state)
	kinds := kindsOf(state, served)
	policies = append(differing(s.policies, now), s.kinds.readers(state, kinds)...)
	members = append(differing(s.members, uids), s.kinds.lost(kinds)...)
	s.policies, s.members, s.kinds = now, uids, kinds
	return policies, members
}

// identities returns what the numbers of policies and members are about, by name.
func identities(state *policy.State) (policies, members map[string]string) {
	policies, members = map[string]string{}, map[string]string{}
	for b := range state.Bindings() {
		p, reads := state.Package(b.Name), state.ReadScope(b.Name)
		policies[b.Name] = fmt.Sprint(p.Name, p.AnyKind, p.Kinds, p.Subject, p.SubjectView, p.Remedies, reads.Kinds, reads.AnyKind, reads.Fleet, b.Visibility)
	}
	for m := range state.Snapshot.Members() {
		members[m.Name] = m.UID
	}
	return policies, members
}

// differing returns the names that are no more, or of something else.
func differing(before, now map[string]string) (names []string) {
	for name, of := range before {
		if now[name] != of {
			names = append(names, name)
		}
	}
	return names
}
