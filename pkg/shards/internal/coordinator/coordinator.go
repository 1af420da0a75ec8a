package coordinator

import (
	"maps"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/pkg/shards/internal/assignment"
	"federator.dev/federator/pkg/shards/internal/shardmap"
)

const (
	patience    = 10 * time.Minute // for a process to read a member that it is to take over
	afterwards  = time.Hour        // that a member then stays where it is
	leastMoves  = 4                // under way at once
	perMove     = 200              // members for each further one
	reportsLife = time.Minute      // after which a report says nothing
	// readyLife is after which a report does not say that its process can take over: less than a Lease lives, within which a
	// process that is gone seems to live.
	readyLife = 12 * time.Second
)

// Report is what a process says of the members that it holds.
type Report struct {
	At       time.Time // when it came, by the leader's clock
	Epoch    uint64
	Version  int64 // of the newest map that it has applied everywhere
	Seen     int64 // of the map by which it holds what it holds
	Policies string
	Holds    map[string]Hold
	// Silent is whether the process did not answer when it was asked the last time.
	Silent bool
}

// Hold is what a process says of one member.
type Hold struct {
	UID      string
	Judge    bool
	Ready    bool // it has read all that it reads of the member
	Measured bool
	Load     assignment.Load
}

// Described is a member as the sources describe it.
type Described struct{ Name, UID string }

// Known is what the leader knows.
type Known struct {
	Now time.Time
	// Map is the newest there is; nil: there is none.
	Map *shardmap.Map
	// Hub is the version that the hub has; 0: none. It is less than that of Map where that was deleted, or put back.
	Hub int64
	// Live are the processes whose Leases have not expired, in no order.
	Live []shardmap.Process
	// Fleet are the members that the sources describe. Complete is whether there are no others.
	Fleet    []Described
	Complete bool
	Reports  map[string]*Report // by ID
}

// Leader decides on maps. It remembers what was measured, and nothing else of importance: another one that begins goes on with
// the map that there is. It is not safe for concurrent use.
type Leader struct {
	Replication int
	// Count is how many processes there are to be: the first map waits for them until Patience.
	Count    int
	Patience time.Time

	loads   map[string]*load
	since   map[string]time.Time // a member is under way to its next process
	stays   map[string]time.Time // members that are not moved before
	changed map[string]int64     // the version with which others hold a member
	first   int64                // the version that this leader began with
	last    *shardmap.Map        // of the last step
	Moved   int                  // moves that have ended, of this leader
	Failed  int                  // moves that were given up
	unevens float64
	bound   float64
}

// Decision is what is to be written.
type Decision struct {
	Map    *shardmap.Map // nil: what there is may stay
	Urgent bool          // a member has nobody who reads it, or another process than the map says
}

// Imbalance is that of the last step, and what no assignment of whole members can be below.
func (l *Leader) Imbalance() (now, bound float64) { return l.unevens, l.bound }

// Step returns the next map.
func (l *Leader) Step(k Known) Decision {
	if l.loads == nil {
		l.loads, l.since, l.stays = map[string]*load{}, map[string]time.Time{}, map[string]time.Time{}
		l.changed = map[string]int64{}
		if k.Map != nil {
			l.first, l.last = k.Map.Version, k.Map
		}
	}
	l.see(k.Map)
	if len(k.Live) == 0 || k.Map == nil && len(k.Live) < l.Count && k.Now.Before(l.Patience) {
		return Decision{}
	}
	s := newStep(l, k)
	s.forget()
	l.measure(&s)
	s.follow()
	s.lost()
	s.ready()
	s.assign()
	next := s.result()
	version := s.version()
	if k.Map != nil && next.Same(k.Map) && k.Hub >= version {
		return Decision{}
	}
	next.Version = version + 1
	if next.Keys.Since == 0 {
		next.Keys.Since = next.Version
	}
	return Decision{Map: next, Urgent: s.urgent}
}

