package exchange_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange"
	"federator.dev/federator/pkg/interest"
)

const m1, m2 = "fleet/one", "fleet/two"

// told is a process a that judges a member with a few pods, and an importer that has all of it.
func told(t *testing.T, eo exchange.ExporterOptions, io exchange.ImporterOptions) (*process, *importing) {
	t.Helper()
	a := newProcess(t, "a", eo)
	a.put(m1, m1)
	a.replace(m1, "Pod", "digest", record("x", 1, "1"), record("y", 1, "1"))
	a.tell()
	i := newImporting(t, io, a)
	i.fleet(m1, "a")
	i.equals(a, m1)
	return a, i
}

func (i *importing) equals(p *process, members ...string) {
	i.t.Helper()
	for _, m := range members {
		eventually(i.t, func() string { return differs(i.index.Snapshot(), p.index.Snapshot(), m) })
	}
}

func (i *importing) state(member string, kind aggregate.Kind) aggregate.Status {
	info, _ := i.index.Snapshot().Scope(member, kind)
	return info.Status
}

func TestExchange_TellsWhatIsAndWhatChanges(t *testing.T) {
	a, i := told(t, exchange.ExporterOptions{}, exchange.ImporterOptions{})
	pods := a.scope(m1, "Pod", "digest")
	for _, step := range []func(){
		func() { pods.Upsert(pods.Item(record("x", 2, "2"))) },
		func() { pods.Delete("ns", "y"); pods.Upsert(pods.Item(record("z", 1, ""))) },
		func() { pods.SetStatus(aggregate.Status{State: aggregate.Stale, Reason: "gone"}) },
		func() { pods.SetStatus(aggregate.Status{State: aggregate.Synced}) },
		func() { a.replace(m1, "Job", "jobs", record("j", 1, "")) },
		func() { a.put(m2, m2); a.replace(m2, "Pod", "digest", record("x", 1, "")) },
		func() {
			a.scope(m1, "Job", "").Remove()
			delete(a.scopes, exchange.ScopeOf{Member: m1, Kind: "Job"})
		},
		func() { // another projection
			pods.Close()
			delete(a.scopes, exchange.ScopeOf{Member: m1, Kind: "Pod"})
			a.replace(m1, "Pod", "other", record("x", 2, "3"), record("w", 1, ""))
		},
	} {
		step()
		if s := a.scopes[exchange.ScopeOf{Member: m1, Kind: "Pod"}]; s != nil {
			if _, err := s.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		a.tell()
		i.fleet(m1, "a", m2, "a")
		i.equals(a, m1)
	}
	i.equals(a, m2)
	if !i.Complete(m1) || !i.Complete(m2) {
		t.Error("not complete")
	}
	if a.index.RemoveMember(m2); true {
		a.tell()
	}
	eventually(t, func() string {
		if i.Complete(m2) {
			return "a member that is judged no longer is complete"
		}
		return ""
	})
}

// TestExchange_TheSameVersionWithOtherContent: what policies read of an object may change without it.
func TestExchange_TheSameVersionWithOtherContent(t *testing.T) {
	a, i := told(t, exchange.ExporterOptions{}, exchange.ImporterOptions{})
	a.replace(m1, "Pod", "digest", record("x", 1, "another"), record("y", 1, "1"))
	a.tell()
	i.equals(a, m1)
}

func TestImporter_IsUnknownBeforeTold(t *testing.T) {
	i := newImporting(t, exchange.ImporterOptions{})
	i.fleet(m1, "", m2, "nobody")
	for _, name := range []string{m1, m2} {
		m, ok := i.index.Snapshot().Member(name)
		if !ok || m.UID != name || len(m.Labels) != 1 || i.state(name, "Pod").State != aggregate.Unknown || i.Complete(name) {
			t.Errorf("%+v, %v", m, i.state(name, "Pod"))
		}
	}
	i.fleet(m2, "nobody")
	if _, ok := i.index.Snapshot().Member(m1); ok {
		t.Error("a member that has left is there")
	}
}

// TestImporter_AReconnectCostsNothing: neither one within the grace, nor one after which the state is told again.
func TestImporter_AReconnectCostsNothing(t *testing.T) {
	a, i := told(t, exchange.ExporterOptions{}, exchange.ImporterOptions{Grace: 10 * time.Second})
	before := i.index.Snapshot().Revision()
	for _, again := range []func(){a.proxy.Reset, a.restart} {
		was := i.Status()[0].Frontier.Time
		again()
		eventually(t, func() string {
			if s := i.Status()[0]; !s.Connected || !s.Frontier.Time.After(was) || s.Frontier.Epoch != uint64(a.index.First())+a.epoch {
				return fmt.Sprintf("%+v", s)
			}
			return ""
		})
	}
	if after := i.index.Snapshot().Revision(); after != before {
		t.Errorf("revision %d became %d", before, after)
	}
}

func TestImporter_StaleAfterTheGrace(t *testing.T) {
	a, i := told(t, exchange.ExporterOptions{}, exchange.ImporterOptions{Grace: 50 * time.Millisecond})
	was := textOf(i.index.Snapshot(), m1)
	a.proxy.HalfOpen()
	a.proxy.Reset()
	if err := a.proxy.Set(cut); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		s := i.state(m1, "Pod")
		if s.State != aggregate.Stale || s.Reason == "" || i.Complete(m1) {
			return fmt.Sprint(s)
		}
		return ""
	})
	if s := i.state(m1, "Job"); s.State != aggregate.Unknown {
		t.Error("a kind without a scope is", s)
	}
	if err := a.proxy.Set(pass); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string { return differ(textOf(i.index.Snapshot(), m1), was) })
}

