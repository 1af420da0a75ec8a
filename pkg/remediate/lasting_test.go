package remediate_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// replica is a process that leads while it is told to.
func replica(t *testing.T, f *fleet, opts remediate.Options) (d *running, lead func(bool)) {
	t.Helper()
	var leads atomic.Bool
	opts.Lease = leaseOf(func() error {
		if !leads.Load() {
			return errors.New("another process is the leader")
		}
		return nil
	})
	return run(t, f, opts), leads.Store
}

// failover gives the lead from one process to another.
func failover(from, to func(bool)) {
	from(false)
	time.Sleep(2 * time.Second)
	to(true)
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

func (d *running) halt(t *testing.T) *remediate.Halt {
	t.Helper()
	synctest.Wait()
	st, _ := d.Status("b")
	if st.Halted == nil {
		t.Fatalf("not halted: %+v", st)
	}
	return st.Halted
}

// twoWaves are a canary, m1, and the rest, m2.
func twoWaves(generation string, soak time.Duration) remediate.RolloutSpec {
	return remediate.RolloutSpec{Generation: generation, Waves: []remediate.Wave{
		{Name: "canary", Members: map[string]bool{"m1": true}, Soak: soak, Timeout: 20 * time.Minute},
		{Name: "rest", Members: map[string]bool{"m2": true}, Soak: soak, Timeout: 20 * time.Minute},
	}}
}

// TestDispatcher_HaltsOutliveLeaders: a process that has been bound to the policy all the time,
// one that starts, and a policy that is removed and comes back find it halted.
func TestDispatcher_HaltsOutliveLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, leadA := replica(t, f, remediate.Options{})
		b, leadB := replica(t, f, remediate.Options{})
		spec := remediate.RolloutSpec{Generation: "1", Limits: remediate.Limits{Policy: remediate.Limit{Count: 1}}}
		a.set(t, spec, 20, intents("1", "m1 a", "m1 b"))
		b.set(t, spec, 20, intents("1", "m1 a", "m1 b"))
		leadA(true)
		time.Sleep(2 * time.Second)
		id := a.halt(t).ID
		if got := f.state("b").Halts; len(got) != 1 || got[0].ID != id || len(got[0].Over) != 1 || got[0].Over[0].Targets != 2 {
			t.Fatalf("recorded %+v", got)
		}
		failover(leadA, leadB)
		if got := b.halt(t); got.ID != id || got.Over == nil || got.Over.Targets != 2 {
			t.Errorf("restored %+v", got)
		}
		if st, _ := a.Status("b"); st.Halted != nil || st.Restored {
			t.Errorf("a follower says %+v", st)
		}
		b.RemovePolicy("b")
		time.Sleep(time.Minute)
		if got := b.halt(t); got.ID != id {
			t.Errorf("of a policy that is removed: %+v", got)
		}
		b.set(t, spec, 20, intents("1", "m1 a")) // only one, and the same generation
		b.expect(t, "created again", "")
		failover(leadB, leadA)
		a.set(t, spec, 20, intents("1", "m1 a"))
		a.expect(t, "once more", "")
		if err := a.Acknowledge("b", id, "ann"); err != nil {
			t.Fatal(err)
		}
		if got := a.written(); !strings.HasPrefix(got, "m1 a@") {
			t.Errorf("acknowledged: %q", got)
		}
		if s := f.state("b"); len(s.Halts) > 0 || s.Acknowledged == nil || s.Acknowledged.By != "ann" {
			t.Errorf("recorded %+v", s)
		}
	})
}

