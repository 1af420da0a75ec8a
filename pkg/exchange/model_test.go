package exchange_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange"
	"federator.dev/federator/test/kube/tcpproxy"
	"federator.dev/federator/test/seed"
)

var (
	pass      = tcpproxy.Mode{}
	cut       = tcpproxy.Mode{State: tcpproxy.Cut}
	blackHole = tcpproxy.Mode{State: tcpproxy.BlackHole}
)

// world is two processes that judge members in turn, and two that import.
type world struct {
	t       *testing.T
	rand    *rand.Rand
	judges  []*process
	imports []*importing
	members []string
	judge   map[string]int // by what the importers are told
	version int
	steps   []string
	looks   func() // check
}

// TestExchange_EqualsModel runs random histories. Whatever befalls streams and processes, what the index has of a scope
// that is not Stale is what its judge has had; at a frontier it is what the judge had then; once quiet it is what it has.
func TestExchange_EqualsModel(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Of(t), 0))
	histories := 8
	if testing.Short() {
		histories = 3
	}
	for n := range histories {
		s := random.Uint64()
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s)
			defer func() {
				if t.Failed() {
					t.Log(strings.Join(w.steps[max(0, len(w.steps)-40):], "\n"))
				}
			}()
			for range 120 {
				w.step()
				w.check()
			}
			w.quiet()
		})
	}
}

func newWorld(t *testing.T, s uint64) *world {
	w := &world{t: t, rand: rand.New(rand.NewPCG(s, 1)), judge: map[string]int{}, members: []string{"f/1", "f/2", "f/3"}}
	for _, id := range []string{"a", "b"} {
		w.judges = append(w.judges, newProcess(t, id, exchange.ExporterOptions{
			LogBytes: 1 << (10 + w.rand.IntN(8)), Heartbeat: 20 * time.Millisecond, Gather: time.Duration(1 + w.rand.IntN(5_000_000)), MaxRecord: 64 << 10,
		}))
	}
	for range 2 {
		i := newImporting(t, exchange.ImporterOptions{
			Silence: 250 * time.Millisecond, Grace: 30 * time.Millisecond, Backoff: 60 * time.Millisecond, Audit: 100 * time.Millisecond,
		}, w.judges...)
		w.imports = append(w.imports, i)
	}
	for n, m := range w.members {
		w.judge[m] = n % 2
		w.judges[n%2].put(m, m)
	}
	w.fleet()
	w.looks = w.check
	return w
}

func (w *world) fleet() {
	for _, i := range w.imports {
		var pairs []string
		for _, m := range w.members {
			pairs = append(pairs, m, w.judges[w.judge[m]].id)
		}
		i.fleet(pairs...)
	}
}

func (w *world) step() {
	name := w.members[w.rand.IntN(len(w.members))]
	p := w.judges[w.judge[name]]
	kind := []aggregate.Kind{"Pod", "Job"}[w.rand.IntN(2)]
	of := exchange.ScopeOf{Member: name, Kind: kind}
	n := w.rand.IntN(100)
	w.steps = append(w.steps, fmt.Sprintf("%d: %s %s at %s", n, name, kind, p.id))
	switch {
	case n < 50:
		w.write(p, of)
	case n < 56: // a list, at times as another projection
		if s := p.scopes[of]; s != nil && w.rand.IntN(2) == 0 {
			s.Close()
			delete(p.scopes, of)
		}
		var all []*aggregate.Record
		for range w.rand.IntN(30) {
			all = append(all, w.record())
		}
		p.replace(name, kind, w.digest(p, of), all...)
	case n < 60:
		if s := p.scopes[of]; s != nil {
			s.Remove()
			delete(p.scopes, of)
		}
	case n < 65:
		w.leaveAndJoin(p, name)
	case n < 75:
		w.move(name)
	case n < 78:
		p.restart()
	case n < 82:
		p.proxy.Reset()
	case n < 85:
		p.proxy.ResetWithin(w.rand.IntN(3000))
	case n < 87:
		w.set(p, blackHole)
		w.look(time.Duration(w.rand.IntN(400)) * time.Millisecond)
		w.set(p, pass)
	case n < 89:
		w.set(p, cut)
		w.look(time.Duration(w.rand.IntN(100)) * time.Millisecond)
		w.set(p, pass)
	case n < 94:
		p.flips.Store(int64(1 + w.rand.IntN(1000)))
	default:
		w.look(time.Duration(w.rand.IntN(20)) * time.Millisecond)
	}
	for _, p := range w.judges {
		if w.rand.IntN(4) > 0 {
			p.tell()
		}
	}
}

func (w *world) set(p *process, m tcpproxy.Mode) {
	if err := p.proxy.Set(m); err != nil {
		w.t.Fatal(err)
	}
}

// look checks for a while.
func (w *world) look(d time.Duration) {
	for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(time.Millisecond) {
		w.looks()
	}
}

func (w *world) record() *aggregate.Record {
	w.version++
	return record(fmt.Sprint("o", w.rand.IntN(40)), w.version, strings.Repeat("x", w.rand.IntN(300)))
}

func (w *world) digest(p *process, of exchange.ScopeOf) string {
	if info, ok := p.index.Snapshot().Scope(of.Member, of.Kind); ok && p.scopes[of] != nil {
		return info.Version
	}
	return fmt.Sprint("digest-", w.rand.IntN(3))
}