func TestImporter_SilenceIsALoss(t *testing.T) {
	a, i := told(t, exchange.ExporterOptions{Heartbeat: 50 * time.Millisecond}, exchange.ImporterOptions{Grace: 50 * time.Millisecond, Silence: 300 * time.Millisecond})
	if err := a.proxy.Set(blackHole); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if s := i.state(m1, "Pod"); s.State != aggregate.Stale {
			return fmt.Sprint(s)
		}
		return ""
	})
	if err := a.proxy.Set(pass); err != nil {
		t.Fatal(err)
	}
	i.equals(a, m1)
}

// TestImporter_AMemberMoves from a to b, both of which tell of it for a while.
func TestImporter_AMemberMoves(t *testing.T) {
	a, i := told(t, exchange.ExporterOptions{}, exchange.ImporterOptions{Grace: 50 * time.Millisecond})
	before := i.index.Snapshot().Revision()
	b := newProcess(t, "b", exchange.ExporterOptions{})
	i.peers(a, b)
	b.put(m1, m1)
	b.replace(m1, "Pod", "digest", record("x", 1, "1"), record("y", 1, "1"))
	b.tell()
	eventually(t, func() string { // b tells of it before it is known to be the judge
		if s := i.Status(); len(s) < 2 || !s[1].Connected {
			return fmt.Sprint(s)
		}
		return ""
	})
	a.replace(m1, "Job", "jobs")
	a.tell()
	i.equals(a, m1) // which counts for now
	i.fleet(m1, "b")
	i.equals(b, m1)
	eventually(t, func() string {
		if !i.Complete(m1) {
			return "not complete"
		}
		return ""
	})
	pods := a.scope(m1, "Pod", "")
	pods.Upsert(pods.Item(record("x", 9, "flips back")))
	if _, err := pods.Commit(); err != nil {
		t.Fatal(err)
	}
	a.tell()
	sequence := i.Status()[0].Frontier.Sequence
	eventually(t, func() string {
		if s := i.Status()[0]; s.Frontier.Sequence == sequence && s.Lag == 0 && s.Frontier.Revision < a.index.Snapshot().Revision() {
			return fmt.Sprint(s)
		}
		return ""
	})
	i.equals(b, m1)
	if o, _ := i.index.Snapshot().Get(aggregate.Ref{Member: m1, Kind: "Pod", Namespace: "ns", Name: "x"}); o.Revision() > before {
		t.Error("an object that is the same at both has another revision")
	}
	// b is gone, and its members stay, as Stale, until a is the judge.
	i.peers(a)
	eventually(t, func() string {
		if s := i.state(m1, "Pod"); s.State != aggregate.Stale {
			return fmt.Sprint(s)
		}
		return ""
	})
	i.fleet(m1, "a")
	i.equals(a, m1)
}

