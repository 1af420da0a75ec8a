package remediate_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// TestDispatcher_CountsWritesInFlight: a corrected target clears its violation before its
// correction is known to be done.
func TestDispatcher_CountsWritesInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		answers := make(chan *metav1.Status)
		f.onWrite = func(string) *metav1.Status { return <-answers }
		d := run(t, f, remediate.Options{})
		spec := remediate.RolloutSpec{Limits: remediate.Limits{Policy: remediate.Limit{Count: 1}}}
		d.set(t, spec, 20, intents("1", "m1 a"))
		synctest.Wait() // a is on its way
		d.set(t, spec, 20, intents("1", "m1 b"))
		synctest.Wait()
		st, _ := d.Status("b")
		if st.Halted == nil || st.Halted.Reason != v1alpha1.OverLimit {
			t.Fatalf("%+v: b does not wait", st)
		}
		answers <- forbidden() // nothing was written
		synctest.Wait()
		if err := d.Acknowledge("b", st.Halted.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		answers <- nil
		d.expect(t, "a failed, so that b is the first", "m1 a@0s, m1 b@0s")
		if st, _ := d.Status("b"); st.Halted != nil || st.Budget[0].Targets != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestDispatcher_HaltsOverLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		spec := remediate.RolloutSpec{Limits: remediate.Limits{Policy: remediate.Limit{Percent: 10}}}
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m2 c"))
		d.expect(t, "three of twenty", "")
		d.ClearIntents("b")
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m2 c"))
		d.expect(t, "after a pause", "")
		st, _ := d.Status("b")
		if st.Halted == nil || st.Halted.Reason != v1alpha1.OverLimit || st.Halted.Over.Targets != 3 || st.Halted.Over.Max != 2 || st.Pending != 3 {
			t.Fatalf("status %+v", st)
		}
		if err := d.Acknowledge("b", "other", "ann"); !errors.Is(err, remediate.ErrNoHalt) {
			t.Errorf("an acknowledgement of another halt: %v", err)
		}
		if err := d.Acknowledge("b", st.Halted.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		d.expect(t, "after the acknowledgement", "m1 a@0s, m1 b@0s, m2 c@0s")
		if got, want := d.acknowledged(), slices.Repeat([]string{"ann " + st.Halted.ID}, 3); !slices.Equal(got, want) {
			t.Errorf("they follow %q, want %q", got, want)
		}
		// What was acknowledged were three, not four.
		d.set(t, spec, 20, intents("2", "m2 d"))
		d.expect(t, "one more", "")
		if st, _ := d.Status("b"); st.Halted == nil {
			t.Error("a fourth target does not halt the policy")
		}
	})
}

func TestDispatcher_CountsTargetsOnceInWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		spec := remediate.RolloutSpec{Limits: remediate.Limits{Policy: remediate.Limit{Count: 2}, Window: time.Hour}}
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b"))
		d.expect(t, "two", "m1 a@0s, m1 b@0s")
		d.set(t, spec, 20, intents("2", "m1 a"))
		d.expect(t, "one of them again", "m1 a@0s")
		time.Sleep(61 * time.Minute)
		d.set(t, spec, 20, intents("1", "m2 c", "m2 d"))
		d.expect(t, "two others, an hour later", "m2 c@1h1m0s, m2 d@1h1m0s")
	})
}

func TestDispatcher_WaitsUntilVerdictsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		list := intents("1", "m1 a")
		d.put(&list[0])
		if err := d.SetIntents("b", remediate.RolloutSpec{}, remediate.Totals{}, list, false); err != nil {
			t.Fatal(err)
		}
		d.expect(t, "not all counted", "")
		d.set(t, remediate.RolloutSpec{Suspend: true}, 1, list)
		d.expect(t, "suspended", "")
		d.set(t, remediate.RolloutSpec{}, 1, list)
		d.expect(t, "counted", "m1 a@0s")
		d.set(t, remediate.RolloutSpec{}, 1, list)
		d.expect(t, "the same correction again", "")
		d.ClearIntents("b")
		d.set(t, remediate.RolloutSpec{}, 1, list)
		d.expect(t, "the same after a pause", "")
		d.RemovePolicy("b")
		if _, ok := d.Status("b"); ok {
			t.Error("a removed policy has a status")
		}
	})
}

