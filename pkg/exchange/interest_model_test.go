package exchange_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/test/seed"
)

// subscribed is a world whose importers ask for keys.
type subscribed struct {
	*world
	wants []*interest.Set
}

// TestExchange_EqualsModelOfWhatIsAskedFor runs random histories in which importers ask for more and less. At any time, what an
// index has of a member that is not Stale, or not Unread, is of one moment of its judge, and all of it that has a key that is held; at
// a frontier it is what the judge had then; once quiet it is exactly what is asked for of what the judge has.
func TestExchange_EqualsModelOfWhatIsAskedFor(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Of(t), 7))
	histories := 8
	if testing.Short() {
		histories = 3
	}
	for n := range histories {
		s := random.Uint64()
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			w := &subscribed{world: newWorld(t, s)}
			w.looks = w.check
			for range w.imports {
				w.wants = append(w.wants, interest.Everything())
			}
			defer func() {
				if t.Failed() {
					t.Log(strings.Join(w.steps[max(0, len(w.steps)-40):], "\n"))
				}
			}()
			for range 120 {
				if w.rand.IntN(3) == 0 {
					w.ask()
				} else {
					w.step()
				}
				w.check()
			}
			w.quiet()
		})
	}
}

// ask has an importer ask for more, less, other keys, nothing or everything.
func (w *subscribed) ask() {
	n := w.rand.IntN(len(w.imports))
	some := w.some()
	switch k := w.rand.IntN(20); {
	case k < 12:
		some = w.wants[n].With(some)
	case k < 15:
		some = w.wants[n].Both(some.With(w.some()))
	case k < 16:
		some = nil
	case k < 17:
		some = interest.Everything()
	}
	w.wants[n] = some
	w.steps = append(w.steps, fmt.Sprintf("importer %d asks for %d buckets, everything %t", n, some.Size(), some.IsEverything()))
	w.imports[n].SetInterest(some)
	if held, _ := w.imports[n].Held(); !some.Covers(held) {
		w.t.Fatal("more is held than is asked for")
	}
}

func (w *subscribed) some() *interest.Set {
	var b interest.Builder
	for range 1 + w.rand.IntN(6) {
		name := fmt.Sprint("o", w.rand.IntN(40))
		switch w.rand.IntN(20) {
		case 0:
			b.AddAll(theView)
		case 1:
			b.AddAll(interest.Names("Pod"))
		case 2, 3, 4, 5, 6, 7, 8:
			b.Add(theView, interest.Bucket(name))
		default:
			b.Add(interest.Names("Pod"), interest.NameBucket("ns", name))
		}
	}
	return b.Take()
}

func (w *subscribed) step() {
	w.world.step()
	if w.rand.IntN(10) == 0 {
		w.judges[w.rand.IntN(2)].slow.Store(w.rand.IntN(2) == 0)
	}
	if w.rand.IntN(10) == 0 { // a stream of somebody else, and one that ends
		p := w.judges[w.rand.IntN(2)]
		if r, err := p.client.Get("https://" + p.server.Listener.Addr().String() + exchange.StreamPath); err == nil {
			_ = r.Body.Close()
		}
	}
}

// lines are those of a scope's objects by name, of those that a set has keys of.
func lines(s *aggregate.Snapshot, member string, kind aggregate.Kind, of *interest.Set) string {
	var b strings.Builder
	var k interest.Keys
	x := export{s}
	for o := range s.Objects(member, kind) {
		if x.KeysOf(o.Ref(), &k); !of.Wants(&k) {
			continue
		}
		body, err := o.AppendBody(nil)
		fmt.Fprintln(&b, o.Ref(), o.UID(), o.Labels(), string(body), err)
	}
	return b.String()
}

// check looks at what holds at any time.
func (w *subscribed) check() {
	w.t.Helper()
	for n, i := range w.imports {
		held, _ := i.Held() // more may be held later, but what is held stays until less is asked for
		complete := map[string]bool{}
		for name := range w.judge {
			complete[name] = i.Complete(name)
		}
		before := i.Status()
		s := i.index.Snapshot()
		after := i.Status()
		for info := range s.Scopes("") {
			if !away(s, info) || info.Status.State == aggregate.Stale && !info.Status.Unread {
				w.wasSo(n, s, info, held)
			}
		}
		for p := range before {
			w.atFrontier(n, held, complete, s, w.judges[p], before[p], after[p])
		}
	}
}