func (w *world) write(p *process, of exchange.ScopeOf) {
	s := p.scope(of.Member, of.Kind, w.digest(p, of))
	if s.Status().State == aggregate.Unknown { // it may hold what is of another projection
		p.replace(of.Member, of.Kind, "")
	}
	for range w.rand.IntN(5) {
		rec := w.record()
		if w.rand.IntN(3) == 0 {
			s.Delete(rec.Namespace, rec.Name)
		} else {
			s.Upsert(s.Item(rec))
		}
	}
	s.SetStatus(aggregate.Status{State: []aggregate.State{aggregate.Synced, aggregate.Synced, aggregate.Partial, aggregate.Forbidden}[w.rand.IntN(4)]})
	if _, err := s.Commit(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) leaveAndJoin(p *process, name string) {
	p.index.RemoveMember(name)
	for of := range p.scopes {
		if of.Member == name {
			delete(p.scopes, of)
		}
	}
	if w.rand.IntN(2) == 0 {
		p.tell()
	}
	p.put(name, name)
}

// move makes the other process the judge: it reads all first, and the former one lets go later, if it does.
func (w *world) move(name string) {
	from, to := w.judges[w.judge[name]], w.judges[1-w.judge[name]]
	told := w.rand.IntN(2) == 0
	if told {
		w.judge[name] = 1 - w.judge[name]
		w.fleet()
	}
	w.leaveAndJoin(to, name)
	for info := range from.index.Snapshot().Scopes(name) {
		var all []*aggregate.Record
		for o := range from.index.Snapshot().Objects(name, info.Kind) {
			rec := &aggregate.Record{}
			if err := fill(rec, o); err != nil {
				w.t.Fatal(err)
			}
			all = append(all, rec)
		}
		to.replace(name, info.Kind, info.Version, all...)
	}
	to.tell()
	if !told {
		w.look(time.Duration(w.rand.IntN(10)) * time.Millisecond)
		w.judge[name] = 1 - w.judge[name]
		w.fleet()
	}
	if w.rand.IntN(2) == 0 {
		from.index.RemoveMember(name)
		for of := range from.scopes {
			if of.Member == name {
				delete(from.scopes, of)
			}
		}
	}
}

// check looks at what holds at any time.
func (w *world) check() {
	w.t.Helper()
	for n, i := range w.imports {
		complete := map[string]bool{} // before it is looked at: the judge may tell all of a member again at one frontier
		for name := range w.judge {
			complete[name] = i.Complete(name)
		}
		before := i.Status()
		s := i.index.Snapshot()
		after := i.Status()
		for info := range s.Scopes("") {
			if info.Status.State == aggregate.Stale || info.Status == (aggregate.Status{}) {
				continue
			}
			text := scopeText(s, info)
			if !slices.ContainsFunc(w.judges, func(p *process) bool { return p.history.has(text) }) {
				w.t.Fatalf("importer %d has what nobody has had of %s %s:\n%s", n, info.Member, info.Kind, text)
			}
		}
		for p := range before {
			w.atFrontier(complete, s, w.judges[p], before[p], after[p])
		}
	}
}

// atFrontier compares what a process tells with what it had at the frontier, if that is where the snapshot is.
func (w *world) atFrontier(complete map[string]bool, s *aggregate.Snapshot, p *process, before, after exchange.PeerStatus) {
	if !before.Connected || !after.Connected || before.Lag > 0 || after.Lag > 0 || before.Frontier.Sequence != after.Frontier.Sequence || before.Frontier.Epoch != after.Frontier.Epoch {
		return
	}
	want := p.history.snapshot(before.Frontier.Revision)
	if want == nil || before.Frontier.Epoch != uint64(p.index.First())+p.epoch {
		return
	}
	for name, judge := range w.judge {
		if w.judges[judge] != p || !complete[name] {
			continue
		}
		for info := range s.Scopes(name) {
			if info.Status.State == aggregate.Stale || info.Status == (aggregate.Status{}) {
				continue
			}
			is, ok := want.Scope(name, info.Kind)
			if !ok {
				w.t.Fatalf("%s %s is not in the frontier %v of %s", name, info.Kind, before.Frontier, p.id)
			}
			if d := differ(scopeText(s, info), scopeText(want, is)); d != "" {
				w.t.Fatalf("at frontier %v of %s, %s %s %s", before.Frontier, p.id, name, info.Kind, d)
			}
		}
	}
}

// quiet lets everything come to an end, and compares. Audits have found nothing.
func (w *world) quiet() {
	w.t.Helper()
	for _, p := range w.judges {
		p.flips.Store(0)
		p.tell()
	}
	defer func() {
		for _, p := range w.judges {
			if metric(w.t, p.exporter.Load(), "missed_changes_total", "") > 0 {
				w.t.Error("a change was not told")
			}
		}
		for _, i := range w.imports {
			if metric(w.t, i.Importer, "audit_differences_total", "") > 0 {
				w.t.Error("an audit has found a difference")
			}
		}
	}()
	for n, i := range w.imports {
		for name, judge := range w.judge {
			p := w.judges[judge]
			if _, ok := p.index.Snapshot().Member(name); !ok {
				w.t.Fatalf("%s is not at its judge", name)
			}
			eventually(w.t, func() string {
				if d := differs(i.index.Snapshot(), p.index.Snapshot(), name); d != "" {
					return fmt.Sprintf("importer %d, member %s of %s: %s\n%+v", n, name, p.id, d, i.Status())
				}
				if !i.Complete(name) {
					return fmt.Sprintf("importer %d, member %s of %s is not complete: %+v", n, name, p.id, i.Status())
				}
				return ""
			})
		}
	}
}