// TestDispatcher_RecordsBeforeItWrites: a halt, an acknowledgement and a wave are recorded
// before what rests on them is written.
func TestDispatcher_RecordsBeforeItWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var away atomic.Bool
		f.onHub = func(method, path string) *metav1.Status {
			if away.Load() && strings.Contains(path, v1alpha1.PolicyStates) && method != "GET" {
				return failure(503, metav1.StatusReasonServiceUnavailable, "")
			}
			return nil
		}
		away.Store(true)
		d := run(t, f, remediate.Options{})
		d.set(t, twoWaves("1", 0), 20, intents("1", "m1 a", "m2 b"))
		time.Sleep(time.Minute)
		d.expect(t, "the first wave is not recorded", "")
		away.Store(false)
		time.Sleep(time.Minute)
		if got := d.written(); !strings.Contains(got, "m1 a@") || !strings.Contains(got, "m2 b@") {
			t.Errorf("recorded: %q", got)
		}
	})
}

// TestDispatcher_AStrangersStateIsReadAgain: a PolicyState that somebody else has written
// counts, as by a former leader.
func TestDispatcher_AStrangersStateIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		d := run(t, f, remediate.Options{})
		synctest.Wait()
		f.putState("b", v1alpha1.PolicyStateStatus{Halts: []v1alpha1.RecordedHalt{{ID: "x", Reason: v1alpha1.Unhealthy, Since: metav1.NowMicro()}}})
		d.set(t, remediate.RolloutSpec{}, 20, intents("1", "m1 a"))
		time.Sleep(time.Minute)
		d.expect(t, "halted by another process", "")
		if got := d.halt(t); got.ID != "x" {
			t.Errorf("halted: %+v", got)
		}
	})
}

// TestDispatcher_WholeWindowsOutliveLeaders: what was written 23 hours ago counts in a window
// of a day, under any leader.
func TestDispatcher_WholeWindowsOutliveLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, leadA := replica(t, f, remediate.Options{Retention: time.Hour, Keep: 1})
		b, leadB := replica(t, f, remediate.Options{Retention: time.Hour, Keep: 1})
		spec := remediate.RolloutSpec{Limits: remediate.Limits{Policy: remediate.Limit{Count: 2}, Window: 24 * time.Hour}}
		leadA(true)
		a.set(t, spec, 20, intents("1", "m1 a", "m1 b"))
		time.Sleep(2 * time.Second)
		if got := a.written(); strings.Count(got, "@") != 2 {
			t.Fatalf("wrote %q", got)
		}
		a.set(t, spec, 20, nil)
		time.Sleep(23 * time.Hour)
		failover(leadA, leadB)
		b.set(t, spec, 20, intents("1", "m1 c"))
		b.expect(t, "the third within a day", "")
		if got := b.halt(t); got.Reason != v1alpha1.OverLimit {
			t.Errorf("halted: %+v", got)
		}
	})
}

// TestDispatcher_FightsOutliveLeaders: five corrections by three leaders are a fight.
func TestDispatcher_FightsOutliveLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, leadA := replica(t, f, remediate.Options{})
		b, leadB := replica(t, f, remediate.Options{})
		leadA(true)
		d, leads, next := a, leadA, leadB
		for n := range 6 {
			d.set(t, remediate.RolloutSpec{}, 20, intents(fmt.Sprint(n), "m1 a"))
			time.Sleep(2 * time.Second)
			if n == 5 {
				break
			}
			if got := d.written(); strings.Count(got, "@") != 1 {
				t.Fatalf("correction %d: %q", n, got)
			}
			if failover(leads, next); d == a {
				d, leads, next = b, leadB, leadA
			} else {
				d, leads, next = a, leadA, leadB
			}
		}
		if got := d.halt(t); got.Reason != v1alpha1.Fighting || got.Targets[0] != "m1 ConfigMap shop/a" {
			t.Errorf("halted: %+v", got)
		}
		d.expect(t, "the sixth", "")
	})
}

