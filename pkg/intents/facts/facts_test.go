package facts_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"federator.dev/federator/internal/evidence"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/intents/facts"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/test/memhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// local answers for the members of a process, and says whose answer it is.
func local(id string, held *atomic.Bool) facts.Local {
	return facts.Local{
		Held: func(member string) error {
			if held.Load() {
				return fmt.Errorf("%s is frozen, says %s", member, id)
			}
			return nil
		},
		MemberUID:  func(member string) string { return id + " " + member },
		MemberAway: func(string) error { return nil },
		Health: func(w remediate.Written) remediate.Health {
			return remediate.Health{Status: remediate.Healthy, Why: id + " " + w.Target.Name + " " + w.ResourceVersion}
		},
		Owner: func(r policy.Ref) remediate.Ownership {
			if r.Kind == "" {
				return remediate.Ownership{}
			}
			return remediate.Ownership{Owner: id + " " + r.Name}
		},
		Resolve: func(claims []enforce.Claim) (out []enforce.Resolution) {
			for _, of := range claims {
				out = append(out, enforce.Resolution{UID: id + " " + of.Target.Name + " " + of.Bases[0].Basis})
			}
			return out
		},
		Summaries: func() map[string]facts.Summary {
			return map[string]facts.Summary{"p": {
				Synced: true, Counts: map[string]facts.Counts{"fleet/" + id: {1, 2, 3, 4, 5}, "": {1}, "fleet/other": {9}},
				Remedies: facts.Remedies{Counting: id == "b", OverCeiling: 1, OverCeilingReason: "of " + id, Contradicting: 2, Contradiction: "says " + id},
			}}
		},
	}
}

type world struct {
	client    *facts.Client
	transport *memhttp.Transport
	fleet     atomic.Pointer[intents.Fleet]
	held      atomic.Bool // at b
	asked     atomic.Int64
	diffs     *facts.Differences               // of b
	said      [2]atomic.Pointer[evidence.Said] // of a and b
	stop      func()
}

func member(id string) intents.Member { return intents.Member{Judge: id} }

// newWorld is process a, which leads, and b. Each judges the member of its name.
func newWorld(t *testing.T) *world {
	w := &world{}
	var theirs atomic.Pointer[intents.Fleet]
	w.diffs = facts.NewDifferences(theirs.Load)
	a, b := local("a", new(atomic.Bool)), local("b", &w.held)
	a.Evidence, b.Evidence = w.said[0].Load, w.said[1].Load
	server, err := facts.NewServer(b, theirs.Load, w.diffs)
	if err != nil {
		t.Fatal(err)
	}
	w.transport = &memhttp.Transport{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.asked.Add(1)
		server.ServeHTTP(rw, r)
	})}
	members := map[string]intents.Member{"fleet/a": member("a"), "fleet/b": member("b")}
	theirs.Store(&intents.Fleet{Self: "b", Members: members})
	w.fleet.Store(&intents.Fleet{Self: "a", Processes: []string{"a", "b"}, Members: members, Peers: map[string]intents.Peer{
		"b": {ID: "b", URL: "http://b", Client: &http.Client{Transport: w.transport}},
	}})
	w.client, err = facts.NewClient(facts.ClientOptions{
		Local: a, Fleet: w.fleet.Load, Lease: func() (time.Time, error) { return time.Time{}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = w.client.Run(ctx) })
	w.stop = func() {
		cancel()
		running.Wait()
		w.transport.Wait()
	}
	return w
}

func of(id, name string) policy.Ref {
	return policy.Ref{Member: "fleet/" + id, Kind: "Deployment.apps", Namespace: "shop", Name: name}
}

