package coordinator_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"federator.dev/federator/pkg/shards/internal/assignment"
	"federator.dev/federator/pkg/shards/internal/coordinator"
	"federator.dev/federator/pkg/shards/internal/membership"
	"federator.dev/federator/pkg/shards/internal/shardmap"
	"federator.dev/federator/test/seed"
)

const (
	renew  = 5
	expire = 15
	// settled is how long members may be with a process that is gone, while another one is well: its Lease expires, and the
	// leader's before that, and some writes fail.
	settled = 75
)

// world is a hub and the processes around it, a second at a time.
type world struct {
	t           *testing.T
	r           *rand.Rand
	now         time.Time
	replication int
	faulty      bool // writes fail, watches are late

	hubMap   *shardmap.Map // as the hub has it
	hubRV    int
	leases   map[string]membership.Lease
	version  int
	leader   string // who has the lock
	leaderAt time.Time

	fleet map[string]string // UIDs by name
	procs []*process
	flown []func() // writes that arrive later than their writer believes
	log   []string

	orphaned map[string]int // seconds that the judge of a member has been gone
}

type process struct {
	w      *world
	id     string
	began  time.Time
	epoch  uint64
	alive  bool
	paused int // seconds left
	cut    int // seconds left without the hub
	well   int // seconds without either

	known   *shardmap.Map
	rv      int
	hub     int64
	unread  bool
	seen    *membership.Leases
	leads   *coordinator.Leader
	reports map[string]*coordinator.Report
	members map[string]string
	reading map[string]reading
}

type reading struct {
	uid  string
	left int // seconds
}

func newWorld(t *testing.T, r *rand.Rand) *world {
	w := &world{
		t: t, r: r, now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), replication: 1 + r.IntN(2), faulty: true,
		leases: map[string]membership.Lease{}, fleet: map[string]string{}, orphaned: map[string]int{},
	}
	for i := range 2 + r.IntN(4) {
		p := &process{w: w, id: fmt.Sprintf("federator-%d", i)}
		w.procs = append(w.procs, p)
		p.start()
	}
	for range 1 + r.IntN(30) {
		w.join()
	}
	return w
}

func (w *world) join() {
	w.fleet[fmt.Sprintf("fleet/m%02d", w.r.IntN(40))] = strconv.FormatUint(w.r.Uint64(), 16)
}

func (w *world) logf(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%4ds ", w.now.Unix()%10000)+fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	for _, l := range w.log[max(0, len(w.log)-60):] {
		w.t.Log(l)
	}
	w.t.Fatalf(format, args...)
}

func (p *process) start() {
	p.w.version++
	*p = process{
		w: p.w, began: p.w.now, id: p.id, epoch: uint64(p.w.version), alive: true, seen: membership.New(expire*time.Second, 2*renew*time.Second),
		reading: map[string]reading{},
	}
	p.w.logf("%s starts as epoch %d", p.id, p.epoch)
}

func (p *process) acts() bool { return p.alive && p.paused == 0 }

func (p *process) ready(name, uid string) bool {
	r, is := p.reading[name]
	return is && r.uid == uid && r.left <= 0
}

// event is something that goes wrong, or right again.
func (w *world) event() {
	p := w.procs[w.r.IntN(len(w.procs))]
	switch w.r.IntN(8) {
	case 0:
		w.logf("%s is killed", p.id)
		if p.alive = false; w.r.IntN(2) == 0 {
			p.start() // at once
		}
	case 1:
		if p.acts() && p.cut == 0 {
			w.logf("%s ends in order", p.id)
			l := w.leases[p.id]
			w.version++
			l.Released, l.Version = true, strconv.Itoa(w.version)
			w.leases[p.id] = l
			p.alive = false
		}
	case 2:
		p.paused = w.r.IntN(40)
		w.logf("%s is paused for %d s", p.id, p.paused)
	case 3:
		p.cut = w.r.IntN(60)
		w.logf("%s does not see the hub for %d s", p.id, p.cut)
	case 4:
		w.join()
	case 5:
		for name := range w.fleet {
			w.logf("%s leaves", name)
			delete(w.fleet, name)
			break
		}
	case 6:
		if w.r.IntN(3) == 0 && w.hubMap != nil {
			w.logf("the map is deleted")
			w.hubMap, w.hubRV = nil, 0
		}
	default:
		if !p.alive {
			p.start()
		}
	}
}