// TestImporter_AnotherMemberOfTheName replaces the first one, and is told once its judge knows it.
func TestImporter_AnotherMemberOfTheName(t *testing.T) {
	a, i := told(t, exchange.ExporterOptions{}, exchange.ImporterOptions{})
	set := func(uid string) {
		if err := i.SetFleet([]exchange.FleetMember{{Name: m1, UID: uid, Judge: "a"}}); err != nil {
			t.Fatal(err)
		}
	}
	set("another")
	if m, ok := i.index.Snapshot().Member(m1); !ok || m.UID != "another" || i.state(m1, "Pod").State != aggregate.Unknown || i.Complete(m1) {
		t.Errorf("%+v", m)
	}
	a.index.RemoveMember(m1)
	clear(a.scopes)
	a.put(m1, "another")
	a.replace(m1, "Pod", "digest", record("z", 1, ""))
	a.tell()
	i.equals(a, m1)
	set(m1)
	if i.Complete(m1) {
		t.Error("what is told of another member completes this one")
	}
	set("another") // and a has told of it, long ago
	i.equals(a, m1)
	if err := i.SetFleet(nil); err != nil {
		t.Fatal(err)
	}
	for m := range i.index.Snapshot().Members() {
		t.Error(m.Name, "is there")
	}
}

// TestImporter_HoldsNoMoreThanWasAskedFor of the source of a member that is shown, whatever it has of one that has none.
func TestImporter_HoldsNoMoreThanWasAskedFor(t *testing.T) {
	a, i := told(t, exchange.ExporterOptions{}, exchange.ImporterOptions{Grace: time.Hour, Silence: time.Hour})
	a.put(m2, m2)
	a.tell()
	i.fleet(m1, "a", m2, "a")
	complete := func(member string, want bool) {
		t.Helper()
		eventually(t, func() string {
			if i.Complete(member) != want {
				return fmt.Sprint(member, " is complete: ", !want)
			}
			return ""
		})
	}
	complete(m2, true)
	a.index.RemoveMember(m2) // which stays as it was told, since nobody else has told of it
	a.tell()
	complete(m2, false)
	if err := a.proxy.Set(blackHole); err != nil { // a is asked for nothing, and for no more before it has told
		t.Fatal(err)
	}
	x := pod("x")
	for range 50 { // members are looked at in any order
		i.SetInterest(nil)
		i.SetInterest(x)
		if held, _ := i.Held(); !held.Empty() {
			t.Fatalf("%d buckets are held of which a deletes all", held.Size())
		}
	}
	if err := a.proxy.Set(pass); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if held, _ := i.Held(); !held.Equal(x) {
			return "what a has told is not held"
		}
		return ""
	})
	if got, want := lines(i.index.Snapshot(), m1, "Pod", interest.Everything()), lines(a.index.Snapshot(), m1, "Pod", x); got != want {
		t.Error(differ(got, want))
	}
}

// TestImporter_SaysWhatAStaleMemberLacks: what is held grows without a member whose process is away, which is Unread then, and not
// before that is shown.
func TestImporter_SaysWhatAStaleMemberLacks(t *testing.T) {
	a, b := newProcess(t, "a", exchange.ExporterOptions{}), newProcess(t, "b", exchange.ExporterOptions{})
	for _, p := range []*process{a, b} {
		member := map[*process]string{a: m1, b: m2}[p]
		p.put(member, member)
		p.replace(member, "Pod", "digest", record("x", 1, "1"), record("y", 1, "1"))
		p.tell()
	}
	i := newImporting(t, exchange.ImporterOptions{Grace: 50 * time.Millisecond}, a, b)
	i.SetInterest(pod("x"))
	i.fleet(m1, "a", m2, "b")
	holds := func(set *interest.Set) {
		t.Helper()
		eventually(t, func() string {
			if held, _ := i.Held(); !held.Equal(set) {
				return "it is not held"
			}
			return ""
		})
	}
	shown := func(state aggregate.State, unread bool) {
		t.Helper()
		eventually(t, func() string {
			if s := i.state(m1, "Pod"); s.State != state || s.Unread != unread {
				return fmt.Sprint(s)
			}
			return ""
		})
	}
	shown(aggregate.Synced, false)
	holds(pod("x"))
	i.peers(b)
	shown(aggregate.Stale, false)
	both := pod("x").With(pod("y"))
	i.SetInterest(both)
	holds(both)
	if s := i.state(m1, "Pod"); s.State != aggregate.Stale || !s.Unread {
		t.Errorf("it has not what is held, and is %+v", s)
	}
	i.SetInterest(pod("x"))
	shown(aggregate.Stale, false)
	i.SetInterest(both)
	i.peers(a, b)
	shown(aggregate.Synced, false)
	holds(both)
	i.equals(a, m1)
}