// TestClient_AsksTheJudge, and says nothing of what nobody has said.
func TestClient_AsksTheJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.stop()
		c := w.client
		if c.Held("fleet/b") == nil || c.MemberAway("fleet/b") == nil || c.MemberUID("fleet/b") != "" || c.Verdicts("p") != nil {
			t.Error("something is known before anybody was asked")
		}
		synctest.Wait()
		if err := errors.Join(c.Held("fleet/a"), c.Held("fleet/b"), c.MemberAway("fleet/b")); err != nil {
			t.Error(err)
		}
		if a, b := c.MemberUID("fleet/a"), c.MemberUID("fleet/b"); a != "a fleet/a" || b != "b fleet/b" {
			t.Error(a, b)
		}
		if away, members := c.Away(); away != 0 || members != 2 {
			t.Error(away, members)
		}
		for _, unknown := range []string{"fleet/c", ""} {
			if c.Held(unknown) == nil || c.MemberAway(unknown) == nil {
				t.Errorf("member %q may be written", unknown)
			}
		}
		before := w.asked.Load()
		list := []remediate.Written{{Target: of("b", "x"), ResourceVersion: "7"}, {Target: of("a", "y"), ResourceVersion: "8"}, {Target: of("b", "z")}, {Target: of("c", "x")}}
		got := c.Healths(list)
		if got[0].Why != "b x 7" || got[1].Why != "a y 8" || got[2].Why != "b z " || got[3].Status != remediate.Unknown || w.asked.Load() != before+1 {
			t.Error(got, w.asked.Load()-before)
		}
		c.Prefetch(t.Context(), []policy.Ref{of("b", "x"), of("a", "x"), of("b", "y")})
		before = w.asked.Load()
		if x, y, a, m := c.Owner(of("b", "x")), c.Owner(of("b", "y")), c.Owner(of("a", "x")), c.Owner(policy.Ref{Member: "fleet/b"}); x.Owner != "b x" || y.Owner != "b y" || a.Owner != "a x" || m.Unknown != "" {
			t.Error(x, y, a, m)
		}
		if w.asked.Load() != before {
			t.Error("it was asked again")
		}
		v := c.Verdicts("p")
		if len(v) != 3 || v["fleet/a"] != (remediate.Verdicts{Violations: 4, Unknown: 5}) || v["fleet/b"] != v["fleet/a"] {
			t.Error(v)
		}
		s, err := c.Summary("p")
		if err != nil || s.Counts[""].Policy().Known != 2 || !s.Synced {
			t.Error(s, err)
		}
		if want := (facts.Remedies{Counting: true, OverCeiling: 2, OverCeilingReason: "of a", Contradicting: 4, Contradiction: "says a"}); s.Remedies != want {
			t.Errorf("%+v, want %+v", s.Remedies, want)
		}
		if v := c.Verdicts("unheard"); v == nil || len(v) > 0 {
			t.Error("of a policy that nobody has:", v)
		}
		if _, err := c.Summary("unheard"); err == nil {
			t.Error("a summary of nothing")
		}
	})
}

// TestClient_WhatIsNotKnownHolds: soon after a process is lost, nothing about its members lets a write pass.
func TestClient_WhatIsNotKnownHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.stop()
		c := w.client
		time.Sleep(time.Second)
		synctest.Wait()
		w.held.Store(true)
		time.Sleep(facts.Interval)
		synctest.Wait()
		if err := c.Held("fleet/b"); err == nil || !strings.Contains(err.Error(), "frozen, says b") {
			t.Error(err)
		}
		w.held.Store(false)
		time.Sleep(facts.Interval)
		synctest.Wait()
		c.Prefetch(t.Context(), []policy.Ref{of("b", "x")})
		w.transport.Cut(true)
		if err := c.Held("fleet/b"); err != nil {
			t.Error("a moment after:", err)
		}
		time.Sleep(facts.MaxAge + time.Millisecond)
		if c.Held("fleet/b") == nil || c.MemberAway("fleet/b") == nil || c.MemberUID("fleet/b") != "" || c.Verdicts("p") != nil {
			t.Error("what is old counts")
		}
		if away, members := c.Away(); away != 1 || members != 2 {
			t.Error(away, members)
		}
		if o := c.Owner(of("b", "x")); o.Owner != "" || o.Unknown == "" {
			t.Error(o)
		}
		if o := c.Owner(policy.Ref{Member: "fleet/b"}); o.Unknown == "" {
			t.Error(o)
		}
		if h := c.Health(remediate.Written{Target: of("b", "x")}); h.Status != remediate.Unknown || h.Why == "" {
			t.Error(h)
		}
		if _, err := c.Summary("p"); err == nil {
			t.Error("a part of the fleet was summed")
		}
		if err := c.Held("fleet/a"); err != nil {
			t.Error("of this process's own:", err)
		}
		w.transport.Cut(false)
		time.Sleep(facts.AskTimeout + facts.Interval)
		synctest.Wait()
		if c.Held("fleet/b") != nil || c.Owner(of("b", "x")).Owner != "b x" {
			t.Error("it answers again")
		}
		// It does not judge the member any more, and says so.
		moved := *w.fleet.Load()
		moved.Members = map[string]intents.Member{"fleet/a": member("a"), "fleet/b": member("b"), "fleet/moved": member("b")}
		w.fleet.Store(&moved)
		if c.Held("fleet/moved") == nil || c.Owner(of("moved", "x")).Unknown == "" || c.Health(remediate.Written{Target: of("moved", "x")}).Status != remediate.Unknown {
			t.Error("a process speaks for a member that it does not judge")
		}
		w.fleet.Store(nil)
		if away, members := c.Away(); c.Held("fleet/b") == nil || away != members || c.Verdicts("p") != nil {
			t.Error("without a map, something is known")
		}
	})
}