// away reports whether a scope is not shown as it was told. One that was not complete is not Stale with its member.
func away(s *aggregate.Snapshot, info aggregate.ScopeInfo) bool {
	m, _ := s.Member(info.Member)
	return info.Status.State == aggregate.Stale || info.Status == (aggregate.Status{}) || m.Serves == nil
}

// wasSo reports whether what is held of a scope is what one of the judges has had once.
func (w *subscribed) wasSo(n int, s *aggregate.Snapshot, info aggregate.ScopeInfo, held *interest.Set) {
	w.t.Helper()
	status := func(is aggregate.ScopeInfo) string {
		if away(s, info) { // and has all the same what is held, as it was told
			return is.Version
		}
		return fmt.Sprintln(is.Version, is.Status)
	}
	got := status(info) + lines(s, info.Member, info.Kind, held)
	for _, p := range w.judges {
		if p.history.any(func(was *aggregate.Snapshot) bool {
			is, ok := was.Scope(info.Member, info.Kind)
			return ok && got == status(is)+lines(was, info.Member, info.Kind, held)
		}) {
			return
		}
	}
	var all strings.Builder
	for _, p := range w.judges {
		p.history.any(func(was *aggregate.Snapshot) bool {
			is, _ := was.Scope(info.Member, info.Kind)
			fmt.Fprintln(&all, p.id, was.Revision(), is.Version, is.Status, lines(was, info.Member, info.Kind, held))
			return all.Len() > 3000
		})
	}
	w.t.Fatalf("importer %d has what nobody has had of %s %s, or less than it holds of %d buckets:\n%s%+v\nall of it %s\nnewest were\n%s", n, info.Member, info.Kind, held.Size(), got,
		w.imports[n].Status(), lines(s, info.Member, info.Kind, interest.Everything()), all.String())
}

// atFrontier compares what is held of members of a process with what it had at the frontier.
func (w *subscribed) atFrontier(n int, held *interest.Set, complete map[string]bool, s *aggregate.Snapshot, p *process, before, after exchange.PeerStatus) {
	w.t.Helper()
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
			if away(s, info) {
				continue
			}
			if d := differ(lines(s, name, info.Kind, held), lines(want, name, info.Kind, held)); d != "" {
				w.t.Fatalf("importer %d at frontier %v of %s, %s %s %s", n, before.Frontier, p.id, name, info.Kind, d)
			}
		}
	}
}

// quiet lets everything come to an end, and compares. Audits have found nothing.
func (w *subscribed) quiet() {
	w.t.Helper()
	for _, p := range w.judges {
		p.flips.Store(0)
		p.slow.Store(false)
		p.tell()
	}
	for n, i := range w.imports {
		eventually(w.t, func() string {
			if held, _ := i.Held(); !held.Equal(w.wants[n]) {
				return fmt.Sprintf("importer %d does not hold what it asks for: %+v", n, i.Status())
			}
			return ""
		})
		for name, judge := range w.judge {
			p := w.judges[judge]
			eventually(w.t, func() string {
				got, want := i.index.Snapshot(), p.index.Snapshot()
				for _, kind := range []aggregate.Kind{"Pod", "Job"} {
					g, _ := got.Scope(name, kind)
					is, _ := want.Scope(name, kind)
					if d := differ(fmt.Sprintln(g.Version, g.Status)+lines(got, name, kind, interest.Everything()),
						fmt.Sprintln(is.Version, is.Status)+lines(want, name, kind, w.wants[n])); d != "" {
						return fmt.Sprintf("importer %d, %s %s of %s: %s\n%+v", n, name, kind, p.id, d, i.Status())
					}
				}
				if !i.Complete(name) {
					return fmt.Sprintf("importer %d, %s is not complete", n, name)
				}
				return ""
			})
		}
		if metric(w.t, i.Importer, "audit_differences_total", "") > 0 {
			w.t.Error("an audit has found a difference")
		}
		if metric(w.t, i.Importer, "streams_ended_total", "disagrees") > 0 {
			w.t.Error("a digest has disagreed")
		}
	}
	for _, p := range w.judges {
		if metric(w.t, p.exporter.Load(), "missed_changes_total", "") > 0 {
			w.t.Error("a change was not told")
		}
	}
}