// TestDispatcher_TwoPoliciesThatUndoEachOtherHalt: both, each naming the other.
func TestDispatcher_TwoPoliciesThatUndoEachOtherHalt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		names := []string{"b", "other"}
		for n := range 8 {
			list := intents(fmt.Sprint(n), "m1 a")
			list[0].Binding = names[n%2]
			d.put(&list[0])
			if err := d.SetIntents(names[n%2], remediate.RolloutSpec{}, remediate.Totals{Fleet: 20}, list, true); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if err := d.SetIntents(names[n%2], remediate.RolloutSpec{}, remediate.Totals{Fleet: 20}, nil, true); err != nil {
				t.Fatal(err)
			}
		}
		for n, name := range names {
			st, _ := d.Status(name)
			if st.Halted == nil || st.Halted.Reason != v1alpha1.Fighting || st.Halted.With != names[1-n] {
				t.Errorf("policy %q: %+v", name, st.Halted)
			}
		}
		if got := d.written(); strings.Count(got, "@") != 6 {
			t.Errorf("written: %q", got)
		}
	})
}

// TestDispatcher_AcknowledgesOneLimitMemberAndGeneration: and all limits that were exceeded.
func TestDispatcher_AcknowledgesOneLimitMemberAndGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		spec := remediate.RolloutSpec{Generation: "1", Limits: remediate.Limits{Policy: remediate.Limit{Count: 2}, Member: remediate.Limit{Count: 1}, Window: 100 * time.Hour}}
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m1 c"))
		halt := d.halt(t)
		if len(halt.Exceeded) != 2 {
			t.Fatalf("exceeded: %+v", halt.Exceeded)
		}
		if err := d.Acknowledge("b", halt.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		if got := d.written(); strings.Count(got, "@") != 3 {
			t.Fatalf("acknowledged three: %q", got)
		}
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m1 c", "m2 d", "m2 e")) // another member
		d.expect(t, "another member", "")
		again := d.halt(t)
		for _, u := range again.Exceeded {
			if u.Scope == "m1" {
				t.Errorf("exceeded: %+v", again.Exceeded)
			}
		}
		if err := d.Acknowledge("b", again.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		if got := d.written(); strings.Count(got, "@") != 2 {
			t.Fatalf("acknowledged two more: %q", got)
		}
		spec.Generation = "2"
		d.set(t, spec, 20, intents("2", "m1 a"))
		d.expect(t, "another generation", "")
		if got := d.halt(t); got.Generation != "2" {
			t.Errorf("halted: %+v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		spec := remediate.RolloutSpec{Generation: "1", Limits: remediate.Limits{Policy: remediate.Limit{Count: 1}, Window: 100 * time.Hour}}
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b"))
		if err := d.Acknowledge("b", d.halt(t).ID, "ann"); err != nil {
			t.Fatal(err)
		}
		d.expect(t, "acknowledged", "m1 a@0s, m1 b@0s")
		time.Sleep(24*time.Hour + time.Second)
		d.set(t, spec, 20, intents("2", "m1 a"))
		d.expect(t, "a day later the acknowledgement has expired", "")
	})
}

// TestDispatcher_HaltEndsByAChangeThatRemovesItsCause: and by no other one.
func TestDispatcher_HaltEndsByAChangeThatRemovesItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		spec := remediate.RolloutSpec{Generation: "1", Limits: remediate.Limits{Policy: remediate.Limit{Count: 1}}}
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m1 c"))
		id := d.halt(t).ID
		d.set(t, spec, 20, intents("1", "m1 a")) // the cluster has changed, not the policy
		d.expect(t, "fewer violations", "")
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m1 c"))
		spec.Generation, spec.Limits.Policy.Count = "2", 2
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m1 c"))
		d.expect(t, "a limit that is still too low", "")
		if now := d.halt(t).ID; now != id {
			t.Errorf("a limit that is still too low: halt %s is another one than %s", now, id)
		}
		spec.Generation, spec.Limits.Policy.Count = "3", 3
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m1 c"))
		d.expect(t, "a limit that suffices", "m1 a@0s, m1 b@0s, m1 c@0s")
	})
}