// TestImporter_SaysWhatAStaleMemberLacks_OfWhatItsJudgeCouldNotRead: that is Stale anyway, and Unread from when it lacks what is held.
func TestImporter_SaysWhatAStaleMemberLacks_OfWhatItsJudgeCouldNotRead(t *testing.T) {
	a := newProcess(t, "a", exchange.ExporterOptions{})
	a.put(m1, m1)
	member, _ := a.index.Snapshot().Member(m1)
	member.GivenUp = true
	if err := a.index.PutMember(member); err != nil {
		t.Fatal(err)
	}
	for kind, state := range map[aggregate.Kind]aggregate.State{"Pod": aggregate.Synced, "Secret": aggregate.Stale, "Node": aggregate.OverBudget} {
		s := a.scope(m1, kind, "digest")
		if _, err := s.Replace([]aggregate.Item{s.Item(record("x", 1, "1")), s.Item(record("y", 1, "1"))}, aggregate.Status{State: state}); err != nil {
			t.Fatal(err)
		}
	}
	a.tell()
	i := newImporting(t, exchange.ImporterOptions{Grace: 50 * time.Millisecond}, a)
	i.SetInterest(pod("x"))
	i.fleet(m1, "a")
	shown := func(state aggregate.State) {
		t.Helper()
		eventually(t, func() string {
			if s := i.state(m1, "Pod"); s.State != state {
				return fmt.Sprint(s)
			}
			return ""
		})
	}
	shown(aggregate.Synced)
	i.peers()
	shown(aggregate.Stale)
	givenUp := func(want bool) {
		t.Helper()
		if m, _ := i.index.Snapshot().Member(m1); m.GivenUp != want {
			t.Errorf("it is given up: %t", m.GivenUp)
		}
	}
	givenUp(true)
	both := pod("x").With(pod("y"))
	i.SetInterest(both)
	eventually(t, func() string {
		if held, _ := i.Held(); !held.Equal(both) {
			return "it is not held"
		}
		return ""
	})
	givenUp(false) // its next judge may read what it lacks
	for _, kind := range []aggregate.Kind{"Pod", "Secret", "Node"} {
		if s := i.state(m1, kind); s.Read() {
			t.Errorf("of %s it has not what is held, and is %+v", kind, s)
		}
	}
}

// TestExporter_WantsWhatWasAskedFor, of each importer by the name that its connection proves; who is not there wants all.
func TestExporter_WantsWhatWasAskedFor(t *testing.T) {
	a, i := told(t, exchange.ExporterOptions{Peer: func(*http.Request) string { return "i" }}, exchange.ImporterOptions{})
	wants := func(importer, name string) bool {
		var k interest.Keys
		k.Add(interest.Names("Pod"), interest.NameBucket("ns", name))
		return a.exporter.Load().Wants(importer, &k)
	}
	if !wants("i", "x") || !wants("i", "y") {
		t.Error("who asks for everything does not want it")
	}
	i.SetInterest(pod("x"))
	eventually(t, func() string {
		if wants("i", "y") {
			return "it wants what it does not ask for any more"
		}
		return ""
	})
	if !wants("i", "x") || !wants("other", "y") {
		t.Error("what it asks for is not wanted, or who asks for nothing is known to know nothing")
	}
}
