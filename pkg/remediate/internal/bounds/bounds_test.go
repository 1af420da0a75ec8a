package bounds_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/remediate/internal/bounds"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestGate_EqualsModel compares the gate with plain lists of what was sent and what ended.
func TestGate_EqualsModel(t *testing.T) {
	t.Parallel()
	refused, tripped := 0, 0
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := bounds.Bounds{
			WritesPerSecond: []float64{0, 0.5, 1, 3, 20}[r.IntN(5)], Failures: r.IntN(6), MaxFailed: float64(r.IntN(4) * 25), FailureWindow: time.Minute,
		}
		g := bounds.New(b)
		now := start
		var sent []time.Time
		started := 0
		type outcome struct {
			at     time.Time
			failed bool
		}
		var all []outcome
		for step := range 400 {
			now = now.Add(time.Duration(r.IntN(400)) * time.Millisecond)
			if r.IntN(50) == 0 {
				now = now.Add(time.Duration(r.IntN(120)) * time.Second)
			}
			if g.NextStart(now).Equal(now) {
				g.Start(now)
				started++
			} else if b.WritesPerSecond == 0 {
				t.Fatalf("seed %d, step %d: a start is refused without a rate", seed, step)
			}
			if float64(started) > max(b.WritesPerSecond, 1)+now.Sub(start).Seconds()*b.WritesPerSecond+1e-3 && b.WritesPerSecond > 0 {
				t.Fatalf("seed %d, step %d: %d started within %v at %v a second", seed, step, started, now.Sub(start), b.WritesPerSecond)
			}
			if g.Write(now) {
				sent = append(sent, now)
				if b.WritesPerSecond > 0 {
					// In no interval more than what is there at once and what it adds.
					for i := range sent {
						n := float64(len(sent) - i)
						if allowed := max(b.WritesPerSecond, 1) + now.Sub(sent[i]).Seconds()*b.WritesPerSecond; n > allowed+1e-3 {
							t.Fatalf("seed %d, step %d: %v requests within %v, %v are allowed", seed, step, n, now.Sub(sent[i]), allowed)
						}
					}
				}
			} else {
				refused++
			}
			if wait := g.NextStart(now); wait.After(now) {
				if wait.Sub(now) > time.Duration(float64(time.Second)/b.WritesPerSecond)+2*time.Millisecond {
					t.Fatalf("seed %d, step %d: waits for %v at %v writes a second", seed, step, wait.Sub(now), b.WritesPerSecond)
				}
			}
			failed := r.IntN(4) == 0
			all = append(all, outcome{now, failed})
			n, bad := 0, 0
			for _, o := range all {
				if now.Sub(o.at) < b.FailureWindow {
					n++
					if o.failed {
						bad++
					}
				}
			}
			want := failed && (b.Failures > 0 && bad > b.Failures || b.MaxFailed > 0 && n >= bounds.MinEnded && float64(bad)*100 > b.MaxFailed*float64(n))
			if why := g.Ended(now, failed); (why != "") != want {
				t.Fatalf("seed %d, step %d: %q, want a stop: %t (%d of %d failed, %+v)", seed, step, why, want, bad, n, b)
			}
			if want {
				tripped++
				all = nil // counts start again with the person who resumes
			}
		}
	}
	if refused == 0 || tripped == 0 {
		t.Errorf("%d refused, %d tripped", refused, tripped)
	}
}

func TestGate_MembersAndShareAway(t *testing.T) {
	t.Parallel()
	g := bounds.New(bounds.Bounds{Members: 2, MaxAway: 20})
	for n, want := range []bool{true, true, false, false} {
		if g.Admits(n) != want {
			t.Errorf("with %d members under way: %t", n, !want)
		}
	}
	for _, c := range []struct {
		away, members int
		holds         bool
	}{{0, 0, false}, {0, 10, false}, {2, 10, false}, {3, 10, true}, {1, 1, true}, {20, 100, false}, {21, 100, true}} {
		if why := g.Away(c.away, c.members); (why != "") != c.holds || c.holds && !strings.Contains(why, "20%") {
			t.Errorf("%d of %d: %q", c.away, c.members, why)
		}
	}
	none := bounds.New(bounds.Bounds{})
	if !none.Admits(1000) || none.Away(10, 10) != "" || none.Ended(start, true) != "" || !none.Write(start) || none.NextStart(start) != start {
		t.Error("no bounds bound something")
	}
}

func TestBounds_Validate(t *testing.T) {
	t.Parallel()
	for _, b := range []bounds.Bounds{
		{WritesPerSecond: -1}, {Members: -1}, {MaxAway: 101}, {MaxAway: -1}, {MaxFailed: 200, FailureWindow: 1}, {Failures: -1}, {Failures: 1}, {MaxFailed: 1}, {FailureWindow: -1},
	} {
		if b.Validate() == nil {
			t.Errorf("%+v is valid", b)
		}
	}
	ok := bounds.Bounds{WritesPerSecond: 0.1, Members: 1, MaxAway: 100, Failures: 1, MaxFailed: 50, FailureWindow: time.Hour}
	if err := ok.Validate(); err != nil {
		t.Error(err)
	}
}