// see takes note of which members others hold since a version.
func (l *Leader) see(m *shardmap.Map) {
	if m == nil || m == l.last {
		return
	}
	for i := range m.Members {
		is := &m.Members[i]
		was, had := l.last.Member(is.Name)
		if !had || was.UID != is.UID || was.Judge != is.Judge || was.Standby != is.Standby || was.Next != is.Next {
			l.changed[is.Name] = m.Version
		}
	}
	l.last = m
}

// step is one step.
type step struct {
	Known
	leader  *Leader
	live    map[string]shardmap.Process
	was     *shardmap.Map // empty where there is none
	members []shardmap.Member
	urgent  bool
	deleted bool // the map was, or put back to what it was
}

func newStep(l *Leader, k Known) step {
	s := step{Known: k, leader: l, live: map[string]shardmap.Process{}, was: k.Map}
	if s.was == nil {
		s.was = &shardmap.Map{}
	}
	for _, p := range k.Live {
		if r := s.report(p.ID, p.Epoch); r != nil {
			p.Policies = r.Policies
		} else if was, is := s.was.Process(p.ID); is && was.Epoch == p.Epoch {
			p.Policies = was.Policies
		}
		s.live[p.ID] = p
	}
	return s
}

// report returns what a process has said lately, or nil.
func (s *step) report(id string, epoch uint64) *Report {
	r := s.Reports[id]
	if r == nil || r.Epoch != epoch || s.Now.Sub(r.At) > reportsLife {
		return nil
	}
	return r
}

// hold returns what a living process says of a member.
func (s *step) hold(id string, m *shardmap.Member) (h Hold, is bool) {
	p, is := s.live[id]
	if !is {
		return Hold{}, false
	}
	r := s.report(id, p.Epoch)
	if r == nil {
		return Hold{}, false
	}
	h, is = r.Holds[m.Name]
	if !is || !sameUID(h.UID, m.UID) {
		return Hold{}, false
	}
	return h, true
}

// isReady reports whether a process has read a member. What it said before it had the map with its role it said perhaps of an
// earlier time that it held the member; and who does not hold it by the map lets it go, whatever it said.
func (s *step) isReady(id string, m *shardmap.Member) bool {
	was, is := s.was.Member(m.Name)
	if !is || !sameUID(was.UID, m.UID) || id != was.Judge && id != was.Standby && id != was.Next {
		return false
	}
	h, is := s.hold(id, m)
	if !is || !h.Ready {
		return false
	}
	r := s.Reports[id]
	return !r.Silent && s.Now.Sub(r.At) <= readyLife && r.Seen >= max(s.leader.first, s.leader.changed[m.Name])
}

// silent reports whether a living process has not answered when it was asked the last time: it may be gone, and its Lease
// has not expired. Nothing is given to it, and nothing taken from it.
func (s *step) silent(id string) bool {
	r := s.report(id, s.live[id].Epoch)
	return r != nil && r.Silent
}

// sameUID reports whether two UIDs may be of one member: one that is not known may be any.
func sameUID(a, b string) bool { return a == b || a == "" || b == "" }

// version is the highest that anybody has seen: a map that was deleted begins after it.
func (s *step) version() int64 {
	v := s.was.Version
	for id, p := range s.live {
		if r := s.report(id, p.Epoch); r != nil {
			v = max(v, r.Version, r.Seen)
		}
	}
	return v
}

// forget lets nothing count that was said before, where the map was deleted or put back: there may have been others, which this
// leader has not seen.
func (s *step) forget() {
	s.deleted = s.Map != nil && s.Hub < s.Map.Version
	if s.deleted {
		s.leader.first = s.version() + 1
	}
}