func TestDispatcher_WritesWavesInOrderAfterSoak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		health := map[string]remediate.HealthStatus{"a": remediate.Progressing, "b": remediate.Healthy}
		var mu sync.Mutex
		d := run(t, newFleet(), remediate.Options{Health: func(w remediate.Written) remediate.Health {
			mu.Lock()
			defer mu.Unlock()
			return remediate.Health{Status: health[w.Target.Name]}
		}})
		spec := remediate.RolloutSpec{Generation: "1", Waves: []remediate.Wave{
			{Name: "canary", Members: map[string]bool{"m1": true}, Soak: 10 * time.Minute, Timeout: 20 * time.Minute},
			{Name: "rest", Members: map[string]bool{"m2": true}, Soak: time.Minute, Timeout: 20 * time.Minute},
		}}
		d.set(t, spec, 20, intents("1", "m1 a", "m2 b", "m3 c"))
		d.expect(t, "at first", "m1 a@0s")
		time.Sleep(9 * time.Minute)
		mu.Lock()
		health["a"] = remediate.Healthy
		mu.Unlock()
		d.expect(t, "while it soaks", "")
		if st, _ := d.Status("b"); st.Wave == nil || st.Wave.Phase != v1alpha1.WaveSoaking || st.Wave.Name != "canary" || st.Wave.Of != 2 {
			t.Errorf("wave %+v", st.Wave)
		}
		time.Sleep(62 * time.Second)
		d.expect(t, "healthy for a minute", "")
		time.Sleep(9 * time.Minute)
		if got := d.written(); !strings.HasPrefix(got, "m2 b@19m") || strings.Contains(got, ",") {
			t.Errorf("after the soak: corrected %q", got)
		}
		mu.Lock()
		health["b"] = remediate.Degraded
		mu.Unlock()
		time.Sleep(2 * time.Minute)
		st, _ := d.Status("b")
		if st.Halted == nil || st.Halted.Reason != v1alpha1.Unhealthy || !strings.Contains(st.Halted.Message, "m2 ConfigMap shop/b is Degraded") {
			t.Errorf("status %+v", st)
		}
		d.expect(t, "members of no wave", "")
		// A new commit restarts the waves.
		spec.Generation = "2"
		if err := d.Acknowledge("b", st.Halted.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		d.set(t, spec, 20, intents("2", "m1 a", "m2 b"))
		if got := d.written(); !strings.HasPrefix(got, "m1 a@21m") || strings.Contains(got, ",") {
			t.Errorf("the next generation: corrected %q", got)
		}
	})
}

func TestDispatcher_HaltsUnhealthyWave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{Health: func(remediate.Written) remediate.Health { return remediate.Health{Status: remediate.Progressing} }})
		d.set(t, remediate.RolloutSpec{Waves: []remediate.Wave{{Name: "all", Members: map[string]bool{"m1": true}, Timeout: 5 * time.Minute}}}, 20, intents("1", "m1 a"))
		d.expect(t, "at first", "m1 a@0s")
		time.Sleep(5*time.Minute + 2*time.Second)
		if st, _ := d.Status("b"); st.Halted == nil || st.Halted.Reason != v1alpha1.Unhealthy {
			t.Errorf("status %+v", st)
		}
	})
}

func TestDispatcher_WaitsForWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at 2000-01-01T00:00Z, a Saturday
		d := run(t, newFleet(), remediate.Options{})
		window, err := remediate.NewWindow("0 2 * * MON", time.Hour, "Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		d.set(t, remediate.RolloutSpec{Window: window}, 20, intents("1", "m1 a"))
		time.Sleep(48*time.Hour + 59*time.Minute)
		d.expect(t, "before Monday, two o'clock in Berlin", "")
		if st, _ := d.Status("b"); st.Waiting != remediate.WaitingForWindow {
			t.Errorf("waiting %q", st.Waiting)
		}
		time.Sleep(2 * time.Minute)
		d.expect(t, "after it", "m1 a@49h0m0s")
		time.Sleep(time.Hour)
		d.set(t, remediate.RolloutSpec{Window: window}, 20, intents("1", "m1 b"))
		d.expect(t, "after it has closed", "")
	})
}

func TestNewWindow_RefusesInvalid(t *testing.T) {
	for _, c := range [][2]string{{"0 2 * *", "UTC"}, {"61 * * * *", "UTC"}, {"* * * * *", "Nowhere/City"}} {
		if _, err := remediate.NewWindow(c[0], time.Hour, c[1]); err == nil {
			t.Errorf("a window of %q", c)
		}
	}
	if _, err := remediate.NewWindow("* * * * *", 0, "UTC"); err == nil {
		t.Error("a window of no duration")
	}
}

func TestDispatcher_StopPreventsAllWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		d.SetStops(remediate.Stops{All: "an incident"})
		d.set(t, remediate.RolloutSpec{}, 20, intents("1", "m1 a"))
		time.Sleep(time.Hour)
		d.expect(t, "stopped", "")
		if st, _ := d.Status("b"); !strings.Contains(st.Waiting, "an incident") {
			t.Errorf("waiting %q", st.Waiting)
		}
		d.SetStops(remediate.Stops{})
		d.expect(t, "resumed", "m1 a@1h0m0s")
	})
}

func TestDispatcher_FollowerWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		lead := errors.New("another process leads")
		d := run(t, newFleet(), remediate.Options{Lease: leaseOf(func() error {
			mu.Lock()
			defer mu.Unlock()
			return lead
		})})
		d.set(t, remediate.RolloutSpec{}, 20, intents("1", "m1 a"))
		time.Sleep(time.Minute)
		d.expect(t, "as a follower", "")
		mu.Lock()
		lead = nil
		mu.Unlock()
		time.Sleep(time.Second)
		d.expect(t, "as the leader", "m1 a@1m1s")
	})
}

