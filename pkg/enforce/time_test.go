package enforce_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
)

// TestLoop_AViolationAppearsWhenItsInstantPasses changes nothing but the time: the violation is there in the
// very second, not before, and nothing is evaluated meanwhile.
func TestLoop_AViolationAppearsWhenItsInstantPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		scope := scopeOf(t, index)
		for name := range 3 {
			put(t, scope, fmt.Sprint("d", name), name)
		}
		start := time.Now()
		due := start.Add(3 * time.Hour).UTC().Format(time.RFC3339)
		var published atomic.Int64
		loop := startLoop(t, enforce.Options{
			Index: index, Set: load(t, fmt.Sprintf("{ input.object.spec.replicas > 0; data.fleet.passed[%q] }", due)),
			Bindings: []policy.Binding{{Name: "b", Package: "replicas"}},
			Changed:  func(*policy.Changes, *aggregate.Batch) { published.Add(1) },
		})
		synctest.Wait()
		time.Sleep(3*time.Hour - time.Nanosecond)
		synctest.Wait()
		if s := loop.State(); s.Total("b").Violations != 0 || published.Load() != 1 || s.Wake.Format(time.RFC3339) != due {
			t.Errorf("%+v after %d states before the instant; it wakes at %v", s.Total("b"), published.Load(), s.Wake)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		s := loop.State()
		if s.Total("b") != (policy.Counts{Known: 3, Violations: 2}) || published.Load() != 2 || s.AsOf.Format(time.RFC3339) != due {
			t.Errorf("%+v after %d states at the instant, as of %v", s.Total("b"), published.Load(), s.AsOf)
		}
		h, _ := s.Health("b")
		if h.Evaluations != 5 { // three at first, and those two that read it
			t.Errorf("%d evaluations", h.Evaluations)
		}
	})
}

// steppedClock is a clock that a test sets beside the one that timers go by.
type steppedClock struct{ by atomic.Int64 }

func (c *steppedClock) now() time.Time { return time.Now().Add(time.Duration(c.by.Load())) }

// TestLoop_NoticesThatTheClockIsSet sets the clock forward and back while nothing else happens.
func TestLoop_NoticesThatTheClockIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		put(t, scopeOf(t, index), "web", 1)
		clock := &steppedClock{}
		loop := startLoop(t, enforce.Options{
			Index: index, Clock: clock.now, Bindings: []policy.Binding{{Name: "b", Package: "replicas"}},
			Set: load(t, fmt.Sprintf("data.fleet.passed[%q]", time.Now().Add(3*time.Hour).UTC().Format(time.RFC3339))),
		})
		for _, step := range []struct {
			by   time.Duration
			want policy.Counts
		}{
			{0, policy.Counts{Known: 1}},
			{4 * time.Hour, policy.Counts{Known: 1, Violations: 1}},
			{2 * time.Hour, policy.Counts{Unknown: 1, Violations: 1}},
			{3 * time.Hour, policy.Counts{Known: 1, Violations: 1}},
		} {
			synctest.Wait()
			clock.by.Store(int64(step.by))
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := loop.State().Total("b"); got != step.want {
				t.Errorf("set by %v: %+v, want %+v", step.by, got, step.want)
			}
		}
	})
}

// TestLoop_NoticesThatAnExemptionHasExpired by a clock that is set forward, of a policy that reads no time.
func TestLoop_NoticesThatAnExemptionHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		put(t, scopeOf(t, index), "web", 1)
		clock := &steppedClock{}
		loop := startLoop(t, enforce.Options{
			Index: index, Clock: clock.now, Set: load(t, "input.object.spec.replicas > 0"),
			Bindings: []policy.Binding{{Name: "b", Package: "replicas", Exemptions: []policy.Exemption{{Reason: "x", Expires: time.Now().Add(48 * time.Hour)}}}},
		})
		synctest.Wait()
		if got := loop.State().Total("b"); got.Exempt != 1 {
			t.Fatalf("%+v", got)
		}
		clock.by.Store(int64(49 * time.Hour))
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := loop.State().Total("b"); got.Exempt != 0 || got.Violations != 1 {
			t.Errorf("a minute after the clock was set: %+v", got)
		}
	})
}

// TestLoop_NoticesAnExemptionThatExpiresMeanwhile: while the loop evaluates something else.
func TestLoop_NoticesAnExemptionThatExpiresMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		scope := scopeOf(t, index)
		put(t, scope, "web", 1)
		clock := &steppedClock{}
		slow := true
		loop := startLoop(t, enforce.Options{
			Index: index, Clock: clock.now, Set: load(t, "input.object.spec.replicas > 0"),
			Bindings: []policy.Binding{{Name: "b", Package: "replicas", Exemptions: []policy.Exemption{{Reason: "x", Expires: time.Now().Add(time.Second)}}}},
			Changed: func(*policy.Changes, *aggregate.Batch) {
				if slow {
					time.Sleep(2 * time.Second)
				}
				slow = false
			},
		})
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := loop.State().Total("b"); got.Exempt != 0 || got.Violations != 1 {
			t.Errorf("2 s after it has expired: %+v", got)
		}
	})
}

// TestCorrector_WritesNothingOfATimeInDoubt has a remedy that is due from an instant on. When the clock is set
// back before it, the correction is withdrawn until it passes again.
func TestCorrector_WritesNothingOfATimeInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		put(t, scopeOf(t, index), "web", 1)
		clock := &steppedClock{}
		due := fmt.Sprintf("data.fleet.passed[%q]", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "p.rego", Data: []byte(strings.Replace(scale, "input.object.spec.replicas < 2", due, 1))}}}}, policy.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		actor := &fakeActor{policies: map[string]actorState{}}
		corrector := enforce.NewCorrector(actor, nil)
		if err := corrector.SetSpecs(map[string]enforce.EnforcementSpec{"b": {Mode: policy.Enforce}}); err != nil {
			t.Fatal(err)
		}
		startLoop(t, enforce.Options{
			Index: index, Clock: clock.now, Set: set, Bindings: []policy.Binding{{Name: "b", Package: "replicas"}}, Changed: corrector.Changed,
		})
		for _, step := range []struct {
			by   time.Duration
			want string
		}{{0, ""}, {time.Hour, "patch web@1"}, {-time.Hour, ""}, {2 * time.Hour, "patch web@1"}} {
			synctest.Wait()
			clock.by.Store(int64(step.by))
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := actor.describe("b"); got != step.want {
				t.Errorf("set by %v: it wants %q, want %q", step.by, got, step.want)
			}
		}
	})
}
