package policyquery

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/series"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery/internal/seriesparts"
	"federator.dev/federator/pkg/queryapi"
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
	counted   counted           // what the numbers are about; it is replaced under the Series' lock
}

// counted is what numbers are about.
type counted struct {
	policies map[string]string           // by name: what they read and who may read that
	members  map[string]string           // UIDs, by name
	kinds    map[string][]aggregate.Kind // by member: those that are served, as nobody can be asked who may read others
	keys     policy.KeyOwner             // which keys of views
	awaited  []string                    // members that were taken over, and are counted once they are read
}

// countedIn returns what the numbers of a state are about, where these kinds are served.
func countedIn(state *policy.State, served map[aggregate.Kind]bool) counted {
	c := counted{policies: map[string]string{}, members: map[string]string{}, kinds: map[string][]aggregate.Kind{}, keys: state.KeyOwner()}
	for b := range state.Bindings() {
		var versions []string // those that differ in this
		for p := range state.Packages(b.Name) {
			versions = append(versions, fmt.Sprint(p.Path(), p.AnyKind, p.Groups, p.Kinds, p.Subject, p.SubjectView, p.Remedies))
		}
		slices.Sort(versions)
		reads := state.ReadScope(b.Name)
		c.policies[b.Name] = fmt.Sprint(slices.Compact(versions), reads.Kinds, reads.Fleet, reads.Sources, b.Visibility)
	}
	for m := range state.Snapshot.Members() {
		if m.Role != aggregate.Judge {
			continue // another process counts it
		}
		c.members[m.Name] = m.UID
		kinds := state.Snapshot.KindsOf(m.Name)
		if slices.ContainsFunc(kinds, func(k aggregate.Kind) bool { return !served[k] }) {
			kinds = slices.DeleteFunc(slices.Clone(kinds), func(k aggregate.Kind) bool { return !served[k] })
		}
		c.kinds[m.Name] = kinds
	}
	return c
}

// next is countedIn after what was counted before. A member that another process has counted has no verdicts here until it is read,
// which is not none.
func (c counted) next(state *policy.State, served map[aggregate.Kind]bool) counted {
	now := countedIn(state, served)
	if now.keys.Self == "" {
		return now
	}
	for _, name := range state.Awaited() {
		if uid, is := now.members[name]; is && c.members[name] != uid {
			now.awaited = append(now.awaited, name)
			delete(now.members, name)
			delete(now.kinds, name)
		}
	}
	return now
}

// changed returns the policies and members whose numbers were about something that is not there in a state, of which
// now is what its numbers are about: who may read that need not have been allowed to read what was counted.
func (c counted) changed(state *policy.State, now counted) (policies, members []string) {
	policies, members = differing(c.policies, now.policies), differing(c.members, now.members)
	if now.keys.Self != "" { // another process may have counted it before
		for name := range now.members {
			if _, had := c.members[name]; !had {
				members = append(members, name)
			}
		}
	}
	members = append(members, now.awaited...)
	elsewhere := state.Elsewhere()
	gone := map[aggregate.Kind]bool{}
	for member, kinds := range c.kinds {
		if _, moved := slices.BinarySearch(elsewhere, member); moved {
			continue // it is there, and others may be asked who may read it
		}
		there := now.kinds[member]
		if slices.Equal(kinds, there) {
			continue
		}
		some := false
		for _, k := range kinds {
			if !slices.Contains(there, k) {
				gone[k], some = true, true
			}
		}
		if some {
			members = append(members, member)
		}
	}
	for b := range state.Bindings() { // what policies read besides their subjects, as for keys of views, may be in any member
		reads := state.ReadScope(b.Name)
		for k := range gone {
			if reads.Kinds.Has(k) {
				policies = append(policies, b.Name)
				break
			}
		}
	}
	return policies, members
}

// otherKeys reports whether the keys that a state judges are not those that were counted.
func (c counted) otherKeys(state *policy.State) bool {
	now := state.KeyOwner()
	return len(now.Before) > 0 || !slices.Equal(c.keys.Now, now.Now) // while there are some before, two may count a key
}

// judged reports whether a member is judged, and counted, here.
func judged(state *policy.State, member string) bool {
	m, ok := state.Snapshot.Member(member)
	return !ok || m.Role == aggregate.Judge
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
			if judged(state, d.Ref.Member) {
				s.deltas[d.Ref.Member]++
			}
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
	served, _ := q.kinds()
	counts := s.counted.next(state, served)
	policies, members := s.counted.changed(state, counts)
	otherKeys := s.counted.otherKeys(state)
	q.mu.Lock()
	defer q.mu.Unlock()
	s.counted = counts
	for _, ring := range q.rings {
		for _, name := range policies {
			ring.ForgetPolicy(name)
		}
		for _, name := range members {
			ring.ForgetMember(name)
		}
	}
	for metric, values := range map[string]map[series.Key]int64{metricViolations: violations, metricUnknown: unknown} {
		if otherKeys {
			q.rings[metric].ForgetMember("")
		}
		q.rings[metric].Record(step, values)
		if len(counts.keys.Before) > 0 {
			q.rings[metric].ForgetMember("")
		}
	}
	if step > s.deltasAt {
		q.rings[metricDeltas].Record(step, deltas)
		for _, name := range members { // some were of what had the name before
			q.rings[metricDeltas].ForgetMember(name)
		}
	}
	if known {
		q.rings[metricCorrections].Record(step, corrections)
	}
	for _, ring := range q.rings {
		for _, name := range counts.awaited {
			ring.ForgetMember(name)
		}
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
		if succeeded && ok && m.Role == aggregate.Judge && (a.memberUID == "" || a.memberUID == m.UID) {
			n[series.Key{Policy: a.Policy, Member: a.Member, Metric: metricCorrections}]++
		}
	}
	return n, !from.IsZero()
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

// ServeShared implements queryapi.Sharer: what all processes have counted, added. Each knows what it has counted itself: of a
// member that it was given by another one nothing before that.
func (q *Series) ServeShared(w http.ResponseWriter, r *http.Request, caller queryapi.Caller, fleet queryapi.SharedFleet) error {
	values := r.URL.Query()
	if err := checkParameters(values, seriesParameters); err != nil {
		return err
	}
	parts, err := fleet.Ask(values)
	if err != nil {
		return err
	}
	absent, _, err := caller.VisibleIn(r.Context(), parts.Absent)
	if err != nil {
		return err
	}
	missing, only := parts.Partial || len(parts.Absent) > 0, values["member"]
	absent = slices.DeleteFunc(slices.Clone(absent), func(m string) bool { return !matches(only, m) })
	o := seriesparts.Options{Metrics: seriesMetrics, Limit: maxSeries, KeysMissing: missing, Unknown: len(absent) > 0 || missing && len(only) == 0}
	if values["metric"] != nil {
		o.Metrics = values["metric"]
	}
	sum, err := seriesparts.Merge(parts.Bodies, o)
	if err != nil {
		return err
	}
	out := &SeriesList{
		APIVersion: "query.federator.dev/v1", Kind: "Series", StepSeconds: sum.StepSeconds, Start: sum.Start, Series: []SeriesItem{},
		Dropped: sum.Dropped, Truncated: sum.Truncated, Known: sum.Known, Partial: sum.Partial, Absent: absent,
	}
	for _, s := range sum.Series {
		item := SeriesItem{Policy: s.Policy, Member: s.Member, Metric: s.Metric, Values: make([]any, len(s.Values))}
		for i, v := range s.Values {
			if v != nil {
				item.Values[i] = *v
			}
		}
		out.Series = append(out.Series, item)
	}
	return writeJSON(w, out)
}