// TestDispatcher_WaveIsHeld: by what its members do not tell.
func TestDispatcher_WaveIsHeld(t *testing.T) {
	for what, c := range map[string]struct {
		opts    remediate.Options
		unknown map[string]int
		unread  map[string]bool
		want    string
	}{
		"a member that is away": {remediate.Options{MemberAway: func(member string) error {
			if member == "m1" {
				return errors.New("m1 does not answer")
			}
			return nil
		}}, nil, nil, "m1 does not answer"},
		"a member that is paused": {remediate.Options{Held: func(member string) error {
			if member == "m1" {
				return errors.New("m1 is paused")
			}
			return nil
		}}, nil, nil, "m1 is paused"},
		"verdicts that are not known": {remediate.Options{}, map[string]int{"m1": 2}, nil, "member m1 has 2 verdicts that are not known"},
		"a member that was not read":  {remediate.Options{}, nil, map[string]bool{"m1": true}, "not all that the policy reads of member m1 has been read yet"},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := run(t, newFleet(), c.opts)
			list := intents("1", "m2 b")
			d.put(&list[0])
			if err := d.SetIntents("b", twoWaves("1", 0), remediate.Totals{Fleet: 20, Unknown: c.unknown, Unread: c.unread}, list, true); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			d.expect(t, what, "")
			if st, _ := d.Status("b"); !strings.Contains(st.Waiting, c.want) {
				t.Errorf("%s: waiting: %q", what, st.Waiting)
			}
		})
	}
}

// TestDispatcher_WaveFails: by its failures, and by what is Degraded while it is written.
func TestDispatcher_WaveFails(t *testing.T) {
	for what, refuse := range map[string]func() *metav1.Status{"Failed": forbidden, "Contended": contended} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet()
			f.onWrite = func(target string) *metav1.Status {
				if target == "m1 a" {
					return refuse()
				}
				return nil
			}
			d := run(t, f, remediate.Options{})
			d.set(t, twoWaves("1", time.Minute), 20, intents("1", "m1 a", "m2 b"))
			time.Sleep(time.Hour)
			if got := d.halt(t); got.Reason != v1alpha1.Unhealthy || !strings.Contains(got.Message, "1 of 1 corrections failed") {
				t.Errorf("%s: %+v", what, got)
			}
			d.expect(t, what, "m1 a@0s")
		})
	}
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{Health: func(w remediate.Written) remediate.Health {
			return remediate.Health{Status: remediate.Degraded, Why: "it crashes"}
		}})
		spec := twoWaves("1", 0)
		spec.Limits.PerMinute = 1
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m1 c", "m2 d"))
		time.Sleep(time.Hour)
		d.expect(t, "Degraded from the first on", "m1 a@0s")
		if got := d.halt(t); !strings.Contains(got.Message, "m1 ConfigMap shop/a is Degraded: it crashes") {
			t.Errorf("%+v", got)
		}
	})
}

// healthyBut is the health of all that was written: another one once that is set.
func healthyBut(ill *atomic.Bool, other remediate.HealthStatus) func(remediate.Written) remediate.Health {
	return func(remediate.Written) remediate.Health {
		if ill.Load() {
			return remediate.Health{Status: other}
		}
		return remediate.Health{Status: remediate.Healthy}
	}
}

// TestDispatcher_WaveBeginsWithHealthOfNow: what was healthy a second ago may not be any more.
func TestDispatcher_WaveBeginsWithHealthOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var progressing atomic.Bool
		d := run(t, newFleet(), remediate.Options{Health: healthyBut(&progressing, remediate.Progressing)})
		spec := twoWaves("1", 0)
		spec.Limits.PerMinute = 1
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m2 c")) // m1 b waits for a minute
		time.Sleep(10*time.Second + 500*time.Millisecond)
		progressing.Store(true)
		d.set(t, spec, 20, intents("1", "m2 c"))
		time.Sleep(10 * time.Second)
		d.expect(t, "while the canary is Progressing", "m1 a@0s")
		progressing.Store(false)
		time.Sleep(10 * time.Second)
		d.expect(t, "once it is Healthy", "m2 c@22s")
	})
}