// follow takes the members that the sources describe, and drops those that are gone.
func (s *step) follow() {
	known := make(map[string]Described, len(s.Fleet))
	for _, d := range s.Fleet {
		known[d.Name] = d
	}
	for _, m := range s.was.Members {
		d, described := known[m.Name]
		delete(known, m.Name)
		switch {
		case !described && s.Complete:
			continue
		case described && !sameUID(d.UID, m.UID): // another one of the same name
			m = shardmap.Member{Name: d.Name, UID: d.UID}
		case described && d.UID != "":
			m.UID = d.UID
		}
		m.Unready = m.Unready || s.deleted
		s.members = append(s.members, m)
	}
	for _, d := range known {
		s.members = append(s.members, shardmap.Member{Name: d.Name, UID: d.UID})
	}
	slices.SortFunc(s.members, func(a, b shardmap.Member) int { return strings.Compare(a.Name, b.Name) })
	for name := range s.leader.loads {
		if _, is := slices.BinarySearchFunc(s.members, name, func(m shardmap.Member, n string) int { return strings.Compare(m.Name, n) }); !is {
			delete(s.leader.loads, name)
			delete(s.leader.stays, name)
		}
	}
	for name := range s.leader.changed {
		if _, is := s.was.Member(name); !is {
			delete(s.leader.changed, name)
		}
	}
}

// lost lets others take the place of processes that are gone, or that have started again.
func (s *step) lost() {
	gone := func(id string) bool { _, is := s.live[id]; return id != "" && !is }
	for i := range s.members {
		m := &s.members[i]
		if gone(m.Next) {
			m.Next, m.Aside = "", false
		}
		if gone(m.Standby) || s.leader.Replication < 2 {
			m.Standby = ""
		}
		if m.Next != "" && m.Aside && s.leader.Replication < 2 {
			m.Next, m.Aside = "", false
		}
		switch {
		case !gone(m.Judge):
			s.fill(m)
			s.restarted(m)
			continue
		case m.Standby != "":
			m.Judge, m.Standby = m.Standby, ""
		default:
			m.Judge, m.Next, m.Aside = m.Next, "", false
		}
		s.fill(m)
		m.Unready = m.Judge == "" || !s.isReady(m.Judge, m)
		s.urgent = true
	}
}

// fill lets a process that is to be a standby be one at once where there is none.
func (s *step) fill(m *shardmap.Member) {
	if m.Next != "" && m.Aside && m.Standby == "" {
		m.Standby, m.Next, m.Aside = m.Next, "", false
	}
}

// restarted lets the standby take over from a judge that has started again and has not read all.
func (s *step) restarted(m *shardmap.Member) {
	if m.Judge == "" {
		return
	}
	before, was := s.was.Process(m.Judge)
	if was && before.Epoch != s.live[m.Judge].Epoch && !s.isReady(m.Judge, m) {
		m.Unready = true
	}
	if m.Unready && m.Standby != "" && !s.isReady(m.Judge, m) && s.isReady(m.Standby, m) {
		m.Judge, m.Standby, m.Unready = m.Standby, m.Judge, false
		s.urgent = true
	}
}

// ready lets processes take over what they have read.
func (s *step) ready() {
	l, under := s.leader, map[string]bool{}
	for i := range s.members {
		m := &s.members[i]
		if m.Unready && m.Judge != "" && s.isReady(m.Judge, m) {
			m.Unready = false
		}
		if m.Next == "" {
			continue
		}
		began, is := l.since[m.Name]
		switch {
		case !is:
			l.since[m.Name] = s.Now
		case s.Now.Sub(began) > patience && !s.isReady(m.Next, m):
			m.Next, m.Aside = "", false
			l.stays[m.Name] = s.Now.Add(afterwards)
			l.Failed++
			continue
		}
		under[m.Name] = true
		if !s.isReady(m.Next, m) {
			continue
		}
		former := m.Judge
		if m.Aside {
			m.Standby = m.Next
		} else {
			m.Judge = m.Next
			m.Unready = false
			if l.Replication > 1 && m.Standby == "" {
				m.Standby = former
			}
		}
		m.Next, m.Aside = "", false
		l.Moved++
		delete(under, m.Name)
	}
	maps.DeleteFunc(l.since, func(name string, _ time.Time) bool { return !under[name] })
	maps.DeleteFunc(l.stays, func(_ string, until time.Time) bool { return !s.Now.Before(until) })
}