// TestDifferences_AreOfAllProcessesOrNotKnown.
func TestDifferences_AreOfAllProcessesOrNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.stop()
		own := facts.NewDifferences(w.fleet.Load)
		c := policysource.Candidate{Source: "s", Commit: policysource.Commit{Hash: "1234"}}
		if d, err := own.Sum(c, policysource.Difference{Appeared: 1}); err == nil {
			t.Errorf("a part of the fleet: %v", d)
		}
		if _, err := w.diffs.Sum(c, policysource.Difference{Appeared: 2, Unknown: 3}); err != nil { // it knows no others
			t.Error(err)
		}
		if d, err := own.Sum(c, policysource.Difference{Appeared: 1}); err != nil || d != (policysource.Difference{Appeared: 3, Unknown: 3}) {
			t.Error(d, err)
		}
		c.Commit.Hash = "5678"
		if d, err := own.Sum(c, policysource.Difference{}); err == nil {
			t.Errorf("of another commit: %v", d)
		}
		c.Commit.Hash = "1234"
		w.transport.Cut(true)
		if d, err := own.Sum(c, policysource.Difference{}); err == nil {
			t.Errorf("while a process is lost: %v", d)
		}
		w.transport.Cut(false)
		time.Sleep(11 * time.Minute)
		if d, err := own.Sum(c, policysource.Difference{}); err == nil {
			t.Errorf("of long ago: %v", d)
		}
	})
}

// BenchmarkClient_Healths measures what a batch costs, by the transport of tests.
func BenchmarkClient_Healths(b *testing.B) {
	w := newWorld(&testing.T{})
	defer w.stop()
	list := make([]remediate.Written, 1000)
	for n := range list {
		list[n].Target = of("b", fmt.Sprint("o", n))
	}
	for b.Loop() {
		w.client.Healths(list)
	}
}

// TestClient_ResolvesTargets as those say who judge them: all of a process in one question; what nobody says is not resolved.
func TestClient_ResolvesTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.stop()
		synctest.Wait()
		claim := func(id, name string) enforce.Claim {
			return enforce.Claim{Policy: "p", Target: of(id, name), Verb: "patch", Bases: []enforce.KnownBy{{Process: "c", Basis: "7"}}}
		}
		before := w.asked.Load()
		got := w.client.Resolve(t.Context(), []enforce.Claim{claim("b", "x"), claim("a", "y"), claim("c", "x"), claim("b", "z")})
		if asked := w.asked.Load() - before; asked != 1 {
			t.Errorf("b was asked %d times", asked)
		}
		if got[0].UID != "b x 7" || got[1].UID != "a y 7" || got[3].UID != "b z 7" || got[0].Why+got[1].Why+got[3].Why != "" {
			t.Errorf("resolved as %+v", got)
		}
		if got[2].Why == "" || got[2].UID != "" {
			t.Errorf("of a member that nobody judges: %+v", got[2])
		}
		w.transport.Cut(true)
		if got := w.client.Resolve(t.Context(), []enforce.Claim{claim("b", "x")}); got[0].Why == "" || got[0].UID != "" {
			t.Errorf("while its judge is away: %+v", got[0])
		}
		theirs := *w.fleet.Load()
		theirs.Members = map[string]intents.Member{"fleet/a": member("b")}
		w.transport.Cut(false)
		time.Sleep(2 * facts.AskTimeout)
		w.fleet.Store(&theirs)
		if got := w.client.Resolve(t.Context(), []enforce.Claim{claim("a", "x")}); got[0].Why == "" || got[0].UID != "" {
			t.Errorf("of a member that its judge does not know to be its own: %+v", got[0])
		}
	})
}