// second is a second of everything.
func (w *world) second() {
	w.now = w.now.Add(time.Second)
	for _, f := range w.flown {
		f()
	}
	w.flown = nil
	for _, p := range w.procs {
		p.well++
		if !p.acts() || p.cut > 0 {
			p.well = 0
		}
		p.paused, p.cut = max(0, p.paused-1), max(0, p.cut-1)
		if p.acts() {
			p.second()
		}
	}
	w.check()
}

func (p *process) second() {
	w := p.w
	if p.cut == 0 {
		p.follow()
	}
	// It reads what the map says.
	for name, uid := range p.members {
		m, is := p.known.Member(name)
		if !is || m.UID != uid || m.Judge != p.id && m.Standby != p.id && m.Next != p.id {
			delete(p.reading, name)
			continue
		}
		r := p.reading[name]
		if r.uid != uid {
			r = reading{uid, 1 + w.r.IntN(20)}
		}
		r.left--
		p.reading[name] = r
	}
	if p.cut > 0 {
		return
	}
	// The lock, as leaderelection has it: within its renewal nobody else takes it.
	if w.leader == p.id || w.leader == "" || w.now.Sub(w.leaderAt) > expire*time.Second {
		w.leader, w.leaderAt = p.id, w.now
		p.lead()
		return
	}
	p.leads = nil
}

// follow sees what the hub has, perhaps late.
func (p *process) follow() {
	w := p.w
	if w.now.Unix()%renew == int64(p.epoch)%renew || w.leases[p.id].Process.Epoch != p.epoch {
		w.version++
		w.leases[p.id] = membership.Lease{
			Process: shardmap.Process{ID: p.id, Epoch: p.epoch, Address: "127.0.0.1:1"}, Renewed: w.now, Version: strconv.Itoa(w.version),
		}
	}
	p.seen.See(w.leases[p.id], w.now)
	if w.faulty && w.r.IntN(3) == 0 {
		return
	}
	for _, l := range w.leases {
		p.seen.See(l, w.now)
	}
	p.see()
	p.members = maps.Clone(w.fleet)
}

// see sees the map as the hub has it.
func (p *process) see() {
	p.rv, p.hub = p.w.hubRV, 0
	if m := p.w.hubMap; m != nil {
		p.hub = m.Version
		if p.known == nil || m.Version >= p.known.Version {
			p.known = m
		}
	}
}

// report is what it says to the leader.
func (p *process) report() *coordinator.Report {
	out := &coordinator.Report{At: p.w.now, Epoch: p.epoch, Holds: map[string]coordinator.Hold{}}
	if p.known != nil {
		out.Version, out.Seen = p.known.Version, p.known.Version
	}
	for name, r := range p.reading {
		m, is := p.known.Member(name)
		out.Holds[name] = coordinator.Hold{
			UID: r.uid, Ready: r.left <= 0, Judge: is && m.Judge == p.id, Measured: r.left <= 0,
			Load: assignment.Load{Bytes: float64(1+len(name)*int(name[len(name)-1])%7) * 1e8},
		}
	}
	return out
}