func TestDispatcher_HaltsAfterMaxReversions(t *testing.T) {
	for what, c := range map[string]struct {
		opts   remediate.Options
		limits remediate.Limits
	}{
		"of all policies": {remediate.Options{MaxReversions: 3}, remediate.Limits{}},
		"of the policy":   {remediate.Options{MaxReversions: 30}, remediate.Limits{MaxReversions: 3}},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := run(t, newFleet(), c.opts)
			for i := range 5 { // somebody reverts it, again and again
				d.set(t, remediate.RolloutSpec{Limits: c.limits}, 20, intents(fmt.Sprint(i), "m1 a"))
				d.written()
				time.Sleep(time.Minute)
			}
			st, _ := d.Status("b")
			if st.Halted == nil || st.Halted.Reason != v1alpha1.Fighting {
				t.Fatalf("%s: status %+v", what, st)
			}
			if err := d.Acknowledge("b", st.Halted.ID, "ann"); err != nil {
				t.Fatal(err)
			}
			d.expect(t, what+": after the acknowledgement", "m1 a@5m0s")
		})
	}
}

func TestDispatcher_BoundsWritesPerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		d.set(t, remediate.RolloutSpec{Limits: remediate.Limits{PerMinute: 2}}, 20, intents("1", "m1 a", "m1 b", "m1 c", "m2 d"))
		time.Sleep(61 * time.Second)
		d.expect(t, "within a minute", "m1 a@0s, m1 b@0s, m1 c@1m0s, m2 d@0s")
	})
}

func TestDispatcher_BoundsMemberConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var mu sync.Mutex
		now, most := 0, 0
		f.onWrite = func(string) *metav1.Status {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return nil
		}
		d := run(t, f, remediate.Options{MemberConcurrency: 2})
		d.set(t, remediate.RolloutSpec{}, 20, intents("1", "m1 a", "m1 b", "m1 c", "m1 d", "m1 e"))
		time.Sleep(10 * time.Second)
		if st, _ := d.Status("b"); st.Phases[v1alpha1.PhaseSucceeded] != 5 || most != 2 {
			t.Errorf("%d at once, status %+v", most, st)
		}
	})
}

// TestDispatcher_RetriesFailures: later, and without harm to other corrections.
func TestDispatcher_RetriesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.onWrite = func(target string) *metav1.Status {
			switch {
			case target == "m1 a" && time.Since(f.start) < 90*time.Second:
				return forbidden()
			case target == "m1 b" && time.Since(f.start) < 30*time.Second:
				panic("a mistake of ours")
			case target == "m1 c":
				return contended()
			}
			return nil
		}
		d := run(t, f, remediate.Options{RetryAfter: time.Minute})
		d.set(t, remediate.RolloutSpec{}, 20, intents("1", "m1 a", "m1 b", "m1 c", "m1 d"))
		time.Sleep(5 * time.Minute)
		d.expect(t, "in five minutes", "m1 a@0s, m1 a@1m0s, m1 a@2m0s, m1 b@0s, m1 b@1m0s, m1 c@0s, m1 d@0s")
		if st, _ := d.Status("b"); st.Phases[v1alpha1.PhaseSucceeded] != 3 || st.Phases[v1alpha1.PhaseContended] != 1 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestNew_RefusesInvalidOptions(t *testing.T) {
	f := newFleet()
	hub := f.client("hub", v1alpha1.SchemeGroupVersion())
	for name, opts := range map[string]remediate.Options{
		"clients":           {Hub: hub},
		"hub":               {Clients: f},
		"fleet":             {Clients: f, Hub: hub, Fleet: remediate.Limit{Count: -1}},
		"memberConcurrency": {Clients: f, Hub: hub, MemberConcurrency: -1},
		"retryAfter":        {Clients: f, Hub: hub, RetryAfter: -1},
		"retention":         {Clients: f, Hub: hub, Retention: -1},
		"keep":              {Clients: f, Hub: hub, Keep: -1},
		"bounds":            {Clients: f, Hub: hub, Bounds: remediate.Bounds{Members: -1}},
		"away":              {Clients: f, Hub: hub, Bounds: remediate.Bounds{MaxAway: 1}},
		"stopAll":           {Clients: f, Hub: hub, Bounds: remediate.Bounds{Failures: 1, FailureWindow: time.Hour}},
		"protection":        {Clients: f, Hub: hub, Protection: remediate.Protection{Kinds: []string{"a b"}}},
	} {
		if _, err := remediate.New(opts); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	d, err := remediate.New(remediate.Options{Clients: f, Hub: hub})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SetIntents("b", remediate.RolloutSpec{Limits: remediate.Limits{PerMinute: -1}}, remediate.Totals{}, nil, true); err == nil {
		t.Error("a rollout with a negative rate")
	}
}