// assign finds processes for members that have none, and moves a few where that pays.
func (s *step) assign() {
	ids := slices.Sorted(maps.Keys(s.live))
	number := make(map[string]int, len(ids))
	for i, id := range ids {
		number[id] = i
	}
	of := func(id string) int {
		if n, is := number[id]; is {
			return n
		}
		return assignment.None
	}
	holders := s.holders(number)
	plan := make([]assignment.Member, len(s.members))
	under := 0
	for i := range s.members {
		m := &s.members[i]
		a := assignment.Member{
			Name: m.Name, Judge: of(m.Judge), Standby: of(m.Standby), Next: of(m.Next), Aside: m.Aside,
			Ready: m.Standby != "" && s.isReady(m.Standby, m), Prefers: assignment.None,
		}
		if known := s.leader.loads[m.Name]; known != nil {
			a.Load, a.Measured = known.value, true
		}
		if m.Judge == "" {
			if n, is := holders[m.Name]; is {
				a.Prefers = n
			}
		}
		a.Fixed = m.Judge == "" || m.Unready || !s.isReady(m.Judge, m) || s.leader.stays[m.Name].After(s.Now)
		if m.Next != "" {
			under++
		}
		plan[i] = a
	}
	p := assignment.New(ids, plan, s.leader.Replication)
	for i, id := range ids {
		p.Closed[i] = s.silent(id)
	}
	p.Place()
	var moves []assignment.Move
	if limit := leastMoves + len(s.members)/perMove - under; limit > 0 {
		moves = p.Moves(limit)
	}
	s.leader.unevens, s.leader.bound = p.Imbalance(), p.Bound()
	id := func(n int) string {
		if n == assignment.None {
			return ""
		}
		return ids[n]
	}
	for i := range s.members {
		m, a := &s.members[i], &p.Members[i]
		if m.Judge == "" && a.Judge != assignment.None {
			m.Judge, m.Unready, s.urgent = id(a.Judge), true, true
		}
		if m.Standby == "" && a.Standby != assignment.None {
			m.Standby = id(a.Standby)
		}
	}
	for _, move := range moves {
		m := &s.members[move.Member]
		if move.Swap {
			m.Judge, m.Standby = m.Standby, m.Judge
			s.leader.Moved++
			continue
		}
		m.Next, m.Aside = id(move.To), move.Aside
		s.leader.since[m.Name] = s.Now
	}
}

// holders returns a process that has a member, of those that no process holds by the map: after the map was lost.
func (s *step) holders(number map[string]int) map[string]int {
	out := map[string]int{}
	for i := range s.members {
		m := &s.members[i]
		if m.Judge != "" {
			continue
		}
		judges := false // the one that was found
		for _, id := range slices.Backward(slices.Sorted(maps.Keys(number))) {
			h, is := s.hold(id, m)
			if is && (h.Judge || !judges) {
				out[m.Name], judges = number[id], h.Judge
			}
		}
	}
	return out
}

// result returns the map, without its version.
func (s *step) result() *shardmap.Map {
	next := &shardmap.Map{Members: s.members, Keys: s.was.Keys}
	for _, id := range slices.Sorted(maps.Keys(s.live)) {
		next.Processes = append(next.Processes, s.live[id])
	}
	now := make([]string, 0, len(next.Processes))
	for _, p := range next.Processes {
		now = append(now, p.ID)
	}
	same := slices.EqualFunc(next.Processes, s.was.Processes, func(a, b shardmap.Process) bool { return a.ID == b.ID && a.Epoch == b.Epoch })
	if !same {
		s.urgent = true
	}
	if !slices.Equal(now, next.Keys.Now) {
		if len(next.Keys.Before) == 0 {
			next.Keys.Before = next.Keys.Now
		}
		next.Keys.Now, next.Keys.Since = now, 0
		return next
	}
	if len(next.Keys.Before) > 0 && s.acknowledged(next.Keys.Since) {
		next.Keys.Before = nil
	}
	return next
}

// acknowledged reports whether all living processes have applied a version.
func (s *step) acknowledged(version int64) bool {
	for id, p := range s.live {
		if r := s.report(id, p.Epoch); r == nil || r.Version < version {
			return false
		}
	}
	return true
}