// lead is what a leader does in a second.
func (p *process) lead() {
	w := p.w
	if p.leads == nil {
		p.leads = &coordinator.Leader{Replication: w.replication, Count: len(w.procs), Patience: p.began.Add(expire * time.Second)}
		p.reports = map[string]*coordinator.Report{}
		p.unread = true
	}
	for _, o := range w.procs {
		if o.acts() && (!w.faulty || w.r.IntN(4) > 0) {
			p.reports[o.id] = o.report()
		} else if was := p.reports[o.id]; was != nil {
			silent := *was
			silent.Silent = true
			p.reports[o.id] = &silent
		}
	}
	if p.unread { // it asks the hub
		p.unread = false
		p.see()
	}
	k := coordinator.Known{Now: w.now, Map: p.known, Hub: p.hub, Live: p.seen.Live(w.now), Complete: p.members != nil && (!w.faulty || w.r.IntN(5) > 0), Reports: maps.Clone(p.reports)}
	if p.known != nil { // before anybody is given up, the hub is asked
		for _, o := range p.known.Processes {
			if !slices.ContainsFunc(k.Live, func(l shardmap.Process) bool { return l.ID == o.ID }) {
				p.seen.See(w.leases[o.ID], w.now)
			}
		}
		k.Live = p.seen.Live(w.now)
	}
	for name, uid := range p.members {
		k.Fleet = append(k.Fleet, coordinator.Described{Name: name, UID: uid})
	}
	next := p.leads.Step(k).Map
	if next == nil {
		return
	}
	w.checkSilent(k, next)
	base, from := p.rv, p.known
	write := func() bool {
		if w.hubRV != base {
			return false
		}
		w.wrote(from, next)
		return true
	}
	switch fault := w.r.IntN(10); {
	case w.faulty && fault == 0: // it does not arrive
		p.unread = true
	case w.faulty && fault == 1: // it arrives, and the answer does not
		write()
		p.unread = true
	case w.faulty && fault == 2: // it is under way while its process is paused
		w.flown = append(w.flown, func() { write() })
		p.paused, p.unread = w.r.IntN(30), true
	case write():
		p.known, p.rv, p.hub = next, w.hubRV, next.Version
	default:
		p.unread = true
	}
}

// checkSilent checks that nothing is given to who did not answer the leader, while somebody else could have it.
func (w *world) checkSilent(k coordinator.Known, next *shardmap.Map) {
	silent := func(id string) bool { r := k.Reports[id]; return r != nil && r.Silent }
	epochs := map[string]uint64{}
	for _, p := range k.Live {
		if r := k.Reports[p.ID]; r != nil && r.Epoch == p.Epoch && silent(p.ID) {
			epochs[p.ID] = p.Epoch
		}
	}
	if k.Map == nil || len(epochs) == len(k.Live) {
		return
	}
	for _, e := range next.Members {
		was, is := k.Map.Member(e.Name)
		if !is {
			was = &shardmap.Member{}
		}
		former, lives := next.Process(was.Judge)
		before, _ := k.Map.Process(was.Judge)
		if _, is := epochs[e.Judge]; !is || was.Judge == e.Judge {
			continue
		}
		if lives && former.Epoch == before.Epoch {
			w.fail("%s goes from %s to %s, which does not answer", e.Name, was.Judge, e.Judge)
		}
		if e.Judge != was.Standby && e.Judge != was.Next {
			w.fail("%s goes to %s, which does not answer, and others do", e.Name, e.Judge)
		}
	}
}

// wrote is a map that the hub has taken.
func (w *world) wrote(from, m *shardmap.Map) {
	w.version++
	before := w.hubMap
	if m.Version%8 != 0 {
	} else if data, err := m.Encode(); err != nil {
		w.fail("the map cannot be written: %v", err)
	} else if read, err := shardmap.Decode(data); err != nil {
		w.fail("the map cannot be read: %v", err)
	} else if !read.Same(m) || read.Version != m.Version {
		w.fail("the map is read as another one")
	}
	w.hubMap, w.hubRV = m, w.version
	w.logf("map %d: %d processes, %d members", m.Version, len(m.Processes), len(m.Members))
	if before != nil && (m.Version <= before.Version || from != before && from.Version <= before.Version) {
		w.fail("map %d is written over %d by somebody who did not know it", m.Version, before.Version)
	}
	w.checkMap(before, m)
}