// TestDispatcher_SoakOutlivesLeadersAndCommits: the canary is followed under any leader, and
// what it waits for is known.
func TestDispatcher_SoakOutlivesLeadersAndCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var status atomic.Uint32
		status.Store(uint32(remediate.Healthy))
		opts := remediate.Options{Health: func(w remediate.Written) remediate.Health {
			if w.ResourceVersion == "" {
				t.Errorf("health of %+v", w)
			}
			return remediate.Health{Status: remediate.HealthStatus(status.Load())}
		}}
		a, leadA := replica(t, f, opts)
		b, leadB := replica(t, f, opts)
		leadA(true)
		for _, d := range []*running{a, b} {
			d.set(t, twoWaves("1", 30*time.Minute), 20, intents("1", "m1 a", "m2 b"))
		}
		time.Sleep(10 * time.Minute)
		if got := a.written(); !strings.HasPrefix(got, "m1 a@") || strings.Contains(got, "m2") {
			t.Fatalf("written: %q", got)
		}
		for _, d := range []*running{a, b} {
			d.set(t, twoWaves("1", 30*time.Minute), 20, intents("1", "m2 b"))
		}
		failover(leadA, leadB)
		if st, _ := b.Status("b"); st.Wave == nil || st.Wave.Phase != v1alpha1.WaveSoaking || st.Wave.Number != 1 {
			t.Fatalf("after a failover: %+v", st.Wave)
		}
		time.Sleep(15 * time.Minute)
		status.Store(uint32(remediate.Unknown))
		time.Sleep(time.Hour)
		b.expect(t, "its health is not known", "")
		status.Store(uint32(remediate.Healthy))
		time.Sleep(29 * time.Minute)
		b.expect(t, "it is known again, for less than the soak", "")
		time.Sleep(2 * time.Minute)
		if got := b.written(); !strings.HasPrefix(got, "m2 b@") {
			t.Errorf("after the soak: %q", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var degraded atomic.Bool
		opts := remediate.Options{Health: func(w remediate.Written) remediate.Health {
			if degraded.Load() && w.Target.Member == "m1" {
				return remediate.Health{Status: remediate.Degraded}
			}
			return remediate.Health{Status: remediate.Healthy}
		}}
		a, leadA := replica(t, f, opts)
		b, leadB := replica(t, f, opts)
		leadA(true)
		a.set(t, twoWaves("1", 30*time.Minute), 20, intents("1", "m1 a", "m2 b"))
		b.set(t, twoWaves("1", 30*time.Minute), 20, intents("1", "m2 b"))
		time.Sleep(time.Minute)
		failover(leadA, leadB)
		degraded.Store(true)
		time.Sleep(time.Minute)
		if got := b.halt(t); got.Reason != v1alpha1.Unhealthy {
			t.Errorf("a canary that degrades after a failover: %+v", got)
		}
	})
}

// TestDispatcher_WavesWaitForTheFirstViolation: a policy that begins without any corrects the
// first ones in the waves' order.
func TestDispatcher_WavesWaitForTheFirstViolation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		d.set(t, twoWaves("1", time.Minute), 20, nil)
		time.Sleep(24 * time.Hour)
		d.set(t, twoWaves("1", time.Minute), 20, intents("1", "m1 a", "m2 b"))
		time.Sleep(30 * time.Second)
		if got := d.written(); !strings.HasPrefix(got, "m1 a@") || strings.Contains(got, "m2") {
			t.Errorf("at first: %q", got)
		}
		time.Sleep(2 * time.Minute)
		if got := d.written(); !strings.HasPrefix(got, "m2 b@") {
			t.Errorf("then: %q", got)
		}
	})
}