// checkMap checks one map, and what it changes.
func (w *world) checkMap(before, m *shardmap.Map) {
	under := 0
	for _, e := range m.Members {
		_, lives := m.Process(e.Judge)
		if !lives {
			w.fail("%s: its judge %q is none of the map's processes", e.Name, e.Judge)
		}
		if e.Judge == e.Standby || e.Judge == e.Next || e.Standby != "" && (e.Standby == e.Next || w.replication < 2) {
			w.fail("%s: %+v", e.Name, e)
		}
		if e.Next != "" {
			under++
		}
		for _, p := range w.procs {
			if is, lives := m.Process(p.id); lives && p.id == e.Judge && p.epoch == is.Epoch && !e.Unready && !p.ready(e.Name, e.UID) && w.fleet[e.Name] == e.UID && p.members[e.Name] == e.UID {
				w.fail("%s is not marked as one that %s has not read", e.Name, e.Judge)
			}
		}
		was, is := before.Member(e.Name)
		if !is || was.Judge == e.Judge || was.UID != e.UID {
			continue
		}
		former, lives := m.Process(was.Judge)
		if old, _ := before.Process(was.Judge); lives && old.Epoch == former.Epoch && !was.Unready {
			for _, p := range w.procs { // it takes over from one that lives: it has read all
				if to, _ := m.Process(p.id); p.id == e.Judge && p.epoch == to.Epoch && !p.ready(e.Name, e.UID) && p.members[e.Name] == e.UID {
					w.fail("%s goes from %s to %s, which has not read it", e.Name, was.Judge, e.Judge)
				}
			}
		}
	}
	if under > 4+len(m.Members)/200 {
		w.fail("%d members move at once", under)
	}
	if before != nil && len(before.Keys.Before) > 0 && len(m.Keys.Before) == 0 {
		for _, p := range w.procs {
			if is, lives := m.Process(p.id); lives && is.Epoch == p.epoch && (p.known == nil || p.known.Version < before.Keys.Since) {
				w.fail("the keys that others had before are given up, and %s has not seen version %d", p.id, before.Keys.Since)
			}
		}
	}
}

// check checks that nobody is without a judge for long, while some process is well.
func (w *world) check() {
	well := false
	for _, p := range w.procs {
		well = well || p.well > settled
	}
	for name := range w.fleet {
		m, is := w.hubMap.Member(name)
		gone := !is || m.UID != w.fleet[name]
		for _, p := range w.procs {
			gone = gone || p.id == m.Judge && !p.alive
		}
		if w.orphaned[name]++; !gone {
			w.orphaned[name] = 0
		}
		if w.orphaned[name] > settled && well {
			w.fail("%s has had no judge for %d s (%+v)", name, w.orphaned[name], m)
		}
	}
}

// quiet lets everything be well for a while, and checks that all is whole then.
func (w *world) quiet() {
	w.faulty = false
	for _, p := range w.procs {
		p.paused, p.cut = 0, 0
		if !p.alive && w.r.IntN(2) == 0 {
			p.start()
		}
	}
	if !slices.ContainsFunc(w.procs, func(p *process) bool { return p.alive }) {
		w.procs[0].start()
	}
	for range 400 {
		w.second()
	}
	m, live := w.hubMap, 0
	for _, p := range w.procs {
		if p.alive {
			live++
			if is, lives := m.Process(p.id); !lives || is.Epoch != p.epoch || p.known != m {
				w.fail("%s is not part of the last map", p.id)
			}
		}
	}
	if len(m.Processes) != live || len(m.Members) != len(w.fleet) || len(m.Keys.Before) > 0 || len(m.Keys.Now) != live {
		w.fail("%d processes of %d, %d members of %d, keys %+v", len(m.Processes), live, len(m.Members), len(w.fleet), m.Keys)
	}
	for _, e := range m.Members {
		if e.UID != w.fleet[e.Name] || e.Next != "" || e.Unready || (e.Standby != "") != (w.replication > 1 && live > 1) {
			w.fail("%s is not settled: %+v", e.Name, e)
		}
	}
}

// TestHistories: whatever happens to processes, their connection to the hub, their writes and the fleet, maps only follow on
// each other, nobody takes over what they have not read from one that is there, and all is whole soon after.
func TestHistories(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	histories := 60
	if testing.Short() {
		histories = 50
	}
	for range histories {
		w := newWorld(t, r)
		for range 100 + r.IntN(400) {
			if r.IntN(12) == 0 {
				w.event()
			}
			w.second()
		}
		w.quiet()
	}
}
